"""``make fuzz-api``: coordinator, ledger and its pages asked from OpenAPI documents; a table, then a line of JSON.

The pages show a database whose every text is hostile, and are asked 100,000 times; a browser opens each of them too.
"""

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

APIS = ("tests/coordinator/test_openapi.py", "tests/ledger/test_openapi.py")
BROWSER = "tests/browser/test_hostile.py"


def main(
    examples: Annotated[int, typer.Option(min=2, help="Requests for each operation of an API.")] = 500,
    pages: Annotated[int, typer.Option(min=2, help="Requests for each of the pages.")] = 4_200,
) -> None:
    """Ask both APIs, then the pages, and open some of these in a browser."""
    with tempfile.TemporaryDirectory() as folder:
        failed = _tested(folder, examples, *APIS, "-k", "not page")
        failed |= _tested(folder, pages, APIS[1], "-k", "page")
        failed |= _tested(folder, pages, BROWSER)
        told = {path.stem: json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())}
    opened = told.pop("browser", {"pages": 0, "csp_reports": None})
    table = Table("asked", "operation", title=f"{examples} requests an operation, {pages} a page")
    for column in ("2xx", "4xx", "5xx", "other defects"):
        table.add_column(column, justify="right")
    for asked, everything in told.items():
        for one in everything:
            counts = [_of_kind(one, kind) for kind in (2, 4, 5)]
            table.add_row(asked, one["operation"], *map(str, counts), str(len(one["defects"]) - counts[2]))
    Console(width=120).print(table)
    everything = [one for of in told.values() for one in of]
    line = {
        "operations": len(everything),
        "requests": sum(map(_requests, everything)),
        "server_errors": sum(_of_kind(one, 5) for one in everything),
        "page_inputs": sum(map(_requests, told.get("pages", []))),
        "pages_in_browser": opened["pages"],
        "csp_reports": opened["csp_reports"],
    }
    print(json.dumps(line))
    raise typer.Exit(int(failed))


def _tested(folder: str, examples: int, *tests: str) -> bool:
    """Returns whether a test failed."""
    words = (sys.executable, "-m", "pytest", *tests, "--examples", str(examples), "--asked", folder)
    words += ("-o", "faulthandler_timeout=0")  # a hundred thousand requests take longer than any test
    return subprocess.run(words, cwd=ROOT).returncode != 0


def _requests(one: dict[str, dict[str, int]]) -> int:
    return sum(one["statuses"].values())


def _of_kind(one: dict[str, dict[str, int]], kind: int) -> int:
    return sum(times for status, times in one["statuses"].items() if int(status) // 100 == kind)


if __name__ == "__main__":
    typer.run(main)
