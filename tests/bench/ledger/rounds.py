"""Rounds by the hundred, side by side, each through its whole life: judged, appealed, trained on, settled.

job 0   accepted, appealed; nobody hears the appeal: void
job 1   accepted, trained on
job 2   void
job 3   fraud, of a worker of its own, which is slashed
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.chain.events import AppealOpened, CommitteeDrawn, Log, RoundOpened
from protocol.chain.structs import Consumption, Role, SettledLeaves, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.votes import commitment, vote_on
from tests.bench.ledger.bulk import Bulk
from tests.conftest import TOKEN
from tests.ledger.disputes import FRAUD, OK, VOID, Dispute
from tests.ledger.scenario import MAX_UNITS, WINDOW, salt_of

AT_ONCE = 250
"""Rounds side by side; each puts three jobs on the one worker and one on the other."""
PURSE = 100_000 * TOKEN
VOTE = vote_on({0: OK, 1: OK, 2: VOID, 3: FRAUD}, b"\x07" * 32)
URI = "http://example.org/artifacts/"


@dataclass(frozen=True, slots=True)
class Opened:
    """A round, and the one batch that was submitted."""

    number: int
    batch: list[SettledLeaves]


class Rounds:
    """Drives rounds of the run of ``dispute``, judged by its validators."""

    def __init__(self, dispute: Dispute, bulk: Bulk) -> None:
        self._market, self._dispute, self._bulk = dispute.market, dispute, bulk
        self.steady = self._market.register("steady", Role.WORKER, 3 * AT_ONCE)
        self.crooked = self._market.register("crooked", Role.WORKER, AT_ONCE)
        self._assignments = pack_assignments([Listing(self.steady.node, 3), Listing(self.crooked.node, 1)])
        self._versions = itertools.count(self._market.chain.latest().run(self._market.run).version + 1)
        self._steps = itertools.count(1)
        self._provide()

    def play(self, count: int) -> None:
        """So many rounds more, from opening to settlement."""
        for done in range(0, count, AT_ONCE):
            self._side_by_side(min(AT_ONCE, count - done))

    def _provide(self) -> None:
        """Escrow for the run, credits for the appellant, a bond that outlasts every slash."""
        deployment, run = self._market.deployment, self._market.run
        requester, rival, owner = self._dispute.requester, self._dispute.rival, self.crooked.owner
        for wallet, contract in ((requester, "Credits"), (rival, "Credits"), (owner, "Registry")):
            self._sent_by(wallet, [calls.drip(deployment, wallet.address, PURSE)])
            self._sent_by(wallet, [calls.approve(deployment, contract, PURSE)])
        for wallet in (requester, rival):
            self._sent_by(wallet, [calls.buy(deployment, PURSE // 2)])
        self._sent_by(requester, [calls.fund_run(deployment, run, PURSE // 4)])
        self._sent_by(owner, [calls.top_up(deployment, self.crooked.node, PURSE // 2)])
        for worker in (self.steady, self.crooked):
            joining = calls.join(deployment, run, worker.node, self._dispute.terms.rules_hash)
            self._sent_by(worker.owner, [joining])

    def _side_by_side(self, count: int) -> None:
        deployment, assignments = self._market.deployment, self._assignments
        rounds = self._worked(count)
        self._judged([each.number for each in rounds])
        appeals = self._appealed_and_trained_on(rounds)
        self._bulk.pass_time(WINDOW + 1)
        self._anyone(calls.settle(deployment, each.number, 0, assignments, each.batch) for each in rounds)
        self._anyone(calls.draw(deployment, appeal) for appeal in appeals)
        self._anyone(calls.finish(deployment, each.number, assignments) for each in rounds)

    def _worked(self, count: int) -> list[Opened]:
        """Opened, and all jobs submitted, which closes them."""
        deployment, run = self._market.deployment, self._market.run
        steps = itertools.islice(self._steps, count)
        opening = [calls.open_round(deployment, run, step, 0, self._assignments) for step in steps]
        logs = self._sent_by(self._dispute.coordinator, opening)
        parts = {
            log: self._parts(log.event.round, log.block_hash) for log in logs if isinstance(log.event, RoundOpened)
        }
        self._anyone(calls.submit(deployment, log.event.round, self._assignments, part) for log, part in parts.items())
        return [
            Opened(log.event.round, [SettledLeaves(each.node, each.leaves) for each in part])
            for log, part in parts.items()
        ]

    def _parts(self, round_: int, beacon: bytes) -> list[Submission]:
        """What the two workers submit."""
        deployment, parts = self._market.deployment, []
        for worker, jobs in ((self.steady, (0, 1, 2)), (self.crooked, (3,))):
            leaves = pack_leaves([Leaf(job, MAX_UNITS - job, bytes([job + 1]) * 32) for job in jobs])
            words = (deployment.chain_id, deployment.rounds, round_, worker.node, beacon, leaves, URI)
            parts.append(Submission(worker.node, beacon, leaves, URI, worker.key.sign_typed(auth.submission(*words))))
        return parts

    def _judged(self, rounds: list[int]) -> None:
        """By a committee of one, whose vote is the verdict."""
        deployment = self._market.deployment
        self._bulk.pass_time(1)
        self._bulk.pass_time(1)
        drawn = self._anyone(calls.draw(deployment, round_) for round_ in rounds)
        seats = [(log.event, log.event.jurors[0]) for log in drawn if isinstance(log.event, CommitteeDrawn)]
        commits, reveals = [], []
        for event, node in seats:
            juror = self._dispute.validators[node]
            words = (deployment.chain_id, deployment.rounds, event.round, event.attempt, node, VOTE, salt_of(juror))
            shown = (VOTE.accept, VOTE.fraud, VOTE.reasons, VOTE.evidence_root, salt_of(juror))
            commits.append((juror.key.address, calls.commit(deployment, event.round, commitment(*words))))
            reveals.append((juror.key.address, calls.reveal(deployment, event.round, *shown)))
        self._bulk.mine(commits)
        self._bulk.mine(reveals)

    def _appealed_and_trained_on(self, rounds: list[Opened]) -> list[int]:
        """The numbers of the appeals."""
        deployment, run = self._market.deployment, self._market.run
        appealing = [calls.appeal(deployment, each.number, 0, 0, each.batch) for each in rounds]
        appealed = self._sent_by(self._dispute.rival, appealing)
        consumed = [(next(self._versions), [Consumption(each.number, 0b0010)]) for each in rounds]
        publishing = [calls.publish(deployment, run, version, b"\x02" * 32, part) for version, part in consumed]
        self._sent_by(self._dispute.trainer, publishing)
        return [log.event.appeal for log in appealed if isinstance(log.event, AppealOpened)]

    def _anyone(self, sent: Iterable[Call]) -> list[Log]:
        return self._sent_by(self._dispute.coordinator, sent)

    def _sent_by(self, sender: Wallet, sent: Iterable[Call]) -> list[Log]:
        return self._bulk.mine([(sender.address, call) for call in sent])
