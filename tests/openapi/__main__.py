"""``make fuzz-api``: coordinator, ledger and its pages asked from OpenAPI documents; a table, then a line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.conftest import ROOT


def main(examples: Annotated[int, typer.Option(min=2, help="Requests for each operation.")] = 500) -> None:
    """Ask both APIs."""
    with tempfile.TemporaryDirectory() as folder:
        tests = [str(ROOT / "tests" / api / "test_openapi.py") for api in ("coordinator", "ledger")]
        words = [sys.executable, "-m", "pytest", *tests, "--examples", str(examples), "--asked", folder]
        failed = subprocess.run(words, cwd=ROOT).returncode
        told = {path.stem: json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())}
    table = Table("API", "operation", title=f"{examples} requests an operation")
    for column in ("2xx", "4xx", "5xx", "refused without a sentence"):
        table.add_column(column, justify="right")
    rows = [(api, one) for api, everything in told.items() for one in everything]
    for api, one in rows:
        counts = [_of_kind(one, kind) for kind in (2, 4, 5)]
        table.add_row(api, one["operation"], *map(str, counts), str(len(one["defects"]) - counts[2]))
    Console(width=120).print(table)
    requests, errors = sum(sum(one["statuses"].values()) for _, one in rows), sum(_of_kind(one, 5) for _, one in rows)
    print(json.dumps({"operations": len(rows), "requests": requests, "server_errors": errors}))
    raise typer.Exit(failed)


def _of_kind(one: dict[str, dict[str, int]], kind: int) -> int:
    return sum(times for status, times in one["statuses"].items() if int(status) // 100 == kind)


if __name__ == "__main__":
    typer.run(main)
