"""The audit passes on what happened, and names whatever was changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ledger.audit import audit
from ledger.audit.report import Discrepancy, Report
from ledger.store.database import Database
from ledger.store.tables import TABLES
from protocol.chain.reading.client import Chain
from protocol.errors import Unavailable
from tests.ledger.conftest import shared_story as story
from tests.ledger.scenario import Story

__all__ = ["story"]


def change(database: Database, statement: str) -> None:
    """Runs one statement on the file behind the ledger's back, and sees that it changed something."""
    with sqlite3.connect(Path(database.where)) as connection:
        assert connection.execute(statement).rowcount > 0, statement
    connection.close()


def findings(report: Report) -> list[Discrepancy]:
    return [finding for check in report.checks for finding in check.findings]


def test_a_whole_life_of_a_round_passes_every_check(story: Story, synced: Database, chain: Chain) -> None:
    report = audit(chain, synced)
    assert [str(finding) for finding in findings(report)] == []
    assert [check.name for check in report.checks if not check.compared] == []
    assert report.ok


def test_each_kind_of_stored_value_that_is_flipped_is_named(story: Story, synced: Database, chain: Chain) -> None:
    flips = [
        ("credit", "balance", "owner", f"'{story.honest.owner.address}'", "7"),
        ("credit", "worked", "owner", f"'{story.honest.owner.address}'", "1"),
        ("node", "bond", "node", str(story.cheat.node), "999"),
        ("holding", "tokens", "holder", f"'{chain.deployment.credits}'", "0"),
        ("run", "escrow", "run", "1", "1"),
        ("run", "reserved", "run", "1", "1"),
        ("round", "accepted", "round", str(story.rounds[0]), "0xff"),
        ("round", "consumed", "round", str(story.rounds[0]), "0x7"),
        ("round", "state", "round", str(story.rounds[2]), "settled"),
        ("slash", "amount", "node", str(story.cheat.node), "0"),
        ("job", "verdict", "round", str(story.rounds[2]), "accepted"),
        ("job", "credited", "job", "0", "no number"),
        ("seat", "accept", "juror", str(story.silent), "0x3"),
        ("service", "agreed", "validator", str(story.silent), "77"),
        ("submission", "paid", "node", str(story.honest.node), "5"),
        ("checkpoint", "manifest_root", "version", "1", "0x" + "00" * 32),
        ("consumption", "jobs", "version", "3", "0x3"),
        ("membership", "rules_hash", "node", str(story.honest.node), "0x00"),
        ("credit_entry", "amount", "kind", "'bought'", "0"),
        ("consent", "given", "node", str(story.silent), "0"),
        ("committee", "seed", "attempt", "1", "0x00"),
        ("slot", "node", "slot", "0", "9"),
        ("run_terms", "max_units", "run", "1", "1"),
        ("admin", "paused", "id", "1", "1"),
        ("treasury", "balance", "id", "1", "3"),
        ("sweep", "amount", "1", "1", "3"),
    ]
    for table, field, key, value, stored in flips:
        change(synced, f"UPDATE {table} SET {field} = '{stored}' WHERE {key} = {value}")
    report = audit(chain, synced)
    named = {(finding.subject, finding.field) for finding in findings(report)}
    assert named == {(table, field) for table, field, *_ in flips}
    assert {table for table, *_ in flips} | {"appeal", "taint", "trap_set", "opened_trap"} == {
        table.name for table in TABLES.values()
    }
    balance = next(finding for finding in findings(report) if finding.field == "balance")
    assert (balance.subject, balance.key, balance.stored) == ("credit", story.honest.owner.address, "7")
    assert int(balance.recomputed) == chain.latest().credits_of(story.honest.owner.address)


def test_a_missing_row_and_one_too_many_are_named(story: Story, synced: Database, chain: Chain) -> None:
    owner = story.honest.owner.address
    change(synced, f"DELETE FROM credit WHERE owner = '{owner}'")
    change(synced, "INSERT INTO slot VALUES (200, 1, 0, 0, 0)")
    named = {
        (finding.subject, finding.key, finding.field, finding.stored) for finding in findings(audit(chain, synced))
    }
    assert named == {("credit", owner, "row", "no row"), ("slot", "200", "row", "one")}


def test_changed_raw_events_are_named(story: Story, synced: Database, chain: Chain) -> None:
    change(synced, "UPDATE event SET payload = '{}' WHERE name = 'RoundTallied'")
    change(synced, "DELETE FROM event WHERE name = 'CreditsBought'")
    change(synced, "INSERT INTO event VALUES (0, 0, '', '', 0, 'Invented', NULL, '{}')")
    report = audit(chain, synced)
    assert {finding.check for finding in findings(report)} == {"raw events"}
    assert {finding.field for finding in findings(report)} == {"payload", "row"}
    assert not report.ok


def test_a_ledger_that_has_read_nothing_is_not_audited(chain: Chain, database: Database) -> None:
    with pytest.raises(Unavailable, match="read nothing of the chain yet"):
        audit(chain, database)
