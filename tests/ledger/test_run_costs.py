"""A requester's run: what it has cost and how it goes on, from the chain alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ledger.commands.requester import app
from ledger.commands.run_report import a_thousand_tokens, money_rows
from ledger.commands.run_watch import run_view
from ledger.facts import Slash
from ledger.queries.run_costs import run_costs
from ledger.queries.run_progress import RoundProgress, RunOutlook, run_progress, spent_per_second
from ledger.store.database import Database
from ledger.store.index import sync
from ledger.trainer_metrics import TrainerMetrics, read_metrics
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected
from protocol.node.watching import lines_of
from tests.conftest import TOKEN
from tests.ledger.conftest import shared_story as story
from tests.ledger.disputes import Dispute, told
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE, Story

__all__ = ["story"]

WORKED = (MAX_UNITS - 5 + MAX_UNITS) * PRICE
NOW = 1_800_000_000


@pytest.fixture
def requester(chain: Chain, addresses: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs ``assize run VERB`` of the ledger's part, with a database of its own."""
    where = ["--rpc", chain.rpc.url, "--addresses", str(addresses), "--db", str(tmp_path / "requester.sqlite")]
    return lambda verb, *more: CliRunner().invoke(app, [verb, *where, *map(str, more)])


def test_costs_are_told_by_provider_and_sum_up_to_the_escrow(story: Story, synced: Database, chain: Chain) -> None:
    with synced.reading() as connection:
        costs = run_costs(connection, story.market.run)
    held = chain.latest().run(story.market.run)
    assert (costs.work, costs.fees) == (WORKED, 2 * FEE)
    assert costs.funded - costs.spent == held.escrow + held.reserved == costs.escrow + costs.reserved
    by_node = {one.node: one for one in costs.providers}
    honest, cheat = by_node[story.honest.node], by_node[story.cheat.node]
    assert (honest.paid, honest.accepted, honest.units) == (WORKED, 2, 2 * MAX_UNITS + 4)
    assert (cheat.paid, cheat.fraud) == (0, 2)
    assert cheat.slashed > 0
    assert sum(one.paid for one in costs.providers) == costs.spent
    assert sum(one.slashed for one in costs.providers) == costs.slashed
    assert [(each.version, each.jobs) for each in costs.versions] == [(1, 1), (3, 1)]
    assert sum(each.paid for each in costs.versions) == costs.work
    assert costs.a_version == costs.spent // 2


def test_appeals_leave_the_sum_whole(dispute: Dispute, chain: Chain, database: Database) -> None:
    told(dispute)
    sync(chain, database)
    with database.reading() as connection:
        costs = run_costs(connection, dispute.market.run)
    assert costs.deposited > 0
    assert costs.escrow == chain.latest().run(dispute.market.run).escrow


def test_the_report_as_a_page_needs_neither_relay_nor_ledger(
    story: Story, requester: Callable[..., Result], tmp_path: Path
) -> None:
    out = tmp_path / "run.html"
    assert requester("report", story.market.run, "--html", out).exit_code == 0
    page = out.read_text()
    assert "it was started without <code>--relay</code>" in page
    assert "<a href" not in page.partition("<main")[2], "no ledger is named"
    assert "src=" not in page
    wrong = requester("report", story.market.run, "--html", tmp_path / "other.html", "--ledger", "ledger")
    assert (wrong.exit_code, wrong.stderr) == (2, "assize: invalid ledger URL 'ledger': expected http(s)://host\n")
    assert not (tmp_path / "other.html").exists()
    nowhere = requester("report", story.market.run, "--html", tmp_path / "no" / "run.html")
    assert (nowhere.exit_code, "No such file or directory" in nowhere.stderr) == (2, True)


def test_the_report_is_a_table_json_and_a_file(story: Story, requester: Callable[..., Result], tmp_path: Path) -> None:
    out, run = tmp_path / "providers.csv", story.market.run
    told = json.loads(requester("report", run, "--json", "--csv", out).stdout)
    assert (told["work"], told["fees"]) == (str(WORKED), str(2 * FEE))
    assert told["a_version"] == str((WORKED + 2 * FEE) // 2)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert {int(row["node"]) for row in rows} == {one["node"] for one in told["providers"]}
    shown = requester("report", run).stdout
    assert story.honest.owner.address in shown
    assert "accepted 2" in shown
    again = requester("report", run, "--csv", out)
    assert (again.exit_code, again.stderr) == (2, f"assize: {out} exists: give another file\n")


def test_a_run_that_is_not_there_is_one_sentence(story: Story, requester: Callable[..., Result]) -> None:
    for verb in ("report", "watch"):
        done = requester(verb, 99)
        assert (done.exit_code, done.stderr) == (1, "assize: there is no run 99\n")


def test_tokens_are_the_trainers_word(story: Story, synced: Database, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    step = {"kind": "step", "version": 1, "reward": 0.5, "tokens": 2000}
    lines = [step, step | {"reward": 0.6}, {"kind": "evaluation", "version": 1, "accuracy": 0.25}]
    metrics.write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "st')
    read = read_metrics(tmp_path)
    assert read == TrainerMetrics({1: 0.6}, {1: 0.25}, 2000)
    with synced.reading() as connection:
        costs = run_costs(connection, story.market.run)
    assert a_thousand_tokens(costs, read.tokens) == costs.spent // 2
    assert a_thousand_tokens(costs, None) is None
    assert "cost a thousand tokens" in money_rows(costs, costs.opened_at + 60, 2000)
    with pytest.raises(Misconfigured, match="cannot read the trainer's metrics"):
        read_metrics(tmp_path / "nothing")


def test_the_watch_of_a_run_shows_its_rounds(story: Story, synced: Database, requester: Callable[..., Result]) -> None:
    with synced.reading() as connection:
        progress = run_progress(connection, story.market.run)
    judged = next(each for each in progress.rounds if each.round == story.rounds[0])
    assert (judged.jobs, judged.accepted, judged.fraud, judged.missing) == (5, 2, 2, 1)
    assert (progress.version, progress.versions, progress.paid) == (3, 2, WORKED + 2 * FEE)
    assert progress.slashes
    shown = requester("watch", story.market.run, "--once")
    assert shown.exit_code == 0, shown.stderr
    assert "escrow left" in shown.stdout
    told = json.loads(requester("watch", story.market.run, "--once", "--json").stdout)
    assert told["paid_wei"] == str(WORKED + 2 * FEE)
    assert len(told["rounds"]) == 3


ROUND = RoundProgress(97, 11, "settled", NOW - 100, 16, 12, 1, 1, 1, 0, 1, 3 * TOKEN)
PROGRESS = RunOutlook(
    run=1,
    version=12,
    versions=12,
    published_at=NOW - 65,
    closed=False,
    staleness=1.5,
    rounds=(replace(ROUND, round=98, state="open", paid=0, accepted=0, void=0, fraud=0, unavailable=0), ROUND),
    open_rounds=1,
    escrow=216 * TOKEN,
    reserved=4 * TOKEN,
    paid=24 * TOKEN,
    slashes=(Slash(1, 2, b"", 7, "0x", 90, "fraud", TOKEN, 15 * TOKEN),),
)


def test_a_run_under_way_at_80_columns() -> None:
    metrics = TrainerMetrics({9: 0.4, 10: 0.5, 11: 0.55, 12: 0.625}, {10: 0.5}, 1)
    assert lines_of(run_view(PROGRESS, metrics, NOW), 80) == [
        "run 1",
        "version          12, published 1 min 5 s ago",
        "reward           9: 0.400  10: 0.500  11: 0.550  12: 0.625",
        "accuracy         10: 0.500",
        "versions behind  1.5 on average",
        "rounds           1 under way",
        "paid so far      24.00 ASZ",
        "cost a version   2.00 ASZ",
        "escrow left      216.00 ASZ, 4.00 ASZ reserved",
        "lasts for        2 h at the present rate",
        "",
        "round  state    jobs  accepted  void  fraud  unavailable  missing  paid",
        "   98  open       16         0     0      0            0        1  0.00",
        "   97  settled    16        12     1      1            1        1  3.00",
        "",
        "slashed: node 7 lost 1.00 ASZ for fraud in round 90 (assize ledger slashes)",
    ]
    assert all(len(line) <= 140 for line in lines_of(run_view(PROGRESS, metrics, NOW), 140))


def test_a_run_without_money_or_rounds_says_so() -> None:
    bare = replace(PROGRESS, rounds=(), escrow=0, versions=0, staleness=None, slashes=())
    shown = "\n".join(lines_of(run_view(bare, None, NOW), 80))
    assert "lasts for        no further round: fund it with assize run fund" in shown
    assert "reward           give the trainer's state folder with --metrics" in shown
    assert spent_per_second((), NOW) is None


def test_parts_that_do_not_sum_up_are_refused(story: Story, synced: Database) -> None:
    with synced.writing() as connection:
        connection.exec_driver_sql("UPDATE run SET funded = '1'")
    with synced.reading() as connection, pytest.raises(Rejected, match="wei came in: audit the ledger"):
        run_costs(connection, story.market.run)
