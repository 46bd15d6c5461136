"""Exact against tolerant rules in bfloat16: tokens generated and checked a second, and bytes of an artifact.

Both ways make and judge the same jobs with the code of workers and validators, one after the other in one process, over
and over; ratios are of medians. The models are the built-in one after eight steps, and SmolLM2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.runs.run_file import BUILTIN
from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.determinism import ExactShape, with_canary
from protocol.wire.rules import ExactRules, Rules, Thresholds, decode_rules
from tests.conftest import ROOT
from tests.zoo.models import policies
from tests.zoo.stage import Judged, Stage, one_thread, passed
from worker.engines.transformers_engine import TransformersEngine

SMOLLM2 = ROOT / "models" / "smollm2"

CHECKS = 5
"""Times that each run's jobs are checked: those of the built-in model take some hundredths of a second."""

WIDE = Thresholds(
    sampling_void=50, logprob_median=5, logprob_tail=50, toploc=0.99, toploc_mean=0.99, toploc_null_ratio=0.99
)
"""Bounds for SmolLM2, whose rules were measured in float32: nothing is judged here but bits."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of one model: tokens a second generated and checked (medians), and bytes a token of its artifacts."""

    generated: float
    checked: float
    size: float


@dataclass(frozen=True, slots=True)
class Way:
    """A way of working: its name, and the stage with its rules."""

    name: str
    stage: Stage


def main() -> None:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each way")
    parser.add_argument("--jobs", type=int, default=8, help="of the built-in model in each run; of SmolLM2 a quarter")
    options = parser.parse_args()
    one_thread()
    console, found = Console(width=120), dict[str, dict[str, dict[str, float]]]()
    table = Table(
        "model", "rules", "generated tok/s", "checked tok/s", "bytes/token", title=f"{options.runs} runs each"
    )
    for model, ways, jobs in models(options.jobs):
        measured = measure(ways, jobs, options.runs)
        for name, figures in measured.items():
            cells = (f"{figures.generated:,.0f}", f"{figures.checked:,.0f}", f"{figures.size:.1f}")
            table.add_row(model, name, *cells)
        tolerant = measured["tolerant"]
        found[model] = {
            name: {
                "generate_cost": round(tolerant.generated / one.generated, 3),
                "check_cost": round(tolerant.checked / one.checked, 3),
                "bytes": round(one.size / tolerant.size, 3),
            }
            for name, one in measured.items()
            if name != "tolerant"
        }
    console.print(table)
    worst = {key: max(one[key] for ways in found.values() for one in ways.values()) for key in KEYS}
    print(json.dumps({**worst, "models": found}), flush=True)


KEYS = ("generate_cost", "check_cost", "bytes")


def models(jobs: int) -> Iterator[tuple[str, list[Way], int]]:
    """The models, the ways of working with each, and the jobs of a run."""
    older, newer = policies(Arithmetic(3))
    yield "built-in", ways_of(builtin_rules(), newer, older), jobs
    yield "SmolLM2", ways_of(smollm2_rules(), SMOLLM2, SMOLLM2), max(1, jobs // 4)


def builtin_rules() -> Rules:
    """The tolerant rules of the built-in run in bfloat16."""
    return decode_rules(BUILTIN.with_name("builtin-bfloat16-rules.json").read_bytes())


def smollm2_rules() -> Rules:
    """SmolLM2's rules in bfloat16, with wide bounds."""
    rules = decode_rules(BUILTIN.with_name("smollm2-rules.json").read_bytes())
    half = rules.model.model_copy(update={"dtype": "bfloat16", "head_dtype": "bfloat16"})
    return rules.model_copy(update={"model": half, "thresholds": WIDE})


def ways_of(rules: Rules, directory: Path, older: Path) -> list[Way]:
    """Tolerant rules, and exact ones with both proofs and with hashes alone."""
    ways = [Way("tolerant", Stage.of(rules, older, directory))]
    for proofs in ("both", "hash"):
        exact = ExactRules.model_validate({"proofs": proofs})
        own = with_canary(
            rules.model_copy(update={"model": rules.model.model_copy(update={"exact": exact})}), directory
        )
        ways.append(Way(f"exact, {proofs}", Stage.of(own, older, directory)))
    return ways


def measure(ways: list[Way], jobs: int, runs: int) -> dict[str, Measured]:
    """Measures every way ``runs`` times, in turns, after one that does not count; checks each run's jobs repeatedly."""
    generated, checked, sizes = (dict[str, list[float]]((way.name, []) for way in ways) for _ in range(3))
    producers = {way.name: way.stage.honest(engine_of(way.stage.rules)) for way in ways}
    for turn in range(runs + 1):
        for way in ways:
            work = way.stage.work(turn, range(jobs))
            started = time.perf_counter()
            made = producers[way.name].make(work)
            seconds = time.perf_counter() - started
            rates = []
            for _ in range(CHECKS):
                started = time.perf_counter()
                judged: list[Judged] = way.stage.judge(work, made)
                rates.append(1 / (time.perf_counter() - started))
                assert all(map(passed, judged)), [one.judgement.reason for one in judged]
            tokens = sum(one.flips[0] for one in judged)
            if turn:
                generated[way.name].append(tokens / seconds)
                checked[way.name] += [tokens * rate for rate in rates]
                sizes[way.name].append(sum(len(one.file) for one in made) / tokens)
    columns = (generated, checked, sizes)
    return {way.name: Measured(*(statistics.median(column[way.name]) for column in columns)) for way in ways}


def engine_of(rules: Rules) -> TransformersEngine:
    """The engine of a worker under these rules."""
    return TransformersEngine(rules.model.dtype, exact=ExactShape.of(rules))


if __name__ == "__main__":
    main()
