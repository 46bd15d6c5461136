"""What a worker must not lose, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.api import Assignment, SubmissionRequest
from protocol.wire.assignments import Leaf, pack_leaves
from worker.outbox import Outbox


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "rounds")


def assignment(round_: int, jobs: list[int]) -> Assignment:
    return Assignment(
        round=round_,
        run=1,
        step=1,
        policy_version=0,
        beacon=b"\x0b" * 32,
        open_block=7,
        deadline=100,
        assignments=bytes.fromhex("0000000702"),
        jobs=jobs,
    )


def signed(*jobs: int) -> SubmissionRequest:
    leaves = pack_leaves([Leaf(job, 5, bytes([job]) * 32) for job in jobs])
    return SubmissionRequest(
        node=7,
        beacon=b"\x0b" * 32,
        leaves=leaves,
        uri="http://127.0.0.1/artifacts/",
        signature=b"\x01" * 65,
    )


def test_what_is_kept_is_there_for_whoever_starts_over_the_same_folder(outbox: Outbox) -> None:
    outbox.remember(assignment(3, [0, 1]))
    outbox.put_artifact(3, 0, b"parquet")
    outbox.put_submission(3, 0, signed(0, 1))
    again = Outbox(outbox.folder)
    assert again.rounds() == [3]
    assert again.assignment(3) == assignment(3, [0, 1])
    assert again.artifact(3, 0) == b"parquet"
    assert list(again.submissions(3)) == [signed(0, 1)]


def test_an_artifact_that_was_not_made_is_none(outbox: Outbox) -> None:
    assert outbox.artifact(9, 0) is None
    outbox.put_artifact(9, 1, b"x")
    assert outbox.artifact(9, 0) is None


def test_a_write_torn_by_a_crash_counts_as_not_made_and_is_made_again(outbox: Outbox) -> None:
    outbox.put_artifact(4, 0, b"whole")
    (outbox.folder / "4" / ".1.parquet.part").write_bytes(b"hal")
    (outbox.folder / "4" / ".submission-0.json.part").write_bytes(b'{"node": 7, "bea')
    assert outbox.artifact(4, 1) is None
    assert list(outbox.submissions(4)) == []
    outbox.put_artifact(4, 1, b"other")
    outbox.put_submission(4, 0, signed(0))
    assert outbox.artifact(4, 1) == b"other"
    assert list(outbox.submissions(4)) == [signed(0)]


def test_a_round_begun_and_not_written_has_no_assignment(outbox: Outbox) -> None:
    (outbox.folder / "6").mkdir()
    assert outbox.rounds() == [6]
    assert outbox.assignment(6) is None


def test_signed_jobs_are_those_of_every_signature_kept(outbox: Outbox) -> None:
    assert outbox.signed_jobs(5) == set()
    outbox.put_submission(5, 0, signed(0, 3))
    outbox.put_submission(5, 16, signed(16))
    assert outbox.signed_jobs(5) == {0, 3, 16}


def test_dropping_a_round_leaves_every_other(outbox: Outbox) -> None:
    for round_ in (10, 9, 100, 1):
        outbox.put_artifact(round_, 0, b"x")
    outbox.drop(10)
    outbox.drop(10)
    assert outbox.rounds() == [1, 9, 100]


def test_what_was_made_for_a_beacon_that_a_reorganisation_replaced_is_dropped(outbox: Outbox) -> None:
    outbox.remember(assignment(4, [0]))
    outbox.put_artifact(4, 0, b"of another fork")
    outbox.put_submission(4, 0, signed(0))
    outbox.remember(assignment(4, [0]))
    assert outbox.signed_jobs(4) == {0}, "the same beacon again changes nothing"
    outbox.remember(assignment(4, [0]).model_copy(update={"beacon": b"\x0c" * 32}))
    assert outbox.signed_jobs(4) == set()
    assert outbox.artifact(4, 0) is None
