"""Proofs built and verified, against the reference package, and what they cost a worker.

The same activations, 512 rows of 4096 channels in bf16, go through the reference package `toploc` (built from source)
and through ours, turn by turn in one process. Where the 128th and 129th magnitudes of a chunk tie, the reference keeps
whichever its sort leaves; such numbers are moved apart first, so that the proofs must agree to the last byte. The
reference runs on one thread and on all, and its faster way counts. Ours verifies more: sign, null guard, modulus.

A worker's share: the built-in model decodes eight jobs, as a worker of `make demo` does each round, and proving them is
timed against it. Files and roots, which any worker owes whatever it proves, are shown beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from deploy.localnet.services import ROOT
from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.environments.registry import environment
from protocol.tensor.proofs import build_proofs, distances_batch
from protocol.wire.toploc.codec import CHUNK_ROWS, ENTRIES
from worker.engines.transformers_engine import TransformersEngine
from worker.producer import Producer
from worker.prover import Deployed, Work

ROWS, HIDDEN = 512, 4096
JOBS = 8
REPETITIONS = 100
ROUNDS = 7

Seconds = dict[str, list[float]]


def separated(hidden_TH: Tensor) -> Tensor:
    """Activations whose chunks have no tie at rank 128: what ties beyond it is lowered by one step of bf16."""
    bits_CF = hidden_TH.bfloat16().clone().view(torch.int16).view(-1, CHUNK_ROWS * hidden_TH.shape[1])
    for bits_F in bits_CF:
        magnitude_F = bits_F & 0x7FFF
        bound = magnitude_F.topk(ENTRIES).values[-1]
        spare = ENTRIES - int((magnitude_F > bound).sum())
        bits_F[(magnitude_F == bound).nonzero()[spare:, 0]] -= 1
    return bits_CF.view(torch.bfloat16).view(hidden_TH.shape)


def take_turns(ways: dict[str, Callable[[], object]], repetitions: int) -> Seconds:
    """Wall-clock of each way, one after the other, again and again; two turns before are not counted."""
    seconds: Seconds = {name: [] for name in ways}
    for turn in track(range(repetitions + 2), description="proofs", transient=True):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def on_threads(count: int, way: Callable[[], object]) -> Callable[[], object]:
    """``way`` on so many threads of torch."""

    def run() -> object:
        torch.set_num_threads(count)
        return way()

    return run


def proofs_side_by_side(repetitions: int) -> Seconds:
    """Builds and verifies with both packages, once their proofs are seen to be the same."""
    from toploc import build_proofs_bytes, verify_proofs_bytes

    hidden_TH = separated(torch.randn(ROWS, HIDDEN, generator=torch.Generator().manual_seed(1)))
    chunks = CHUNK_ROWS, ENTRIES
    proofs = build_proofs(hidden_TH)
    if proofs != build_proofs_bytes(hidden_TH, *chunks, skip_prefill=True):
        raise SystemExit("our proofs are not the reference's: nothing to compare")
    ways: dict[str, Callable[[], object]] = {}
    for threads in sorted({1, os.cpu_count() or 1}):
        for name, way in (
            ("ours, build", lambda: build_proofs(hidden_TH)),
            ("toploc, build", lambda: build_proofs_bytes(hidden_TH, *chunks, skip_prefill=True)),
            ("ours, verify", lambda: distances_batch(hidden_TH, [ROWS], [proofs])),
            ("toploc, verify", lambda: verify_proofs_bytes(hidden_TH, proofs, *chunks, skip_prefill=True)),
        ):
            if threads == 1 or name.startswith("toploc"):
                ways[f"{name}, threads {threads}"] = on_threads(threads, way)
    return take_turns(ways, repetitions)


def worker_rounds(model: Path, rounds: int) -> Seconds:
    """Seconds of decoding, of proving, and of making files and roots, in rounds of eight jobs each."""
    torch.set_num_threads(1)
    run = read_run_file(BUILTIN)
    tasks = environment(run.rules.environment.name, run.rules.environment.params)
    producer = Producer(TransformersEngine(), run.rules, tasks, Deployed(1, "0x" + "11" * 20))
    producer.load(1, model)
    seconds: Seconds = {"decode": [], "prove": [], "artifacts": []}
    for number in track(range(rounds + 1), description="rounds", transient=True):
        work = Work(number, 1, tuple(range(JOBS)), bytes([number]) * 32, 1, bytes(32), 10**12)
        requested = producer.tasks(work)
        marks = [time.perf_counter()]
        completions = producer.complete(requested)
        marks.append(time.perf_counter())
        rollouts = producer.prove(requested, completions)
        marks.append(time.perf_counter())
        size = run.rules.rollouts_per_job
        for job in work.jobs:
            producer.finish(work, job, tuple(rollouts[job * size : (job + 1) * size]))
        marks.append(time.perf_counter())
        if number:  # the first round warms up
            for name, start, stop in zip(seconds, marks, marks[1:], strict=False):
                seconds[name].append(stop - start)
    return seconds


def fastest(seconds: Seconds, name: str) -> float:
    """The median of the faster way of that name."""
    return min(statistics.median(times) for way, times in seconds.items() if way.startswith(name))


def share(rounds: Seconds, part: str) -> float:
    """The median over the rounds of a part's time by the time of decoding."""
    return statistics.median(time_ / decode for time_, decode in zip(rounds[part], rounds["decode"], strict=True))


def show(proofs: Seconds, rounds: Seconds) -> None:
    """Prints the tables for people, then one line of JSON."""
    console = Console(width=100)
    load = os.getloadavg()[0]
    for title, seconds in (
        (f"{ROWS}x{HIDDEN} bf16, top {ENTRIES}, load {load:.1f}", proofs),
        (f"a worker's round of {JOBS} jobs, one thread", rounds),
    ):
        table = Table(title=title)
        for column in ("", "median ms", "least ms", "runs"):
            table.add_column(column, justify="right" if column else "left")
        for name, times in seconds.items():
            table.add_row(name, f"{statistics.median(times) * 1e3:.3f}", f"{min(times) * 1e3:.3f}", str(len(times)))
        console.print(table)
    figures = {
        "build_ratio": fastest(proofs, "toploc, build") / fastest(proofs, "ours, build"),
        "verify_ratio": fastest(proofs, "toploc, verify") / fastest(proofs, "ours, verify"),
        "prover_share": share(rounds, "prove"),
    }
    console.print(f"files and roots take another {share(rounds, 'artifacts'):.3f} of the time that decoding takes")
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}))


def main() -> None:
    """Measures both and shows the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--model", type=Path, help="a built-in model made before, instead of a new one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assize-toploc-") as folder:
        model = arguments.model or Path(folder) / "model"
        if not arguments.model:
            print("making the built-in model, about a minute", flush=True)
            words = [sys.executable, str(ROOT / "assize.py"), "trainer", "make", str(model)]
            subprocess.run(words, check=True, capture_output=True, cwd=ROOT)
        rounds = worker_rounds(model, arguments.rounds)
        show(proofs_side_by_side(arguments.repetitions), rounds)


if __name__ == "__main__":
    main()
