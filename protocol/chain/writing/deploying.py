"""Deploys a new set of contracts, and goes on with a deployment that was interrupted.

They refer to each other, so their addresses are computed in advance, from the deployer's next nonces. A journal, where
one is given, holds the plan and each signed transaction before it is sent. Another call with the same journal sends the
same bytes again, so that no contract is created twice.

web3's contract factory encodes the constructors' arguments, since this runs once per network.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak
from web3 import Web3
from web3.utils.address import get_create_address

from protocol.chain import abi
from protocol.chain.abi import checksummed
from protocol.chain.deployment import FINALITY_DEPTH, FINALIZED, Deployment
from protocol.chain.reading.client import connections
from protocol.chain.reading.endpoints import Endpoints
from protocol.chain.reverts import reverted
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.chain.structs import ProtocolTerms
from protocol.chain.writing.fees import tip_of
from protocol.chain.writing.pending import TransactionSigner, already_there
from protocol.chain.writing.receipts import pause_after
from protocol.chain.writing.simulation import SUGGESTED_TIP
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.files import write_atomically

ORDER = ("Token", "Admin", "Credits", "Registry", "Market", "Rounds", "Traps")
"""Order of deployment: Rounds checks that the contracts before it refer to it, and Traps reads Rounds."""

WAIT_SECONDS, POLL_SECONDS = 120.0, 0.05
"""Longest wait for each contract to be mined, and the shortest pause between requests for its receipt."""

TAKEN_SECONDS = 30.0
"""Time for which a nonce counts as taken before it is said; of several nodes behind one URL, one may lag."""

RAISE_SECONDS = 30.0
"""Wait after which a transaction is sent again at a bid of half as much more."""

CREATE_GAS, ZERO_GAS, BYTE_GAS, WORD_GAS, DEPOSIT_GAS, STORAGE_GAS = 53_000, 4, 16, 2, 200, 22_100
"""Gas: a creation; a zero and another byte of its data; a word of its code; a byte that is kept; a slot written."""
SLOTS_WRITTEN = 24
"""Slots that a constructor of ours writes at most."""

L1_FEES = "0x420000000000000000000000000000000000000F"
L1_FEE = "getL1Fee(bytes)"
"""Contract and function that tell the fee for publishing a transaction's data on another chain, on the OP Stack."""

L1_GAS = "0x00000000000000000000000000000000000000C8"
L1_GAS_ESTIMATE = "gasEstimateL1Component(address,bool,bytes)"
"""Contract and function that tell the gas for a transaction's data, on Arbitrum's chains."""

ENVELOPE_BYTES = 128
"""Bytes of a transaction beside its data, at most."""


@dataclass(frozen=True)
class DeploymentPlan:
    """The contracts to create: from which key and nonce, on which chain, and with which constructors' arguments."""

    chain_id: int
    start_block: int
    start_hash: str
    deployer: str
    nonce: int
    terms: ProtocolTerms
    treasury: str
    admin: str

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Address of each contract, in the order of creation."""
        nonces = enumerate(ORDER, self.nonce)
        return {name: checksummed(get_create_address(self.deployer, nonce)) for nonce, name in nonces}  # type: ignore[arg-type]

    def arguments(self, name: str) -> list[Any]:
        """Returns the arguments of a contract's constructor."""
        at, terms = self.addresses, self.terms
        arguments: dict[str, list[Any]] = {
            "Token": [],
            "Admin": [terms.admin_delay, self.admin, self.treasury],
            "Credits": [at["Token"], at["Market"], at["Registry"]],
            "Registry": [at["Token"], at["Admin"], at["Credits"], at["Rounds"], terms.registry],
            "Market": [at["Registry"], at["Credits"], at["Rounds"], terms.market],
            "Rounds": [at["Registry"], at["Market"], terms.rounds],
            "Traps": [at["Rounds"]],
        }
        return [abi.plain(argument) for argument in arguments[name]]

    def deployment(self, finality_depth: int | None) -> Deployment:
        """Returns the deployment that comes of it."""
        addresses: Any = {name.lower(): address for name, address in self.addresses.items()}
        start = bytes.fromhex(self.start_hash.removeprefix("0x"))
        return Deployment(self.chain_id, self.start_block, start, **addresses, finality_depth=finality_depth)

    @property
    def digest(self) -> str:
        """Hash of everything a person chose, by which a journal knows its plan."""
        return keccak(
            json.dumps([self.chain_id, self.deployer, asdict(self)["terms"], self.treasury, self.admin]).encode()
        ).hex()


@dataclass(frozen=True, slots=True)
class CreationCost:
    """Most that a contract's creation costs: its gas, and wei for its data on another chain (0 where there is none)."""

    contract: str
    address: str
    gas: int
    wei: int
    data_wei: int


@dataclass
class Deploying:
    """A deployment under way, over connections of its own.

    Args:
        rpc_url: RPC endpoints of the chain, comma-separated; one is asked while it answers.
        journal: file of what was planned and signed; None keeps none, so that an interrupted deployment is lost.
        say: told what happens.
    """

    rpc_url: str
    journal: Path | None = None
    say: Callable[[str], None] = lambda line: None
    sent: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rpc: Rpc = Endpoints(connections(self.rpc_url), self._check_chain)
        self._chain_id: int | None = None
        self._factory = Web3().eth.contract

    def close(self) -> None:
        """Closes the connections."""
        self.rpc.close()

    def plan(
        self,
        deployer: str,
        terms: ProtocolTerms,
        treasury: str,
        admin: str,
        finality_depth: int | None = FINALITY_DEPTH,
    ) -> DeploymentPlan:
        """Returns the plan of the journal if it holds one of these terms, else one from the next nonce.

        A new plan starts at the newest final block, which no reorganisation takes away meanwhile.

        Raises:
            Misconfigured: the journal is of another plan.
            Unavailable: no RPC answers, or it is behind the journal.
        """
        start, nonce = self._final(finality_depth), self._nonce(deployer)
        chain_id = int(self.rpc.call("eth_chainId"), 16)
        new = DeploymentPlan(
            chain_id, int(start["number"], 16), str(start["hash"]), deployer, nonce, terms, treasury, admin
        )
        if self.journal is None or not self.journal.exists():
            return new
        try:
            kept = json.loads(self.journal.read_text())
            old = DeploymentPlan(**{**asdict(new), **kept["begun"], "terms": terms})
            self.sent = dict(kept["sent"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Misconfigured(
                f"cannot go on with the deployment in {self.journal}: {error!r}; delete it to begin anew"
            ) from error
        if kept["plan"] != new.digest:
            raise Misconfigured(
                f"{self.journal} holds a deployment from another key or with other terms: "
                "give these again to go on with it, or delete the file to begin anew"
            )
        if self._block(hex(old.start_block))["hash"] != old.start_hash:
            raise Misconfigured(f"{self.journal} holds a deployment on another chain: delete the file to begin anew")
        return old

    def costs(self, plan: DeploymentPlan) -> list[CreationCost]:
        """Returns what the contracts that are still to be created cost at most, at the present bid."""
        bid, _ = self._bid()
        found = []
        for name, address in plan.addresses.items():
            if not self._there(address):
                data = self._creation(plan, name)
                gas = most_gas(data)
                found.append(CreationCost(name, address, gas, gas * bid, self._data_fee(data, bid)))
        return found

    def balance(self, address: str) -> int:
        """Returns the wei of the chain's own coin that an address has."""
        return int(self.rpc.call("eth_getBalance", address, "latest"), 16)

    def carry_out(
        self, plan: DeploymentPlan, account: TransactionSigner, finality_depth: int | None = FINALITY_DEPTH
    ) -> Deployment:
        """Creates the contracts that are not there yet, one after the other, and returns the deployment, verified.

        Args:
            plan: the contracts.
            account: signs and pays; its address is the plan's deployer.
            finality_depth: blocks after which a block is final; None for the node's ``finalized`` tag.

        Raises:
            Rejected: the chain refuses a contract, or another transaction took a planned nonce.
            Unavailable: a contract is not mined in time.
        """
        self._keep(plan)
        for index, (name, address) in enumerate(plan.addresses.items()):
            if self._there(address):
                self.say(f"{name} is at {address}")
                continue
            self._create(plan, account, plan.nonce + index, name)
            self.say(f"created {name} at {address}")
        deployment = plan.deployment(finality_depth)
        deployment.verify(self.rpc)
        return deployment

    def finish(self) -> None:
        """Removes the journal, once the address file is written."""
        if self.journal is not None:
            self.journal.unlink(missing_ok=True)

    def _check_chain(self, rpc: Rpc) -> None:
        chain_id = int(rpc.call("eth_chainId"), 16)
        if self._chain_id not in (None, chain_id):
            raise Misconfigured(f"the RPC at {rpc.url} serves chain {chain_id}, another one chain {self._chain_id}")
        self._chain_id = chain_id

    def _create(self, plan: DeploymentPlan, account: TransactionSigner, nonce: int, name: str) -> None:
        bid, tip = self._bid()
        if not self.sent.get(name):
            self._sign(plan, account, nonce, name, bid, tip)
        started = raised = time.monotonic()
        taken = None
        self._send(self.sent[name][-1])
        while not self._mined(name, plan.addresses[name]):
            now = time.monotonic()
            if self._nonce(plan.deployer) <= nonce:
                taken = None
            elif now - (taken := taken or now) > TAKEN_SECONDS:
                raise Rejected(
                    f"cannot create {name}: another transaction of {plan.deployer} took nonce {nonce}, on which its "
                    "address rests; begin anew, and let nothing else send from this key meanwhile"
                    + (f" (delete {self.journal})" if self.journal else "")
                )
            if now - started > WAIT_SECONDS:
                raise Unavailable(
                    f"{name} was not mined within {WAIT_SECONDS:.0f} s: run the same command again to go on"
                )
            if now - raised > RAISE_SECONDS and taken is None:
                raised, bid, tip = now, bid * 3 // 2, tip * 3 // 2 + 1
                self._sign(plan, account, nonce, name, bid, tip)
                self._send(self.sent[name][-1])
            time.sleep(pause_after(now - started, POLL_SECONDS))

    def _mined(self, name: str, address: str) -> bool:
        """Returns whether a transaction of ours created the contract."""
        hashes = ["0x" + keccak(bytes.fromhex(raw)).hex() for raw in self.sent.get(name, [])]
        receipts = self.rpc.results([RpcRequest("eth_getTransactionReceipt", (each,)) for each in hashes])
        for tx_hash, receipt in zip(hashes, receipts, strict=True):
            if receipt:
                if int(receipt["status"], 16) != 1:
                    raise Rejected(f"the chain refused {name} in transaction {tx_hash}")
                return self._there(address)
        return False

    def _sign(
        self, plan: DeploymentPlan, account: TransactionSigner, nonce: int, name: str, bid: int, tip: int
    ) -> None:
        data = "0x" + self._creation(plan, name).hex()
        transaction = {
            "data": data,
            "nonce": nonce,
            "chainId": plan.chain_id,
            "value": 0,
            "type": 2,
            "gas": self._gas(plan.deployer, name, data),
            "maxFeePerGas": bid,
            "maxPriorityFeePerGas": min(tip, bid),
        }
        self.sent.setdefault(name, []).append(account.sign_transaction(transaction).hex())
        self._keep(plan)

    def _send(self, raw: str) -> None:
        try:
            self.rpc.call("eth_sendRawTransaction", "0x" + raw)
        except RpcFault as fault:
            told = fault.message.lower()  # a bid that is too low is raised in a while
            if not (already_there(fault) or "underpriced" in told or "base fee" in told or "replacement" in told):
                raise

    def _keep(self, plan: DeploymentPlan) -> None:
        if self.journal is not None:
            begun = {name: getattr(plan, name) for name in ("start_block", "start_hash", "nonce")}
            write_atomically(
                self.journal, json.dumps({"plan": plan.digest, "begun": begun, "sent": self.sent}).encode()
            )

    def _gas(self, deployer: str, name: str, data: str) -> int:
        """Returns the gas that a creation takes on this chain, with a reserve; those before it are there."""
        try:
            return int(self.rpc.call("eth_estimateGas", {"from": deployer, "data": data}), 16) * 11 // 10
        except RpcFault as fault:
            if (why := reverted(fault)) is not None:
                raise Rejected(f"the chain refused {name}: {why}") from fault
            raise

    def _creation(self, plan: DeploymentPlan, name: str) -> bytes:
        factory = self._factory(abi=abi.artifact(name)["abi"], bytecode=abi.bytecode(name))
        return bytes.fromhex(str(factory.constructor(*plan.arguments(name)).data_in_transaction)[2:])

    def _there(self, address: str) -> bool:
        return self.rpc.call("eth_getCode", address, "latest") not in ("0x", None)

    def _nonce(self, address: str) -> int:
        return int(self.rpc.call("eth_getTransactionCount", address, "latest"), 16)

    def _block(self, tag: str) -> dict[str, Any]:
        block: dict[str, Any] | None = self.rpc.call("eth_getBlockByNumber", tag, False)
        if not block:
            raise Unavailable(f"the RPC at {self.rpc.url} does not know block {tag}: it may be behind, ask again later")
        return block

    def _final(self, depth: int | None) -> dict[str, Any]:
        if depth is None:
            return self._block(FINALIZED)
        return self._block(hex(max(0, int(self.rpc.call("eth_blockNumber"), 16) - depth)))

    def _bid(self) -> tuple[int, int]:
        """Returns the bid and the tip in it, in wei per gas: enough for six full blocks in a row."""
        (suggested,) = self.rpc.batch([SUGGESTED_TIP])
        tip, base = tip_of(suggested), self._block("latest").get("baseFeePerGas")
        return (int(self.rpc.call("eth_gasPrice"), 16) if base is None else 2 * int(base, 16) + tip), tip

    def _data_fee(self, data: bytes, bid: int) -> int:
        """Returns the wei for publishing a creation's data on another chain; 0 on chains that do not."""
        whole = data + b"\xff" * ENVELOPE_BYTES
        if fee := self._told(L1_FEES, L1_FEE, whole):
            return fee
        return self._told(L1_GAS, L1_GAS_ESTIMATE, "0x" + "00" * 20, True, whole) * bid

    def _told(self, address: str, function: str, *arguments: Any) -> int:
        """Returns the first number that a contract of the chain itself answers; 0 where there is none."""
        types = function.partition("(")[2].removesuffix(")").split(",")
        asked = keccak(function.encode())[:4] + encode(types, arguments)
        answer = self.rpc.call("eth_call", {"to": address, "data": "0x" + asked.hex()}, "latest")
        return int(answer[2:66] or "0", 16)


def most_gas(data: bytes) -> int:
    """Returns the gas that a creation takes at most: every byte of its data is kept, every slot is new. PURE."""
    zeros = data.count(0)
    carried = zeros * ZERO_GAS + (len(data) - zeros) * BYTE_GAS + -(-len(data) // 32) * WORD_GAS
    return CREATE_GAS + carried + len(data) * DEPOSIT_GAS + SLOTS_WRITTEN * STORAGE_GAS


def deploy(
    rpc_url: str,
    account: TransactionSigner,
    terms: ProtocolTerms,
    treasury: str,
    admin: str | None = None,
    journal: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Deployment:
    """Deploys the contracts from ``account``, using its next nonces; goes on with what ``journal`` holds.

    Args:
        rpc_url: RPC endpoint of the chain.
        account: signs and pays for the deployment.
        terms: terms that are fixed at deployment.
        treasury: receiver of slashed bonds.
        admin: the first admin and pauser; None for ``account``.
        journal: see ``Deploying``; it is left to the caller.
        say: told what happens.

    Raises:
        Unavailable: no RPC answers, or a contract is not mined in time.
        Rejected: the chain refuses a contract.
        Misconfigured: the contracts are not built.
    """
    with closing(Deploying(rpc_url, journal, say)) as deploying:
        return deploying.carry_out(deploying.plan(account.address, terms, treasury, admin or account.address), account)
