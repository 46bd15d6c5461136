"""The judge without a queue: fetches artifacts and judges them in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from protocol.errors import AssizeError
from protocol.tensor.determinism import AnotherClass
from protocol.wire.evidence import Finding
from protocol.wire.pins import UnfitCheckpoint
from validator.judging.claims import NO_ROOT, Claim
from validator.judging.fetching import Fetching
from validator.judging.judge import FetchedJob, judge, limits_of
from validator.queue.judged_round import ATTEMPTS, JudgedRound
from validator.records.resampling import sampled_job
from validator.records.rewards import SampledGroup
from validator.rounds import FollowedRound

log = structlog.get_logger()


class LocalJudge:
    """Judges the artifacts that have arrived for ``juror``, all jobs of one policy version in one prefill."""

    def __init__(self, fetching: Fetching, juror: int) -> None:
        self._fetching, self._juror = fetching, juror

    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Fetches artifacts and judges those that have arrived; returns whether there was anything to judge."""
        groups: dict[tuple[int, bytes, bytes], list[tuple[JudgedRound, FetchedJob]]] = {}
        for round_ in rounds:
            ready = [] if round_.progress.impossible else self._ready(round_)
            there = round_.weights_there()
            if round_.settle_unfit():
                continue
            if there and ready:
                group = (round_.context.run, round_.context.rules_hash, round_.manifest_root)
                groups.setdefault(group, []).extend((round_, job) for job in ready)
        for jobs in groups.values():
            _judge(jobs, self._juror)
        return bool(groups)

    def all_silent(self, round_: JudgedRound, late: bool) -> bool:
        """See ``Judge``. Without weights nothing was judged, so silence proves nothing."""
        waiting = round_.waiting
        arrived = [claim for claim in waiting if self._look(round_, claim) is not None]
        # Late, what still waits for its turn waits for other artifacts of its own node.
        asked = late or all(self._fetching.tried(claim) for claim in waiting)
        return asked and not arrived and round_.weights_there()

    def denied(self, round_: JudgedRound) -> bool:
        """See ``Judge``."""
        return all(self._fetching.denied(claim) for claim in round_.waiting)

    def sample(self, round_: JudgedRound, job: int, secret: bytes, most: float) -> list[SampledGroup] | None:
        """See ``Judge``. It blocks, and is broken off in the end."""
        context, followed, claim = round_.context, round_.followed, round_.claim_or_missing(job)
        data = b"" if claim.root == NO_ROOT else self._look(round_, claim)
        if data is None or not round_.weights_there():
            return None
        give_up = time.monotonic() + most
        try:
            policy = context.weights.policy(followed.policy_version, round_.manifest_root)
            return sampled_job(policy, context.rules, claim, data, secret, lambda: time.monotonic() > give_up)
        except AssizeError as error:
            log.warning("not_sampled", round=claim.round, job=job, error=str(error))
        except Exception as error:  # as when judging, nothing may end the daemon
            log.error("sampling_failed", round=claim.round, job=job, error=repr(error), exc_info=True)
        return None

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets what was fetched for other rounds."""
        self._fetching.keep({followed.judged_round for followed in rounds})

    def close(self) -> None:
        """Ends the fetches."""
        self._fetching.close()

    def _ready(self, round_: JudgedRound) -> list[FetchedJob]:
        """Unjudged jobs whose artifacts have arrived; starts fetching the others."""
        looked = [(claim, self._look(round_, claim)) for claim in round_.waiting]
        return [FetchedJob(claim, data) for claim, data in looked if data is not None]

    def _look(self, round_: JudgedRound, claim: Claim) -> bytes | Finding | None:
        limits = limits_of(round_.context.rules, round_.context.environment)
        return self._fetching.look(claim, limits.file_bytes)


def _judge(jobs: Sequence[tuple[JudgedRound, FetchedJob]], juror: int) -> None:
    """Judges jobs of one policy version."""
    first = jobs[0][0]
    try:
        policy = first.context.weights.policy(first.followed.policy_version, first.manifest_root)
        context, submitted = first.context, [job for _, job in jobs]
        judgements = judge(policy, context.rules, submitted, juror)
    except UnfitCheckpoint as error:
        log.warning("not_judged", round=first.followed.number, error=str(error))
        return
    except AnotherClass:  # the same whenever it is tried; whoever serves the run tells of it
        for round_, _ in jobs:
            round_.progress.failures = ATTEMPTS
        return
    except Exception as error:  # a failure here may neither cost a worker nor end the daemon: the juror abstains
        for progress in {id(round_.progress): round_.progress for round_, _ in jobs}.values():
            progress.failures += 1
        log.error("judging_failed", round=first.followed.number, error=repr(error), exc_info=True)
        return
    for (round_, _), judgement in zip(jobs, judgements, strict=True):
        round_.record(judgement)
