"""What a run with a faulty validator must come to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.localnet.commands import localnet
from deploy.localnet.faulty_committee import DisputeOutcome, broken_rules, outcome_of, restored
from deploy.localnet.parties import ETHER, Party, faulty_committee
from deploy.localnet.scoreboard import Scoreboard
from deploy.runs.run_file import BUILTIN, read_run_file
from tests.ledger import disputes
from tests.ledger.conftest import dispute, market  # noqa: F401
from tests.ledger.disputes import Dispute

GOOD = DisputeOutcome(
    appeals=2,
    overturned=2,
    rounds=4,
    honest_slashed_wei=0,
    faulty_slashed_wei=10 * ETHER,
    paid_wei=2 * ETHER,
    awarded_wei=8 * ETHER,
    audit="ok",
    wall_seconds=80.0,
    seed=1,
)


def test_a_run_in_which_everybody_was_restored_breaks_no_rule() -> None:
    assert broken_rules(GOOD) == []
    assert json.loads(GOOD.to_json())["awarded_wei"] == str(8 * ETHER)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"appeals": 0, "overturned": 0}, "no honest worker was condemned"),
        ({"overturned": 1}, "1 of 2 appeals were not upheld"),
        ({"honest_slashed_wei": 1}, "honest nodes were slashed 1 wei"),
        ({"faulty_slashed_wei": 0}, "the faulty validator was not slashed"),
        ({"paid_wei": 0}, "was not credited"),
        ({"awarded_wei": 0}, "awarded nothing"),
        ({"audit": "views: 1"}, "the audit says views: 1"),
    ],
)
def test_each_rule_that_is_broken_is_named(change: dict[str, object], said: str) -> None:
    assert any(said in sentence for sentence in broken_rules(replace(GOOD, **change)))


def test_the_run_file_has_the_builtin_rules_and_seats_for_its_validators() -> None:
    own = read_run_file(BUILTIN.with_name("faulty-committee.toml"))
    assert own.rules == read_run_file(BUILTIN).rules
    validators = [party for party in faulty_committee(1) if party.role == "validator"]
    assert own.terms.committee + own.terms.appeal_seats == len(validators)


def test_a_run_goes_on_until_each_appeal_is_decided_and_its_figures_are_those_of_the_chain(
    dispute: Dispute,  # noqa: F811
) -> None:
    disputes.condemn(dispute)
    nodes = {"careful": dispute.workers[0].node, "hasty": dispute.workers[1].node, "faulty": dispute.juror}
    parties = tuple(
        Party(name, "validator" if name == "faulty" else "worker", adversary="x" if name == "faulty" else None)
        for name in nodes
    )
    board = Scoreboard(dispute.market.chain, dispute.market.run, parties, nodes, rollouts_per_job=1)
    board.refresh()
    assert not restored(board), "nobody has appealed yet"
    for chapter in (disputes.dispute_all, disputes.hear, disputes.settle):
        chapter(dispute)
        board.refresh()
        assert not restored(board)
    disputes.finish(dispute)
    board.refresh()
    assert restored(board)
    outcome = outcome_of(board, "ok", 1.0, seed=3)
    assert (outcome.appeals, outcome.overturned, outcome.audit, outcome.seed) == (6, 2, "ok", 3)
    assert outcome.faulty_slashed_wei > 0
    assert outcome.honest_slashed_wei > 0, "the jury condemned another job of this worker on appeal"
    assert outcome.paid_wei > 0
    assert outcome.awarded_wei > 0


def test_an_adversary_that_nobody_knows_is_refused_beside_a_faulty_committee_too(tmp_path: Path) -> None:
    words = ["run", "--faulty-committee", "--adversary", "nonsense", "--root", str(tmp_path / "net")]
    answer = CliRunner().invoke(localnet, words)
    assert (answer.exit_code, "unknown adversary" in answer.output) == (2, True)
    assert not (tmp_path / "net").exists()
