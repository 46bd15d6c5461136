"""From opening a round to closing it; and what ends one that has no verdict."""

from __future__ import annotations

from collections.abc import Sequence

from eth_utils.crypto import keccak

from protocol.chain.structs import Refusal, RoundsTerms, RunTerms, SettledLeaves, State, Submission, Verdict
from protocol.wire import auth
from tests.model.admin import Admin
from tests.model.market import MAX_JOBS, Market
from tests.model.registry import Registry, signer_of
from tests.model.round import LISTING_BYTES, Round, bits_in, leaves_in, listings
from tests.model.transaction import NO_HASH, NOBODY, Refused, Transaction

MAX_LEAVES = 64


def most_fees(seats: int, juror_fee: int) -> int:
    """Three committees one vote short of their quorum, and a whole one."""
    return (3 * ((seats + 1) // 2 - 1) + seats) * juror_fee


class Submitting:
    """All rounds, trials of appeals among them; this part opens, fills and closes them."""

    def __init__(
        self, admin: Admin, registry: Registry, market: Market, address: str, chain: int, terms: RoundsTerms
    ) -> None:
        self.admin, self.registry, self.market = admin, registry, market
        self.address, self.chain, self.terms = address, chain, terms
        self.rounds: dict[int, Round] = {}

    # Verbs

    def open(self, tx: Transaction, run: int, step: int, policy_version: int, assignments: bytes) -> None:
        terms = self._open_terms(tx, run, policy_version)
        jobs = self._list(tx, run, terms, assignments)
        eligible, third = self.market.juror_slots(run, tx.now)
        needed = max(third, terms.committee + terms.appeal_seats)
        if len(eligible) < needed:
            raise Refused("TooFewValidators", len(eligible), needed)
        number = len(self.rounds) + 1
        reserve = jobs * terms.max_units * terms.price_per_unit + most_fees(terms.committee, terms.juror_fee)
        self.market.reserve(tx.by(self.address), run, number, reserve)
        self.rounds[number] = Round(
            number=number,
            run=run,
            terms=terms,
            policy_version=policy_version,
            assignments=assignments,
            state=State.OPEN,
            opened_at=tx.now,
            deadline=tx.now + terms.work_seconds,
            slot_count=len(self.registry.slots),
            eligible=eligible,
            reserved=reserve,
            open_block=tx.block,
        )

    def submit(self, tx: Transaction, round: int, assignments: bytes, submissions: Sequence[Submission]) -> None:
        filled = self._in(round, State.OPEN)
        if tx.now > filled.deadline:
            raise Refused("TooLate", filled.deadline, tx.now)
        self._check_assignments(filled, assignments)
        taken: list[SettledLeaves] = []
        refusals = [self._take(filled, part, taken) for part in submissions]
        leaves = sum(len(leaves_in(part.leaves)) for part in submissions)
        if leaves > MAX_LEAVES:
            raise Refused("TooManyLeaves", leaves)
        if not taken:
            raise Refused("NothingTaken", refusals[0] if refusals else Refusal.NONE)
        filled.batches.append(taken)
        if len(filled.submitted) == len(filled.assignees):
            self._close(tx, filled)

    def close(self, tx: Transaction, round: int, assignments: bytes) -> None:
        closed = self._in(round, State.OPEN)
        if tx.now <= closed.deadline:
            raise Refused("TooEarly", closed.deadline, tx.now)
        self._check_assignments(closed, assignments)
        if closed.submitted:
            self._close(tx, closed)
        else:
            self._end(tx, closed, State.VOID)
            self._free(tx, closed)

    def expire(self, tx: Transaction, round: int) -> None:
        state = self.rounds[round].state if round in self.rounds else State.NONE
        if state not in (State.OPEN, State.CLOSED, State.VOTING):
            raise Refused("WrongState", round, state)
        if tx.now <= self.ends_by(self.rounds[round]):
            raise Refused("TooEarly", self.ends_by(self.rounds[round]), tx.now)
        self._fail(tx, self.rounds[round])

    def free(self, tx: Transaction, round: int, assignments: bytes) -> None:
        freed = self._in(round, State.VOID)
        self._check_assignments(freed, assignments)
        self._free(tx, freed)

    def consume(self, tx: Transaction, run: int, round: int, jobs: int) -> None:
        if tx.sender != self.market.address:
            raise Refused("NotMarket", tx.sender)
        used = self.rounds.get(round)
        if used is None or used.appeal or used.state not in (State.TALLIED, State.SETTLED):
            raise Refused("WrongState", round, used.state if used else State.NONE)
        if used.run != run:
            raise Refused("WrongRun", round, run)
        accepted = used.jobs_with(Verdict.ACCEPTED)
        for name, wrong in (
            ("NotAccepted", bits_in(jobs) - accepted),
            ("AlreadyConsumed", bits_in(jobs) & used.consumed),
        ):
            if wrong:
                raise Refused(name, round, sum(1 << job for job in wrong))
        used.consumed |= bits_in(jobs)

    # What the other parts share

    def ends_by(self, round: Round) -> int:
        """When anyone may force the end."""
        return round.opened_at + self.market.terms.max_round_seconds

    def _fail(self, tx: Transaction, round: Round) -> None:
        raise NotImplementedError

    def _end(self, tx: Transaction, round: Round, state: State) -> None:
        round.state = state
        self.market.release(tx.by(self.address), round.run, round.number, round.reserved)
        round.reserved = 0

    def _close(self, tx: Transaction, round: Round) -> None:
        round.state = State.CLOSED
        round.deadline = tx.now + round.terms.draw_seconds
        round.close_block = tx.block

    def _free_jobs(self, tx: Transaction, node: int, jobs: int) -> None:
        if jobs:
            self.registry.free_jobs(tx.by(self.address), node.to_bytes(4, "big") + bytes([jobs - 1]))

    def _pay(self, tx: Transaction, round: Round, node: int, amount: int) -> None:
        round.reserved -= amount
        owner = self.registry.nodes[node].owner
        self.market.pay(tx.by(self.address), round.run, round.number, node, owner, amount)

    def _free(self, tx: Transaction, round: Round) -> None:
        """Takes every job of a void round out of flight, once."""
        for node in round.assignees:
            self._free_jobs(tx, node, 1)
        round.freed = True

    def _in(self, round: int, state: State) -> Round:
        found = self.rounds.get(round)
        if found is None or found.state != state:
            raise Refused("WrongState", round, found.state if found else State.NONE)
        return found

    def _check_assignments(self, round: Round, assignments: bytes) -> None:
        if keccak(assignments) != round.assignments_hash:
            raise Refused("WrongAssignments", keccak(assignments), round.assignments_hash)

    # Opening

    def _open_terms(self, tx: Transaction, run: int, policy_version: int) -> RunTerms:
        if self.admin.paused:
            raise Refused("NewRoundsPaused")
        terms = self.market.known(run).terms(tx.now)
        if tx.sender != terms.coordinator:
            raise Refused("NotCoordinator", terms.coordinator, tx.sender)
        if self.market.runs[run].closed:
            raise Refused("RunIsClosed", run)
        if policy_version not in self.market.runs[run].manifests:
            raise Refused("UnknownVersion", run, policy_version)
        return terms

    def _list(self, tx: Transaction, run: int, terms: RunTerms, assignments: bytes) -> int:
        if len(assignments) % LISTING_BYTES:
            raise Refused("BadAssignments")
        for node, _ in listings(assignments):
            if self.market.runs[run].joined.get(node, NO_HASH) != terms.rules_hash:
                raise Refused("NotJoined", run, node)
        total = self.registry.reserve_jobs(tx.by(self.address), assignments)
        if not 1 <= total <= MAX_JOBS:
            raise Refused("BadAssignments")
        return total

    # Submitting

    def _take(self, round: Round, part: Submission, taken: list[SettledLeaves]) -> Refusal:
        refusal = self._refusal(round, part)
        if refusal == Refusal.NONE:
            round.submitted |= {leaf.job for leaf in leaves_in(part.leaves)}
            taken.append(SettledLeaves(part.node, part.leaves))
        return refusal

    def _refusal(self, round: Round, part: Submission) -> Refusal:
        """Why a part is left out: its leaves in order, then what was there before, then the signature."""
        jobs = [leaf.job for leaf in leaves_in(part.leaves)]
        if not jobs:
            return Refusal.MALFORMED
        for earlier, job in zip([-1, *jobs], jobs, strict=False):
            if job <= earlier:
                return Refusal.MALFORMED
            if round.assignees[job : job + 1] != [part.node]:
                return Refusal.NOT_ASSIGNED
        if round.submitted & set(jobs):
            return Refusal.ALREADY_SUBMITTED
        message = auth.submission(self.chain, self.address, round.number, part.node, part.beacon, part.leaves, part.uri)
        signer = signer_of(message, part.signature)
        signed = signer != NOBODY and signer == self.registry.nodes[part.node].key
        return Refusal.NONE if signed else Refusal.BAD_SIGNATURE
