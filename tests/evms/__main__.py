"""``make evms``: a table, then a line of JSON; exit 1 where a run breaks its rules."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conftest import ROOT
from tests.evms.chain import REFUSED_EVERY, SLOW_SECONDS, WIDEST_LOGS

MILLISECONDS = 250
"""Time between blocks while a market is set up, and throughout in the quick one."""
STEPS = {"quick": 2, "slow": 1}


@dataclass(frozen=True, slots=True)
class Ran:
    """A market's run: seconds between its blocks, and what came of it; ``passed`` if it kept every rule."""

    block_seconds: float
    versions: int
    audit: str
    passed: bool
    seconds: float


def main() -> int:
    """Runs both markets, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=STEPS)
    only = parser.parse_args().only
    ran = {kind: run(kind, steps) for kind, steps in STEPS.items() if only in (None, kind)}
    table = Table(title=f"Hardhat's node, logs of {WIDEST_LOGS} blocks at most, 1 request in {REFUSED_EVERY} refused")
    for name in ("blocks", "seconds a block", "versions", "audit", "rules kept", "seconds"):
        table.add_column(name)
    for kind, each in ran.items():
        row = (each.block_seconds, each.versions, each.audit, each.passed, f"{each.seconds:.0f}")
        table.add_row(kind, *map(str, row))
    Console().print(table)
    print(json.dumps({kind: asdict(each) for kind, each in ran.items()}))
    return 0 if all(each.audit == "ok" and each.passed for each in ran.values()) else 1


def run(kind: str, steps: int) -> Ran:
    """Runs the market to its last step."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="assize-evms-") as folder:
        root = Path(folder) / "net"
        settings = {
            "ASSIZE_ANVIL": str(ROOT / "tests" / "evms" / "second"),
            "ASSIZE_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "BLOCK_MILLISECONDS": str(MILLISECONDS),
        }
        if kind == "slow":
            settings["SLOW_AFTER"] = str(root / "parties.json")
        words = ("localnet", "run", "--steps", str(steps), "--root", str(root), "--evaluate-every", "0")
        command = (sys.executable, str(ROOT / "assize.py"), *words)
        process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)
        last = ""
        assert process.stdout
        for line in process.stdout:
            last = line.strip() or last
            print(line, end="", flush=True)
        status = process.wait()
    outcome = json.loads(last) if last.startswith("{") else {}
    block = SLOW_SECONDS if kind == "slow" else MILLISECONDS / 1_000
    audit = str(outcome.get("audit", "none"))
    return Ran(block, int(outcome.get("steps", 0)), audit, status == 0, time.monotonic() - began)


if __name__ == "__main__":
    raise SystemExit(main())
