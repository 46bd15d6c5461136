"""Bodies of the coordinator's API: frozen, closed, and strict about numbers and hex."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from protocol.wire import api

ASSIGNMENT = {
    "round": 2**200,
    "run": 1,
    "step": 3,
    "policy_version": 2,
    "beacon": "0x" + "ab" * 32,
    "open_block": 10,
    "deadline": 1_800_000_000,
    "assignments": "0x0000000103",
    "jobs": [0, 255],
}


def test_a_body_comes_back_as_it_was_sent():
    sent = api.Assignments(rounds=[api.Assignment(**ASSIGNMENT)])
    assert api.Assignments.model_validate_json(sent.model_dump_json()) == sent


def test_bytes_are_hex_in_json_and_bytes_in_python():
    sent = api.Assignment(**ASSIGNMENT)
    assert (sent.beacon, sent.assignments) == (b"\xab" * 32, b"\x00\x00\x00\x01\x03")
    assert sent.model_dump(mode="json") == ASSIGNMENT
    assert api.Assignment(**ASSIGNMENT | {"beacon": b"\xab" * 32}) == sent
    with pytest.raises(ValidationError):
        api.Assignment(**ASSIGNMENT | {"beacon": b"\xab" * 31})


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"jobs": [256]},
        {"jobs": [-1]},
        {"round": -1},
        {"round": 2**256},
        {"beacon": "0x12"},
        {"beacon": "ab" * 32},
        {"beacon": "0x" + "AB" * 32},
        {"assignments": "0x123"},
        {"policy_version": 2**32},
    ],
)
def test_a_body_outside_its_bounds_is_refused(change):
    with pytest.raises(ValidationError):
        api.Assignment(**ASSIGNMENT | change)


def test_a_body_cannot_be_changed():
    with pytest.raises(ValidationError):
        api.ArtifactReceipt(root="0x" + "00" * 32).root = "0x" + "11" * 32


def test_wei_are_strings_of_digits():
    node = {"node": 1, "role": "worker", "owner": "0x" + "1" * 40, "state": "alive"}
    counts = dict.fromkeys(("head", "step", "version", "rounds_open", "rounds_settled", "rounds_void"), 0)
    jobs = dict.fromkeys(("jobs_accepted", "jobs_void", "jobs_fraud"), 0)
    rest = {"run": 1, "reserved_wei": "0", "credits_wei": {}, "slashed_wei": {}, "nodes": [node]}
    assert api.StatusReport(**counts, **jobs, **rest, escrow_wei=str(10**30)).escrow_wei == str(10**30)
    for wei in (10**18, "1e18", "-1", "01", "0x10"):
        with pytest.raises(ValidationError):
            api.StatusReport(**counts, **jobs, **rest, escrow_wei=wei)
