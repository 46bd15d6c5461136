"""A run's coordinator is the one given for it, otherwise the one that it names on chain."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from protocol.errors import Unavailable
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.api import Health

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def drives_two(file_server: tuple[Path, str]) -> str:
    """URL of a coordinator that drives run 2."""
    files, url = file_server
    (files / "health").write_text(Health(ok=True, run=2, head=0).model_dump_json())
    return url


def test_a_coordinator_that_is_given_takes_precedence_over_the_one_that_its_run_names(drives_two: str) -> None:
    with closing(RunCoordinators([drives_two])) as coordinators:
        coordinators.keep({1: "http://one.example", 2: "http://two.example"})
        assert coordinators.of(2).base_url == drives_two
        assert coordinators.of(1).base_url == "http://one.example"


def test_a_given_coordinator_that_does_not_answer_leaves_runs_to_those_they_name() -> None:
    with closing(RunCoordinators([NOWHERE])) as coordinators:
        coordinators.keep({2: "http://two.example/"})
        assert coordinators.of(2).base_url == "http://two.example"
        with pytest.raises(Unavailable, match=NOWHERE):
            coordinators.of(3)


def test_a_run_that_names_no_url_has_no_coordinator() -> None:
    with closing(RunCoordinators(())) as coordinators:
        coordinators.keep({1: "", 2: "ftp://two.example", 3: "http://three.example"})
        assert coordinators.of(3).base_url == "http://three.example"
        for run in (1, 2, 4):
            with pytest.raises(Unavailable, match=f"no coordinator of run {run} is known"):
                coordinators.of(run)


def test_a_run_that_is_no_longer_served_is_forgotten_and_one_that_moved_is_followed() -> None:
    with closing(RunCoordinators(())) as coordinators:
        coordinators.keep({1: "http://one.example", 2: "http://two.example"})
        kept = coordinators.of(1)
        coordinators.keep({1: "http://one.example"})
        assert coordinators.of(1) is kept
        with pytest.raises(Unavailable, match="run 2"):
            coordinators.of(2)
        coordinators.keep({1: "http://other.example"})
        assert coordinators.of(1).base_url == "http://other.example"
