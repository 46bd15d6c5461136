"""Samples of a run's completions: what the model said at first and says now, and who computed it.

A sample is the first rollout of the first accepted job of a round: nobody chooses it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.explorer.contents import Contents, JobSources
from ledger.explorer.rollouts import ShownRollout, ShownTokens
from ledger.facts import Job, Round

SAMPLE_SECONDS = 0.5
"""Longest time that a page waits for one of its samples."""
KEPT_SAMPLES = 256


@dataclass(frozen=True, slots=True)
class SampledJob:
    """A job whose first rollout is shown, and the owner of its node."""

    round: Round
    job: Job
    owner: str
    sources: JobSources


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt with its completion, both None for the reason ``problem``; ``textless`` says why there is no text."""

    of: SampledJob
    prompt: ShownTokens | None
    rollout: ShownRollout | None
    problem: str = ""
    textless: str = ""


class Samples:
    """Samples from the bytes of jobs. Threads may share it."""

    def __init__(self, contents: Contents, seconds: float = SAMPLE_SECONDS) -> None:
        self._contents, self._seconds = contents, seconds
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Sample] = OrderedDict()

    def of(self, jobs: Sequence[SampledJob]) -> tuple[Sample, ...]:
        """Returns a sample of each job; what is not there in time goes on arriving.

        The newest is read first: its tokenizer is every version's, and relays drop old versions.
        """
        return tuple(reversed([self._sample(each) for each in reversed(jobs)]))

    def _sample(self, sampled: SampledJob) -> Sample:
        with self._lock:
            if (kept := self._kept.get(sampled.job.root)) is not None and kept.of == sampled:
                return kept
        sources = replace(sampled.sources, seats=())
        found = self._contents.job(sampled.job, sources, 0, self._seconds)
        artifact = found.artifact
        if artifact is None or not artifact.groups:
            return Sample(sampled, None, None, found.problem or "it has no rollout")
        group = artifact.groups[0]
        made = Sample(sampled, group.prompt, group.rollouts[0], "", artifact.textless)
        if not made.textless:
            with self._lock:
                self._kept[sampled.job.root] = made
                while len(self._kept) > KEPT_SAMPLES:
                    self._kept.popitem(last=False)
        return made
