"""What the rules of every part share: the state of one example, and choices made by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from protocol.chain.structs import Role, SettledLeaves, State
from tests.model.market import Run
from tests.model.parties import EVERYBODY, KEYS
from tests.model.protocol import Protocol
from tests.model.registry import Node
from tests.model.round import Round, leaves_in
from tests.model.twins import Twins

Choice = TypeVar("Choice")
Data = st.DataObject
"""What hypothesis draws from inside a rule."""


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

    def pick(self, data: Data, options: Sequence[Choice]) -> Choice:
        return data.draw(st.sampled_from(options))

    def rarely(self, data: Data, one_in: int = 8) -> bool:
        return data.draw(st.integers(0, one_in - 1)) == one_in - 1

    def sender(self, data: Data, right: str) -> str:
        """Mostly whoever may."""
        return self.pick(data, [*EVERYBODY, *KEYS]) if self.rarely(data) else right

    def moment(self, data: Data, at: int) -> None:
        """The next call comes just before, at or just after a deadline."""
        self.twins.wait(at + self.pick(data, (0, 1, -1)))

    # What there is

    def nodes(self, role: Role) -> list[Node]:
        return [node for node in self.model.registry.nodes.values() if node.role == role]

    def rounds(self, *states: State) -> list[Round]:
        return [round for round in self.model.rounds.rounds.values() if round.state in states]

    def run(self, data: Data) -> tuple[int, Run]:
        return self.pick(data, list(self.model.market.runs.items()))

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
