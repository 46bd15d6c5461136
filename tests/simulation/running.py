"""Many seeds, in several processes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from protocol.chain.deployment import Deployment
from tests.simulation.faults import RATES
from tests.simulation.scenario import Outcome, Scenario
from tests.simulation.world import Tape

IN_MEMORY = Path("/dev/shm")


def run_seed(tape: Tape, deployment: Deployment, seed: int) -> Outcome:
    """One seed, on databases in memory where there is a file system for that."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        scenario = Scenario(seed, tape, deployment, Path(folder))
        try:
            return scenario.live()
        except Exception as error:  # whatever a seed dies of is told with its number, and the others go on
            scenario.outcome.differences.append(f"ended by {type(error).__name__}: {error}")
            return scenario.outcome


def run_seeds(seeds: Iterable[int], tape: Tape, deployment: Deployment, processes: int) -> Iterator[Outcome]:
    """Yields what came of each, in their order."""
    if processes == 1:
        yield from map(partial(run_seed, tape, deployment), seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(partial(run_seed, tape, deployment), seeds, chunksize=4)


def rare_faults(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Returns the kinds of fault that struck in less than a fifth of the seeds, each with its number of seeds."""
    seeds = Counter(kind for outcome in outcomes for kind in outcome.struck)
    return {kind: seeds[kind] for kind in RATES if 5 * seeds[kind] < len(outcomes)}
