"""What the rules of every part share: the state of one example, and what they choose from."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from protocol.chain.structs import Role, SettledLeaves, State
from tests.model.chance import Chance
from tests.model.market import Run
from tests.model.parties import EVERYBODY, KEYS
from tests.model.protocol import Protocol
from tests.model.registry import Node
from tests.model.round import Round, leaves_in
from tests.model.twins import Twins


class Rules(RuleBasedStateMachine):
    """One example: both twins from the common start on."""

    twins: ClassVar[Twins]

    @initialize(history=st.booleans())
    def begin(self, history: bool) -> None:
        self.twins.begin(history)

    @invariant()
    def both_say_the_same(self) -> None:
        self.twins.compare()

    def teardown(self) -> None:
        self.twins.count_endings()

    @property
    def model(self) -> Protocol:
        return self.twins.model

    # Choices

    def sender(self, chance: Chance, right: str) -> str:
        """Mostly whoever may."""
        return chance.pick([*EVERYBODY, *KEYS]) if chance.rarely() else right

    def moment(self, chance: Chance, at: int) -> None:
        """The next call comes just before, at or just after a deadline."""
        self.twins.wait(at + chance.pick((0, 1, -1)))

    # What there is

    def nodes(self, role: Role) -> list[Node]:
        return [node for node in self.model.registry.nodes.values() if node.role == role]

    def rounds(self, *states: State) -> list[Round]:
        return [round for round in self.model.rounds.rounds.values() if round.state in states]

    def run(self, chance: Chance) -> tuple[int, Run]:
        return chance.pick(list(self.model.market.runs.items()))

    def free_key(self) -> str:
        return next((key for key in KEYS if key not in self.model.registry.bound), next(iter(KEYS)))

    def now(self, round: Round) -> Round:
        """The round as it stands now: a refusal puts a new copy of the state in place."""
        return self.model.rounds.rounds[round.number]

    def batch(self, round: Round, number: int) -> list[SettledLeaves]:
        """What was taken as a batch; nothing once it is settled."""
        batches = self.now(round).batches
        return list(batches[number] or []) if number < len(batches) else []

    def batch_with(self, round: Round, job: int) -> int:
        """The unsettled batch that holds a job; the first where there is none."""
        for number in range(len(round.batches)):
            for item in self.batch(round, number):
                if job in {leaf.job for leaf in leaves_in(item.leaves)}:
                    return number
        return 0
