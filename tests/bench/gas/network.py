"""The network on which gas is measured: contracts, 256 validators, workers by the hundred, one run a committee size.

Runs offer appeals, so that rounds carry everything a real one does. Amounts are of the size of real ones: a byte of
calldata costs by its value, and a job of 10^15 floating-point operations claims seven bytes of units.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.structs import MarketTerms, ProtocolTerms, RegistryTerms, Role, RoundsTerms, RunTerms
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.chain.writing.deploying import deploy
from protocol.node.wallet import Wallet
from protocol.wire import auth
from tests.bench.gas.chain import GasChain, fresh_address

ETHER = 10**18
FOREVER = 2**40

VALIDATORS = 256
CAPACITY = 512
COMMITTEES = (3, 5)
WINDOW_SECONDS = 600
CHALLENGE_SECONDS = 60
MAX_UNITS = 10**15
PRICE = 1_000
JUROR_FEE = ETHER // 1_000
ESCROW = 100_000 * ETHER
MARGIN = 50 * ETHER
"""Tokens that an owner keeps to top a slashed bond up."""

TERMS = ProtocolTerms(
    registry=RegistryTerms(
        bond_per_job=ETHER, validator_bond=100 * ETHER, activation_delay=60, unbonding_delay=7 * 86_400
    ),
    market=MarketTerms(
        notice_seconds=60,
        max_round_seconds=2 * 86_400,
        min_commit_seconds=60,
        min_reveal_seconds=60,
        min_juror_fee=1,
        max_strikes=8,
    ),
    rounds=RoundsTerms(
        fraud_slash=ETHER,
        absence_penalty=ETHER,
        overturn_penalty=4 * ETHER,
        appeal_bond=ETHER // 10,
        appeal_bounty=ETHER,
    ),
    admin_delay=86_400,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A registered node: its owner's address, its session key, its number."""

    owner: str
    key: Wallet
    node: int


@dataclass
class GasNetwork:
    """Everybody, and what each one-time verb took in ``verbs`` (gas by name)."""

    chain: GasChain
    deployment: Deployment
    reader: Chain
    requester: str = field(default_factory=fresh_address)
    coordinator: str = field(default_factory=fresh_address)
    trainer: str = field(default_factory=fresh_address)
    validators: dict[int, Member] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    verbs: dict[str, int] = field(default_factory=dict)

    def note(self, verb: str, gas: Sequence[int]) -> None:
        """Keeps the most that a verb took."""
        self.verbs[verb] = max(self.verbs.get(verb, 0), *gas)

    def once(self, verb: str, sender: str, call: Call) -> None:
        """Sends a call and keeps its gas."""
        self.note(verb, [self.chain.send(sender, call)])

    def enrol(self, role: Role, owners: Sequence[str]) -> list[Member]:
        """Registers a node for each of ``owners``, in which one may stand more than once."""
        capacity = CAPACITY if role is Role.WORKER else 1
        bond = TERMS.registry.bond_per_job * capacity if role is Role.WORKER else TERMS.registry.validator_bond
        amount = (bond + MARGIN) * len(owners)
        holders = list(dict.fromkeys(owners))
        self.chain.send_all([(owner, calls.drip(self.deployment, owner, amount)) for owner in holders])
        self.chain.send_all([(owner, calls.approve(self.deployment, "Registry", 2**256 - 1)) for owner in holders])
        keys = [new_key() for _ in owners]
        registrations = [
            (owner, self._registration(role, owner, key, capacity)) for owner, key in zip(owners, keys, strict=True)
        ]
        self.note(f"register {role.name.lower()}", self.chain.send_all(registrations))
        nodes = self.reader.latest().views("Registry", "nodeByKey", [(key.address,) for key in keys])
        return [Member(owner, key, node) for owner, key, node in zip(owners, keys, nodes, strict=True)]

    def join(self, verb: str, members: Sequence[Member]) -> None:
        """Each node joins every run; the gas is noted under ``verb``."""
        for committee, run in self.runs.items():
            joins = [
                (member.owner, calls.join(self.deployment, run, member.node, rules(committee))) for member in members
            ]
            self.note(verb, self.chain.send_all(joins))

    def binding(self, owner: str, key: Wallet, role: Role, capacity: int) -> bytes:
        """The session key's signature that it serves this owner."""
        at = self.deployment
        message = auth.node_binding(at.chain_id, at.registry, owner, key.address, role, capacity, FOREVER)
        return key.sign_typed(message)

    def open_runs(self) -> None:
        """Opens and funds a run for each committee size."""
        at, total = self.deployment, ESCROW * (len(COMMITTEES) + 1)
        self.chain.send(self.requester, calls.drip(at, self.requester, total))
        self.once("approve", self.requester, calls.approve(at, "Credits", 2**256 - 1))
        for committee in COMMITTEES:
            self.once("buy", self.requester, calls.buy(at, ESCROW))
            terms = self.terms(committee)
            self.once(
                "open run", self.requester, calls.open_run(at, terms, rules(0), "https://coordinator.example/run")
            )
            self.runs[committee] = committee_run = len(self.runs) + 1
            self.once("fund", self.requester, calls.fund_run(at, committee_run, ESCROW))

    def terms(self, committee: int, rules_hash: bytes | None = None) -> RunTerms:
        """A run's terms for this committee; an appeal has two seats more."""
        return RunTerms(
            coordinator=self.coordinator,
            trainer=self.trainer,
            rules_hash=rules_hash or rules(committee),
            price_per_unit=PRICE,
            juror_fee=JUROR_FEE,
            max_units=MAX_UNITS,
            committee=committee,
            appeal_seats=committee + 2,
            work_seconds=WINDOW_SECONDS,
            draw_seconds=WINDOW_SECONDS,
            commit_seconds=WINDOW_SECONDS,
            reveal_seconds=WINDOW_SECONDS,
            challenge_seconds=CHALLENGE_SECONDS,
        )

    def _registration(self, role: Role, owner: str, key: Wallet, capacity: int) -> Call:
        signature = self.binding(owner, key, role, capacity)
        return calls.register(self.deployment, role, key.address, capacity, FOREVER, signature)


def establish(chain: GasChain) -> GasNetwork:
    """Deploys, registers the validators, opens the runs; the validators are active when it returns."""
    deployer = new_key()
    chain.rpc.call("anvil_setBalance", deployer.address, hex(1_000 * ETHER))
    deployment = deploy(chain.url, deployer, TERMS, fresh_address())
    network = GasNetwork(chain, deployment, Chain(chain.url, deployment))
    validators = network.enrol(Role.VALIDATOR, owners(VALIDATORS))
    network.validators = {member.node: member for member in validators}
    network.open_runs()
    network.join("join validator", validators)
    chain.pass_seconds(TERMS.registry.activation_delay)
    return network


def owners(count: int) -> list[str]:
    """Addresses of new owners."""
    return [fresh_address() for _ in range(count)]


def new_key() -> Wallet:
    """A session key."""
    return Wallet("gas", secrets.token_bytes(32))


def rules(committee: int) -> bytes:
    """A rules hash of a run's own, without a zero byte, as a real one mostly is."""
    return bytes([0xA0 + committee]) * 32
