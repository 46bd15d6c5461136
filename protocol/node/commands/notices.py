"""``assize notices``: messages about one's nodes, credits and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.commands.connection import AsJson
from protocol.node.console import EXIT_REFUSED, guard, show

app = typer.Typer(no_args_is_help=True, help="Messages about own nodes, credits and runs, by mail, ntfy, webhook …")

EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_NOTICES_… settings, one NAME=value a line.")
]


@app.command()
@guard
def run(settings: EnvFile = None) -> None:
    """Watch the chain and send each notice once, until stopped."""
    from protocol.node import telemetry
    from protocol.node.notices.settings import NoticesSettings
    from protocol.node.notices.watch import build

    read = NoticesSettings.read(settings)
    telemetry.configure("notices", read.log_level)
    telemetry.serve_metrics(read.metrics_port, read.metrics_host, read.state_dir)
    raise SystemExit(build(read).run())


@app.command("test")
@guard
def send_test(settings: EnvFile = None, json: AsJson = False) -> None:
    """Send a test message to every target; exit 1 if one does not take it."""
    from protocol.node.notices.settings import NoticesSettings
    from protocol.node.notices.targets import read_targets

    targets = read_targets(NoticesSettings.read(settings).urls_file)
    text = "A test: notices about your nodes, credits and runs will arrive here."
    rows = [{"target": target.name, "delivered": target.send("Assize: test", text)} for target in targets]
    show(rows, json)
    if not all(row["delivered"] for row in rows):
        raise SystemExit(EXIT_REFUSED)
