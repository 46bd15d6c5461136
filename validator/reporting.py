"""A validator's present activity in words and figures, for its health file. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from validator.queue.judged_round import JudgedRound
from validator.rounds import FollowedRound
from validator.schedule import Step

PHASES = {
    Step.PREPARE: "judging ahead of the draw",
    Step.COMMIT: "to commit",
    Step.REVEAL: "to reveal",
    Step.NOTHING: "voted",
}


def judging_words(rounds: Sequence[JudgedRound]) -> str:
    """Returns the rounds that still have jobs to judge, and how many; empty if there are none."""
    parts = []
    for round_ in rounds:
        leaves, judged = round_.followed.leaves, round_.progress.judged
        done = sum(job in judged for job in leaves)
        if done < len(leaves):
            parts.append(f"round {round_.followed.number}, {done} of {len(leaves)} jobs judged")
    return "; ".join(parts)


def seats_now(steps: Sequence[tuple[FollowedRound, Step]], node: int) -> list[dict[str, Any]]:
    """Returns the seats of ``node`` in rounds that are not over, with their phase and its deadline."""
    return [
        {
            "round": one.number,
            "run": one.run,
            "appeal": one.appeal,
            "phase": PHASES.get(step, step.value),
            "deadline": one.deadline,
            "jobs": len(one.leaves),
        }
        for one, step in steps
        if node in one.jurors and not one.over
    ]


def waiting_words(steps: Sequence[tuple[FollowedRound, Step]], node: int, unjudged: str) -> str:
    """Returns what an idle validator waits for."""
    if unjudged:
        return f"for artifacts or weights: {unjudged}"
    for one, step in steps:
        if node not in one.jurors or one.over:
            continue
        if step in (Step.COMMIT, Step.REVEAL):
            return f"{PHASES[step]} in round {one.number}"
        return f"for the others of round {one.number}"
    return "for a seat"
