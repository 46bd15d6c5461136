"""``assize coordinator pause | resume | drain | ban | unban | bans | webhooks``: control on the coordinator's machine.

The commands write to the coordinator's database; its processes act on it at their next look. Nothing of it goes over
the network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Misconfigured, Rejected
from protocol.node.console import EXIT_REFUSED, guard, note, show

if TYPE_CHECKING:
    from coordinator.settings import CoordinatorSettings
    from coordinator.store import Store

app = typer.Typer()
EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_COORDINATOR_… settings, one NAME=value a line.")
]
RunOption = Annotated[
    int | None, typer.Option("--run", help="Id of the run; may be omitted if one alone is driven here.")
]
Node = Annotated[int, typer.Argument(help="Id of the node.")]
Why = Annotated[str, typer.Option("--why", help="Reason, one line, shown to nodes and in the status.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]

LOOK_SECONDS = 0.5
"""Time between looks of ``drain`` at the rounds that are left."""

LIFTED = "lifted"
"""The end of a ban that lasts until it is lifted, as typed."""


@app.command()
@guard
def pause(run: RunOption = None, why: Why = "", env_file: EnvFile = None) -> None:
    """Opens no new rounds until resumed; rounds under way go on."""
    from coordinator.driver.control import PAUSED, hold
    from coordinator.settings import HookKind
    from coordinator.webhooks.outbox import HookOutbox

    with _opened(env_file, run) as (store, settings, number), store.writing() as session:
        held = hold(session, number, PAUSED, why, time.time())
        HookOutbox.of(settings).announce(session, HookKind.PAUSED, number, held.since, why=held.why)
    note(f"run {number} opens no new rounds; to open them again: assize coordinator resume --run {number}")


@app.command()
@guard
def resume(run: RunOption = None, env_file: EnvFile = None) -> None:
    """Opens rounds again after a pause or a drain."""
    from coordinator.driver.control import release
    from coordinator.settings import HookKind
    from coordinator.webhooks.outbox import HookOutbox

    with _opened(env_file, run) as (store, settings, number), store.writing() as session:
        if not release(session, number):
            raise Rejected(f"run {number} is neither paused nor draining")
        HookOutbox.of(settings).announce(session, HookKind.RESUMED, number, time.time())
    note(f"run {number} opens rounds again")


@app.command()
@guard
def drain(run: Annotated[int, typer.Argument(help="Id of the run.")], why: Why = "", env_file: EnvFile = None) -> None:
    """Opens no new rounds and waits until all have ended; Ctrl-C ends the waiting, not the drain."""
    from coordinator.driver.control import DRAINED, DRAINING, hold

    with _opened(env_file, run) as (store, _, number):
        with store.writing() as session:
            hold(session, number, DRAINING, why, time.time())
        state, told = DRAINING, ""
        while state == DRAINING:
            state, left = _progress(store, number)
            if left != told:
                note(left)
            told = left
            time.sleep(LOOK_SECONDS)
    if state != DRAINED:
        raise Rejected(f"run {number} was {state or 'resumed'} before it had drained")
    note(f"run {number} has drained; its requester may close it: assize run close {number}")


def _progress(store: Store, run: int) -> tuple[str, str]:
    """Returns the state of the run's hold, empty without one, and a sentence on what is left."""
    from sqlmodel import col, func, select

    from coordinator.tables import HoldRow, RoundRow
    from protocol.chain.structs import State

    live = (col(RoundRow.state) < State.SETTLED) | col(RoundRow.holding)
    with store.reading() as session:
        held = session.get(HoldRow, run)
        left = session.exec(select(func.count()).where(RoundRow.run == run, live)).one()
    ended = f"{left} rounds of run {run} have not ended yet" if left else f"every round of run {run} has ended"
    return "" if held is None else held.state, ended


@app.command()
@guard
def ban(
    node: Node,
    why: Why,
    until: Annotated[str, typer.Option(help="Its end: 90m, 2h, 3d, a time such as 2026-12-24T18Z, or lifted.")],
    run: RunOption = None,
    env_file: EnvFile = None,
) -> None:
    """Lists a worker no more; it finishes the jobs that it has, and keeps its bond."""
    from coordinator.driver import control
    from protocol.times import second_of

    now = time.time()
    end = None if until.strip().lower() == LIFTED else second_of(until, now)
    with _opened(env_file, run) as (store, _, number), store.writing() as session:
        sentence = control.ban_sentence(control.ban(session, number, node, why, end, now))
    note(f"node {node} is {sentence}")


@app.command()
@guard
def unban(node: Node, run: RunOption = None, env_file: EnvFile = None) -> None:
    """Lifts the ban of a worker."""
    from coordinator.driver.control import lift

    with _opened(env_file, run) as (store, _, number), store.writing() as session:
        if not lift(session, number, node):
            raise Rejected(f"node {node} is not banned from run {number}")
    note(f"node {node} may be listed again")


@app.command()
@guard
def bans(run: RunOption = None, env_file: EnvFile = None, json: Json = False) -> None:
    """Shows the bans in force."""
    from coordinator.driver import control
    from protocol.times import clock

    with _opened(env_file, run) as (store, _, number), store.reading() as session:
        rows = [
            {"node": each.node, "until": LIFTED if each.until is None else clock(int(each.until)), "why": each.why}
            for each in control.bans(session, number, time.time()).values()
        ]
    show(rows, json)


@app.command()
@guard
def webhooks(
    test: Annotated[bool, typer.Option("--test", help="Send each a test; exit 1 if one does not take it.")] = False,
    env_file: EnvFile = None,
    json: Json = False,
) -> None:
    """Shows how the deliveries to each webhook go; with --test, one that had ended and takes the test goes on."""
    from coordinator.webhooks.sender import hook_rows, try_webhook

    with _opened(env_file, None, needs_run=False) as (store, settings, _):
        tried = {each.shown: try_webhook(store, each) for each in settings.webhooks} if test else {}
        with store.reading() as session:
            rows = hook_rows(session, settings)
    show([row | ({"test": tried[str(row["webhook"])] or "taken"} if test else {}) for row in rows], json)
    if any(tried.values()):
        raise SystemExit(EXIT_REFUSED)


@contextmanager
def _opened(
    env_file: Path | None, run: int | None, needs_run: bool = True
) -> Iterator[tuple[Store, CoordinatorSettings, int]]:
    """Opens the coordinator's database; yields it, the settings and the number of the run."""
    from coordinator.settings import CoordinatorSettings
    from coordinator.store import Store

    settings = CoordinatorSettings.read(env_file)
    number = settings.runs[0] if run is None and (len(settings.runs) == 1 or not needs_run) else run
    if number not in settings.runs:
        given = "no run given" if number is None else f"invalid run {number}"
        raise Misconfigured(f"{given}: expected {' or '.join(map(str, settings.runs))}, driven here")
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    store = Store(settings.database)
    try:
        yield store, settings, number
    finally:
        store.close()
