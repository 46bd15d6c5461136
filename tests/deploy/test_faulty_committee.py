"""What a run with a faulty validator must come to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deploy.localnet.faulty_committee import DisputeOutcome, broken_rules
from deploy.localnet.parties import ETHER, faulty_committee
from deploy.runs.run_file import BUILTIN, read_run_file

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
