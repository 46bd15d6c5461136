"""Appeals: one job tried again before a larger committee, and who pays for it. With them, rounds are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from protocol.chain.structs import Appeal, Cause, SettledLeaves, State, Verdict
from tests.model.round import Leaf, Round, Seat, leaves_in
from tests.model.settling import Settling
from tests.model.submitting import most_fees
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
        latest = self.ends_by(parent) - 4 * (terms.draw_seconds + terms.commit_seconds + terms.reveal_seconds)
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
        """The bond, and the most that the trial's jurors can earn."""
        return self.terms.appeal_bond + most_fees(parent.terms.appeal_seats, parent.terms.juror_fee)

    def _conclude(self, tx: Transaction, trial: Round, judged: bool) -> None:
        """Pays the trial's jurors, settles the job for good, and shares out what it cost."""
        assert trial.appeal is not None
        made, parent = trial.appeal, self.rounds[trial.appeal.round]
        named = _named(trial, made.job) if judged else None
        if judged:
            self._pay_jurors(tx, trial)
        fees = made.deposit - trial.reserved
        self._settle_appealed(tx, parent, made, _last_word(made.against, named, made.job in parent.consumed))
        if named not in (None, Verdict.UNAVAILABLE):
            self._award(tx, parent, made, named, fees)
        confirmed = named == made.against != Verdict.UNAVAILABLE
        self._return_deposit(tx, trial, forfeited=self.terms.appeal_bond if confirmed else 0)
        parent.pending -= 1
        trial.state = State.SETTLED if judged else State.VOID

    def _settle_appealed(self, tx: Transaction, parent: Round, made: Appeal, verdict: Verdict) -> None:
        parent.verdicts[made.job] = verdict
        units = min(made.units, parent.terms.max_units) if verdict == Verdict.ACCEPTED else 0
        self._free_jobs(tx, made.node, 1)
        self._pay(tx, parent, made.node, units * parent.terms.price_per_unit)
        self._slash_fraud(tx, parent.number, made.node, int(verdict == Verdict.FRAUD))

    def _award(self, tx: Transaction, parent: Round, made: Appeal, named: Verdict, fees: int) -> None:
        """Those who said otherwise pay the fees and, if the verdict falls, a bounty under half of what they lost."""
        registry, penalty = tx.by(self.address), self.terms.overturn_penalty
        for seat in parent.seats:
            if seat.votes and _said(seat, made) == Verdict.UNAVAILABLE:
                self.market.strike(registry, parent.run, parent.number, seat.juror)
        lost = sum(
            self.registry.slash(registry, seat.juror, parent.number, Cause.OVERTURNED, penalty)
            for seat in parent.seats
            if seat.votes and {named, _said(seat, made)} == {Verdict.ACCEPTED, Verdict.FRAUD}
        )
        if lost == 0:
            return
        repaid, bounty = min(fees, lost), 0
        if named != made.against:
            bounty = min(self.terms.appeal_bounty, lost - repaid, (lost - 1) // 2)
        self.registry.award(registry, made.appellant, parent.number, repaid + bounty)

    def _return_deposit(self, tx: Transaction, trial: Round, forfeited: int) -> None:
        assert trial.appeal is not None
        market, to = tx.by(self.address), trial.appeal.appellant
        left, trial.reserved = trial.reserved - forfeited, 0
        self.market.pay_out(market, trial.run, trial.number, to, left)
        self.market.pay_out(market, trial.run, trial.number, self.admin.treasury, forfeited)


def _find(round: int, job: int, submissions: Sequence[SettledLeaves]) -> tuple[int, Leaf]:
    for part in submissions:
        for leaf in leaves_in(part.leaves):
            if leaf.job == job:
                return part.node, leaf
    raise Refused("NotSubmitted", round, job)


def _said(seat: Seat, made: Appeal) -> Verdict:
    assert seat.vote is not None
    return seat.vote.verdicts[made.job]


def _named(trial: Round, job: int) -> Verdict | None:
    """What a majority of all seats says, void included; unavailable if it is one of fraud and unavailable together."""
    said = Counter(seat.vote.verdicts[job] for seat in trial.seats if seat.vote and not seat.vote.abstained)
    named = next((verdict for verdict, seats in said.items() if seats >= trial.threshold), None)
    split = said[Verdict.FRAUD] + said[Verdict.UNAVAILABLE] >= trial.threshold
    return Verdict.UNAVAILABLE if named is None and split else named


def _last_word(against: Verdict, named: Verdict | None, consumed: bool) -> Verdict:
    """The table of appeals."""
    if named is None:
        return Verdict.VOID if against == Verdict.FRAUD else against
    if named != Verdict.UNAVAILABLE:
        return named
    return Verdict.UNAVAILABLE if against == Verdict.ACCEPTED and not consumed else against
