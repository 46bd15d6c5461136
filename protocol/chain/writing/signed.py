"""Transactions that were signed elsewhere: decoded, checked, sent once, and awaited."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import rlp
from eth_abi.exceptions import DecodingError
from eth_account import Account as Keys
from eth_account.typed_transactions import TypedTransaction
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from protocol.amounts import coin
from protocol.chain import abi
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import decode_revert, reverted
from protocol.chain.rpc import RpcFault
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.chain.writing.nonces import user_of_nonce
from protocol.chain.writing.pending import Clock
from protocol.chain.writing.receipts import Receipt, pause_after, receipt_of
from protocol.chain.writing.simulation import fields_of
from protocol.errors import Rejected, Unavailable

MOST_BYTES = 128 * 1024
"""Longest transaction that nodes pass on."""

WAIT_SECONDS, OUTAGE_SECONDS, POLL_SECONDS = 120.0, 5.0, 0.1
"""Longest wait for a receipt, and for an RPC that is silent meanwhile; pause between requests."""

LEGACY_FIELDS = ("nonce", "gasPrice", "gas", "to", "value", "data", "v", "r", "s")
FIRST_EIP155_V = 35

REPLAYABLE = "it names no chain, so anyone could send it on another: sign it for one chain (EIP-155)"


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """A signed transaction: ``call`` as the contracts understand it, fees in wei per gas."""

    raw: bytes
    sender: str
    call: Call
    nonce: int
    gas: int
    max_fee: int
    chain_id: int

    @property
    def tx_hash(self) -> str:
        """Hash in 0x-hex."""
        return "0x" + keccak(self.raw).hex()

    @property
    def max_cost(self) -> int:
        """Most wei of the chain's coin that it can take from its sender."""
        return self.call.value + self.gas * self.max_fee


def decoded(raw: bytes, deployment: Deployment) -> SignedTransaction:
    """Decodes a signed transaction.

    Raises:
        Rejected: the bytes are none, the signature is invalid, or it is valid on any chain.
    """
    if len(raw) > MOST_BYTES:
        raise Rejected(f"invalid transaction of {len(raw)} bytes: nodes take at most {MOST_BYTES}")
    try:
        fields = _typed_fields(raw) if raw[:1] < b"\x7f" else _legacy_fields(raw)
        sender = str(Keys.recover_transaction(raw))
        to = abi.checksummed(bytes(fields["to"])) if fields["to"] else ""
    except Rejected:
        raise
    except Exception as error:  # rlp, eth_account and the curve libraries raise errors of their own
        reason = " ".join(str(error).split())[:80]
        raise Rejected(f"not a signed transaction: expected the hex that a signer prints ({reason})") from error
    data, value = bytes(fields["data"]), int(fields["value"])
    call = Call(to, data, described(deployment, to, data, value), value)
    fee = int(fields.get("maxFeePerGas", fields.get("gasPrice", 0)))
    return SignedTransaction(raw, sender, call, int(fields["nonce"]), int(fields["gas"]), fee, int(fields["chainId"]))


def _typed_fields(raw: bytes) -> dict[str, Any]:
    return dict(TypedTransaction.from_bytes(HexBytes(raw)).as_dict())


def _legacy_fields(raw: bytes) -> dict[str, Any]:
    values = dict(zip(LEGACY_FIELDS, rlp.decode(raw), strict=True))
    numbers = {name: int.from_bytes(values[name], "big") for name in ("nonce", "gasPrice", "gas", "value", "v")}
    if numbers["v"] < FIRST_EIP155_V:
        raise Rejected(f"invalid transaction: {REPLAYABLE}")
    return values | numbers | {"chainId": (numbers["v"] - FIRST_EIP155_V) // 2}


def described(deployment: Deployment, to: str, data: bytes, value: int) -> str:
    """Returns a call in words: of our contracts with its arguments, else by its selector."""
    contract = deployment.contract_names().get(to.lower())
    if not data and to:
        return calls.pay_native(to, value).description
    if contract is None:
        return f"call 0x{data[:4].hex()} of {to}, none of the deployment's contracts" if to else "create a contract"
    entry = next((each for each in abi.functions(contract).values() if each.selector == data[:4]), None)
    try:
        arguments = None if entry is None else entry.inputs.decode(data[4:])
    except (DecodingError, ValueError, OverflowError):
        arguments = None
    if entry is None or arguments is None:
        return f"a call of {contract} that it does not have (0x{data[:4].hex()}, {len(data)} bytes)"
    return calls.description_of(entry, arguments)


def check(chain: Chain, signed: SignedTransaction) -> None:
    """Checks that a transaction can be mined next, and simulates it unless it waits for that already.

    Raises:
        Rejected: it is for another chain, its nonce is used or not due, its bid is too low, or it would revert.
        Unavailable: no RPC answers.
    """
    if signed.chain_id != chain.chain_id:
        raise Rejected(f"signed for chain {signed.chain_id}, and the network is chain {chain.chain_id}: sign it anew")
    if chain.rpc.call("eth_getTransactionByHash", signed.tx_hash):
        return
    _check_nonce(chain, signed)
    base_fee = chain.head().base_fee
    if signed.max_fee < base_fee:
        raise Rejected(f"underpriced: it bids {signed.max_fee} wei per gas, which costs {base_fee}: sign a higher bid")
    have = int(chain.rpc.call("eth_getBalance", signed.sender, "pending"), 16)
    if have < signed.max_cost:
        raise Rejected(f"{signed.sender} has {coin(have)} and may need {coin(signed.max_cost)}: send it some")
    try:
        chain.rpc.call("eth_call", fields_of(signed.call, signed.sender) | {"gas": hex(signed.gas)}, "pending")
    except RpcFault as fault:
        raise reverted(fault) or fault from fault


def _check_nonce(chain: Chain, signed: SignedTransaction) -> None:
    mined, pending = (
        int(chain.rpc.call("eth_getTransactionCount", signed.sender, tag), 16) for tag in ("latest", "pending")
    )
    if signed.nonce < mined:
        user = user_of_nonce(chain.rpc, signed.sender, signed.nonce)
        used = f"nonce {signed.nonce} of {signed.sender} is used by transaction {user or 'of another hash'}"
        raise Rejected(f"{used}: sign it anew with nonce {pending}")
    if signed.nonce > pending:
        raise Rejected(
            f"nonce {signed.nonce} of {signed.sender} is not due: its next one is {pending}; send those before it first"
        )


def receipt(chain: Chain, signed: SignedTransaction) -> Receipt | None:
    """Returns the receipt if the transaction is mined."""
    answer = chain.rpc.call("eth_getTransactionReceipt", signed.tx_hash)
    return receipt_of(answer, chain) if answer else None


def sent(chain: Chain, signed: SignedTransaction, clock: Clock = time) -> Receipt:
    """Broadcasts a transaction and returns its receipt; again, it returns the same receipt.

    Raises:
        Rejected: the RPC refuses it for good, or it was mined and reverted.
        Unavailable: no RPC answers, or it is not mined in time.
    """
    found = receipt(chain, signed)
    if found is None:
        _broadcast(chain, signed)
        found = _awaited(chain, signed, clock)
    if found.status != 1:
        raise Rejected(
            f"{signed.call.description} was mined in block {found.block_number} and {_why(chain, signed, found)}"
        )
    return found


def _broadcast(chain: Chain, signed: SignedTransaction) -> None:
    try:
        chain.rpc.call("eth_sendRawTransaction", "0x" + signed.raw.hex())
    except RpcFault as fault:
        if chain.rpc.call("eth_getTransactionByHash", signed.tx_hash) is None:
            raise Rejected(f"the RPC refused the transaction: {fault.message}") from fault


def _awaited(chain: Chain, signed: SignedTransaction, clock: Clock) -> Receipt:
    started = heard = clock.monotonic()
    while clock.monotonic() - started < WAIT_SECONDS:
        try:
            if found := receipt(chain, signed):
                return found
            heard = clock.monotonic()
        except Unavailable:
            if clock.monotonic() - heard > OUTAGE_SECONDS:
                raise
        clock.sleep(pause_after(clock.monotonic() - started, POLL_SECONDS))
    raise Unavailable(f"{signed.tx_hash} was sent and is not mined after {WAIT_SECONDS:.0f} s: send it again to go on")


def _why(chain: Chain, signed: SignedTransaction, found: Receipt) -> str:
    try:
        chain.rpc.call("eth_call", fields_of(signed.call, signed.sender), hex(found.block_number - 1))
    except RpcFault as fault:
        return str(reverted(fault) or decode_revert(b""))
    return "reverted, as its gas ran out or the chain had moved"
