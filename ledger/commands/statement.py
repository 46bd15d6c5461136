"""``assize credits statement``, also ``assize ledger statement``: an owner's movements with sums, also as CSV."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ledger.commands.options import LOCAL, Addresses, AsJson, Db, NoSync, Rpc, opened
from ledger.commands.screen import plain, say, screen, tell
from ledger.queries.statement import AccountStatement, Grouping, Movement
from ledger.queries.statement import statement as look_up
from ledger.store.database import read_position
from protocol.amounts import UNIT, digits_of
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import address_of
from protocol.node.console import guard
from protocol.node.wallet import Keystores

app = typer.Typer()

SHOWN = 20
"""Lines that a terminal shows, the newest; a file and JSON have all."""
GROUPINGS: tuple[Grouping, ...] = ("kind", "node", "run", "day")
COLUMNS = (
    *("time", "block", "log", "transaction", "kind", "run", "round", "node", "units"),
    *(f"price {UNIT}", f"amount {UNIT}", f"balance {UNIT}"),
)


@app.command()
@guard
def statement(
    addresses: Addresses,
    owner: Annotated[str, typer.Argument(help="Address of the owner, or name of its keystore.")],
    since: Annotated[str | None, typer.Option("--from", help="First day, as 2026-01-31, or time in UTC.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Day or time in UTC before which it ends.")] = None,
    node: Annotated[int, typer.Option(min=0, help="Only what this node earned; 0 takes everything.")] = 0,
    out: Annotated[Path | None, typer.Option("--csv", help="File to write the lines to.")] = None,
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Every movement of an owner's credits, with sums; exit 1 if they do not add up to the contract's balance."""
    address = address_of(owner) if owner.startswith("0x") else Keystores().address_of(owner)
    first, last = second_of(since, 0), second_of(until, 2**63 - 1)
    if last <= first:
        raise Misconfigured(f"invalid time: --to {until} is not after --from {since}")
    with opened(rpc, addresses, db, no_sync) as (chain, database), database.reading() as connection:
        found = look_up(connection, address, first, last, node)
        whole = found if not (since or until or node) else look_up(connection, address)
        held = chain.pinned(chain.block(read_position(connection).block_number)).credits_of(address)
    if held != whole.closing:
        raise Rejected(
            f"the movements of {address} sum up to {digits_of(whole.closing)} {UNIT}, the contract's balance is "
            f"{digits_of(held)} {UNIT}: audit the ledger with: assize ledger audit"
        )
    if out is not None:
        _write(out, found)
    tell(AccountStatement, found, lambda each: _show(each, out), as_json)


def second_of(text: str | None, otherwise: int) -> int:
    """Returns a time as typed, in unix seconds."""
    if text is None:
        return otherwise
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Misconfigured(f"invalid time {text!r}: expected a day as 2026-01-31, or 2026-01-31T12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _row(line: Movement) -> tuple[str | int, ...]:
    amounts = (digits_of(wei).replace(",", "") for wei in (line.price, line.amount, line.balance))
    time = datetime.fromtimestamp(line.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    place = (line.block_number, line.log_index, "0x" + line.tx_hash.hex(), line.kind)
    return (time, *place, line.run, line.round, line.node, line.units, *amounts)


def _write(out: Path, found: AccountStatement) -> None:
    try:
        with out.open("x", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(map(_row, found.lines))
    except FileExistsError:
        raise Misconfigured(f"{out} exists: give another file") from None
    except OSError as error:
        raise Misconfigured(f"cannot write {out}: {error.strerror}") from error


def _show(found: AccountStatement, out: Path | None) -> None:
    console = screen()
    table = Table(title=f"newest {SHOWN} of {len(found.lines)} movements, times in UTC, amounts in {UNIT}")
    for column in COLUMNS:
        if column not in ("log", "transaction"):
            table.add_column("why" if column == "block" else column.removesuffix(f" {UNIT}"), overflow="fold")
    for line in found.lines[-SHOWN:]:
        time, block, index, _, *rest = _row(line)
        table.add_row(*(plain(str(cell)) for cell in (time, f"{block}:{index}", *rest)))
    console.print(table)
    for grouping in GROUPINGS:
        sums = Table(title=f"by {grouping}")
        sums.add_column(grouping)
        sums.add_column(UNIT, justify="right")
        for name, wei in found.sums(grouping).items():
            sums.add_row(plain(name), digits_of(wei))
        console.print(sums)
    say(f"opening {digits_of(found.opening)} {UNIT}, closing {digits_of(found.closing)} {UNIT}")
    if out is not None:
        say(f"{len(found.lines)} movements written to {out}")
