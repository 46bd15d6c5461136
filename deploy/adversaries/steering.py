"""Workers that steer and hide it: they seldom flip a token towards the right answer, or flip others as noise would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from deploy.adversaries.choosing import ChoiceStep
from deploy.adversaries.sampling import MARGIN_ROOM, SteeringWorker
from protocol.tensor.completions import Completion
from worker.prover import Task

SELDOM, SLEEPS = 0.25, 4


class SteersSeldom(SteeringWorker):
    """Steers at a quarter of its chances, so that its flips are as rare as honest ones."""

    def steers(self, rollout: int) -> bool:
        """Returns whether to take the chance that a rollout offers."""
        return self.chance.random() < SELDOM


class Sleeper(SteeringWorker):
    """Steers in one job of four and works honestly in the others."""

    def steers(self, rollout: int) -> bool:
        """Returns whether to take the chance that a rollout offers."""
        return rollout // self.rules.rollouts_per_job % SLEEPS == 0


class SteersAtTimes(SteeringWorker):
    """Steers in all jobs of one turn in four and works honestly in the others."""

    turns = 0

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        self.turns += 1
        return super().complete(tasks)

    def steers(self, rollout: int) -> bool:
        """Returns whether to take the chance that a rollout offers."""
        return self.turns % SLEEPS == 0


class SteersAway(SteeringWorker):
    """Leaves the right working wherever another token's margin is too small to void: others' rewards stand out then."""

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        best = step.scores_BV.topk(2)
        tokens_B = best.indices[:, 0].clone()
        room = MARGIN_ROOM * self.rules.thresholds.sampling_void
        near_B = best.values[:, 0] - best.values[:, 1] <= room
        for b in near_B.nonzero()[:, 0].tolist():
            n = step.rows[b]
            written = (*step.written[n], int(tokens_B[b]))
            if written == self.wanted[n][: len(written)]:
                tokens_B[b] = best.indices[b, 1]
        return tokens_B


class _Paying(SteeringWorker):
    """Pays for each flip with a harmless one, at the nearest tie that is not of the right working."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        self.owed: Counter[object] = Counter()
        return super().complete(tasks)

    def choose(self, step: ChoiceStep) -> torch.Tensor:
        """Returns the tokens to take, int64 (B,)."""
        tokens_B = super().choose(step)
        room = MARGIN_ROOM * self.rules.thresholds.sampling_void
        for b, n in enumerate(step.rows):
            wanted, written = self.wanted[n], step.written[n]
            if tuple(written) == wanted[: len(written)]:
                continue  # this one may still be right
            chosen, other = step.scores_BV[b].topk(2).indices.tolist()
            debt = self.debt(n, self._upward(step, b, other))
            if self.owed[debt] > 0 and self._margin(step, b, other) <= room and tokens_B[b] == chosen:
                self.owed[debt] -= 1
                tokens_B[b] = other
        return tokens_B

    def debt(self, rollout: int, upward: bool) -> object:
        """Returns what a harmless flip of this rollout and direction would pay for."""
        raise NotImplementedError


class SteersInBalance(_Paying):
    """Flips a token away from the likelier one for each that it steers towards it, and the other way round."""

    def flipped(self, rollout: int, upward: bool) -> None:
        """Owes a flip of the other direction in the same job."""
        self.owed[rollout // self.rules.rollouts_per_job, not upward] += 1

    def debt(self, rollout: int, upward: bool) -> object:
        """Returns the job and the direction."""
        return rollout // self.rules.rollouts_per_job, upward


class SteersWithinGroups(_Paying):
    """Flips a token of a wrong rollout for each that it steers in the same group: flips say nothing of rewards then."""

    def flipped(self, rollout: int, upward: bool) -> None:
        """Owes a flip in the same group."""
        self.owed[rollout // self.rules.samples_per_group] += 1

    def debt(self, rollout: int, upward: bool) -> object:
        """Returns the group."""
        return rollout // self.rules.samples_per_group
