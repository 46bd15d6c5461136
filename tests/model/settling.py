"""What a verdict costs and earns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from protocol.chain.structs import Cause, SettledLeaves, State, Verdict
from tests.model.judging import Judging
from tests.model.round import Round, digest_of, leaves_in
from tests.model.transaction import NO_HASH, Refused, Transaction


class Settling(Judging):
    """Rounds, as money sees them."""

    # Verbs

    def settle(
        self, tx: Transaction, round: int, batch: int, assignments: bytes, submissions: Sequence[SettledLeaves]
    ) -> None:
        settled = self._in(round, State.TALLIED)
        if tx.now < settled.deadline:
            raise Refused("TooEarly", settled.deadline, tx.now)
        self._check_assignments(settled, assignments)
        self._check_batch(settled, batch, submissions)
        settled.batches[batch] = None
        for part in submissions:
            self._settle_part(tx, settled, part)
        if not settled.unsettled and not settled.pending:
            self._finish(tx, settled)

    def finish(self, tx: Transaction, round: int, assignments: bytes) -> None:
        finished = self._in(round, State.TALLIED)
        self._check_assignments(finished, assignments)
        if finished.unsettled or finished.pending:
            raise Refused("NotFinished", round, finished.unsettled, finished.pending)
        self._finish(tx, finished)

    # What the other parts share

    def _check_batch(self, round: Round, batch: int, submissions: Sequence[SettledLeaves]) -> None:
        stored = round.digest(batch)
        if stored == NO_HASH and batch < len(round.batches):
            raise Refused("AlreadySettled", batch)
        if digest_of(submissions) != stored:
            raise Refused("WrongBatch", batch, digest_of(submissions), stored)

    def _pay_jurors(self, tx: Transaction, round: Round) -> None:
        """The share of the fee that is the share of the jobs on which a juror agrees with the last verdict."""
        for seat in round.seats:
            if seat.vote and not seat.vote.abstained:
                agreed = sum(
                    seat.vote.verdicts[job] == verdict != Verdict.UNAVAILABLE for job, verdict in round.verdicts.items()
                )
                fee = round.terms.juror_fee * Fraction(agreed, len(round.submitted))
                self._pay(tx, round, seat.juror, int(fee))

    def _slash_fraud(self, tx: Transaction, round: int, node: int, jobs: int) -> None:
        if jobs:
            amount = jobs * self.terms.fraud_slash
            self.registry.slash(tx.by(self.address), node, round, Cause.FRAUD, amount)

    def _settle_part(self, tx: Transaction, round: Round, part: SettledLeaves) -> None:
        """Jobs that were appealed are settled by their appeals."""
        leaves = [leaf for leaf in leaves_in(part.leaves) if leaf.job not in round.appealed]
        accepted = [leaf for leaf in leaves if round.verdicts[leaf.job] == Verdict.ACCEPTED]
        fraud = [leaf for leaf in leaves if round.verdicts[leaf.job] == Verdict.FRAUD]
        units = sum(min(leaf.units, round.terms.max_units) for leaf in accepted)
        self._free_jobs(tx, part.node, len(leaves))
        self._pay(tx, round, part.node, units * round.terms.price_per_unit)
        self._slash_fraud(tx, round.number, part.node, len(fraud))

    def _finish(self, tx: Transaction, round: Round) -> None:
        self._pay_jurors(tx, round)
        self._end(tx, round, State.SETTLED)
        for job, node in enumerate(round.assignees):
            if job not in round.submitted:
                self._free_jobs(tx, node, 1)
