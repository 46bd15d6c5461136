"""``make bench-scale``: how cost grows with the nodes of a run, at ten jobs an hour each; then one line of JSON.

The coordinator's API in two processes, its driver and the ledger as they are started by hand, over a chain with a
block a second. The workers are one more process that hands real artifacts in again; votes are scripted, nothing is
generated or judged. Requests are timed by whoever made them, on the same two cores.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import torch
import typer
from rich.console import Console
from rich.table import Table

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.registry import environment
from protocol.tensor.determinism import ExactShape
from protocol.wire.rules import decode_rules
from tests.bench.ledger.serving import serving
from tests.bench.scale.market import IN_FLIGHT, Listed, market
from tests.bench.scale.trading import LOOK_SECONDS, READ_SECONDS, Reader, Trading, repeated
from tests.conftest import ROOT
from tests.coordinator.market import server, settings_file
from tests.coordinator.swarm import Swarm
from trainer.builtin import Warmup, make_builtin
from worker.engines.registry import make_engine
from worker.producer import Producer
from worker.prover import Deployed, Work

JOBS_PER_HOUR = 10
"""Of each node."""
ROUND_SECONDS = 180
"""From the opening of a round to its verdict, nearly; two are under way at once."""
SHORTEST_SECONDS, LONGEST_SECONDS = 20, 160
"""Time that a node takes for its jobs of a round."""
ARTIFACTS, ENOUGH_STEPS = 8, 60
"""Jobs made to be handed in again, and steps of the model that makes them."""
API_PROCESSES = 2
"""One for each of the two cores."""
MOST_P99_MS, MOST_COST_GROWTH, MOST_MEMORY_GROWTH = 250, 1.3, 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """One size: latencies in seconds by kind, memory in MiB over time by process and processor seconds by role.

    All are those since the last node arrived, but for ``arrival_p99``, the latency in seconds before.
    """

    nodes: int
    seconds: dict[str, list[float]]
    refused: dict[str, int]
    settled: int
    lost: int
    rounds: int
    lasted: float
    arrival_p99: float
    memory: dict[str, list[float]]
    processor: dict[str, float]

    @property
    def p99_ms(self) -> float:
        """Of every request to coordinator and ledger."""
        everything = [each for of_kind in self.seconds.values() for each in of_kind]
        return 1000 * float(np.quantile(everything, 0.99))

    @property
    def ms_per_job(self) -> float:
        """Processor milliseconds of coordinator and ledger for each settled job."""
        return 1000 * sum(self.processor.values()) / max(1, self.settled)

    @property
    def growth(self) -> tuple[float, str]:
        """Largest growth of a process's memory over the last half, as a share of what it held before, and whose."""
        return max((growth(samples), name) for name, samples in self.memory.items())


def growth(samples: Sequence[float]) -> float:
    """Returns by how much a line through the last half of the samples rises, as a share of its start."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return 0.0
    slope, start = np.polyfit(range(len(half)), half, 1)
    return float(slope * (len(half) - 1) / start)


def main(
    nodes: Annotated[str, typer.Option(help="Sizes, one after another.")] = "100 300 1000",
    minutes: Annotated[float, typer.Option(min=1, help="Of each size.")] = 20,
) -> None:
    """Measure coordinator and ledger at several sizes."""
    console, found = Console(width=120), []
    with tempfile.TemporaryDirectory() as folder:
        console.print("making artifacts of the built-in model to hand in again")
        _make_artifacts(Path(folder))
        for size in map(int, nodes.split()):
            console.print(f"{size} nodes for {minutes:g} minutes")
            found.append(measure(size, 60 * minutes, Path(folder), console))
    _show(console, found)
    told = {
        "p99_ms": round(max(each.p99_ms for each in found), 1),
        "jobs_per_hour": {str(each.nodes): round(3600 * each.settled / each.lasted) for each in found},
        "lost": sum(each.lost for each in found),
        "memory_growth": round(max(each.growth[0] for each in found), 3),
        "cost_growth": round(found[-1].ms_per_job / found[0].ms_per_job, 3),
    }
    print(json.dumps(told))
    slow, dear = told["p99_ms"] > MOST_P99_MS, told["cost_growth"] > MOST_COST_GROWTH
    raise typer.Exit(int(slow or dear or told["lost"] > 0 or told["memory_growth"] > MOST_MEMORY_GROWTH))


def measure(size: int, seconds: float, artifacts: Path, console: Console) -> Measured:
    """One market of so many nodes, from the first heartbeat of the last one to the last settlement."""
    jobs = min(255, round(size * JOBS_PER_HOUR * ROUND_SECONDS / IN_FLIGHT / 3600))
    rounds = max(2, round(seconds / ROUND_SECONDS * IN_FLIGHT))
    with ExitStack() as stack:
        swarm, listed = stack.enter_context(market(size, 2 * ROUND_SECONDS))
        more = {"max_rounds": rounds, "first_round_nodes": size, "jobs_per_round": jobs, "relay_wait_seconds": 30.0}
        settings = swarm.settings(lease_seconds=15.0, api_processes=API_PROCESSES, **more)
        port, api = stack.enter_context(server(settings))
        driver = stack.enter_context(_driving(settings))
        ledger = stack.enter_context(serving(swarm.anvil.url, settings.addresses, f"{swarm.directory}/ledger.sqlite"))
        watched = {"api": api, "driver": driver, "ledger": ledger.process.pid}
        workers = stack.enter_context(_replaying(swarm, listed, f"http://127.0.0.1:{port}", artifacts))
        assert workers.stdout is not None
        arrived = json.loads(workers.stdout.readline())
        trading, reader = Trading(swarm), Reader(ledger.http, swarm.run, [each.node for each in listed])
        samples: dict[str, list[float]] = {}
        began, before = time.monotonic(), _processor(watched)
        with repeated(trading.step, LOOK_SECONDS), repeated(reader.ask, READ_SECONDS):
            told = 0
            while trading.rounds < rounds:
                time.sleep(5)
                for name, pid in watched.items():
                    for place, each in enumerate(_family(pid)):
                        samples.setdefault(f"{name} {place}", []).append(each.memory_info().rss / 2**20)
                if trading.rounds > told:
                    told = trading.rounds
                    console.print(f"  {told} of {rounds} rounds, {trading.settled} jobs settled, {trading.lost} lost")
                if time.monotonic() - began > 2 * seconds + 600:
                    raise SystemExit(f"after {2 * seconds + 600:.0f} s {trading.rounds} of {rounds} rounds have ended")
        lasted = time.monotonic() - began
        after = _processor(watched)
        answer, _ = workers.communicate("\n", timeout=120)
        heard = json.loads(answer.splitlines()[-1])
        seconds_by_kind = heard["seconds"] | {"ledger": reader.seconds}
        processor = {name: after[name] - before[name] for name in watched}
        counts = (trading.settled, trading.lost, trading.rounds)
        return Measured(
            size, seconds_by_kind, heard["refused"], *counts, lasted, arrived["arrival_p99"], samples, processor
        )


def _make_artifacts(folder: Path) -> None:
    """Has a worker's own parts make a few jobs with the built-in model."""
    rules = decode_rules((ROOT / "deploy" / "runs" / "builtin-rules.json").read_bytes())
    tasks = environment(rules.environment.name, rules.environment.params)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as model:
        make_builtin(Path(model), 3, Arithmetic(), Warmup(steps=ENOUGH_STEPS))
        engine = make_engine("transformers", rules.model.dtype, "cpu", ExactShape.of(rules))
        producer = Producer(engine, rules, tasks, Deployed(0, "0x" + "00" * 20))
        producer.load(0, Path(model))
        for made in producer.make(Work(0, 0, tuple(range(ARTIFACTS)), bytes(32), 0, bytes(32), 1 << 62)):
            (folder / f"{made.job}.parquet").write_bytes(made.file)


def _show(console: Console, found: Sequence[Measured]) -> None:
    table = Table("nodes", title="10 jobs an hour a node, one run of each size")
    columns = ("jobs", "lost", "jobs/h", "requests/s", "median ms", "p99 ms", "CPU ms/job", "API", "driver", "ledger")
    for column in (*columns, "memory, last half"):
        table.add_column(column, justify="right")
    for each in found:
        everything = [seconds for of_kind in each.seconds.values() for seconds in of_kind]
        grown, whose = each.growth
        parts = (f"{1000 * each.processor[name] / max(1, each.settled):.1f}" for name in ("api", "driver", "ledger"))
        table.add_row(
            *(str(each.nodes), str(each.settled), str(each.lost), f"{3600 * each.settled / each.lasted:.0f}"),
            *(f"{len(everything) / each.lasted:.1f}", f"{1000 * statistics.median(everything):.1f}"),
            *(f"{each.p99_ms:.1f}", f"{each.ms_per_job:.1f}", *parts, f"{grown:+.1%} {whose}"),
        )
    console.print(table)
    kinds = Table("nodes", "request", title="Of each kind of request")
    for column in ("count", "median ms", "p99 ms", "most ms"):
        kinds.add_column(column, justify="right")
    for each in found:
        for kind, seconds in sorted(each.seconds.items()):
            figures = (statistics.median(seconds), float(np.quantile(seconds, 0.99)), max(seconds))
            kinds.add_row(str(each.nodes), kind, str(len(seconds)), *(f"{1000 * figure:.1f}" for figure in figures))
        kinds.add_row(str(each.nodes), "while they arrived", "", "", f"{1000 * each.arrival_p99:.1f}", "")
        for why, times in each.refused.items():
            kinds.add_row(str(each.nodes), f"refused, {why}", str(times))
    console.print(kinds)


def _processor(watched: dict[str, int]) -> dict[str, float]:
    return {name: sum(sum(each.cpu_times()[:2]) for each in _family(pid)) for name, pid in watched.items()}


def _family(pid: int) -> list[psutil.Process]:
    """Returns a process and those that it has forked."""
    process = psutil.Process(pid)
    return [process, *process.children()]


@contextmanager
def _driving(settings: Any) -> Iterator[int]:
    """``assize coordinator drive``; its pid."""
    file = settings_file(settings)
    words = [str(ROOT / "assize.py"), "coordinator", "drive", "--settings", str(file)]
    with (settings.state_dir / "drive.log").open("w") as log:
        process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=log)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def _replaying(swarm: Swarm, listed: list[Listed], url: str, artifacts: Path) -> Iterator[subprocess.Popen[str]]:
    deployment = swarm.chain.deployment
    place = {"url": url, "chain_id": deployment.chain_id, "rounds": deployment.rounds, "run": swarm.run}
    took = {"artifacts": str(artifacts), "shortest": SHORTEST_SECONDS, "longest": LONGEST_SECONDS}
    keys = [(each.node, each.secret.hex()) for each in listed]
    words = [sys.executable, "-m", "tests.bench.scale.replaying"]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(place | took | {"workers": keys}) + "\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    typer.run(main)
