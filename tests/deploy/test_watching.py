"""Figures of watching the jurors of a local run: what they say, and which of them break a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.localnet.parties import parties
from deploy.localnet.watching import RECHECKED_JOBS, Watched, share_rechecked

GOOD = Watched(
    faults_planted=1,
    faults_found=1,
    finders=3,
    jobs_rechecked=40,
    fingerprints_equal=300,
    fingerprints_near=20,
)


def test_found_faults_and_honest_fingerprints_break_no_rule_and_are_told() -> None:
    assert list(GOOD.broken()) == []
    traps, recheck = GOOD.sentences()
    assert "shared by 3 jurors" in traps
    assert "300" in recheck
    assert "20" in recheck


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults_planted": 0, "faults_found": 0}, "no fault was planted"),
        ({"faults_found": 0}, "0 of 1 planted faults"),
        ({"verdicts_apart": 2}, "other verdicts on 2 of 40 jobs"),
        ({"bundles_in_doubt": 4}, "4 bundles"),
        ({"fingerprints_equal": 0, "fingerprints_near": 0}, "no juror's fingerprint"),
    ],
)
def test_each_broken_rule_of_the_watch_is_one_sentence(changes: dict[str, int], words: str) -> None:
    (sentence,) = replace(GOOD, **changes).broken()
    assert words in sentence


def test_runs_of_any_length_have_about_as_many_jobs_checked_again() -> None:
    assert share_rechecked(3, 8) == 1.0
    assert share_rechecked(50, 16) * 50 * 16 == pytest.approx(RECHECKED_JOBS)


def test_the_worker_that_plants_is_the_requesters_and_does_not_count_as_honest() -> None:
    (own,) = (party for party in parties("edited-answer", 8, 3, plants=True) if party.plants)
    assert own.owner == "requester"
    assert not own.honest
    assert all(party.honest for party in parties("edited-answer", 8, 3) if not party.adversary)
