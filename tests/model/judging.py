"""From the draw of a committee to its verdict."""

from __future__ import annotations

from collections import Counter

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from protocol.chain.structs import Cause, State, Verdict
from tests.model.round import Round, Seat, Vote, bits_in, committee_slots
from tests.model.submitting import Submitting
from tests.model.transaction import Refused, Transaction

ABSTENTION = b"\xff"
ATTEMPTS = 4


class Judging(Submitting):
    """Rounds, as committees see them."""

    # Verbs

    def draw(self, tx: Transaction, round: int) -> None:
        drawn = self._in(round, State.CLOSED)
        if tx.now > min(drawn.deadline, self.ends_by(drawn)):
            self._fail(tx, drawn)
            return
        age = tx.block - 1 - drawn.close_block
        seed = tx.hash_of(drawn.close_block + age // tx.window * tx.window)
        slots = committee_slots(seed, drawn.attempt, drawn.slot_count, drawn.eligible, drawn.committee)
        drawn.seats = [Seat(self.registry.seated(slot, tx.now)) for slot in slots]
        drawn.state = State.VOTING
        drawn.deadline = tx.now + drawn.terms.commit_seconds

    def commit(self, tx: Transaction, round: int, commitment: bytes) -> None:
        voted = self._in(round, State.VOTING)
        seat = self._seat(voted, tx.sender)
        if seat.commitment is not None:
            raise Refused("AlreadyCommitted", seat.juror)
        if voted.revealing or tx.now > voted.deadline:
            raise Refused("TooLate", voted.deadline, tx.now)
        seat.commitment = commitment
        if all(other.commitment is not None for other in voted.seats):
            voted.revealing = True
            voted.deadline = tx.now + voted.terms.reveal_seconds

    def reveal(
        self, tx: Transaction, round: int, accept: int, fraud: int, reasons: bytes, evidence: bytes, salt: bytes
    ) -> None:
        voted = self._in(round, State.VOTING)
        if not voted.revealing:
            self._start_revealing(tx, voted)
        if tx.now > voted.deadline:
            raise Refused("TooLate", voted.deadline, tx.now)
        seat = self._seat(voted, tx.sender)
        if seat.commitment is None:
            raise Refused("NotCommitted", seat.juror)
        if seat.vote is not None:
            raise Refused("AlreadyRevealed", seat.juror)
        given = self.commitment(voted, seat.juror, accept, fraud, reasons, evidence, salt)
        if given != seat.commitment:
            raise Refused("WrongReveal", given, seat.commitment)
        seat.vote = self._vote(voted, bits_in(accept), bits_in(fraud), reasons)
        if voted.voted and not voted.appeal:
            self._tally(tx, voted)

    def tally(self, tx: Transaction, round: int) -> None:
        voted = self._in(round, State.VOTING)
        self._check_voted(tx, voted)
        self._tally(tx, voted)

    def _tally(self, tx: Transaction, voted: Round) -> None:
        quorate = sum(seat.votes for seat in voted.seats) >= voted.threshold
        for seat in voted.seats:
            if not seat.votes:
                self.market.strike(tx.by(self.address), voted.run, voted.number, seat.juror)
            if seat.vote is None and (quorate or seat.commitment is not None):
                penalty = self.terms.absence_penalty
                self.registry.slash(tx.by(self.address), seat.juror, voted.number, Cause.ABSENCE, penalty)
        if not quorate:
            self._fail_quorum(tx, voted)
            return
        voted.verdicts = {job: _majority(voted, job) for job in voted.submitted}
        voted.state = State.TALLIED
        voted.deadline = tx.now + voted.terms.challenge_seconds
        if voted.appeal:
            self._conclude(tx, voted, judged=True)

    def commitment(
        self, round: Round, juror: int, accept: int, fraud: int, reasons: bytes, evidence: bytes, salt: bytes
    ) -> bytes:
        """What a juror commits to."""
        kinds = ["uint256", "address", "uint256", "uint8", "uint32", "uint256", "uint256", *["bytes32"] * 3]
        place = [self.chain, self.address, round.number, round.attempt, juror]
        return keccak(encode(kinds, [*place, accept, fraud, keccak(reasons), evidence, salt]))

    # What follows

    def _fail(self, tx: Transaction, round: Round) -> None:
        """No verdict: a round ends void, an appeal undecided."""
        if round.appeal:
            self._conclude(tx, round, judged=False)
        else:
            self._end(tx, round, State.VOID)

    def _conclude(self, tx: Transaction, trial: Round, judged: bool) -> None:
        raise NotImplementedError

    def _fail_quorum(self, tx: Transaction, round: Round) -> None:
        """Those who voted are paid in full; all seats are drawn again, without the others while enough are left."""
        for seat in round.seats:
            if seat.votes:
                self._pay(tx, round, seat.juror, round.terms.juror_fee)
        if round.attempt + 1 == ATTEMPTS:
            self._fail(tx, round)
            return
        idle = {self.registry.nodes[seat.juror].slot for seat in round.seats if not seat.votes}
        if len(round.eligible - idle) >= round.committee + round.terms.appeal_seats:
            round.eligible -= idle
        round.attempt += 1
        round.state, round.seats, round.revealing = State.CLOSED, [], False
        round.deadline = tx.now + round.terms.draw_seconds
        round.close_block = tx.block

    def _start_revealing(self, tx: Transaction, round: Round) -> None:
        if tx.now <= round.deadline:
            raise Refused("TooEarly", round.deadline, tx.now)
        round.revealing = True
        round.deadline += round.terms.reveal_seconds

    def _check_voted(self, tx: Transaction, round: Round) -> None:
        """Nothing can come any more: all who committed revealed, or the time to is over."""
        if round.voted:
            return
        deadline = round.deadline
        if any(seat.commitment is not None for seat in round.seats) and not round.revealing:
            deadline += round.terms.reveal_seconds
        if tx.now <= deadline:
            raise Refused("TooEarly", deadline, tx.now)

    def _vote(self, round: Round, accept: set[int], fraud: set[int], reasons: bytes) -> Vote:
        if not accept and not fraud and reasons == ABSTENTION:
            return Vote({})
        verdicts = {job: Verdict((job in accept) + 2 * (job in fraud)) for job in round.submitted}
        unaccepted = sum(verdict != Verdict.ACCEPTED for verdict in verdicts.values())
        if len(reasons) != unaccepted:
            raise Refused("WrongReasons", len(reasons), unaccepted)
        return Vote(verdicts)

    def _seat(self, round: Round, key: str) -> Seat:
        juror = self.registry.node_by_key(key)
        for seat in round.seats:
            if seat.juror == juror:
                return seat
        raise Refused("NotSeated", round.number, juror)


def _majority(round: Round, job: int) -> Verdict:
    """What at least the threshold of seats says; void where they do not agree."""
    said = Counter(seat.vote.verdicts[job] for seat in round.seats if seat.vote and not seat.vote.abstained)
    return next((verdict for verdict, seats in said.items() if seats >= round.threshold), Verdict.VOID)
