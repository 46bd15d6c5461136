"""Appeals on a real chain: what the ledger makes of each end, who pays, and what stands on it."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient
from typer.testing import CliRunner

from ledger.api.app import create_app
from ledger.audit import audit
from ledger.book import Kind
from ledger.commands.app import app
from ledger.facts import Appeal, Checkpoint, Job, Node, Round, Slash, Sweep, Taint, Treasury
from ledger.queries.lookup import every
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from ledger.store.rows import find_fact
from protocol.chain.reading.client import Chain
from tests.conftest import TERMS
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE
from tests.ledger.test_audit import change, findings

BOND, BOUNTY = TERMS.rounds.appeal_bond, TERMS.rounds.appeal_bounty
PENALTY = TERMS.rounds.overturn_penalty


def audited(chain: Chain, database: Database) -> list[str]:
    """Brings the ledger to the head, and returns what the audit finds there."""
    sync(chain, database)
    return [str(finding) for finding in findings(audit(chain, database))]


def all_of(database: Database, kind: type[Kind]) -> tuple[Kind, ...]:
    with database.reading() as connection:
        return every(connection, kind)


def one_of(database: Database, kind: type[Kind], *key: int) -> Kind:
    with database.reading() as connection:
        fact = find_fact(connection, kind, *key)
    assert fact is not None
    return fact


def test_every_end_of_an_appeal_is_told_and_the_audit_passes_after_each_chapter(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    for chapter in disputes.CHAPTERS:
        chapter(dispute)
        assert audited(chain, database) == [], chapter.__name__
    appeals_are_told(dispute, database)
    what_stands_on_them_is_told(dispute, database)
    who_pays_is_told(dispute, database)


def appeals_are_told(dispute: Dispute, database: Database) -> None:
    ends = {}
    for appeal in all_of(database, Appeal):
        ends[appeal.job] = (appeal.state, appeal.verdict, appeal.fees, appeal.awarded, appeal.forfeited)
    assert ends == {
        0: ("overturned", "accepted", 3 * FEE, 3 * FEE + BOUNTY, 0),
        1: ("overturned", "fraud", 3 * FEE, 3 * FEE + BOUNTY, 0),
        2: ("upheld", "void", 3 * FEE, 0, BOND),
        3: ("undecided", "accepted", 0, 0, 0),
        5: ("overturned", "unavailable", 0, 0, 0),
        6: ("undecided", "void", 4 * FEE, 0, 0),
    }
    for job, number in dispute.appeals.items():
        trial = one_of(database, Round, number)
        assert (trial.parent, trial.submitted, trial.reserve) == (dispute.round, 1 << job, BOND + 6 * FEE)
        assert trial.state == ("void" if job in (3, 6) else "settled")
        assert (trial.reserved, trial.eligible.bit_count()) == (0, 3)
    round_ = one_of(database, Round, dispute.round)
    assert (round_.state, round_.appeals, round_.appealed) == ("settled", 0, 0b1101111)
    assert (round_.accepted, round_.fraud) == (0b111001, 0b100010)
    jobs = {job.job: (job.verdict, job.credited) for job in all_of(database, Job) if job.round == dispute.round}
    assert jobs[0] == ("accepted", (MAX_UNITS - 3) * PRICE)
    assert (jobs[1], jobs[5], jobs[6]) == (("fraud", 0), ("unavailable", 0), ("void", 0))


def what_stands_on_them_is_told(dispute: Dispute, database: Database) -> None:
    taints = {taint.job: (taint.version, taint.appeal) for taint in all_of(database, Taint)}
    assert taints == {1: (1, dispute.appeals[1])}
    stands = {checkpoint.version: checkpoint.tainted for checkpoint in all_of(database, Checkpoint)}
    assert stands == {0: 0, 1: 1, 2: 1, 5: 1}


def who_pays_is_told(dispute: Dispute, database: Database) -> None:
    slashes = [slash for slash in all_of(database, Slash) if slash.round == dispute.round]
    overturned = [(slash.node, slash.amount) for slash in slashes if slash.cause == "overturned"]
    assert overturned == [(dispute.juror, PENALTY)] * 2
    assert [slash.node for slash in slashes if slash.cause == "fraud"] == [dispute.workers[0].node]
    first, second = all_of(database, Sweep)
    assert (second.treasury, second.amount) == (disputes.NEW_TREASURY, TERMS.rounds.absence_penalty)
    treasury = one_of(database, Treasury, 1)
    assert (treasury.awarded, treasury.balance) == (2 * (3 * FEE + BOUNTY), 0)
    assert treasury.slashed == treasury.awarded + first.amount + second.amount
    assert {node.in_flight for node in all_of(database, Node)} == {0, 1}, "the last round is still open"


def test_changed_appeals_and_taints_are_named_and_an_auditor_reads_them(
    dispute: Dispute, chain: Chain, database: Database, addresses: Path
) -> None:
    disputes.told(dispute)
    sync(chain, database)
    an_auditor_reads(dispute, chain, database, addresses)
    flips = [
        ("appeal", "state", "appeal", str(dispute.appeals[2]), "overturned"),
        ("appeal", "awarded", "appeal", str(dispute.appeals[0]), "1"),
        ("taint", "version", "job", "1", "5"),
        ("checkpoint", "tainted", "version", "1", "0"),
        ("job", "appeal", "job", "6", "0"),
        ("round", "parent", "round", str(dispute.appeals[1]), "0"),
        ("round", "appealed", "round", str(dispute.round), "0x0"),
        ("run", "deposited", "run", "1", "5"),
        ("credit", "granted", "owner", f"'{dispute.rival.address}'", "5"),
        ("treasury", "awarded", "id", "1", "0"),
        ("admin", "treasury", "id", "1", dispute.rival.address),
    ]
    for table, field, key, value, stored in flips:
        change(database, f"UPDATE {table} SET {field} = '{stored}' WHERE {key} = {value}")
    named = {(finding.subject, finding.field) for finding in findings(audit(chain, database))}
    assert named == {(table, field) for table, field, *_ in flips}


def an_auditor_reads(dispute: Dispute, chain: Chain, database: Database, addresses: Path) -> None:
    """``assize ledger appeals`` and ``checkpoints``, as tables and as JSON, and the API."""
    where = ["--rpc", chain.rpc.url, "--addresses", str(addresses), "--db", database.where]
    rows = json.loads(CliRunner().invoke(app, ["appeals", *where, "--json"]).stdout)
    assert [row["appeal"] for row in rows] == list(dispute.appeals.values())
    assert rows[0]["deposit"] == str(BOND + 6 * FEE)
    assert "undecided" in CliRunner().invoke(app, ["appeals", *where]).stdout
    checkpoints = json.loads(CliRunner().invoke(app, ["checkpoints", *where, "--json"]).stdout)
    assert [row["tainted"] for row in checkpoints] == [0, 1, 1, 1]
    assert "tainted" in CliRunner().invoke(app, ["checkpoints", *where]).stdout
    with TestClient(create_app(chain, database, Follower(chain, database))) as http:
        items = http.get("/appeals", params={"round": dispute.round}).json()["items"]
        assert [item["state"] for item in items] == [row["state"] for row in rows]
        assert len(http.get(f"/rounds/{dispute.round}").json()["appeals"]) == len(rows)
        assert [taint["job"] for taint in http.get("/checkpoints/1/1").json()["taints"]] == [1]
        assert len(http.get("/checkpoints/1/5").json()["taints"]) == 1
        told = http.get("/treasury").json()
        assert (told["treasury"]["balance"], told["admin"]["treasury"]) == ("0", disputes.NEW_TREASURY)
        assert len(told["sweeps"]) == 2
