"""``assize ledger``: what an auditor asks: why, on what, how fairly; and states to compare with others'.

Exit codes: 0 done, 1 no such thing, or two states differ, 2 misconfigured, 3 out of reach.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import typer
from sqlalchemy import Connection

from ledger.audit.history import history
from ledger.book import MemoryBook
from ledger.commands.options import LARGEST, LOCAL, Addresses, AsJson, Db, NoSync, Rpc, opened
from ledger.commands.screen import say, show_explanation, show_lineage, show_shares, tell
from ledger.fold import fold_all
from ledger.queries import fairness as reckoning
from ledger.queries.lineage import Lineage
from ledger.queries.lineage import lineage as trace
from ledger.queries.statement import statement
from ledger.queries.why import Explanation, why_entry, why_job
from ledger.store.state import LedgerState, tables_of_book
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import address_of
from protocol.node.console import guard
from protocol.node.wallet import Keystores

app = typer.Typer()

PLACE = re.compile(r"(\d{1,18})([/:])(\d{1,9})")


@app.command()
@guard
def why(
    addresses: Addresses,
    what: Annotated[
        str,
        typer.Argument(
            help="ROUND/JOB of a job; BLOCK:LOG of a movement or a slash, the column why of their lists; "
            "an owner's address or keystore for what it earned last."
        ),
    ],
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Everything that led to a credit, a slash or a void job, in order, in words."""
    place = PLACE.fullmatch(what)
    owner = None if place is not None else _owner(what)
    with opened(rpc, addresses, db, no_sync) as (_, database), database.reading() as connection:
        if owner is not None:
            what = _last_earned(connection, owner)
            place = PLACE.fullmatch(what)
        assert place is not None
        first, kind, second = int(place[1]), place[2], int(place[3])
        found = (why_job if kind == "/" else why_entry)(connection, first, second)
    if found is None:
        missing = f"job {second} in a round {first}" if kind == "/" else f"credit or slash at {what}"
        raise Rejected(f"there is no {missing}")
    tell(Explanation, found, show_explanation, as_json)


def _owner(what: str) -> str:
    """Returns the address of an owner, given as such or by its keystore."""
    keystores = Keystores()
    if what.startswith("0x"):
        return address_of(what)
    if what not in keystores.names():
        raise Misconfigured(
            f"{what!r} is neither ROUND/JOB, as 12/3, nor BLOCK:LOG, as 345:2, nor an address or keystore of an owner"
        )
    return keystores.address_of(what)


def _last_earned(connection: Connection, owner: str) -> str:
    """Returns the place, as BLOCK:LOG, of what an owner earned last."""
    earned = [line for line in statement(connection, owner).lines if line.kind in ("worked", "judged")]
    if not earned:
        raise Rejected(f"{owner} has earned nothing yet: a job is paid once its round is settled")
    return f"{earned[-1].block_number}:{earned[-1].log_index}"


@app.command()
@guard
def lineage(
    addresses: Addresses,
    run: Annotated[int, typer.Argument(min=1, max=LARGEST)],
    version: Annotated[int, typer.Argument(min=0, max=LARGEST)],
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """The checkpoints, rollouts, nodes and verdicts behind a set of weights."""
    with opened(rpc, addresses, db, no_sync) as (_, database), database.reading() as connection:
        found = trace(connection, run, version)
    if found is None:
        raise Rejected(f"there is no version {version} of run {run}")
    tell(Lineage, found, show_lineage, as_json)


@app.command()
@guard
def fairness(
    addresses: Addresses, rpc: Rpc = LOCAL, db: Db = None, as_json: AsJson = False, no_sync: NoSync = False
) -> None:
    """Every worker's share of the jobs against its share of the capacity, and what is more than chance."""
    with opened(rpc, addresses, db, no_sync) as (_, database), database.reading() as connection:
        shares = reckoning.fairness(connection)
    tell(tuple[reckoning.Share, ...], shares, show_shares, as_json)


@app.command()
@guard
def replay(
    addresses: Addresses,
    rpc: Rpc = LOCAL,
    block: Annotated[
        int | None, typer.Option(min=0, max=LARGEST, help="As of this block; the head by default.")
    ] = None,
    expect: Annotated[str | None, typer.Option(help="A state hash that must come out.")] = None,
    against: Annotated[Path | None, typer.Option(help="An export whose block and state must come out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the books from the chain alone, without a database, and print their hash; exit 1 where another was meant."""
    told = _exported(against) if against is not None else None
    if told is not None and block not in (None, told.block_number):
        raise Misconfigured(f"{against} is of block {told.block_number}, not {block}; leave --block out")
    with Chain.connect(rpc, addresses) as chain:
        state = replayed(chain, told.block_number if told is not None else block)
    wanted = told.digest if told is not None else expect
    same = wanted is None or wanted.lower() == state.digest
    told_of = {"block_number": state.block_number, "block_hash": state.block_hash, "state_hash": state.digest}
    if as_json:
        print(json.dumps(told_of | ({} if wanted is None else {"expected": wanted, "same": same})))
    else:
        print(f"block {state.block_number} ({state.block_hash}): state {state.digest}")
    if not same:
        raise Rejected(_apart(state, told, str(wanted)))


@app.command()
@guard
def export(
    addresses: Addresses,
    out: Annotated[Path, typer.Option("--out", help="A folder that is not there yet.")],
    form: Annotated[Literal["csv", "parquet"], typer.Option("--format")] = "parquet",
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Write every table to files, with their schema, the block they are of, and a hash of it all."""
    from ledger.export import export as write

    with opened(rpc, addresses, db, no_sync) as (chain, database), database.reading() as connection:
        state = write(connection, chain.deployment, out, form)
    _say_state(out, state, as_json)


@app.command("verify-export")
@guard
def verify_export(folder: Annotated[Path, typer.Argument()], as_json: AsJson = False) -> None:
    """Check an export against its own hashes; ``replay --against`` checks those against the chain."""
    _say_state(folder, _exported(folder), as_json)


def replayed(chain: Chain, block: int | None) -> LedgerState:
    """The state at a block, from nothing but events.

    Raises:
        Misconfigured: the contracts were not there yet.
        Unavailable: the RPC does not answer, or does not know the block yet.
    """
    first = chain.deployment.start_block
    if block is not None and block < first:
        raise Misconfigured(
            f"block {block} is before the deployment's first block, {first}; ask for that or a later one"
        )
    at = chain.head() if block is None else chain.block(block)
    book = MemoryBook()
    for news in history(chain, at.number, at.hash):
        fold_all(book, news.logs)
    return LedgerState(chain.chain_id, at.number, "0x" + at.hash.hex(), tables_of_book(book))


def _exported(folder: Path) -> LedgerState:
    from ledger.export import verify

    return verify(folder)


def _apart(state: LedgerState, told: LedgerState | None, wanted: str) -> str:
    if told is None:
        return f"the state is {state.digest}, not {wanted}"
    if told.block_hash != state.block_hash:
        return f"the export is of block {told.block_hash}, which the chain has not: it has {state.block_hash} there"
    names = [name for name, table in state.tables.items() if told.tables[name] != table]
    return f"the export says something else than the chain of: {', '.join(names)}"


def _say_state(folder: Path, state: LedgerState, as_json: bool) -> None:
    rows = sum(table.rows for table in state.tables.values())
    if as_json:
        place = {"block_number": state.block_number, "block_hash": state.block_hash}
        print(json.dumps({"folder": str(folder), "rows": rows, **place, "state_hash": state.digest}))
    else:
        at = f"block {state.block_number} ({state.block_hash})"
        say(f"{folder}: {rows} rows in {len(state.tables)} tables, {at}, state {state.digest}")
