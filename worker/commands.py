"""``assize worker``: generate rollouts and earn credits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.console import EXIT_REFUSED, guard, show

app = typer.Typer(help="Generate rollouts and earn credits.", no_args_is_help=True)

EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_WORKER_… settings, one NAME=value a line.")
]


@app.callback()
def worker() -> None:
    """Generate rollouts and earn credits. Settings come from ASSIZE_WORKER_… variables or a file."""


@app.command()
@guard
def run(settings: EnvFile = None) -> None:
    """Work until stopped."""
    from worker.settings import WorkerSettings

    read = WorkerSettings.read(settings)  # before torch loads: a wrong setting shows at once
    from worker.service import serve

    raise SystemExit(serve(read))


@app.command()
@guard
def doctor(settings: EnvFile = None, json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Check machine, key, chain, clock and coordinator before working."""
    from worker.settings import WorkerSettings

    read = WorkerSettings.read(settings)
    from worker.hardware import examine

    findings = list(examine(read))
    rows = [{"check": finding.check, "ok": finding.ok, "found": finding.found} for finding in findings]
    show(rows, json, "doctor")
    if not all(finding.ok for finding in findings):
        raise SystemExit(EXIT_REFUSED)
