"""Makes the artifacts of assigned jobs step by step, from an assignment to what is signed.

Needs neither chain nor coordinator: everything comes with the work. Adversaries override single steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from prometheus_client import Histogram

from protocol.environments.environment import Environment, at_version
from protocol.tensor.completions import Completion
from protocol.tensor.directory import shape_of
from protocol.wire.artifact_blob import head_of
from protocol.wire.rollout import Artifact, Rollout, encode
from protocol.wire.rules import Rules
from protocol.wire.units import ModelShape
from worker import prover
from worker.engines.engine import Engine
from worker.prover import Deployed, Finished, Task, Work

SECONDS = Histogram("assize_worker_seconds", "Seconds by part of a round", ["part"])


@dataclass(frozen=True, slots=True)
class WorkPace:
    """Measured pace of a work: output tokens a second, proofs included, and a job; when it ended (monotonic)."""

    tokens_per_second: float
    tokens_per_job: float
    ended: float


class Producer:
    """Makes the jobs of one run. ``load`` a version first, then ``make`` each piece of work.

    ``tell`` is called with each part of the work as it begins; ``tokens_per_second`` is that of the last work's
    generation, and ``pace`` that of all of it.
    """

    shape: ModelShape

    def __init__(self, engine: Engine, rules: Rules, environment: Environment, deployed: Deployed) -> None:
        self.engine, self.rules, self.environment, self.deployed = engine, rules, environment, deployed
        self.loaded: int | None = None
        self.cancelled = Event()
        self.tell: Callable[[str], None] = lambda activity: None
        self.tokens_per_second: float | None = None
        self.pace: WorkPace | None = None

    def load(self, version: int, directory: Path) -> None:
        """Loads a policy version, in place of the one that is loaded.

        Raises:
            Misconfigured: ``directory`` does not hold weights that load.
            UnfitCheckpoint: its files are not those of the run.
        """
        if version == self.loaded:
            return
        tasks = at_version(self.environment, directory)
        if self.loaded is None:
            self.engine.load(directory)
            self.shape = shape_of(directory)
        else:
            self.engine.swap(directory)
        self.loaded, self.environment = version, tasks

    def read_ahead(self, version: int, directory: Path) -> None:
        """Gets a later version ready to load, from another thread, while the present one generates.

        Raises:
            Misconfigured: ``directory`` does not hold weights that load.
        """
        if self.loaded is not None and version > self.loaded:
            self.engine.read_ahead(directory)

    def make(self, work: Work, cancel: Event | None = None) -> list[Finished]:
        """Makes every job of ``work``, in order.

        Raises:
            Unavailable: ``cancel`` was set.
        """
        self.cancelled = cancel or Event()
        tasks = self.tasks(work)
        self.tell("generating")
        started = time.monotonic()
        with SECONDS.labels("generate").time():
            completions = self.complete(tasks)
        tokens = sum(len(completion.output_tokens) for completion in completions)
        self.tokens_per_second = tokens / max(time.monotonic() - started, 1e-6)
        self.tell("proving")
        with SECONDS.labels("prove").time():
            rollouts = self.prove(tasks, completions)
            size = self.rules.rollouts_per_job
            parts = [tuple(rollouts[start : start + size]) for start in range(0, len(rollouts), size)]
            finished = [self.finish(work, job, part) for job, part in zip(work.jobs, parts, strict=True)]
        ended = time.monotonic()
        if tokens:
            self.pace = WorkPace(tokens / max(ended - started, 1e-6), tokens / len(finished), ended)
        return finished

    def tasks(self, work: Work) -> list[Task]:
        """Returns the rollouts to make, in (job, rollout) order."""
        return prover.tasks_of(work, self.deployed, self.rules, self.environment, self.engine.model)

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions of ``tasks``, in their order."""
        return self.engine.generate([task.request for task in tasks], self.cancelled)

    def prove(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Rollout]:
        """Returns the rollouts with their proofs, in the order of ``tasks``."""
        return prover.prove(tasks, completions, self.rules)

    def finish(self, work: Work, job: int, rollouts: tuple[Rollout, ...]) -> Finished:
        """Returns one job's file, its head and units."""
        artifact = self.artifact(work, job, rollouts)
        root, units = self.claim(work, artifact)
        file = self.encode(artifact)
        return Finished(job, file, head_of(root, file), units)

    def artifact(self, work: Work, job: int, rollouts: tuple[Rollout, ...]) -> Artifact:
        """Returns the artifact of one job, in the determinism class that the engine measured."""
        return Artifact(work.round, job, work.node, work.manifest_root, rollouts, self.engine.canary)

    def encode(self, artifact: Artifact) -> bytes:
        """Returns the artifact's file. Raises ``Rejected`` if it exceeds the limits that validators read by."""
        return encode(artifact)

    def claim(self, work: Work, artifact: Artifact) -> tuple[bytes, int]:
        """Returns the root of the rollouts and the units to claim."""
        return prover.claim(work, self.deployed, self.shape, artifact)
