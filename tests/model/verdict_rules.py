"""What follows from verdicts: appeals, settlement, the end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from protocol.chain.structs import State
from tests.model.parties import EVERYBODY, PROVIDERS, REQUESTER, STRANGER
from tests.model.round import Round
from tests.model.round_rules import RoundRules
from tests.model.rules import Data

DATA = st.data()
NO_VERDICT = (State.OPEN, State.CLOSED, State.VOTING)


class VerdictRules(RoundRules):
    """Rounds, once they are tallied or void."""

    @precondition(lambda self: any(round.terms.appeal_seats for round in self.rounds(State.TALLIED)))
    @rule(data=DATA)
    def appeal(self, data: Data) -> None:
        tallied = [round for round in self.rounds(State.TALLIED) if round.terms.appeal_seats]
        self._appeal(data, tallied[-1])

    def settle_or_appeal(self, data: Data, round: Round) -> None:
        if round.terms.appeal_seats and self.twins.now < round.deadline and data.draw(st.booleans()):
            self._appeal(data, round)
            return
        if not self.rarely(data, 12):
            self.twins.wait(round.deadline)
        for batch in data.draw(st.permutations(range(len(round.batches)))):
            if round.batches[batch] is not None or self.rarely(data):
                self._settle(data, round, batch)
        if self.now(round).state == State.TALLIED:
            self.twins.do(self.pick(data, EVERYBODY), "Rounds", "finish", round.number, round.assignments)

    def _settle(self, data: Data, round: Round, batch: int) -> None:
        supplied = self.batch(round, batch)
        sender = self.pick(data, EVERYBODY)
        self.twins.do(sender, "Rounds", "settle", round.number, batch, round.assignments, supplied)

    def _appeal(self, data: Data, round: Round) -> None:
        """Up to the last moment; by somebody who can pay the deposit, or not."""
        if self.rarely(data):
            self.moment(data, round.deadline)
        job = self.pick(data, sorted(round.submitted))
        batch = self.batch_with(round, job)
        appellant = STRANGER if self.rarely(data) else self.pick(data, (*PROVIDERS, REQUESTER))
        self.twins.do(appellant, "Rounds", "appeal", round.number, job, batch, self.batch(round, batch))

    @precondition(lambda self: self._unfreed())
    @rule(data=DATA)
    def free(self, data: Data) -> None:
        round = self.pick(data, self._unfreed())
        self.twins.do(self.pick(data, EVERYBODY), "Rounds", "free", round.number, round.assignments)

    def _unfreed(self) -> list[Round]:
        return [round for round in self.rounds(State.VOID) if not round.freed and not round.appeal]

    @precondition(lambda self: self.rounds(*NO_VERDICT))
    @rule(data=DATA)
    def expire(self, data: Data) -> None:
        if self.rarely(data, 3):
            round = self.pick(data, self.rounds(*NO_VERDICT))
            self.moment(data, self.model.rounds.ends_by(round) + 1)
            self.twins.do(self.pick(data, EVERYBODY), "Rounds", "expire", round.number)

    @precondition(lambda self: self.rounds(State.CLOSED))
    @rule(blocks=st.sampled_from((1, 5, 14)))
    def blocks_pass(self, blocks: int) -> None:
        self.twins.contracts.mine(blocks)

    @precondition(lambda self: self.rounds(State.CLOSED))
    @rule(data=DATA)
    def many_blocks_pass_before_a_draw(self, data: Data) -> None:
        """Faster than a second each, so that a seed is drawn from a later block than the closing one."""
        if self.rarely(data, 3):
            round = self.rounds(State.CLOSED)[0]
            self.twins.contracts.mine_at_once(self.pick(data, (254, 255, 256, 257, 300)))
            self.twins.do(self.pick(data, EVERYBODY), "Rounds", "draw", round.number)
