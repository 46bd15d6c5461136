"""Deploys a new set of contracts, and goes on with a deployment that was interrupted.

They refer to each other, so their addresses are computed in advance, from the deployer's next nonces. A journal, where
one is given, holds the plan and each signed transaction before it is sent. Another call with the same journal sends the
same bytes again, so that no contract is created twice.

This uses web3's contract factory, since it runs once per network. Everything else uses JSON-RPC directly (``rpc``),
which takes half the time per call and a tenth of the import time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import requests
from eth_utils.crypto import keccak
from web3 import HTTPProvider, Web3
from web3.exceptions import ContractLogicError, TransactionNotFound, Web3Exception, Web3RPCError
from web3.utils.address import get_create_address

from protocol.chain import abi
from protocol.chain.abi import checksummed
from protocol.chain.deployment import FINALITY_DEPTH, Deployment
from protocol.chain.rpc import Rpc
from protocol.chain.structs import ProtocolTerms
from protocol.chain.writing.fees import GWEI
from protocol.chain.writing.pending import TransactionSigner
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.files import write_atomically

ORDER = ("Token", "Admin", "Credits", "Registry", "Market", "Rounds", "Traps")
"""Order of deployment: Rounds checks that the contracts before it refer to it, and Traps reads Rounds."""

WAIT_SECONDS, POLL_SECONDS = 120.0, 0.05
"""Longest wait for each contract to be mined, and the pause between requests for its receipt."""

RAISE_SECONDS = 30.0
"""Wait after which a transaction is sent again at a bid of half as much more."""

CREATE_GAS, ZERO_GAS, BYTE_GAS, WORD_GAS, DEPOSIT_GAS, STORAGE_GAS = 53_000, 4, 16, 2, 200, 22_100
"""Gas: a creation; a zero and another byte of its data; a word of its code; a byte that is kept; a slot written."""
SLOTS_WRITTEN = 24
"""Slots that a constructor of ours writes at most."""

L1_FEES = "0x420000000000000000000000000000000000000F"
"""Contract that tells the fee for a transaction's data on chains that publish it on another (OP Stack's predeploy)."""
L1_FEE_OF = keccak(b"getL1Fee(bytes)")[:4]


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
    """A deployment under way, over one connection.

    Args:
        rpc_url: RPC endpoint of the chain.
        journal: file of what was planned and signed; None keeps none, so that an interrupted deployment is lost.
        say: told what happens.
    """

    rpc_url: str
    journal: Path | None = None
    say: Callable[[str], None] = lambda line: None
    sent: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.w3 = Web3(HTTPProvider(self.rpc_url))

    def plan(self, deployer: str, terms: ProtocolTerms, treasury: str, admin: str) -> DeploymentPlan:
        """Returns the plan of the journal if it holds one of these terms, else one from the newest block and nonce.

        Raises:
            Misconfigured: the journal is of another plan.
        """
        w3 = self.w3
        start, nonce = w3.eth.get_block("latest"), w3.eth.get_transaction_count(deployer)  # type: ignore[arg-type]
        new = DeploymentPlan(
            w3.eth.chain_id,
            int(start["number"]),
            "0x" + bytes(start["hash"]).hex(),
            deployer,
            nonce,
            terms,
            treasury,
            admin,
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
        found = w3.eth.get_block(old.start_block) if old.start_block <= new.start_block else None
        if found is None or "0x" + bytes(found["hash"]).hex() != old.start_hash:
            raise Misconfigured(f"{self.journal} holds a deployment on another chain: delete the file to begin anew")
        return old

    def costs(self, plan: DeploymentPlan) -> list[CreationCost]:
        """Returns what the contracts that are still to be created cost at most, at the present bid."""
        bid, charges = self._bid(), bool(self.w3.eth.get_code(L1_FEES))  # type: ignore[arg-type]
        found = []
        for name, address in plan.addresses.items():
            if not self._there(address):
                data = self._creation(plan, name)
                gas = most_gas(data)
                found.append(CreationCost(name, address, gas, gas * bid, self._l1_fee(data) if charges else 0))
        return found

    def balance(self, address: str) -> int:
        """Returns the wei of the chain's own coin that an address has."""
        return int(self.w3.eth.get_balance(address))  # type: ignore[arg-type]

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
        with closing(Rpc(self.rpc_url)) as rpc:
            deployment.verify(rpc)
        return deployment

    def finish(self) -> None:
        """Removes the journal, once the address file is written."""
        if self.journal is not None:
            self.journal.unlink(missing_ok=True)

    def _create(self, plan: DeploymentPlan, account: TransactionSigner, nonce: int, name: str) -> None:
        bid, address = self._bid(), plan.addresses[name]
        if not self.sent.get(name):
            self._sign(plan, account, nonce, name, bid)
        give_up = time.monotonic() + WAIT_SECONDS
        raise_at = time.monotonic() + RAISE_SECONDS
        self._send(self.sent[name][-1])
        while not self._mined(name, address):
            taken = self.w3.eth.get_transaction_count(plan.deployer) > nonce  # type: ignore[arg-type]
            if taken and not self._mined(name, address):
                raise Rejected(
                    f"cannot create {name}: another transaction of {plan.deployer} took nonce {nonce}, on which its "
                    "address rests; begin anew, and let nothing else send from this key meanwhile"
                    + (f" (delete {self.journal})" if self.journal else "")
                )
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"{name} was not mined within {WAIT_SECONDS:.0f} s: run the same command again to go on"
                )
            if time.monotonic() > raise_at:
                raise_at, bid = time.monotonic() + RAISE_SECONDS, bid * 3 // 2
                self._sign(plan, account, nonce, name, bid)
                self._send(self.sent[name][-1])
            time.sleep(POLL_SECONDS)

    def _mined(self, name: str, address: str) -> bool:
        """Returns whether a transaction of ours created the contract."""
        for raw in self.sent.get(name, []):
            try:
                receipt = self.w3.eth.get_transaction_receipt(keccak(bytes.fromhex(raw)))  # type: ignore[arg-type]
            except TransactionNotFound:
                continue
            if receipt["status"] != 1:
                raise Rejected(f"the chain refused {name} in transaction 0x{keccak(bytes.fromhex(raw)).hex()}")
            return self._there(address)
        return False

    def _sign(self, plan: DeploymentPlan, account: TransactionSigner, nonce: int, name: str, bid: int) -> None:
        tip = max(1, min(GWEI, bid // 2))
        data = "0x" + self._creation(plan, name).hex()
        transaction = {
            "data": data,
            "nonce": nonce,
            "chainId": plan.chain_id,
            "value": 0,
            "type": 2,
            "gas": self._gas(plan.deployer, data),
            "maxFeePerGas": bid,
            "maxPriorityFeePerGas": tip,
        }
        self.sent.setdefault(name, []).append(account.sign_transaction(transaction).hex())
        self._keep(plan)

    def _send(self, raw: str) -> None:
        try:
            self.w3.eth.send_raw_transaction(bytes.fromhex(raw))
        except Web3RPCError as error:
            if not any(
                word in str(error).lower()
                for word in ("already known", "already imported", "nonce too low", "underpriced")
            ):
                raise

    def _keep(self, plan: DeploymentPlan) -> None:
        if self.journal is not None:
            begun = {name: getattr(plan, name) for name in ("start_block", "start_hash", "nonce")}
            write_atomically(
                self.journal, json.dumps({"plan": plan.digest, "begun": begun, "sent": self.sent}).encode()
            )

    def _gas(self, deployer: str, data: str) -> int:
        """Returns the gas that a creation takes on this chain, with a reserve; those before it are there."""
        return self.w3.eth.estimate_gas({"from": deployer, "data": data}) * 11 // 10  # type: ignore[typeddict-item]

    def _creation(self, plan: DeploymentPlan, name: str) -> bytes:
        factory = self.w3.eth.contract(abi=abi.artifact(name)["abi"], bytecode=abi.bytecode(name))
        return bytes.fromhex(str(factory.constructor(*plan.arguments(name)).data_in_transaction)[2:])

    def _there(self, address: str) -> bool:
        return bool(self.w3.eth.get_code(address))  # type: ignore[arg-type]

    def _bid(self) -> int:
        base = self.w3.eth.get_block("latest").get("baseFeePerGas")
        return self.w3.eth.gas_price if base is None else 2 * int(base) + GWEI

    def _l1_fee(self, data: bytes) -> int:
        padded = data + bytes(-len(data) % 32)
        asked = L1_FEE_OF + (32).to_bytes(32, "big") + len(data).to_bytes(32, "big") + padded
        return int.from_bytes(self.w3.eth.call({"to": L1_FEES, "data": "0x" + asked.hex()}), "big")  # type: ignore[typeddict-item]


@contextmanager
def web3_faults(rpc_url: str) -> Iterator[None]:
    """Turns web3's errors into the three kinds of this repository's."""
    try:
        yield
    except ContractLogicError as error:
        raise Rejected(f"the chain refused a contract: {error}") from error
    except (requests.RequestException, Web3Exception) as error:
        raise Unavailable(f"deploying through the RPC at {rpc_url} failed: {error}") from error


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
    with web3_faults(rpc_url):
        deploying = Deploying(rpc_url, journal, say)
        return deploying.carry_out(deploying.plan(account.address, terms, treasury, admin or account.address), account)
