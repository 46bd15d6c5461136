"""Statements of owners: every movement once, sums that are kept against the total, and a file for a spreadsheet."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow.csv
import pytest
from typer.testing import CliRunner, Result

from ledger.commands.app import app
from ledger.queries.statement import statement
from ledger.store.database import Database
from protocol.chain.reading.client import Chain
from protocol.errors import Rejected
from tests.conftest import ROOT, TOKEN
from tests.ledger.conftest import shared_story as story
from tests.ledger.scenario import COLD, FEE, PRICE, Story

__all__ = ["story"]


def owners(story: Story, chain: Chain) -> list[str]:
    reader = chain.latest()
    return sorted({reader.node(number).owner for number in range(1, reader.node_count() + 1)})


def test_every_owners_movements_sum_up_to_the_contracts_balance(story: Story, synced: Database, chain: Chain) -> None:
    with synced.reading() as connection:
        for owner in owners(story, chain):
            try:
                found = statement(connection, owner)
            except Rejected:  # it never had credits
                assert chain.latest().credits_of(owner) == 0
                continue
            assert found.closing == sum(line.amount for line in found.lines) == chain.latest().credits_of(owner)
            for grouping in ("kind", "node", "run", "day"):
                assert sum(found.sums(grouping).values()) == found.closing


def test_a_part_of_the_time_opens_with_what_was_there_before(story: Story, synced: Database) -> None:
    owner = story.honest.owner.address
    with synced.reading() as connection:
        whole = statement(connection, owner)
        second = whole.lines[1].time
        late = statement(connection, owner, since=second)
        early = statement(connection, owner, until=second)
    assert (early.opening, late.closing) == (0, whole.closing)
    assert early.closing == late.opening
    assert early.lines + late.lines == whole.lines


def test_work_states_units_and_price_and_judging_its_fee(story: Story, synced: Database, chain: Chain) -> None:
    with synced.reading() as connection:
        lines = [line for owner in owners(story, chain) for line in _lines(connection, owner)]
    worked, judged = ([line for line in lines if line.kind == kind] for kind in ("worked", "judged"))
    assert worked
    assert judged
    assert all(line.price == PRICE and line.units * PRICE == line.amount for line in worked)
    assert {line.price for line in judged} == {FEE}


def _lines(connection: object, owner: str) -> tuple[object, ...]:
    try:
        return statement(connection, owner).lines  # type: ignore[arg-type]
    except Rejected:
        return ()


@pytest.fixture
def place(chain: Chain, addresses: Path, tmp_path: Path) -> list[str]:
    return ["--rpc", chain.rpc.url, "--addresses", str(addresses), "--db", str(tmp_path / "statement.sqlite")]


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["statement", *words])


def test_the_file_has_a_line_for_each_movement_and_amounts_as_numbers(
    story: Story, place: list[str], tmp_path: Path
) -> None:
    owner, out = story.honest.owner.address, tmp_path / "statement.csv"
    shown = ask(owner, *place, "--csv", str(out))
    assert shown.exit_code == 0, shown.output
    found = json.loads(ask(owner, *place, "--json").stdout)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(Decimal(row["amount ASZ"]) * TOKEN) for row in rows] == [int(line["amount"]) for line in found["lines"]]
    assert int(Decimal(rows[-1]["balance ASZ"]) * TOKEN) == int(found["closing"])
    assert all(row["block"].isdigit() and row["transaction"].startswith("0x") for row in rows)
    kinds = {column.name: str(column.type) for column in pyarrow.csv.read_csv(out).schema}
    assert {name: kinds[name] for name in ("time", "block", "round", "node", "units", "amount ASZ")} == {
        "time": "timestamp[s]",
        "block": "int64",
        "round": "int64",
        "node": "int64",
        "units": "int64",
        "amount ASZ": "double",
    }
    again = ask(owner, *place, "--csv", str(out))
    assert again.exit_code == 2
    assert "exists: give another file" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--from", "yesterday"], 2, "invalid time 'yesterday': expected a day as 2026-01-31"),
        (["--from", "2026-02-01", "--to", "2026-01-01"], 2, "is not after"),
    ],
)
def test_a_time_that_is_none_is_one_sentence(
    story: Story, place: list[str], words: list[str], code: int, sentence: str
) -> None:
    refused = ask(story.honest.owner.address, *place, *words)
    assert refused.exit_code == code
    assert sentence in refused.stderr


def test_an_address_without_credits_is_one_sentence(story: Story, place: list[str]) -> None:
    refused = ask(COLD, *place)
    assert refused.exit_code == 1
    assert "has never had credits" in refused.stderr


def test_the_statement_is_among_the_commands_of_credits(story: Story, place: list[str]) -> None:
    words = [sys.executable, str(ROOT / "assize.py"), "credits", "statement", story.honest.owner.address]
    done = subprocess.run([*words, *place, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lines"]
