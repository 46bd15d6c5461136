"""Workers that hand in existing work: their own of an earlier round, or another node's of this one.

``overheard`` returns other submissions. On a network it reads the chain and the public addresses named there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event

from deploy.adversaries.choosing import prefilled
from protocol.environments.environment import Environment
from protocol.tensor.completions import Completion
from protocol.wire.artifact_blob import ArtifactHead
from protocol.wire.rollout import Rollout, decode
from protocol.wire.rules import Rules
from worker.engines.engine import Engine
from worker.producer import Producer
from worker.prover import Deployed, Finished, Task, Work

PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Overheard:
    """One job that another node handed in."""

    round: int
    job: int
    node: int
    file: bytes
    head: ArtifactHead


def nothing() -> Sequence[Overheard]:
    """Returns no submissions."""
    return ()


class Thief(Producer):
    """Hands in what it has ``overheard``; works honestly until there is something."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        engine: Engine,
        rules: Rules,
        environment: Environment,
        deployed: Deployed,
        overheard: Callable[[], Sequence[Overheard]] = nothing,
    ) -> None:
        super().__init__(engine, rules, environment, deployed)
        self.overheard = overheard
        self.handed_in = 0

    def make(self, work: Work, cancel: Event | None = None) -> list[Finished]:
        """Returns the jobs to hand in."""
        self.booty = self.wait_for_booty(work)
        if not self.booty:
            return super().make(work, cancel)
        return [self.steal(work, job, self.booty[place % len(self.booty)]) for place, job in enumerate(work.jobs)]

    def wait_for_booty(self, work: Work) -> list[Overheard]:
        """Returns other nodes' submissions, those of this round if they come in time."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            found = [one for one in self.overheard() if one.node != work.node]
            now = [one for one in found if one.round == work.round]
            if now or time.monotonic() > deadline:
                return now or found[-len(work.jobs) :]
            time.sleep(LOOK_SECONDS)

    def steal(self, work: Work, job: int, booty: Overheard) -> Finished:
        """Returns what is handed in for ``job``."""
        raise NotImplementedError


class AnothersArtifact(Thief):
    """Hands in another node's artifact as it is."""

    def steal(self, work: Work, job: int, booty: Overheard) -> Finished:
        """Returns what is handed in for ``job``."""
        artifact = decode(booty.file)
        _, units = self.claim(work, artifact)
        return Finished(job, booty.file, booty.head, units)


class AnothersRollouts(Thief):
    """Hands in another node's rollouts under its own name, round and job."""

    def steal(self, work: Work, job: int, booty: Overheard) -> Finished:
        """Returns what is handed in for ``job``."""
        return self.finish(work, job, decode(booty.file).rollouts)


class AnothersAnswers(Thief):
    """Hands in another node's completions under its own prompts, with the true policy's proofs."""

    def steal(self, work: Work, job: int, booty: Overheard) -> Finished:
        """Returns what is handed in for ``job``."""
        tasks = self.tasks(replace(work, jobs=(job,)))
        outputs = [tuple(rollout.output_tokens.tolist()) for rollout in decode(booty.file).rollouts]
        completions = prefilled(self.engine.model, self.rules, [task.request for task in tasks], outputs)
        return self.finish(work, job, tuple(self.prove(tasks, completions)))


class EarlierRound(Producer):
    """Works honestly once, and hands in those rollouts again as those of every later round."""

    kept: list[Rollout] | None = None

    def prove(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Rollout]:
        """Returns the rollouts to hand in."""
        if self.kept is None:
            self.kept = super().prove(tasks, completions)
        return [self.kept[n % len(self.kept)] for n in range(len(tasks))]

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        return [] if self.kept is not None else super().complete(tasks)


class EarlierFile(Producer):
    """Works honestly once, and hands in the same files again in every later round."""

    kept: list[Finished] | None = None

    def make(self, work: Work, cancel: Event | None = None) -> list[Finished]:
        """Returns the jobs to hand in."""
        if self.kept is None:
            self.kept = super().make(work, cancel)
            return self.kept
        return [replace(self.kept[n % len(self.kept)], job=job) for n, job in enumerate(work.jobs)]
