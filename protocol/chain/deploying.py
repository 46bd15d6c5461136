"""Puts a new set of contracts on a chain. Each names the others, so addresses are worked out before they exist."""

from __future__ import annotations

import time
from typing import Any

import rlp  # type: ignore[import-untyped]
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from protocol.chain import abi
from protocol.chain.abi import checksummed
from protocol.chain.block import block_of
from protocol.chain.deployment import Deployment
from protocol.chain.rpc import Rpc
from protocol.chain.sender import GWEI, TransactionSigner
from protocol.chain.structs import RegistryTerms, RoundsTerms
from protocol.errors import Rejected, Unavailable

ORDER = ("Token", "Credits", "Registry", "Market", "Rounds")
"""Rounds comes last: its constructor asks the others whether they name it."""

WAIT_SECONDS = 120.0


def deploy(
    rpc_url: str, account: TransactionSigner, registry_terms: RegistryTerms, rounds_terms: RoundsTerms, treasury: str
) -> Deployment:
    """Deploys the five contracts from ``account``, whose next five nonces they take.

    Args:
        treasury: where slashed bonds go.

    Raises:
        Unavailable: no RPC answers, or a contract is not mined in time.
        Rejected: the chain refuses one of them.
        Misconfigured: the contracts are not built.
    """
    rpc = Rpc(rpc_url)
    try:
        start = block_of(rpc.call("eth_getBlockByNumber", "latest", False))
        chain_id = int(rpc.call("eth_chainId"), 16)
        nonce = int(rpc.call("eth_getTransactionCount", account.address, "latest"), 16)
        planned = {name: created_address(account.address, nonce + index) for index, name in enumerate(ORDER)}
        arguments = _arguments(planned, registry_terms, rounds_terms, treasury)
        for index, name in enumerate(ORDER):
            bid = 2 * block_of(rpc.call("eth_getBlockByNumber", "latest", False)).base_fee + GWEI
            data = abi.bytecode(name) + encode(abi.constructor_types(name), abi.plain(arguments[name]))
            _create(rpc, account, chain_id, nonce + index, data, bid)
        addresses = {name.lower(): address for name, address in planned.items()}
        deployment = Deployment(chain_id, start.number, start.hash, **addresses)
        deployment.verify(rpc)
        return deployment
    finally:
        rpc.close()


def created_address(creator: str, nonce: int) -> str:
    """The contract that ``creator`` makes with this nonce: last 20 bytes of keccak(rlp([creator, nonce]))."""
    return checksummed("0x" + keccak(rlp.encode([bytes.fromhex(creator[2:]), nonce]))[12:].hex())


def _arguments(
    planned: dict[str, str], registry_terms: RegistryTerms, rounds_terms: RoundsTerms, treasury: str
) -> dict[str, list[Any]]:
    return {
        "Token": [],
        "Credits": [planned["Token"], planned["Market"]],
        "Registry": [planned["Token"], planned["Rounds"], treasury, registry_terms],
        "Market": [planned["Registry"], planned["Credits"], planned["Rounds"]],
        "Rounds": [planned["Registry"], planned["Market"], rounds_terms],
    }


def _create(rpc: Rpc, account: TransactionSigner, chain_id: int, nonce: int, data: bytes, bid: int) -> None:
    gas = int(rpc.call("eth_estimateGas", {"from": account.address, "data": "0x" + data.hex()}), 16) * 5 // 4
    transaction = {
        "type": 2,
        "chainId": chain_id,
        "nonce": nonce,
        "value": 0,
        "data": data,
        "gas": gas,
        "maxFeePerGas": bid,
        "maxPriorityFeePerGas": min(bid, GWEI),
    }
    tx_hash = rpc.call("eth_sendRawTransaction", "0x" + account.sign_transaction(transaction).hex())
    give_up = time.monotonic() + WAIT_SECONDS
    while (receipt := rpc.call("eth_getTransactionReceipt", tx_hash)) is None:
        if time.monotonic() > give_up:
            raise Unavailable(f"the deployment {tx_hash} is not mined after {WAIT_SECONDS:.0f} s")
        time.sleep(0.05)
    if int(receipt["status"], 16) != 1:
        raise Rejected(f"the chain refused the contract of {tx_hash}")
