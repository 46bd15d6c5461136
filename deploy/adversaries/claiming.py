"""Workers that do different work from the assignment, or claim more than they did."""

from __future__ import annotations

from dataclasses import replace

from protocol.environments.registry import environment
from protocol.wire.rollout import Artifact, Rollout
from worker import prover
from worker.producer import Producer
from worker.prover import Task, Work


class InflatedUnits(Producer):
    """Claims a tenth more units than its tokens took."""

    def claim(self, work: Work, artifact: Artifact) -> tuple[bytes, int]:
        """Returns the root of the rollouts and the units to claim."""
        root, units = super().claim(work, artifact)
        return root, min(units + max(1, units // 10), work.max_units)


class WrongEnvironment(Producer):
    """Takes its problems from an easier environment: sums of fewer digits."""

    def tasks(self, work: Work) -> list[Task]:
        """Returns the tasks to work on."""
        digits = int(self.rules.environment.params.get("digits", 3))
        easier = environment(self.rules.environment.name, {"digits": digits - 1 if digits > 1 else digits + 1})
        return prover.tasks_of(work, self.deployed, self.rules, easier, self.engine.model)


class OtherPrompts(Producer):
    """Takes the prompts of another round's seeds, with its own round's noise."""

    def tasks(self, work: Work) -> list[Task]:
        """Returns the tasks to work on."""
        others = super().tasks(replace(work, round=work.round + 1))
        return [
            Task(other.problem, replace(task.request, prompt_tokens=other.request.prompt_tokens))
            for task, other in zip(super().tasks(work), others, strict=True)
        ]


class OtherPolicy(Producer):
    """Names another checkpoint in its artifact than the one assigned."""

    def artifact(self, work: Work, job: int, rollouts: tuple[Rollout, ...]) -> Artifact:
        """Returns the artifact to hand in."""
        return super().artifact(replace(work, manifest_root=bytes(32)), job, rollouts)


class WrongLogprobs(Producer):
    """Reports logprobs a tenth too high, which changes importance ratios."""

    def artifact(self, work: Work, job: int, rollouts: tuple[Rollout, ...]) -> Artifact:
        """Returns the artifact to hand in."""
        shifted = tuple(replace(rollout, logprobs=rollout.logprobs * 0.9) for rollout in rollouts)
        return super().artifact(work, job, shifted)
