"""The validator: follows rounds, judges them as artifacts arrive, and votes when it has a seat.

    follow ──> prepare (fetch artifacts and weights, judge) ──> commit (journal first) ──> reveal ──> publish evidence
      └──> nodes' records from settled rounds, own samples ──────┘

Each tick does all of this for every round in progress. With as many seats as validators a seat is certain, so judging
begins with the first submission on chain, and the vote is ready by the draw. An appeal is a round of one job under its
own number; it judges the submission to the appealed round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Verdict
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.errors import AssizeError
from protocol.node.activity import WAITING, Activity
from protocol.node.release import behind
from protocol.times import clock
from protocol.wire import evidence as bundles
from protocol.wire.auth import Signer
from protocol.wire.votes import abstention, commitment
from validator.block_clock import BlockClock
from validator.deliveries import Deliveries
from validator.journal import JournalledVote, VoteJournal, VoteKey
from validator.judging.judge import Judgement
from validator.judging.runs import Runs
from validator.judging.verdict import vote_of
from validator.queue.judged_round import Judge, JudgedRound, JudgingProgress, settle_missing
from validator.records.history import History
from validator.records.record import SettledRound, ratios_of
from validator.reporting import judging_words, seats_now, waiting_words
from validator.rounds import FollowedRound, Rounds
from validator.sampling import Sampling
from validator.schedule import Step, must_decide, next_step, overdue_step, owes_vote
from validator.service_record import ServiceRecord

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""Pause before a vote that the contract refused is sent again."""

MOST_SAMPLING_SECONDS = 60
"""Time for votes of which sampling may take a third while no round is live."""

REPLAYS_AT_ONCE = 8
"""Settled rounds that are replayed in one tick, newest first."""

REPLAY_SECONDS = 60.0
"""Longest that a vote waits for the replay of a settled round."""


@dataclass(slots=True)
class _Replaying:
    """Time spent on the replay of one settled round; pauses in which no vote waits for it count a second each."""

    seconds: float = 0.0
    last: float = 0.0

    def tick(self, now: float) -> None:
        """Counts the time since the last tick."""
        self.seconds, self.last = self.seconds + min(1.0, now - self.last), now


class Validator:
    """One validator node; the daemon's loop calls ``tick``.

    Args:
        node: the validator's id.
        signer: the node key, which signs evidence.
        sender: sends this key's transactions.
        reserve_seconds: time before the commit deadline at which to stop waiting for judgements.
        patience_seconds: time after the close during which a silent store is waited for, if others have answered.
        nudge_seconds: time for which an overdue step that anyone may take is left to others.
    """

    def __init__(
        self,
        chain: Chain,
        node: int,
        signer: Signer,
        sender: Sender,
        journal: VoteJournal,
        runs: Runs,
        judge: Judge,
        deliveries: Deliveries,
        history: History,
        sampling: Sampling,
        reserve_seconds: float = 3.0,
        patience_seconds: float = 20.0,
        nudge_seconds: float = 5.0,
    ) -> None:
        self._chain, self._node, self._signer, self._sender = chain, node, signer, sender
        self._journal, self._runs, self._judge, self._deliveries = journal, runs, judge, deliveries
        self._history, self._sampling = history, sampling
        self._reserve_seconds, self._patience_seconds = reserve_seconds, patience_seconds
        self._nudge_seconds = nudge_seconds
        self._tail, self._rounds = Tail(chain), Rounds()
        self._clock = BlockClock()
        self._told: set[str] = set()
        self._progress: dict[tuple[int, bytes], JudgingProgress] = {}
        self._not_before: dict[str, float] = {}
        self._replayed: defaultdict[tuple[int, bytes], _Replaying] = defaultdict(_Replaying)
        self._overdue_since: dict[tuple[int, Step], float] = {}
        self._served: tuple[int, ...] = ()
        self._drains = False
        self._draining: set[VoteKey] | None = None
        self.activity, self._record = Activity(), ServiceRecord(node)
        self.activity.note(node=node)

    @property
    def runs_served(self) -> tuple[int, ...]:
        """The runs that this node serves or still judges. Any thread may ask."""
        return self._served

    def drain(self) -> None:
        """Has it vote in the seats it has now, and take no others: those drawn later wait for the next start.

        Rounds overlap, so that it would otherwise never be without one.
        """
        self._drains = True

    def drained(self) -> bool:
        """Returns whether a drain is done: no seat that it had when it began still waits for its vote."""
        return self._draining is not None and not self._draining & self._owed()

    def _owed(self) -> set[VoteKey]:
        live = self._rounds.live.values()
        return {_vote_key(one) for one in live if owes_vote(one, self._node, self._clock.now())}

    def _step_of(self, followed: FollowedRound) -> Step:
        if self._draining is not None and _vote_key(followed) not in self._draining:
            return Step.NOTHING
        return next_step(followed, self._node, followed.certain(self._node), self._clock.now())

    def tick(self) -> bool:
        """Runs one pass over all rounds; returns whether there may be more to do at once."""
        self._sender.tend()
        followed = self._follow()
        if self._drains and self._draining is None:
            self._draining = self._owed()
        served = self._rounds.served_by(self._node)
        self._served = tuple(served)
        self._runs.serve(served, self._rounds.runs)
        live = list(self._rounds.live.values())
        steps = [(one, self._step_of(one)) for one in live]
        rounds = [self._judged_round(one) for one, due in steps if due in (Step.PREPARE, Step.COMMIT)]
        ready = [round_ for round_ in rounds if round_ is not None]
        self._history.follow(self._rounds.settled, [round_.record_point for round_ in ready])
        replays = self._replays(ready)
        for round_ in (*ready, *replays):
            round_.settle_unreceipted()
        if unjudged := judging_words([*ready, *replays]):
            self.activity.doing("judging", unjudged)
        worked = self._judge.work([*ready, *replays])
        self._learn(replays)
        sampled = [] if replays or self._draining is not None else self._sample(live, ready)
        for one, due in steps:
            if due is Step.COMMIT:
                self._commit(one)
            elif due is Step.REVEAL:
                self._reveal(one)
        self._nudge(live)
        self._leave()
        for event, unserved in (
            ("another_class", self._runs.foreign(self._rounds.runs)),
            ("version_behind", self._runs.behind(self._rounds.runs)),
        ):
            self._leave_unserved(event, unserved)
        self._mind_slot()
        self._keep([*live, *(round_.followed for round_ in (*replays, *sampled))])
        self._deliveries.publish({_vote_key(one) for one in live if _takes_commitments(one)})
        self._runs.prefetch(self._rounds.manifest_roots)
        self._deliveries.beat(self._runs.loaded_version)
        self._tell(steps, judging_words([*ready, *replays]), worked)
        return followed or worked

    def _tell(self, steps: Sequence[tuple[FollowedRound, Step]], unjudged: str, worked: bool) -> None:
        """Publishes the seats, the record and what is waited for."""
        if not (worked and unjudged):
            self.activity.doing(WAITING, waiting_words(steps, self._node, unjudged))
        self.activity.note(
            seats=seats_now(steps, self._node),
            runs=list(self._rounds.served_by(self._node)),
            versions=self._runs.loaded_versions,
            fetching=self._runs.fetching,
            record=self._record.figures(datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%d")),
        )

    def _keep(self, live: Sequence[FollowedRound]) -> None:
        """Forgets what was judged of rounds that have ended; a reorganised round is another round."""
        kept = {(one.number, one.beacon) for one in live}
        self._progress = {key: progress for key, progress in self._progress.items() if key in kept}
        self._judge.keep(live)

    def _replays(self, rounds: Sequence[JudgedRound]) -> list[JudgedRound]:
        """The settled jobs to measure here before a record may condemn, once nothing else is to be judged.

        Each settled round is given ``REPLAY_SECONDS``: after that, its artifacts count as lost.
        """
        if not all(round_.judged for round_ in rounds):
            return []
        found = dict[int, JudgedRound]()
        for settled, jobs in (each for round_ in rounds for each in self._underived(round_)):
            followed = self._rounds.replayable.get(settled.round)
            if followed is None or self._lost(settled) or len(found) == REPLAYS_AT_ONCE:
                continue
            asked = replace(followed, leaves={job: followed.leaves[job] for job in jobs})
            if settled.round not in found and (replay := self._judged_round(asked)) is not None:
                found[settled.round] = replay
                self._replayed[settled.round, settled.beacon].tick(time.monotonic())
        return list(found.values())

    def _sample(self, live: Sequence[FollowedRound], rounds: Sequence[JudgedRound]) -> list[JudgedRound]:
        """Samples jobs behind an alarm, once nothing else is to be judged; returns the rounds of those that it tried.

        It blocks for a third of the shortest time for votes in a live round of the runs served: none is missed for it.
        """
        try:
            self._sampling.learn(self._runs.known, self._rounds.manifest_roots)
            if not all(round_.judged for round_ in rounds):
                return []
            served = self._rounds.served_by(self._node)
            phases = [min(one.terms.commit_seconds, one.terms.reveal_seconds) for one in live if one.run in served]
            most = min([*phases, MOST_SAMPLING_SECONDS]) / 3
            return self._sampling.next(self._rounds.replayable, self._judged_round, most)
        except Exception as error:  # what strangers publish may break this, and must not cost a vote
            log.error("sampling_failed", error=repr(error), exc_info=True)
            return []

    def _underived(self, round_: JudgedRound) -> list[tuple[SettledRound, tuple[int, ...]]]:
        return self._history.underived(round_.record_point, round_.owners)

    def _replaying(self, round_: JudgedRound) -> bool:
        """Returns whether a suspicion against a node of ``round_`` is still being replayed."""
        asked = (settled for settled, _ in self._underived(round_) if settled.round in self._rounds.replayable)
        return not all(self._lost(settled) for settled in asked)

    def _lost(self, settled: SettledRound) -> bool:
        """Returns whether the jobs of a settled round could not be replayed in the time there was."""
        return self._replayed[settled.round, settled.beacon].seconds > REPLAY_SECONDS

    def _learn(self, replays: Sequence[JudgedRound]) -> None:
        """Takes the figures of replayed jobs into the records.

        An unmeasurable job counts nothing if its committee refused it too; an accepted one was replaced in its store.
        """
        settled = {each.round: each for each in self._rounds.settled} if replays else {}
        for replay in replays:
            found = {
                job: judgement.evidence.measurements
                for job, judgement in replay.progress.judged.items()
                if job in replay.followed.leaves
            }
            derived = {
                job: ratios_of(measured)
                for job, measured in found.items()
                if measured is not None or replay.followed.verdict(job) is not Verdict.ACCEPTED
            }
            if derived:
                self._history.learn(settled[replay.followed.number], derived)

    def _follow(self) -> bool:
        """Folds all new events, so that nothing is decided on an old state; returns whether there were any.

        After a reorganisation everything is folded again from the start.
        """
        news = False
        while answer := self._tail.poll():
            news = True
            if isinstance(answer, Rollback):
                log.warning("rollback", to_block=answer.to_block)
                self._tail, self._rounds = Tail(self._chain), Rounds()
                self._record = ServiceRecord(self._node)
                continue
            for found in answer:
                self._record.fold(found.logs, self._rounds)
                self._clock.read(found.block.timestamp)
            if self._tail.at_head:
                break
        return news

    def _judged_round(self, followed: FollowedRound) -> JudgedRound | None:
        """The round with everything that judging needs, or None while its run is not known."""
        run, version = followed.run, followed.policy_version
        try:
            context = self._runs.find(run, followed.terms)
        except AssizeError as error:
            if self._is_news(f"run {run}: {error}"):
                log.warning("run_not_known", run=run, error=str(error))
            return None
        if context is None:
            return None
        progress = self._progress.setdefault((followed.number, followed.beacon), JudgingProgress())
        return JudgedRound(followed, context, self._rounds.manifest_roots[run, version], progress)

    def _commit(self, followed: FollowedRound) -> None:
        """Commits to the vote in the journal, writing it there first if there is none."""
        written = self._journal.find(_vote_key(followed)) or self._decide(followed)
        if written is None:
            return
        deployment, vote = self._chain.deployment, written.vote
        digest = commitment(
            deployment.chain_id, deployment.rounds, followed.number, followed.attempt, self._node, vote, written.salt
        )
        call = calls.commit(deployment, followed.number, digest)
        if self._send(f"commit/{_vote_key(followed).name}", call):
            followed.seats[followed.attempt, self._node].committed = True

    def _decide(self, followed: FollowedRound) -> JournalledVote | None:
        """Journals the vote once every job is judged, or an abstention once that is no longer possible."""
        round_ = self._judged_round(followed)
        if round_ is not None and (too_old := behind(followed.run, round_.context.rules)):
            return self._abstain(followed, too_old)
        late = must_decide(followed, self._clock.now(), min(self._reserve_seconds, followed.terms.commit_seconds / 3))
        # One silent store must not delay the verdict until the deadline.
        impatient = late or self._clock.now() > followed.closed_at + self._patience_seconds
        if round_ is not None and (round_.judged or (impatient and settle_missing(self._judge, round_, late))):
            if not (impatient or self._history.complete(round_.record_point)):
                return None
            if not late and self._replaying(round_):
                return None
            if followed.appeal and self._underived(round_):
                return self._abstain(followed, "the rounds behind a suspicion cannot be replayed")
            return self._vote(round_, self.findings(round_))
        if late or (round_ is not None and round_.progress.impossible):
            return self._abstain(followed, "not judged before the deadline" if late else "judging failed too often")
        return None

    def findings(self, round_: JudgedRound) -> list[Judgement]:
        """Returns the judgements of the submitted jobs, ascending by job."""
        return round_.with_records(self._history, round_.judgements)

    def _vote(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> JournalledVote:
        signed = bundles.sign(self._evidence(round_, judgements), self._signer)
        reasons = {judgement.claim.job: judgement.reason for judgement in judgements}
        vote = vote_of(reasons, signed.evidence.root)
        if vote == abstention():
            return self._abstain(round_.followed, "a job could not be judged")
        return self._journal.record(_vote_key(round_.followed), vote, signed.canonical)

    def _abstain(self, followed: FollowedRound, why: str) -> JournalledVote:
        log.warning("abstains", round=followed.number, attempt=followed.attempt, why=why)
        return self._journal.record(_vote_key(followed), abstention(), b"")

    def _evidence(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> bundles.Evidence:
        followed, context = round_.followed, round_.context
        return bundles.Evidence(
            chain_id=context.chain_id,
            rounds=context.rounds_address,
            run=followed.run,
            round=followed.number,
            attempt=followed.attempt,
            juror=self._node,
            policy_version=followed.policy_version,
            manifest_root=round_.manifest_root,
            rules_hash=context.rules_hash,
            thresholds=context.rules.thresholds.bounds,
            jobs=tuple(judgement.evidence for judgement in judgements),
            fingerprints=self.fingerprints(round_, judgements),
        )

    def fingerprints(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> tuple[bundles.JobFingerprint, ...]:
        """Returns this juror's fingerprint of each measured job, under the seed of the present draw."""
        seed = round_.followed.draws[round_.followed.attempt]
        return tuple(
            judgement.rows.fingerprint(judgement.claim.job, seed, judgement.claim.seed, self._node)
            for judgement in judgements
            if judgement.rows is not None
        )

    def _reveal(self, followed: FollowedRound) -> None:
        key = _vote_key(followed)
        written = self._journal.find(key)
        if written is None:
            if self._is_news(f"reveal/{key.name}"):
                log.error("vote_lost", round=key.round, attempt=key.attempt)
            return
        vote = written.vote
        call = calls.reveal(
            self._chain.deployment, key.round, vote.accept, vote.fraud, vote.reasons, vote.evidence_root, written.salt
        )
        if self._send(f"reveal/{key.name}", call):
            followed.seats[followed.attempt, self._node].revealed = True

    def _nudge(self, live: Sequence[FollowedRound]) -> None:
        """Takes overdue steps that anyone may take, so that rounds go on without the coordinator."""
        now, due = time.monotonic(), {(one.number, overdue_step(one, self._clock.now())) for one in live}
        due = {(number, step) for number, step in due if step is not Step.NOTHING}
        self._overdue_since = {key: self._overdue_since.get(key, now) for key in due}
        for (number, step), since in self._overdue_since.items():
            if now - since > self._nudge_seconds:
                self._overdue_since[number, step] = now
                build: Callable[..., calls.Call] = calls.draw if step is Step.DRAW else calls.tally
                self._take(
                    f"{step.value}/{number}/{self._rounds.live[number].attempt}", build(self._chain.deployment, number)
                )

    def _leave(self) -> None:
        """Leaves runs that are over; who stays behind counts among the validators that other runs need a third of."""
        for run in self._rounds.outlived(self._node):
            self._send(f"leave/{run}", calls.leave(self._chain.deployment, run, self._node))

    def _leave_unserved(self, event: str, unserved: Mapping[int, str]) -> None:
        """Leaves runs in which it can only abstain, and says once why; a node's owner alone may leave."""
        node = self._node
        for run in unserved.keys() & self._rounds.joined(node).keys():
            since, owner = self._rounds.joined(node)[run], self._rounds.owner(node)
            own = owner == self._signer.address
            if self._is_news(f"{event}: run {run}, joined in block {since}"):
                then = "leaves the run" if own else f"abstains until {owner} types: assize run leave {run} {node}"
                log.warning(event, run=run, error=unserved[run], then=then)
            if own:
                self._send(f"leave/{run}/{since}", calls.leave(self._chain.deployment, run, node))

    def _mind_slot(self) -> None:
        """Takes the slot that it waits for, when it is time; warns while another waits for its own."""
        if self._clock.now() >= self._rounds.displaces_from(self._node):
            self._send(f"displace/{self._node}", calls.displace(self._chain.deployment, self._node))
        contest = self._rounds.contest_against(self._node)
        if contest is not None and self._is_news(f"contested by {contest.newcomer}"):
            log.warning(
                "slot_contested",
                newcomer=contest.newcomer,
                bond_to_match=tokens(contest.bond),
                until=clock(contest.until),
            )

    def _take(self, key: str, call: calls.Call) -> None:
        """Sends a step that others may take first, or for which it may be too early; a refusal is expected."""
        try:
            self._sender.send(key, call)
        except Reverted as error:
            log.debug("not_taken", call=call.description, error=str(error))
        else:
            log.info("sent", call=call.description)

    def _send(self, key: str, call: calls.Call) -> bool:
        """Sends ``call`` unless it was refused a moment ago; returns whether it is mined.

        A refused call is sent again: the RPC that simulates may be behind the one that reported the phase, and a
        missing vote is slashed. Repeating costs little, and ``next_step`` ends it at the deadline.
        """
        if time.monotonic() < self._not_before.get(key, 0.0):
            return False
        try:
            self._sender.send(key, call)
        except Reverted as error:
            self._not_before[key] = time.monotonic() + RETRY_SECONDS
            if self._is_news(f"{key} {error.name}"):
                log.warning("refused", call=call.description, error=str(error))
            return False
        log.info("sent", call=call.description)
        return True

    def _is_news(self, what: str) -> bool:
        """Returns whether ``what`` is logged for the first time."""
        news = what not in self._told
        self._told.add(what)
        return news


def _vote_key(followed: FollowedRound) -> VoteKey:
    return VoteKey(followed.number, followed.attempt, followed.beacon)


def _takes_commitments(followed: FollowedRound) -> bool:
    """Evidence is published only after committing has ended, since readers could copy the verdict."""
    return not (followed.revealing or followed.over)
