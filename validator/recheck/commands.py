"""``assize recheck``: run, doctor, list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.console import guard
from protocol.node.doctor import AsJson, report

app = typer.Typer(help="Check a share of decided jobs again, and appeal.", no_args_is_help=True)

EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_RECHECK_… settings, one NAME=value a line.")
]


@app.command()
@guard
def run(
    settings: EnvFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Simulate appeals instead of sending them.")] = False,
) -> None:
    """Check jobs, compare jurors' bundles and appeal within the day's budget until stopped."""
    from validator.recheck.settings import RecheckSettings

    read = RecheckSettings.read(settings)  # before torch is loaded, which takes a while

    from validator.recheck.service import serve

    raise SystemExit(serve(read, dry_run))


@app.command()
@guard
def doctor(settings: EnvFile = None, json: AsJson = False) -> None:
    """Check disk, device, key, chain, run and coordinator; exit 1 if a check fails."""
    from validator.recheck.settings import RecheckSettings

    read = RecheckSettings.read(settings)
    from validator.recheck.doctor import diagnose

    report(diagnose(read), json)


@app.command("list")
@guard
def list_checked(
    settings: EnvFile = None, json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False
) -> None:
    """List the jobs checked and the jurors compared so far."""
    from validator.recheck.service import show_journal
    from validator.recheck.settings import RecheckSettings

    show_journal(RecheckSettings.read(settings), json)
