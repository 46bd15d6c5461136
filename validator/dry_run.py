"""``assize validator run --dry-run``: judges rounds as they are submitted and prints what it would vote.

It reads the chain, rules, weights and artifacts, and sends nothing: no transaction, no heartbeat, no evidence. It needs
neither key nor bond. It judges each artifact alone: a record across rounds, which may condemn a node, is a juror's own.
A round that ends before it was judged is told of as too late.

It may run beside a validator of the same settings: they share the weights, and its health file is in a folder of its
own. It serves no metrics, as the settings' port is the validator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import structlog
import torch

from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import State
from protocol.errors import AssizeError, accessing
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon
from protocol.node.telemetry import configure
from protocol.transport.blobs import BlobStores
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.reasons import Reason
from validator.block_clock import BlockClock
from validator.judging.fetching import Fetching
from validator.judging.judge import Judgement
from validator.judging.runs import Runs
from validator.judging.verdict import vote_of
from validator.queue.judged_round import Judge, JudgedRound, JudgingProgress, settle_missing
from validator.queue.local_judge import LocalJudge
from validator.rounds import FollowedRound, Rounds
from validator.schedule import must_decide
from validator.settings import ValidatorSettings

NO_NODE = 0
"""Number of the juror in a dry run; no node has it."""

RESERVE_SECONDS = 3.0
"""Time before the commit deadline at which artifacts that did not arrive count as missing."""

FOLDER = "dry-run"
"""Folder of a dry run in the state folder."""

Tell = Callable[[dict[str, Any]], None]

log = structlog.get_logger()


class DryRunLoop:
    """Judges every round in progress; ``tell`` is called once with the vote on each."""

    def __init__(self, chain: Chain, runs: Runs, judge: Judge, tell: Tell) -> None:
        self._chain, self._runs, self._judge, self._tell = chain, runs, judge, tell
        self._tail, self._rounds, self._clock = Tail(chain), Rounds(), BlockClock()
        self._progress: dict[tuple[int, bytes], JudgingProgress] = {}
        self._begun: dict[tuple[int, bytes], JudgedRound] = {}
        self._done: set[tuple[int, bytes]] = set()
        self._warned: set[str] = set()

    def tick(self) -> bool:
        """Runs one pass over all rounds; returns whether there may be more to do at once."""
        news = self._follow()
        self._tell_ended()
        live = [one for one in self._rounds.live.values() if _key(one) not in self._done]
        self._runs.serve({one.run: self._rounds.uris[one.run] for one in live}, self._rounds.runs)
        rounds = [round_ for one in live if (round_ := self._judged_round(one)) is not None]
        for round_ in rounds:
            self._begun[_key(round_.followed)] = round_
            round_.settle_unreceipted()
        worked = self._judge.work(rounds)
        for round_ in rounds:
            reserve = min(RESERVE_SECONDS, round_.followed.terms.commit_seconds / 3)
            late = must_decide(round_.followed, self._clock.now(), reserve)
            if round_.judged or round_.progress.impossible or (late and settle_missing(self._judge, round_, late)):
                self._tell(vote_told(round_))
                self._done.add(_key(round_.followed))
                del self._begun[_key(round_.followed)]
        self._keep(live)
        self._runs.prefetch(self._rounds.manifest_roots)
        for run, error in self._runs.foreign(self._rounds.runs).items():
            self._warn("another_class", run, error)
        return news or worked

    def _follow(self) -> bool:
        news = False
        while answer := self._tail.poll():
            news = True
            if isinstance(answer, Rollback):
                self._tail, self._rounds = Tail(self._chain), Rounds()
                self._begun.clear()  # what is still there is begun again
                continue
            for found in answer:
                self._rounds.fold(found.logs)
                self._clock.read(found.block.timestamp)
            if self._tail.at_head:
                break
        return news

    def _tell_ended(self) -> None:
        """Tells of rounds that got their verdict, or became void, before they were judged here."""
        for key, round_ in list(self._begun.items()):
            if round_.followed.over:
                if round_.followed.submitted_jobs:
                    self._tell(late_told(round_))
                self._done.add(key)
                del self._begun[key]

    def _judged_round(self, followed: FollowedRound) -> JudgedRound | None:
        """Returns a round that is being submitted to or judged, or None while its run is not known."""
        if followed.over or followed.state is State.NONE:
            return None
        try:
            context = self._runs.find(followed.run, followed.terms)
        except AssizeError as error:
            self._warn("run_not_known", followed.run, str(error))
            return None
        if context is None:
            return None
        progress = self._progress.setdefault(_key(followed), JudgingProgress())
        root = self._rounds.manifest_roots[followed.run, followed.policy_version]
        return JudgedRound(followed, context, root, progress)

    def _warn(self, event: str, run: int, error: str) -> None:
        """Logs what is wrong with a run, once."""
        if error not in self._warned:
            self._warned.add(error)
            log.warning(event, run=run, error=error)

    def _keep(self, live: list[FollowedRound]) -> None:
        """Forgets rounds that have ended."""
        kept = {_key(one) for one in self._rounds.live.values()}
        self._progress = {key: progress for key, progress in self._progress.items() if key in kept}
        self._done &= kept
        self._judge.keep(live)


def vote_told(round_: JudgedRound) -> dict[str, Any]:
    """Returns the vote that a juror would give on a judged round, with the finding behind each refusal."""
    place = _place(round_)
    if not round_.judged:
        return place | {"vote": "abstention", "jobs": []}
    judgements = round_.judgements
    vote = vote_of({each.claim.job: each.reason for each in judgements}, bytes(32))
    return place | {
        "vote": "abstention" if vote.abstains else "vote",
        "accept": hex(vote.accept),
        "fraud": hex(vote.fraud),
        "jobs": list(map(_job_told, judgements)),
    }


def late_told(round_: JudgedRound) -> dict[str, Any]:
    """Returns that a round ended before it was judged, and how many of its jobs were."""
    jobs = round_.followed.submitted_jobs
    judged = sum(job in round_.progress.judged for job in jobs)
    return _place(round_) | {"vote": "too late", "judged": judged, "submitted": len(jobs), "jobs": []}


def _place(round_: JudgedRound) -> dict[str, Any]:
    followed = round_.followed
    return {"round": followed.number, "run": followed.run, "version": followed.policy_version}


def _job_told(judgement: Judgement) -> dict[str, Any]:
    told: dict[str, Any] = {"job": judgement.claim.job, "node": judgement.claim.node}
    told |= {"reason": judgement.reason.name.lower(), "sentence": judgement.reason.sentence}
    named = (finding for finding in judgement.evidence.findings if finding.reason is judgement.reason)
    if (finding := next(named, None)) is not None:
        told |= {"finding": finding.detail, "observed": finding.observed, "limit": finding.limit}
    return told


def lines_of(vote: dict[str, Any]) -> Iterator[str]:
    """Yields a vote as lines for people."""
    counts = [each["reason"] for each in vote["jobs"]]
    accepted = counts.count(Reason.ACCEPTED.name.lower())
    what = "would abstain" if vote["vote"] == "abstention" else f"would accept {accepted} of {len(counts)} jobs"
    if vote["vote"] == "too late":
        what = f"too late: {vote['judged']} of {vote['submitted']} judged"
    yield f"round {vote['round']} of run {vote['run']}, version {vote['version']}: {what}"
    for each in vote["jobs"]:
        if each["reason"] != Reason.ACCEPTED.name.lower():
            detail = f": {each['finding']} (measured {each['observed']:.6g}, limit {each['limit']:.6g})"
            yield f"  job {each['job']} of node {each['node']}: {each['sentence']}{detail if 'finding' in each else ''}"


def serve_dry(settings: ValidatorSettings, tell: Tell) -> int:
    """Judges and tells until stopped; returns the exit code."""
    configure("validator-dry-run", settings.log_level)
    torch.set_num_threads(1)
    folder = settings.state_dir / FOLDER
    with accessing(f"write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    dry, close = build(settings, tell)
    return Daemon("validator-dry-run", dry.tick, settings.interval_seconds, folder / HEALTH_FILE, close=close).run()


def build(settings: ValidatorSettings, tell: Tell) -> tuple[DryRunLoop, Callable[[], None]]:
    """Returns the loop, and what closes it.

    Raises:
        Unavailable: the chain does not answer.
    """
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    coordinators = RunCoordinators(settings.coordinator_urls)
    runs = Runs(coordinators, chain.deployment, settings.state_dir / "weights", settings.sources, settings.device)
    judge = LocalJudge(Fetching(BlobStores(trusted=coordinators.urls)), NO_NODE)

    def close() -> None:
        for part in (judge, runs, coordinators, chain):
            part.close()

    return DryRunLoop(chain, runs, judge, tell), close


def _key(followed: FollowedRound) -> tuple[int, bytes]:
    return followed.number, followed.beacon
