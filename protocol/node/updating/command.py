"""``assize update``: another version in place of this one, without a round lost.

    install    into an environment of its own, beside the one in use; the daemons go on
    examine    by the new version's doctor, for each daemon as it runs; the daemons go on
    drain      every daemon, by SIGTERM
    exchange   the link, by one rename
    start      every daemon as it was; if one does not come up, back to the old version

What was drained is written down until it runs again, so that an update that was ended goes on where it was.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import AssizeError, Misconfigured, Rejected, accessing
from protocol.files import write_atomically
from protocol.node.console import guard, note, show
from protocol.node.release import own_version
from protocol.node.updating import daemons, environments
from protocol.node.updating.daemons import RunningDaemon

LINK_VARIABLE = "ASSIZE_UPDATE_LINK"
START_SECONDS = 180.0
"""Longest until a daemon that was started has written its health file."""


@guard
def update(
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION|WHEEL", help="Version, or wheel file; else the newest.")
    ] = None,
    state_dir: Annotated[
        list[Path] | None,
        typer.Option("--state-dir", help="State folder of a daemon or fleet, besides the profile's; repeatable."),
    ] = None,
    drain_seconds: Annotated[int, typer.Option(min=1, help="Longest to wait for the daemons to drain.")] = 1800,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line.")] = False,
) -> None:
    """Install another version, drain this machine's daemons, start them from it; go back if it fails its doctor."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        raise Misconfigured("inside Kubernetes an update is another image: change its tag, and apply the manifests")
    link, old = _settled()
    requirement = environments.requirement_of(to, environments.extras_in_use())
    kept = link.with_name(f".{link.name}.drained")
    _start_left(kept, link, drain_seconds)
    running = daemons.find_daemons(link, [*daemons.profile_folders(), *(state_dir or ())])
    note(f"daemons that run from {link}: {', '.join(each.named for each in running) or 'none'}")
    note(f"installing {requirement} beside them")
    made = environments.make_environment(link, requirement)
    try:
        version = environments.version_in(made)
        for daemon in running:
            note(f"examining with {version}: {daemon.named}")
            daemons.examine_daemon(daemon, made)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, AssizeError):
            raise Rejected(f"{error}; nothing was changed, and {own_version()} goes on") from error
        raise
    started = _exchange(link, old, made, running, kept, drain_seconds)
    environments.remove_older(link, (old, made))
    names = [each.named for each in started]
    show({"from": own_version(), "to": version, "environment": str(made), "daemons": names}, as_json, "updated")


def _settled() -> tuple[Path, Path]:
    """Returns the link and the environment behind it, once this process runs from the environment itself.

    What it imports after the link was exchanged would otherwise be the new version's.
    """
    if LINK_VARIABLE not in os.environ:
        link = environments.environment_link()
        python = environments.put_behind_link(link) / "bin" / "python"
        os.execve(python, [str(python), "-P", "-m", "assize", *sys.argv[1:]], os.environ | {LINK_VARIABLE: str(link)})
    return Path(os.environ[LINK_VARIABLE]), Path(sys.prefix)


def _exchange(
    link: Path, old: Path, made: Path, running: Sequence[RunningDaemon], kept: Path, drain_seconds: float
) -> list[RunningDaemon]:
    """Drains the daemons and starts them from the new environment, or all of them from the old one again."""
    if running:
        note("draining: no new work is taken, and what was begun is handed in")
    _keep(kept, running)
    started: list[RunningDaemon] = []
    try:
        daemons.drain_daemons(running, drain_seconds)
        environments.point_link(link, made)
        for each in running:
            started.append(daemons.start_daemon(each, link))
        for each in started:
            daemons.await_start(each, START_SECONDS)
    except BaseException as error:
        note(f"going back to {own_version()}: {str(error) or 'interrupted'}")
        if started:
            _keep(kept, [*started, *running[len(started) :]])
            daemons.drain_daemons(started, math.inf)
        environments.point_link(link, old)
        shutil.rmtree(made, ignore_errors=True)
        _start_left(kept, link, math.inf)
        if isinstance(error, AssizeError):
            raise type(error)(f"{error}; the version in use is {own_version()} again") from error
        raise
    kept.unlink(missing_ok=True)
    return started


def _keep(kept: Path, told: Sequence[RunningDaemon]) -> None:
    """Writes down the daemons that are told to end, before they are."""
    with accessing(f"write {kept}"):
        write_atomically(kept, json.dumps([each.kept() for each in told]).encode(), 0o600)


def _start_left(kept: Path, link: Path, most_seconds: float) -> None:
    """Starts what an update had told to end and does not run again: the update goes back, or was ended on its way.

    What has not ended yet is waited for, at most ``most_seconds`` each: a second SIGTERM would cost it its jobs.

    Raises:
        Unavailable: one has not ended in time; it remains written down.
    """
    left = [each for each in daemons.read_kept(kept) if not daemons.runs_already(each)]
    ending = [each for each in left if daemons.still_ends(each)]
    if left:
        note(f"starting again: {', '.join(each.named for each in left)}")
    if ending:
        names = ", ".join(each.named for each in ending)
        note(f"waiting until they have drained: {names}; if this is ended, the next assize update starts them")
    started: list[RunningDaemon] = []
    for each in (*(each for each in left if each not in ending), *ending):
        if each in ending:
            daemons.await_ends([each], most_seconds)
        started.append(daemons.start_daemon(each, link))
    for each in started:
        daemons.await_start(each, START_SECONDS)
    kept.unlink(missing_ok=True)
