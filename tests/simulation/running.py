"""Many seeds, in several processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from protocol.chain.deployment import Deployment
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
