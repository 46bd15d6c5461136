"""The model and the contracts side by side: every call goes to both, and they must agree."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eth_utils.crypto import keccak

from protocol.chain.structs import Role, State
from tests.model import parties
from tests.model.admin import PAUSER
from tests.model.chain import Contracts
from tests.model.parties import ADMIN, COORDINATOR, EVERYBODY, JUDGES, KEYS, LONG, PROVIDERS, REQUESTER
from tests.model.protocol import Protocol
from tests.model.transaction import Refused
from tests.model.views import views

MONEY = 100_000
"""Token wei that everybody but the stranger starts with."""
WORKERS = ((PROVIDERS[0], 6), (PROVIDERS[0], 4), (PROVIDERS[1], 8))
"""Owner and capacity of the first nodes."""
VALIDATORS = 10


class Twins:
    """Both, in the same state. ``not_before`` is the timestamp that the next call waits for."""

    def __init__(self, contracts: Contracts) -> None:
        self.contracts = contracts
        self.model = Protocol(contracts.deployment, parties.TERMS, ADMIN, parties.TREASURY)
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        """How often each verb of each contract ended so: the error's name, or nothing where it succeeded."""
        self.endings: Counter[str] = Counter()
        """What became of rounds and appeals."""
        self.not_before = 0
        self._populate()
        self._start = self.remember()

    def begin(self, history: bool) -> None:
        """Back to the common start."""
        self._start = self.return_to(self._start)
        self.contracts.keep_history(history)

    def remember(self) -> tuple[str, bytes]:
        """How things stand, for ``return_to``."""
        return self.contracts.rpc.call("evm_snapshot"), self.model.saved()

    def return_to(self, moment: tuple[str, bytes]) -> tuple[str, bytes]:
        """Undoes all that came after; the chain forgets such a moment when it returns to it, so take the new one."""
        snapshot, saved = moment
        self.contracts.rpc.call("evm_revert", snapshot)
        self.model, self.not_before = Protocol.restored(saved), 0
        self.contracts.look()
        return self.remember()

    @property
    def now(self) -> int:
        """The timestamp that the next call has."""
        return max(self.contracts.now + 1, self.not_before)

    def wait(self, until: int) -> None:
        """The next call is not before this timestamp."""
        self.not_before = max(self.not_before, until)

    def do(self, sender: str, contract: str, verb: str, *arguments: Any) -> Refused | None:
        """One call of both; returns why they refuse it."""
        tx = self.contracts.transaction(sender, self.now)
        expected = self.model.call(tx, contract, verb, *arguments)
        actual = self.contracts.call(tx, contract, verb, *arguments)
        said, meant = _shown(actual), _shown(expected)
        assert said == meant, f"{contract}.{verb}{arguments} by {sender}: the contracts {said}, the model {meant}"
        self.outcomes[contract, verb, expected.name if expected else ""] += 1
        return expected

    def must(self, sender: str, contract: str, verb: str, *arguments: Any) -> None:
        """A call that nothing may refuse."""
        refused = self.do(sender, contract, verb, *arguments)
        assert refused is None, f"{contract}.{verb}: {_shown(refused)}"

    def compare(self) -> None:
        """Asks the contracts for all that the model knows."""
        expected = views(self.model, self.contracts.now, EVERYBODY)
        actual = self.contracts.answers(list(expected))
        apart = [
            f"{question}: the contracts say {actual[question]}, the model {answer}"
            for question, answer in expected.items()
            if actual[question] != answer
        ]
        assert not apart, "\n".join(apart)

    def count_endings(self) -> None:
        """Notes what became of each round of this example."""
        for round in self.model.rounds.rounds.values():
            if not round.appeal:
                self.endings[f"round {round.state.name.lower()}"] += 1
            elif round.state == State.SETTLED:
                stands = round.verdicts[round.appeal.job] == round.appeal.against
                self.endings[f"appeal {'lost' if stands else 'won'}"] += 1
            elif round.state == State.VOID:
                self.endings["appeal undecided"] += 1
            if round.attempt:
                self.endings["redrawn"] += 1

    def consent(self, owner: str, key: str, role: Role, capacity: int, deadline: int = LONG) -> bytes:
        """The signature that binds a key."""
        at = self.contracts.deployment
        return parties.binding(at.chain_id, at.registry, owner, KEYS[key], role, capacity, deadline)

    def _populate(self) -> None:
        """Everybody has money, nodes are active, runs open, funded and joined."""
        for address in [*EVERYBODY, *KEYS]:
            self.contracts.rpc.call("anvil_setBalance", address, hex(10**24))
        for owner in EVERYBODY:
            self.must(owner, "Token", "drip", owner, 100 if owner == parties.STRANGER else MONEY)
            for spender in ("Registry", "Credits"):
                self._approve(owner, self.contracts.deployment.address_of(spender))
        self.must(ADMIN, "Admin", "grantRole", PAUSER, parties.PAUSER)
        self._register()
        self._open_runs()
        self.wait(self.now + parties.TERMS.registry.activation_delay)

    def _approve(self, owner: str, spender: str) -> None:
        tx = self.contracts.transaction(owner, self.now)
        assert self.contracts.call(tx, "Token", "approve", spender, 2**256 - 1) is None

    def _register(self) -> None:
        keys = iter(KEYS)
        for owner, capacity in WORKERS:
            key = next(keys)
            signature = self.consent(owner, key, Role.WORKER, capacity)
            self.must(owner, "Registry", "register", Role.WORKER, key, capacity, LONG, signature)
        for number in range(VALIDATORS):
            key, owner = next(keys), JUDGES[number % len(JUDGES)]
            signature = self.consent(owner, key, Role.VALIDATOR, 1)
            self.must(owner, "Registry", "register", Role.VALIDATOR, key, 1, LONG, signature)
            if number:
                self.must(owner, "Registry", "topUp", len(WORKERS) + number + 1, 400)

    def _open_runs(self) -> None:
        for owner in (REQUESTER, *PROVIDERS, COORDINATOR):
            self.must(owner, "Credits", "buy", MONEY // 2)
        for run, seats in enumerate(((1, 3), (3, 5), (3, 0)), 1):
            terms = parties.run_terms(f"rules {run}", *seats)
            self.must(REQUESTER, "Market", "open", terms, keccak(text="manifest 0"), "https://run.example")
            self.must(REQUESTER, "Market", "fund", run, 12_000)
            judges = [JUDGES[number % len(JUDGES)] for number in range(VALIDATORS)]
            for node, owner in enumerate([*(owner for owner, _ in WORKERS), *judges], 1):
                self.must(owner, "Market", "join", run, node, terms.rules_hash)


def _shown(outcome: Refused | None) -> str:
    if outcome is None:
        return "agree"
    return f"refuse: {outcome.name}{tuple(outcome.arguments)}"
