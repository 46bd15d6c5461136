"""What follows from verdicts: appeals, settlement, the end."""

from __future__ import annotations

from protocol.chain.structs import State
from tests.model.chance import Chance
from tests.model.parties import EVERYBODY, PROVIDERS, REQUESTER, STRANGER
from tests.model.round import Round
from tests.model.round_rules import RoundRules

NO_VERDICT = (State.OPEN, State.CLOSED, State.VOTING)


class VerdictRules(RoundRules):
    """Rounds, once they are tallied or void."""

    def settle_or_appeal(self, chance: Chance, round: Round) -> None:
        if round.terms.appeal_seats and self.twins.now < round.deadline and chance.coin():
            self._appeal(chance, round)
            return
        if not chance.rarely(12):
            self.twins.wait(round.deadline)
        for batch in chance.shuffled(range(len(round.batches))):
            if round.batches[batch] is not None or chance.rarely():
                self._settle(chance, round, batch)
        if self.now(round).state == State.TALLIED:
            self.twins.do(chance.pick(EVERYBODY), "Rounds", "finish", round.number, round.assignments)

    def _settle(self, chance: Chance, round: Round, batch: int) -> None:
        supplied = self.batch(round, batch)
        sender = chance.pick(EVERYBODY)
        self.twins.do(sender, "Rounds", "settle", round.number, batch, round.assignments, supplied)

    def _appeal(self, chance: Chance, round: Round) -> None:
        """Up to the last moment; by somebody who can pay the deposit, or not."""
        if chance.rarely():
            self.moment(chance, round.deadline)
        job = chance.pick(sorted(round.submitted))
        batch = self.batch_with(round, job)
        appellant = STRANGER if chance.rarely() else chance.pick((*PROVIDERS, REQUESTER))
        self.twins.do(appellant, "Rounds", "appeal", round.number, job, batch, self.batch(round, batch))

    def a_round_was_left_alone(self, chance: Chance) -> None:
        if self._unfreed() and not chance.rarely(4):
            self._free(chance)
        elif self.rounds(State.CLOSED) and not chance.rarely(4):
            self._draw_late(chance)
        elif self.rounds(*NO_VERDICT):
            self._expire(chance)

    def _unfreed(self) -> list[Round]:
        return [round for round in self.rounds(State.VOID) if not round.freed and not round.appeal]

    def _free(self, chance: Chance) -> None:
        round = chance.pick(self._unfreed())
        self.twins.do(chance.pick(EVERYBODY), "Rounds", "free", round.number, round.assignments)

    def _expire(self, chance: Chance) -> None:
        round = chance.pick(self.rounds(*NO_VERDICT))
        self.moment(chance, self.model.rounds.ends_by(round) + 1)
        self.twins.do(chance.pick(EVERYBODY), "Rounds", "expire", round.number)

    def _draw_late(self, chance: Chance) -> None:
        """Blocks come faster than one a second, so that the seed is from a later one than the closing block."""
        round = self.rounds(State.CLOSED)[0]
        self.twins.contracts.mine(chance.pick((254, 255, 256, 257, 300)))
        self.twins.do(chance.pick(EVERYBODY), "Rounds", "draw", round.number)
