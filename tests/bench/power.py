"""``make bench-power``: jobs until steered rewards are found, by uplift and share of cheating owners.

python -m tests.bench.power [--histories 9] [--write ledger/api/detection.json]

Thirty owners do as much work as one another; each cheat multiplies the odds of a right answer by one factor. There are
two sources of tasks, prompts of all difficulties, and a policy that improves and falls back by turns. Predictions
use means and variances alone; measured are medians of histories, each stopped when the first cheat is condemned.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from deploy.runs.run_file import BUILTIN, read_run_file
from validator.records.rewards import (
    ALARM_ROUNDS,
    COMPARED_TILTS,
    SAMPLED_TILTS,
    GroupRewards,
    RoundRewards,
    SampledGroup,
    compared,
    condemned_since,
    evidence_after,
    sampled,
    to_sample,
)

GROUP, JUROR_SAMPLES, GROUPS_PER_JOB = 8, 16, 4
SEQUENTIAL = read_run_file(BUILTIN).rules.sequential
BOUND = SEQUENTIAL.bound
UPLIFTS, SHARES = (0.05, 0.1, 0.2), (0.1, 0.33, 0.6)
OWNERS, OWNER_GROUPS, MOST_ROUNDS = 30, 8, 1500
SOURCES = {"easy": (1.4, 0.9), "hard": (0.7, 1.9)}
"""Beta distribution of a prompt's chance of a right answer, by source; both are drawn as often."""


@dataclass(frozen=True, slots=True)
class Market:
    """Groups of each owner in a round; the first ``cheats`` owners lift their mean reward by ``uplift``."""

    shares: tuple[int, ...]
    cheats: int = 0
    uplift: float = 0.0


@dataclass(slots=True)
class Owner:
    """An owner's rounds, and its evidence in nats after each."""

    past: list[RoundRewards] = field(default_factory=list)

    @property
    def compared(self) -> list[float]:
        return evidence_after(each.compared for each in self.past)

    @property
    def sampled(self) -> list[float]:
        return evidence_after(each.sampled for each in self.past)


class Swarm:
    """Rounds of one market from one seed; what a juror samples is drawn only when it is asked for."""

    def __init__(self, market: Market, seed: int) -> None:
        self.market, self.owners = market, [Owner() for _ in market.shares]
        self._rng, self._drift = np.random.default_rng(seed), 0.0
        self._tilt = tilt_for(market.uplift)
        self._prompts: dict[tuple[int, int], list[tuple[tuple[float, ...], float]]] = {}

    def step(self, number: int, watched: range) -> None:
        """Plays one round, and adds it to the watched owners' past."""
        self._drift = 0.9 * self._drift + 0.2 * self._rng.normal()
        groups = self._work(number)
        for place in watched:
            self.owners[place].past.append(RoundRewards(number, compared(str(place), groups)))

    def sample(self, number: int, place: int) -> None:
        """Has the juror sample every prompt of an owner's round."""
        groups = [
            SampledGroup(own, tuple(self._rng.binomial(1, chance, JUROR_SAMPLES).astype(float)))
            for own, chance in self._prompts[number, place]
        ]
        past = self.owners[place].past
        past[number] = RoundRewards(number, past[number].compared, sampled(groups))

    def _work(self, number: int) -> list[GroupRewards]:
        places = np.repeat(np.arange(len(self.owners)), self.market.shares)
        sources = self._rng.integers(len(SOURCES), size=len(places))
        chances = lifted(self._rng.beta(*np.array(list(SOURCES.values()))[sources].T), self._drift)
        steered = np.where(places < self.market.cheats, lifted(chances, self._tilt), chances)
        rewards = self._rng.binomial(1, steered[:, None], (len(places), GROUP)).astype(float).tolist()
        groups = []
        for place, source, chance, own in zip(
            places.tolist(), sources.tolist(), chances.tolist(), rewards, strict=True
        ):
            groups.append(GroupRewards(str(place), list(SOURCES)[source], tuple(own)))
            self._prompts.setdefault((number, place), []).append((tuple(own), chance))
        return groups


def lifted(chance: NDArray[np.float64] | float, tilt: float) -> NDArray[np.float64]:
    """Returns the chance whose odds are exp(tilt) times as high."""
    return np.asarray(chance) / (np.asarray(chance) + (1 - np.asarray(chance)) * math.exp(-tilt))


def prompts() -> NDArray[np.float64]:
    """Returns chances of many prompts of both sources."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.beta(*shape, 20_000) for shape in SOURCES.values()])


def tilt_for(uplift: float) -> float:
    """Returns the tilt that lifts the mean reward by ``uplift``."""
    chances, low, high = prompts(), -8.0, 8.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if lifted(chances, middle).mean() - chances.mean() < uplift else (low, middle)
    return low


def play(market: Market, seed: int, rounds: int, every_round: bool = False) -> list[Owner]:
    """Returns the owners after some rounds, sampled every round, or else where an alarm asks for it."""
    swarm = Swarm(market, seed)
    everyone = range(len(market.shares))
    for number in range(rounds):
        swarm.step(number, everyone)
        for place in everyone:
            past = swarm.owners[place].past
            for each in [past[-1]] if every_round else to_sample(past, BOUND):
                swarm.sample(each.round, place)
    return swarm.owners


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs of one cheat until the alarm, and until it is condemned; the most, if not; groups that a juror sampled."""

    alarm: float
    condemned: float
    sampled_groups: int


def hunt(market: Market, seed: int, every_round: bool) -> Found:
    """Plays until the first owner is condemned."""
    swarm, alarm, number = Swarm(market, seed), math.inf, 0
    past = swarm.owners[0].past
    jobs_a_round = market.shares[0] / GROUPS_PER_JOB
    for number in range(MOST_ROUNDS):
        swarm.step(number, range(1))
        asked = [past[-1]] if every_round else to_sample(past, BOUND)
        for each in asked:
            swarm.sample(each.round, 0)
        alarm = min(alarm, (number + 1) * jobs_a_round) if asked else alarm
        if asked and condemned_since(past, BOUND) is not None:
            break
    else:
        return Found(alarm, math.inf, 0)
    seen = sum(each.sampled is not None for each in past) * market.shares[0]
    return Found(alarm, (number + 1) * jobs_a_round, seen)


def predicted_alarm(uplift: float, cheats: int) -> float:
    """Returns the jobs until the alarm by the comparison's drift: (1 - f)(c d - c²/2) nats a group, d in deviations."""
    gain = uplift * (1 - (cheats - 1) / (OWNERS - 1))
    drift = 0.0
    for shape in SOURCES.values():
        chances = np.random.default_rng(0).beta(*shape, 20_000)
        deviation = math.sqrt(chances.var() + (chances * (1 - chances)).mean() / GROUP)
        drift += (COMPARED_TILTS * gain / deviation - COMPARED_TILTS**2 / 2) * (1 - 1 / OWNERS) / len(SOURCES)
    return jobs_until(math.log(ALARM_ROUNDS), drift)


def predicted_samples(uplift: float) -> float:
    """Returns the jobs until the samples condemn: (t u - t² v / 2) n k / (n + k) nats a group, v within a prompt."""
    chances = prompts()
    steered = lifted(chances, tilt_for(uplift))
    pooled = (GROUP * steered + JUROR_SAMPLES * chances) / (GROUP + JUROR_SAMPLES)
    variance = float((pooled * (1 - pooled)).mean())
    pairs = GROUP * JUROR_SAMPLES / (GROUP + JUROR_SAMPLES)
    return jobs_until(BOUND, pairs * (SAMPLED_TILTS * uplift - SAMPLED_TILTS**2 * variance / 2))


def jobs_until(bound: float, drift_T: NDArray[np.float64]) -> float:
    """Returns the jobs at which the best of T tilts reaches the bound.

    By Dufresne's law, all starts together are ahead of the first round's by about the log of 1 / (nats a round).
    """
    best = float(drift_T.max())
    if best <= 0:
        return math.inf
    return (bound + math.log(len(drift_T)) - math.log1p(1 / (best * OWNER_GROUPS))) / best / GROUPS_PER_JOB


def main(
    histories: Annotated[int, typer.Option(min=1, help="Histories of each row.")] = 9,
    write: Annotated[
        Path | None, typer.Option(help="File for the line of JSON, such as the one that ledgers serve.")
    ] = None,
) -> None:
    """Print jobs until found, predicted and measured."""
    heads = ("uplift", "cheating", "alarm", "predicted", "condemned", "predicted", "groups sampled")
    table = Table(*heads, title="jobs of one cheat until found, medians")
    rows: list[dict[str, float | None]] = []
    for uplift in UPLIFTS:
        for share in (*SHARES, 1.0):
            every_round = share == 1.0
            cheats = round(share * OWNERS)
            market = Market((OWNER_GROUPS,) * OWNERS, cheats, uplift)
            found = [hunt(market, seed, every_round) for seed in range(histories)]
            alarm = math.inf if every_round else median(each.alarm for each in found)
            foreseen = math.inf if every_round else predicted_alarm(uplift, cheats)
            condemned = predicted_samples(uplift) if every_round else max(foreseen, predicted_samples(uplift))
            figures = (alarm, foreseen, median(each.condemned for each in found), condemned)
            groups = median(each.sampled_groups for each in found)
            name = "all, sampled always" if every_round else f"{share:.0%}"
            table.add_row(
                f"{uplift:g}", name, *(f"{each:.0f}" if each < math.inf else "–" for each in figures), f"{groups:.0f}"
            )
            keys = ("alarm_jobs", "alarm_jobs_predicted", "condemned_jobs", "condemned_jobs_predicted")
            said = {key: round(each, 1) if each < math.inf else None for key, each in zip(keys, figures, strict=True)}
            rows.append({"uplift": uplift, "share": share, **said, "groups_sampled": groups})
    Console(width=110).print(table)
    told = json.dumps({"false_alarm": SEQUENTIAL.false_alarm, "horizon_rounds": SEQUENTIAL.horizon_jobs, "power": rows})
    if write is not None:
        write.write_text(told + "\n")
    print(told)


if __name__ == "__main__":
    typer.run(main)
