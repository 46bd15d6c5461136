"""``assize ledger``: rebuild the market's books from a chain and an address file alone, look at them, audit them.

Every command first reads up to the head of the chain (``--no-sync`` looks at what is there).
Exit codes: 0 done, 1 the audit failed or there is no such thing, 2 misconfigured, 3 out of reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from ledger.audit import audit as make_audit
from ledger.audit.report import Report
from ledger.commands import questions, statement
from ledger.commands.options import (
    LARGEST,
    LOCAL,
    Addresses,
    AsJson,
    Coordinators,
    Db,
    NoSync,
    Relays,
    Rpc,
    opened,
    published_by,
)
from ledger.commands.screen import screen, show_report, table_of, tell
from ledger.doctor import diagnose
from ledger.facts import Appeal, Checkpoint, Credit, Fact, Node, Round, Service, Slash
from ledger.queries import lookup
from ledger.settings import LedgerSettings
from protocol.errors import Rejected
from protocol.node.console import guard
from protocol.node.doctor import report
from protocol.transport.listening import listen, run_server

app = typer.Typer(no_args_is_help=True, help="Rebuild and audit everything from the chain alone.")

app.add_typer(questions.app)
app.add_typer(statement.app)


@app.command()
@guard
def sync(addresses: Addresses, rpc: Rpc = LOCAL, db: Db = None, as_json: AsJson = False) -> None:
    """Read the chain up to its head."""
    with opened(rpc, addresses, db, no_sync=False) as (_, database), database.reading() as connection:
        at = lookup.at(connection)
        if as_json:
            print(json.dumps({"block_number": at.block_number, "block_hash": at.block_hash, "db": database.shown}))
        else:
            print(f"{database.shown} holds the chain up to block {at.block_number} ({at.block_hash})")


def _lister(name: str, kind: type[Fact]) -> Callable[..., None]:
    """Returns the command that lists all facts of a kind."""

    def facts(
        addresses: Addresses, rpc: Rpc = LOCAL, db: Db = None, as_json: AsJson = False, no_sync: NoSync = False
    ) -> None:
        _list(name, kind, rpc, addresses, db, as_json, no_sync)

    return guard(facts)


LISTS: dict[str, tuple[type[Fact], str]] = {
    "credits": (Credit, "Show every owner's credits and their origin."),
    "nodes": (Node, "Nodes, their bonds and what was taken from them."),
    "checkpoints": (
        Checkpoint,
        "Published weights, how many jobs each was trained on, and how many overturned ones it stands on.",
    ),
    "appeals": (Appeal, "Verdicts disputed, what came of it, and who paid."),
    "validators": (Service, "Every validator's seats, votes, absences, and majorities that appeals overturned."),
    "slashes": (Slash, "Bonds slashed, for fraud, for absence, or as an overturned majority."),
}
"""Name of each command that lists facts of a kind, and its help."""
for _name, (_kind, _help) in LISTS.items():
    app.command(_name, help=_help)(_lister(_name, _kind))


@app.command()
@guard
def rounds(
    addresses: Addresses,
    round: Annotated[
        int | None, typer.Argument(min=0, max=LARGEST, help="Tell the whole story of this round, as JSON.")
    ] = None,
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Rounds and their verdicts; or one round with submissions, votes, payments and slashes."""
    if round is None:
        return _list("rounds", Round, rpc, addresses, db, as_json, no_sync)
    with opened(rpc, addresses, db, no_sync) as (_, database), database.reading() as connection:
        story = lookup.round_story(connection, round)
    if story is None:
        raise Rejected(f"there is no round {round}")
    print(TypeAdapter(lookup.RoundStory).dump_json(story, indent=2).decode())
    return None


@app.command()
@guard
def verdicts(
    addresses: Addresses,
    node: Annotated[int, typer.Argument(min=1, max=LARGEST, help="The node whose jobs were judged.")],
    since: Annotated[str | None, typer.Option("--since", help="First day, as 2026-01-31, or time in UTC.")] = None,
    coordinators: Coordinators = None,
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Verdicts on a node's jobs with the jurors' reasons; with --coordinator what they measured, beside its limit."""
    from ledger.commands.verdicts import list_verdicts

    with opened(rpc, addresses, db, no_sync) as (chain, database), database.reading() as connection:
        list_verdicts(connection, chain, node, statement.second_of(since, 0), coordinators or (), as_json)


@app.command()
@guard
def audit(
    addresses: Addresses, rpc: Rpc = LOCAL, db: Db = None, as_json: AsJson = False, no_sync: NoSync = False
) -> None:
    """Recompute everything from the chain's events; exit 1 where the database or the contracts say otherwise."""
    with opened(rpc, addresses, db, no_sync) as (chain, database):
        report = make_audit(chain, database)
    if as_json:
        print(json.dumps({"audit": "ok" if report.ok else "failed", **TypeAdapter(Report).dump_python(report)}))
    else:
        show_report(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
@guard
def doctor(addresses: Addresses, rpc: Rpc = LOCAL, db: Db = None, as_json: AsJson = False) -> None:
    """Check chain, clock and database; exit 1 if a check fails."""
    report(diagnose(LedgerSettings(rpc, addresses, db)), as_json)


@app.command()
@guard
def serve(
    addresses: Addresses,
    rpc: Rpc = LOCAL,
    db: Db = None,
    host: Annotated[str, typer.Option(envvar="ASSIZE_LEDGER_HOST")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="ASSIZE_LEDGER_PORT", min=0, max=65_535, help="0 takes a free one.")
    ] = 8600,
    actions: Annotated[
        bool, typer.Option("--actions", help="Offer calls for readers' own wallets to sign; the ledger has no key.")
    ] = False,
    coordinators: Coordinators = None,
    relays: Relays = None,
) -> None:
    """Follow the chain and answer over HTTP: pages for browsers, JSON for other clients (OpenAPI at /openapi.json)."""
    from ledger.api.app import create_app
    from ledger.api.blobs import BlobSource
    from ledger.store.follower import Follower
    from protocol.node import telemetry

    telemetry.configure("ledger")
    with (
        closing(BlobSource(coordinators or (), relays or ())) as blobs,
        opened(rpc, addresses, db, no_sync=True) as (chain, database),
        listen(host, port) as listener,
        published_by(relays, chain, database) as published,
    ):
        print(f"ledger at http://{host}:{listener.getsockname()[1]}", flush=True)
        app = create_app(chain, database, Follower(chain, database), blobs=blobs, published=published, actions=actions)
        run_server(app, listener, ending=app.state.live.close)


def _list(name: str, kind: type[Fact], rpc: str, addresses: Path, db: str | None, as_json: bool, no_sync: bool) -> None:
    with opened(rpc, addresses, db, no_sync) as (_, database), database.reading() as connection:
        facts = lookup.every(connection, kind)
    show = partial(table_of, name, kind)
    tell(tuple[kind, ...], facts, lambda found: screen().print(show(found)), as_json)  # type: ignore[valid-type]
