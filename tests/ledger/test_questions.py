"""What an auditor asks beyond lists: why, on what, how fairly; and states that two auditors compare."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ledger.commands.app import app
from ledger.facts import Credit, CreditEntry, Slash
from ledger.queries.lookup import every
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.wire.reasons import Reason
from tests.conftest import TERMS, Anvil
from tests.ledger import disputes
from tests.ledger.conftest import shared_story as story
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE, Market, Story, terms_of

__all__ = ["story"]

Ledger = Callable[..., Result]
CREDIT = tuple(field.name for field in fields(Credit))


@pytest.fixture
def ledger(chain: Chain, addresses: Path, tmp_path: Path) -> Ledger:
    """Runs ``assize ledger VERB`` in this process."""

    def run(verb: str, *more: str) -> Result:
        place = [] if verb == "verify-export" else ["--rpc", chain.rpc.url, "--addresses", str(addresses)]
        db = [] if verb in ("replay", "verify-export") else ["--db", str(tmp_path / "auditor.sqlite")]
        return CliRunner().invoke(app, [verb, *more, *place, *db])

    return run


def told(ledger: Ledger, what: str) -> list[str]:
    """The lines of an explanation, which must be in the order of the chain."""
    answer = ledger("why", what, "--json")
    assert answer.exit_code == 0, answer.output
    lines = json.loads(answer.stdout)["lines"]
    places = [(line["block_number"], line["log_index"]) for line in lines]
    assert places == sorted(places)
    assert all(line["tx_hash"].startswith("0x") for line in lines)
    return [line["says"] for line in lines]


def in_order(lines: list[str], *parts: str) -> None:
    """Each part is in a line after that of the part before."""
    rest = iter(lines)
    for part in parts:
        assert any(part in line for line in rest), (part, lines)


def test_an_accepted_job_is_explained_from_its_assignment_to_its_credit(story: Story, ledger: Ledger) -> None:
    in_order(
        told(ledger, f"{story.rounds[0]}/0"),
        f"node {story.honest.node} is assigned job 0; the hash of this block",
        f"node {story.honest.node} submits, signed with its key: job 0: artifact 0x",
        "are drawn by the hash of block",
        "commits to a vote, hidden until it is revealed",
        f"job 0 accepted (accepted: {Reason.ACCEPTED.sentence}); its evidence has the root 0x",
        "the majority's verdict: job 0 accepted",
        "is trained on job 0",
        f"{story.honest.owner.address} earns",
    )


def test_a_fraudulent_job_is_explained_with_the_jurors_reason_and_the_slash(story: Story, ledger: Ledger) -> None:
    lines = told(ledger, f"{story.rounds[0]}/3")
    in_order(lines, "says job 3 fraud (", "the majority's verdict: job 3 fraud")
    in_order(lines, f"node {story.cheat.node} loses", "the round is settled")


def test_every_credit_and_every_slash_can_be_explained(story: Story, ledger: Ledger, synced: Database) -> None:
    with synced.reading() as connection:
        entries = [(entry.block_number, entry.log_index) for entry in every(connection, CreditEntry)]
        slashes = [(slash.block_number, slash.log_index) for slash in every(connection, Slash)]
    assert len(entries) > 5
    assert slashes
    for block, index in entries + slashes:
        assert told(ledger, f"{block}:{index}")


def test_a_credit_is_explained_by_the_jobs_it_is_for(story: Story, ledger: Ledger, synced: Database) -> None:
    with synced.reading() as connection:
        entry = next(entry for entry in every(connection, CreditEntry) if entry.kind == "worked")
    lines = told(ledger, f"{entry.block_number}:{entry.log_index}")
    in_order(lines, "is assigned jobs 0, 1, 2", "accepted units at", f"earns {tokens(entry.amount)}")
    assert entry.amount == (2 * MAX_UNITS - 5) * PRICE


def test_a_jurors_pay_is_explained_by_its_seat_and_vote(story: Story, ledger: Ledger, synced: Database) -> None:
    with synced.reading() as connection:
        entry = next(entry for entry in every(connection, CreditEntry) if entry.kind == "judged")
    lines = told(ledger, f"{entry.block_number}:{entry.log_index}")
    in_order(lines, "are drawn", f"validator {entry.node} commits", f"validator {entry.node} says", "agreed with")
    assert not any("commits" in line and f"validator {entry.node} " not in line for line in lines)


def test_appeals_are_part_of_the_explanation(dispute: Dispute, ledger: Ledger) -> None:
    disputes.told(dispute)
    won, undecided = dispute.appeals[1], dispute.appeals[6]
    lines = told(ledger, f"{dispute.round}/1")
    in_order(lines, "the majority's verdict", "appeals against", f"appeal {won}: validators", "the committee decides")
    in_order(lines, f"appeal {won}: validator", "job 1, appealed, is settled as fraud", f"appeal {won} ends: job 1 is")
    lines = told(ledger, f"{dispute.round}/6")
    in_order(lines, f"appeal {undecided}: there is no quorum", f"no majority names a verdict in appeal {undecided}")


def test_a_grant_is_explained_by_the_appeal_it_comes_from(
    dispute: Dispute, ledger: Ledger, chain: Chain, database: Database
) -> None:
    disputes.told(dispute)
    sync(chain, database)
    with database.reading() as connection:
        grants = [entry for entry in every(connection, CreditEntry) if entry.kind == "granted"]
    entry = next(entry for entry in grants if entry.owner == dispute.rival.address)
    assert len(grants) == 2
    won, lines = dispute.appeals[1], told(ledger, f"{entry.block_number}:{entry.log_index}")
    penalty = tokens(TERMS.rounds.overturn_penalty)
    in_order(
        lines,
        f"node {dispute.workers[0].node} is assigned job 1;",
        f"validator {dispute.juror} says job 1 accepted",
        "the majority's verdict: job 1 accepted",
        f"{entry.owner} appeals against accepted for job 1",
        f"appeal {won}: validators",
        "says fraud",
        "the committee decides: fraud",
        f"node {dispute.juror} loses {penalty} of its bond for a verdict that is overturned",
        f"{entry.owner} is awarded {tokens(entry.amount)} of slashed bonds",
        f"{entry.owner} is granted {tokens(entry.amount)}",
        f"appeal {won} ends: job 1 is fraud",
    )
    assert sum("is granted" in line for line in lines) == sum("overturned" in line for line in lines) == 1
    answer = ledger("why", f"{entry.block_number}:{entry.log_index}", "--json")
    assert json.loads(answer.stdout)["subject"].endswith(f", in round {dispute.round} for appeal {won}")


def test_an_overturned_jurors_slash_is_explained_by_the_appeal_and_its_trial(
    dispute: Dispute, ledger: Ledger, chain: Chain, database: Database
) -> None:
    disputes.told(dispute)
    sync(chain, database)
    with database.reading() as connection:
        first, second = (slash for slash in every(connection, Slash) if slash.cause == "overturned")
    for slash, job, voted, became in ((first, 0, "fraud", "accepted"), (second, 1, "accepted", "fraud")):
        appeal, lines = dispute.appeals[job], told(ledger, f"{slash.block_number}:{slash.log_index}")
        in_order(
            lines,
            f"validator {dispute.juror} says job {job} {voted}",
            f"appeals against {voted} for job {job}",
            f"appeal {appeal}: validators",
            f"says {became} (",
            f"the committee decides: {became}",
            f"node {dispute.juror} loses",
            f"appeal {appeal} ends: job {job} is {became}",
        )
        assert sum("loses" in line for line in lines) == 1
        assert sum("appeals against" in line for line in lines) == 1


def test_a_trials_vote_is_read_as_the_contract_counts_it(dispute: Dispute, ledger: Ledger) -> None:
    for chapter in (disputes.condemn, disputes.dispute_all):
        chapter(dispute)
    dispute.tick("draw", dispute.appeals[1])
    disputes.judge(dispute, dispute.appeals[1], {1: disputes.FRAUD, 200: disputes.OK})
    lines = told(ledger, f"{dispute.round}/1")
    in_order(lines, "says fraud (", "the committee decides: fraud")
    assert not any("says accepted" in line for line in lines)


def test_jurors_without_a_quorum_are_said_to_be_paid_for_their_part(
    dispute: Dispute, ledger: Ledger, chain: Chain, database: Database
) -> None:
    disputes.told(dispute)
    sync(chain, database)
    with database.reading() as connection:
        entries = [entry for entry in every(connection, CreditEntry) if entry.kind == "judged"]
    entry = next(entry for entry in entries if entry.round == dispute.appeals[6])
    lines = told(ledger, f"{entry.block_number}:{entry.log_index}")
    paid = f"validator {entry.node} did its part though there was no quorum, and is paid in full: {tokens(FEE)}"
    in_order(lines, paid, f"earns {tokens(FEE)}", "no job of it is paid for, and no worker is slashed")
    assert not any("agreed with the verdict" in line or "nothing of it" in line for line in lines)
    entry = next(entry for entry in entries if entry.round == dispute.appeals[0])
    lines = told(ledger, f"{entry.block_number}:{entry.log_index}")
    in_order(
        lines, "the majority's verdict", f"validator {entry.node} agreed with the verdict on 1 jobs: {tokens(FEE)}"
    )


def test_a_verdict_is_final_where_no_appeal_is_offered(story: Story, ledger: Ledger) -> None:
    lines = told(ledger, f"{story.rounds[0]}/0")
    in_order(lines, "the majority's verdict: job 0 accepted; it is final")
    assert not any("may be appealed" in line for line in lines)


def test_a_verdict_may_be_appealed_where_that_is_offered(dispute: Dispute, ledger: Ledger) -> None:
    disputes.condemn(dispute)
    in_order(told(ledger, f"{dispute.round}/0"), "the majority's verdict: job 0 fraud; it may be appealed until")


def test_a_job_that_nobody_did_is_said_to_be_so(story: Story, ledger: Ledger) -> None:
    answer = ledger("why", f"{story.rounds[0]}/2")
    assert answer.exit_code == 0
    assert f"job 2 of round 1, assigned to node {story.honest.node}, was not submitted" in answer.stdout
    lines = told(ledger, f"{story.rounds[0]}/2")
    in_order(lines, "the majority's verdict: of other jobs")
    assert not any("says" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            "12",
            2,
            "'12' is neither ROUND/JOB, as 12/3, nor BLOCK:LOG, as 345:2, nor an address or keystore of an owner",
        ),
        (f"0x{1:040x}", 1, f"0x{1:040x} has never had credits"),
        ("999/0", 1, "there is no job 0 in a round 999"),
        ("1/77777", 1, "there is no job 77777 in a round 1"),
        ("999999:0", 1, "there is no credit or slash at 999999:0"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(
    story: Story, ledger: Ledger, words: str, code: int, sentence: str
) -> None:
    answer = ledger("why", words)
    assert (answer.exit_code, answer.stderr) == (code, f"assize: {sentence}\n")


def test_of_an_owner_it_explains_what_it_earned_last(story: Story, ledger: Ledger) -> None:
    owner = story.honest.owner.address
    in_order(told(ledger, owner), "submits, signed with its key", "the majority's verdict", f"{owner} earns")


def test_a_checkpoints_line_names_rounds_nodes_and_jurors(story: Story, ledger: Ledger) -> None:
    line = json.loads(ledger("lineage", "1", "3", "--json").stdout)
    assert [one["version"] for one in line["ancestors"]] == [3, 1, 0]
    assert [one["rounds"] for one in line["ancestors"]] == [[1], [1], []]
    assert [one["nodes"] for one in line["ancestors"]] == [{str(story.honest.node): 1}] * 2 + [{}]
    assert len(line["ancestors"][0]["jurors"]) == 2
    assert "the contracts enforced" in ledger("lineage", "1", "3").stdout
    missing = ledger("lineage", "1", "2")
    assert (missing.exit_code, missing.stderr) == (1, "assize: there is no version 2 of run 1\n")


def test_overturned_work_taints_the_line(dispute: Dispute, ledger: Ledger) -> None:
    disputes.told(dispute)
    newest = json.loads(ledger("checkpoints", "--json").stdout)[-1]
    line = json.loads(ledger("lineage", str(newest["run"]), str(newest["version"]), "--json").stdout)
    assert len(line["taints"]) == sum(one["tainted"] for one in line["ancestors"]) > 0


def test_validators_records_add_up(story: Story, ledger: Ledger) -> None:
    services = json.loads(ledger("validators", "--json").stdout)
    assert all(one["seats"] == one["revealed"] + one["abstained"] + one["silent"] for one in services)
    assert next(one for one in services if one["validator"] == story.silent)["absent"] >= 1
    assert "overturned" in ledger("validators").stdout


def test_shares_of_a_fair_market_are_not_more_than_chance(story: Story, ledger: Ledger) -> None:
    shares = json.loads(ledger("fairness", "--json").stdout)
    assert sum(one["jobs"] for one in shares) == pytest.approx(sum(one["expected"] for one in shares), abs=0.01)
    assert not any(one["significant"] for one in shares)
    assert "more than chance" in ledger("fairness").stdout


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_can_be_checked_by_itself_and_against_the_chain(
    story: Story, ledger: Ledger, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "books"
    exported = ledger("export", "--out", str(folder), "--format", form, "--json")
    assert exported.exit_code == 0, exported.output
    checked = json.loads(ledger("verify-export", str(folder), "--json").stdout)
    assert checked == json.loads(exported.stdout)
    replayed = ledger("replay", "--against", str(folder), "--json")
    assert replayed.exit_code == 0, replayed.output
    assert json.loads(replayed.stdout)["state_hash"] == checked["state_hash"]
    again = ledger("export", "--out", str(folder))
    assert (again.exit_code, again.stderr.count("\n")) == (2, 1)


def test_a_changed_row_of_an_export_is_found(story: Story, ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder), "--format", "csv").exit_code == 0
    path = folder / "node.csv"
    text = path.read_text()
    path.write_text(text.replace("worker", "validator", 1))
    answer = ledger("verify-export", str(folder))
    assert answer.exit_code == 1
    assert "the export's table node is not what its manifest says" in answer.stderr


def test_an_export_of_changed_books_fits_itself_and_not_the_chain(story: Story, ledger: Ledger, tmp_path: Path) -> None:
    assert ledger("sync").exit_code == 0
    with closing(sqlite3.connect(tmp_path / "auditor.sqlite")) as connection, connection:
        connection.execute("UPDATE credit SET balance = '123' WHERE owner = ?", (story.honest.owner.address,))
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder), "--no-sync").exit_code == 0
    assert ledger("verify-export", str(folder)).exit_code == 0
    answer = ledger("replay", "--against", str(folder))
    assert (answer.exit_code, answer.stderr) == (
        1,
        "assize: the export says something else than the chain of: credit\n",
    )


@pytest.mark.parametrize("harm", ["no manifest", "no json", "another format", "a file is gone", "a file is no parquet"])
def test_what_is_no_export_is_one_sentence(story: Story, ledger: Ledger, tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder)).exit_code == 0
    manifest = folder / "manifest.json"
    if harm == "no manifest":
        manifest.unlink()
    elif harm == "no json":
        manifest.write_text("{")
    elif harm == "another format":
        manifest.write_text('{"format": "else"}')
    elif harm == "a file is gone":
        (folder / "node.parquet").unlink()
    else:
        (folder / "node.parquet").write_bytes(b"PAR1 and nothing more")
    answer = ledger("verify-export", str(folder))
    assert (answer.exit_code, answer.stderr.count("\n")) == (1, 1), answer.output


def test_two_auditors_reach_the_same_state_and_another_block_is_another_state(
    story: Story, ledger: Ledger, chain: Chain, anvil: Anvil, database: Database
) -> None:
    at = sync(chain, database)
    first = json.loads(ledger("replay", "--json").stdout)
    assert first["block_number"] == at.number
    anvil.rpc.call("evm_mine")
    assert ledger("replay", "--block", str(at.number), "--expect", first["state_hash"]).exit_code == 0
    answer = ledger("replay", "--expect", first["state_hash"])
    assert answer.exit_code == 1
    assert f"not {first['state_hash']}" in answer.stderr


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_with_other_columns_than_the_schemas_is_refused(
    story: Story, ledger: Ledger, tmp_path: Path, form: str
) -> None:
    twice, added = ("owner", "balance", *CREDIT[1:]), (*CREDIT, "comment")
    exchanged, missing = (*CREDIT[:-2], CREDIT[-1], CREDIT[-2]), CREDIT[:-1]
    for columns in (twice, added, exchanged, missing):
        folder = tmp_path / f"books-{len(columns)}-{columns[-1]}"
        assert ledger("export", "--out", str(folder), "--format", form).exit_code == 0
        rewrite(folder / f"credit.{form}", columns, lambda row, names=columns: [row.get(name, "7") for name in names])
        answer = ledger("verify-export", str(folder))
        assert (answer.exit_code, answer.stderr) == (
            1,
            f"assize: the columns of the export's table credit are not the schema's, which are {', '.join(CREDIT)}\n",
        )


OTHER_WAYS: list[tuple[str, str, Callable[[str], str | None]]] = [
    ("credit", "balance", lambda text: f"0{text}"),
    ("credit", "balance", lambda text: f"1_{text}"),
    ("credit", "worked", lambda text: f" {text}"),
    ("credit", "worked", lambda text: None),
    ("round", "beacon", lambda text: text.removeprefix("0x")),
    ("round", "submitted", lambda text: text.removeprefix("0x")),
    ("round", "beacon", lambda text: None),
    ("node", "revoked", lambda text: text.upper()),
]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_whose_values_are_written_in_another_way_is_refused(
    story: Story, ledger: Ledger, tmp_path: Path, form: str
) -> None:
    for number, (table, column, change) in enumerate(OTHER_WAYS):
        folder = tmp_path / f"books-{number}"
        assert ledger("export", "--out", str(folder), "--format", form).exit_code == 0
        names = columns_of(folder, table)
        rewrite(
            folder / f"{table}.{form}",
            names,
            lambda row, made=change, where=column: [*(made(row[name]) if name == where else row[name] for name in row)],
        )
        answer = ledger("verify-export", str(folder))
        assert (answer.exit_code, answer.stderr) == (
            1,
            f"assize: row 1 of the export's table {table} is not as the ledger writes it\n",
        ), (table, column)


def test_an_export_cut_short_within_a_row_is_refused(story: Story, ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder), "--format", "csv").exit_code == 0
    for table in ("checkpoint", "round", "credit"):
        path = folder / f"{table}.csv"
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole.rsplit(",", 1)[0] + "\n", encoding="utf-8")
        answer = ledger("verify-export", str(folder))
        assert answer.exit_code == 1, answer
        assert answer.stderr.endswith(f" of the export's table {table} is not as the ledger writes it\n")
        path.write_text(whole, encoding="utf-8")
    assert ledger("verify-export", str(folder)).exit_code == 0


def test_a_manifest_of_no_chain_or_no_block_is_refused(chain: Chain, ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder)).exit_code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    for field in ("chain_id", "block_number"):
        for value in ("one", None, 1.5, float("inf"), -1, 2**64):
            (folder / "manifest.json").write_text(json.dumps(manifest | {field: value}))
            answer = ledger("verify-export", str(folder))
            assert (answer.exit_code, answer.stderr.count("\n")) == (1, 1), answer
            assert "names no chain or no block" in answer.stderr


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_of_whatever_a_party_wrote_on_the_chain_can_be_checked(
    market: Market, ledger: Ledger, tmp_path: Path, form: str
) -> None:
    requester, coordinator = market.rich("requester", "Credits"), market.make_wallet("coordinator")
    terms = terms_of(coordinator, market.make_wallet("trainer"))
    for uri in ("one\rtwo", '"\r\n,\0\\', "\x85\u2028\N{SNOWMAN}", "x" * 140_000):
        market.send(requester, calls.open_run(market.deployment, terms, b"\x01" * 32, uri))
    folder = tmp_path / "books"
    assert ledger("export", "--out", str(folder), "--format", form).exit_code == 0
    answer = ledger("verify-export", str(folder))
    assert answer.exit_code == 0, answer
    assert ledger("replay", "--against", str(folder)).exit_code == 0


def test_a_replay_against_an_export_is_as_of_the_exports_block_alone(
    market: Market, ledger: Ledger, tmp_path: Path
) -> None:
    folder = tmp_path / "books"
    number = json.loads(ledger("export", "--out", str(folder), "--json").stdout)["block_number"]
    market.anvil.rpc.call("evm_mine")
    assert ledger("replay", "--against", str(folder), "--block", str(number)).exit_code == 0
    answer = ledger("replay", "--against", str(folder), "--block", str(number + 1))
    assert (answer.exit_code, answer.stderr) == (
        2,
        f"assize: {folder} is of block {number}, not {number + 1}; leave --block out\n",
    )


def columns_of(folder: Path, table: str) -> tuple[str, ...]:
    """The columns of an export's table, as its manifest names them."""
    columns = json.loads((folder / "manifest.json").read_text())["tables"][table]["columns"]
    return tuple(column["name"] for column in columns)


def rewrite(path: Path, columns: Sequence[str], values: Callable[[dict[str, str]], Sequence[str | None]]) -> None:
    """Writes a table's file anew with these columns, each row as ``values`` makes it of the old one."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = [values(row) for row in csv.DictReader(file)]
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])
        return
    rows = [values(row) for row in pq.read_table(path).to_pylist()]
    arrays = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(columns))]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), path)
