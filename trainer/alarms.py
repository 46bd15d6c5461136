"""Alarms about a training run: figures of its last steps that someone should look at. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

RECENT = 5
"""Steps whose mean is compared; nothing is said before twice as many."""
LEAST_ENTROPY = 0.1
"""Share of the first steps' entropy below which a policy has collapsed: its samples are hardly different any more."""
LEAST_REWARD = 0.8
"""Share of the best mean reward so far below which the reward has fallen."""
MOST_STALE = 0.2
"""Share of groups that came too late to be used, above which it is said."""
STARVED = 0.75
"""Share of the time in which the trainer only waits, above which it is starved."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of one training step: means of its tokens and rollouts, groups used and too old, and its seconds.

    ``waited_seconds`` of the ``seconds`` since the step before went into waiting for rollouts.
    """

    skipped: int
    entropy: float
    reward: float
    groups: int
    groups_stale: int
    waited_seconds: float
    seconds: float


def alarms(steps: Sequence[StepFigures]) -> dict[str, str]:
    """Returns what is wrong after the last of ``steps``, a sentence by name; steps are oldest first."""
    if not steps:
        return {}
    found = {}
    if steps[-1].skipped:
        found["not_finite"] = f"{steps[-1].skipped} optimizer steps were skipped: the gradient was not finite"
    if len(steps) < 2 * RECENT:
        return found
    first, last = steps[:RECENT], steps[-RECENT:]
    began, now = fmean(step.entropy for step in first), fmean(step.entropy for step in last)
    if now < LEAST_ENTROPY * began:
        found["entropy"] = f"entropy fell to {now:.3g} nats a token, from {began:.3g}: samples of a group hardly differ"
    best = max(fmean(step.reward for step in steps[at : at + RECENT]) for at in range(len(steps) - RECENT + 1))
    if (reward := fmean(step.reward for step in last)) < LEAST_REWARD * best:
        found["reward"] = f"reward fell to {reward:.3g} over {RECENT} steps, from {best:.3g}"
    stale, used = sum(step.groups_stale for step in last), sum(step.groups for step in last)
    if stale > MOST_STALE * (stale + used):
        found["stale"] = f"{stale / (stale + used):.0%} of the groups came too late to be used: fewer jobs a round"
    waited = sum(step.waited_seconds for step in last) / max(sum(step.seconds for step in last), 1e-9)
    if waited > STARVED:
        found["starved"] = (
            f"{waited:.0%} of the time went into waiting for rollouts: more workers, or fewer groups a step"
        )
    return found
