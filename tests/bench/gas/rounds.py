"""A round's whole life, transaction by transaction, with what each took.

Every seat votes the same: all jobs accepted but the fraudulent ones. The coordinator relays batches of at most 64
leaves; each batch is settled in a transaction of its own, and the last one ends the round.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.chain.structs import SettledLeaves, State, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.receipts import CarriedReceipt, write_uri
from protocol.wire.votes import Vote, commitment, vote_on
from tests.bench.gas.network import CHALLENGE_SECONDS, MAX_UNITS, TERMS, GasNetwork, Member

BATCH_LEAVES = 64
URI = write_uri(
    ("https://coordinator.example/artifacts/",),
    [CarriedReceipt(store, 1_900_000_000, secrets.token_bytes(65)) for store in (0, 1)],
)
"""With receipts of two stores."""


@dataclass
class RoundGas:
    """One round: gas of each transaction, by verb in the order of the round's life."""

    jobs: int
    verbs: dict[str, list[int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Every transaction from open to settled and credited."""
        return sum(gas for each in self.verbs.values() for gas in each)

    @property
    def per_job(self) -> float:
        """All-in gas per verified job; a job found fraudulent was verified too."""
        return self.total / self.jobs


@dataclass
class GasRound:
    """A round under way. ``jobs`` are dealt out evenly; job 0 is the fraudulent one where there is one."""

    network: GasNetwork
    committee: int
    workers: Sequence[Member]
    jobs: int
    fraudulent: int

    def __post_init__(self) -> None:
        self.gas = RoundGas(self.jobs)
        self.at = self.network.deployment
        dealt = [self.jobs // len(self.workers) + (n < self.jobs % len(self.workers)) for n in range(len(self.workers))]
        self.listed = [(worker, count) for worker, count in zip(self.workers, dealt, strict=True) if count]
        self.assignments = pack_assignments([Listing(worker.node, count) for worker, count in self.listed])
        self.number = self._next_number()
        self.batches: list[list[Submission]] = []
        self.vote = vote_on({job: self._judgement(job) for job in range(self.jobs)}, secrets.token_bytes(32))

    def run_to_verdict(self) -> None:
        """Opens, submits, and has the committee decide: the last batch closes the round."""
        coordinator = self.network.coordinator
        run = self.network.runs[self.committee]
        self._send("open", coordinator, calls.open_round(self.at, run, 1, 0, self.assignments))
        self.batches = self._batches()
        for batch in self.batches:
            self._send("submit", coordinator, calls.submit(self.at, self.number, self.assignments, batch))
        self.judge(self.number, self.vote, "")

    def judge(self, number: int, vote: Vote, prefix: str) -> None:
        """Draws the committee of a round or an appeal and has all its seats vote the same.

        The last reveal tallies a round; an appeal's tally is a call of its own.
        """
        coordinator = self.network.coordinator
        self._send(f"{prefix}draw", coordinator, calls.draw(self.at, number))
        seated = [self.network.validators[seat.node] for seat in self.network.reader.latest().seats(number)]
        salt = secrets.token_bytes(32)
        for juror in seated:
            sealed = commitment(self.at.chain_id, self.at.rounds, number, 0, juror.node, vote, salt)
            self._send(f"{prefix}commit", juror.key.address, calls.commit(self.at, number, sealed))
        for juror in seated:
            call = calls.reveal(self.at, number, vote.accept, vote.fraud, vote.reasons, vote.evidence_root, salt)
            self._send(f"{prefix}reveal", juror.key.address, call)
        if number != self.number:
            self._send(f"{prefix}tally", coordinator, calls.tally(self.at, number))

    def settle(self) -> None:
        """Waits the challenge window out and settles every batch."""
        self.network.chain.pass_seconds(CHALLENGE_SECONDS)
        for index in range(len(self.batches)):
            call = calls.settle(self.at, self.number, index, self.assignments, self.settled(index))
            self._send("settle", self.network.coordinator, call)

    def check(self) -> None:
        """Raises ``Rejected`` unless the round is settled with every job but the fraudulent ones accepted."""
        stored = self.network.reader.latest().round(self.number)
        if stored.state is not State.SETTLED or stored.accepted != self.vote.accept or stored.fraud != self.vote.fraud:
            raise Rejected(f"round {self.number} came out {stored.state.name}, accepted {stored.accepted:#x}")

    def settled(self, batch: int) -> list[SettledLeaves]:
        """What settling and appealing resupply of a batch."""
        return [SettledLeaves(item.node, item.leaves) for item in self.batches[batch]]

    def _send(self, verb: str, sender: str, call: Call) -> None:
        self.gas.verbs.setdefault(verb, []).append(self.network.chain.send(sender, call))

    def _judgement(self, job: int) -> Reason:
        return Reason.SAMPLING_FRAUD if job < self.fraudulent else Reason.ACCEPTED

    def _batches(self) -> list[list[Submission]]:
        """Whole submissions in batches of at most 64 leaves, as the coordinator relays them."""
        reader = self.network.reader
        beacon = reader.block(reader.latest().round(self.number).open_block).hash
        batches: list[list[Submission]] = []
        left = first = 0
        for worker, count in self.listed:
            if count > left:
                batches.append([])
                left = BATCH_LEAVES
            batches[-1].append(self._submission(worker, range(first, first + count), beacon))
            left -= count
            first += count
        return batches

    def _submission(self, worker: Member, jobs: Sequence[int], beacon: bytes) -> Submission:
        leaves = pack_leaves([Leaf(job, _units(), secrets.token_bytes(32)) for job in jobs])
        at = self.at
        message = auth.submission(at.chain_id, at.rounds, self.number, worker.node, beacon, leaves, URI)
        return Submission(worker.node, beacon, leaves, URI, worker.key.sign_typed(message))

    def _next_number(self) -> int:
        return self.network.reader.latest().round_count() + 1


def _units() -> int:
    """Floating-point operations of one job, somewhat under the most that is paid for."""
    return MAX_UNITS // 2 + secrets.randbelow(MAX_UNITS // 2)


def whole_round(
    network: GasNetwork, committee: int, workers: Sequence[Member], jobs: int, fraudulent: int = 1
) -> RoundGas:
    """Runs one round from open to settled and credited; returns what it took."""
    measured = GasRound(network, committee, workers, jobs, fraudulent)
    measured.run_to_verdict()
    measured.settle()
    measured.check()
    if fraudulent:
        owed = TERMS.rounds.fraud_slash * fraudulent
        network.once("topUp", workers[0].owner, calls.top_up(network.deployment, workers[0].node, owed))
    return measured.gas
