"""``assize health PLACE``: whether one service runs, for the health checks of containers and supervisors.

A daemon is healthy while its process runs and has written its health file; a server while it answers. An RPC that is
down does not make either unhealthy, as starting the process again would not mend it: the daemon's problem is printed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Rejected, Unavailable
from protocol.node.activity import doing_of, read_health, runs
from protocol.node.console import guard

LONGEST_TICK_SECONDS = 900
"""Age of a health file from which on a daemon counts as hung; one tick may generate or judge for minutes."""
ANSWER_SECONDS = 5.0


@guard
def health(
    place: Annotated[str, typer.Argument(help="A daemon's state folder, or a server's URL.")],
    within: Annotated[
        int, typer.Option(min=1, help="Seconds within which the daemon must have written its health file.")
    ] = LONGEST_TICK_SECONDS,
) -> None:
    """Check that a service runs; exit 1 if it ended or hangs, 3 if it does not answer or has not started."""
    print(server_health(place) if "://" in place else daemon_health(Path(place), within, time.time()))


def daemon_health(state_dir: Path, within: int, now: float) -> str:
    """Returns what a daemon does.

    Raises:
        Rejected: its process ended, or its health file is older than ``within`` seconds.
        Unavailable: it has not written one yet.
    """
    state = read_health(state_dir)
    name, age = state["daemon"], int(now - state["at"])
    if not runs(int(state["pid"])):
        raise Rejected(f"the {name} of {state_dir} (process {state['pid']}) ended")
    if age > within:
        raise Rejected(f"the {name} of {state_dir} hangs: its last sign of life is {age} s old, {within} s allowed")
    problem, activity = state.get("problem"), "activity" in state
    doing = doing_of(state, alive=True).lasting(now) if activity else f"retrying: {problem}" if problem else "runs"
    return f"{name}: {doing}"


def server_health(url: str) -> str:
    """Returns that a server answers; raises ``Unavailable`` if it does not, ``Rejected`` if it reports an error."""
    import httpx

    address = f"{url.rstrip('/')}/health"
    try:
        status = httpx.get(address, timeout=ANSWER_SECONDS, trust_env=False).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"{address} does not answer: {error}") from error
    if status != httpx.codes.OK:
        raise Rejected(f"{address} answers {status}")
    return f"{address} answers"
