"""Appeals: one job tried again before a larger committee, and who pays for it. With them, rounds are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.chain.structs import Appeal, Cause, SettledLeaves, State, Verdict
from tests.model.round import Leaf, Round, Seat, leaves_in
from tests.model.settling import Settling
from tests.model.transaction import Refused, Transaction


class Rounds(Settling):
    """Everything that `Rounds` does."""

    def appeal(self, tx: Transaction, round: int, job: int, batch: int, submissions: Sequence[SettledLeaves]) -> None:
        parent = self._in(round, State.TALLIED)
        if parent.terms.appeal_seats == 0:
            raise Refused("AppealsNotOffered", round)
        if tx.now >= parent.deadline:
            raise Refused("TooLate", parent.deadline, tx.now)
        # A trial that could not end in time is not begun.
        terms = parent.terms
        latest = self.ends_by(parent) - 2 * (terms.draw_seconds + terms.commit_seconds + terms.reveal_seconds)
        if tx.now > latest:
            raise Refused("TooLate", latest, tx.now)
        if job in parent.appealed:
            raise Refused("AlreadyAppealed", round, job)
        self._check_batch(parent, batch, submissions)
        node, leaf = _find(round, job, submissions)
        number, deposit = len(self.rounds) + 1, self._deposit(parent)
        self.market.deposit(tx.by(self.address), parent.run, number, tx.sender, deposit)
        made = Appeal(round, job, parent.verdicts[job], node, leaf.units, tx.sender, deposit)
        self.rounds[number] = self._trial(tx, number, parent, made)
        parent.appealed[job] = number
        parent.pending += 1

    def _trial(self, tx: Transaction, number: int, parent: Round, made: Appeal) -> Round:
        """Its terms are those of the round, as far as they concern it; there is no appeal against it."""
        terms = replace(
            parent.terms,
            committee=parent.terms.appeal_seats,
            appeal_seats=0,
            challenge_seconds=0,
            max_units=0,
            price_per_unit=0,
        )
        first = {self.registry.nodes[seat.juror].slot for seat in parent.seats}
        return Round(
            number=number,
            run=parent.run,
            terms=terms,
            policy_version=parent.policy_version,
            assignments=b"",
            state=State.CLOSED,
            opened_at=parent.opened_at,
            deadline=tx.now + parent.terms.draw_seconds,
            slot_count=parent.slot_count,
            eligible=parent.eligible - first,
            reserved=made.deposit,
            close_block=tx.block,
            submitted={made.job},
            appeal=made,
        )

    def _deposit(self, parent: Round) -> int:
        """The bond, and fees for a first attempt just short of a quorum and a whole second committee."""
        seats = parent.terms.appeal_seats
        return self.terms.appeal_bond + (seats + (seats - 1) // 2) * parent.terms.juror_fee

    def _conclude(self, tx: Transaction, trial: Round, decided: bool) -> None:
        """Pays the trial's jurors, settles the job for good, and shares out what it cost."""
        assert trial.appeal is not None
        made, parent = trial.appeal, self.rounds[trial.appeal.round]
        verdict = trial.verdicts[made.job] if decided else Verdict.VOID
        if decided:
            self._pay_jurors(tx, trial)
        fees = made.deposit - trial.reserved
        left_of_share = self._settle_appealed(tx, parent, made, verdict)
        if decided and verdict == made.against:
            self._return_deposit(tx, trial, parent, covered=0, forfeited=self.terms.appeal_bond)
        else:
            awarded = self._award(tx, parent, made, fees) if decided else 0
            covered = min(max(0, fees - awarded), left_of_share)
            self._return_deposit(tx, trial, parent, covered=covered, forfeited=0)
        parent.pending -= 1
        trial.state = State.SETTLED if decided else State.VOID

    def _settle_appealed(self, tx: Transaction, parent: Round, made: Appeal, verdict: Verdict) -> int:
        """Returns what the job's pay leaves of its share of the escrow."""
        parent.verdicts[made.job] = verdict
        units = min(made.units, parent.terms.max_units) if verdict == Verdict.ACCEPTED else 0
        self._free_jobs(tx, made.node, 1)
        self._pay(tx, parent, made.node, units * parent.terms.price_per_unit)
        self._slash_fraud(tx, parent.number, made.node, int(verdict == Verdict.FRAUD))
        return (parent.terms.max_units - units) * parent.terms.price_per_unit

    def _award(self, tx: Transaction, parent: Round, made: Appeal, fees: int) -> int:
        """The overturned majority pays the fees and a bounty of less than half of what it lost."""
        losers = [seat for seat in parent.seats if _said(seat, made)]
        if len(losers) * 2 <= parent.committee:
            return 0
        registry, penalty = tx.by(self.address), self.terms.overturn_penalty
        lost = sum(
            self.registry.slash(registry, seat.juror, parent.number, Cause.OVERTURNED, penalty) for seat in losers
        )
        if lost == 0:
            return 0
        repaid = min(fees, lost)
        bounty = min(self.terms.appeal_bounty, lost - repaid, (lost - 1) // 2)
        self.registry.award(registry, made.appellant, parent.number, repaid + bounty)
        return repaid + bounty

    def _return_deposit(self, tx: Transaction, trial: Round, parent: Round, covered: int, forfeited: int) -> None:
        assert trial.appeal is not None
        market, to = tx.by(self.address), trial.appeal.appellant
        left = trial.reserved + covered - forfeited
        parent.reserved -= covered
        trial.reserved = 0
        self.market.pay_out(market, trial.run, trial.number, to, left)
        self.market.pay_out(market, trial.run, trial.number, self.admin.treasury, forfeited)


def _find(round: int, job: int, submissions: Sequence[SettledLeaves]) -> tuple[int, Leaf]:
    for part in submissions:
        for leaf in leaves_in(part.leaves):
            if leaf.job == job:
                return part.node, leaf
    raise Refused("NotSubmitted", round, job)


def _said(seat: Seat, made: Appeal) -> bool:
    """Voted for the verdict appealed against."""
    return seat.vote is not None and seat.vote.verdicts.get(made.job) == made.against
