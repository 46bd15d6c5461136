"""A vote is on disk before anyone hears of it; a kill at any moment neither loses nor doubles it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.errors import Misconfigured
from protocol.wire.votes import Vote, abstention
from validator.journal import Ballot, Journal

ROOT = Path(__file__).parents[2]
BALLOT = Ballot(2**200 + 7, 0, b"\x0b" * 32)
VOTE = Vote(0b101, 0b010, bytes([8]), b"\xe1" * 32)

WRITER = """
import sys
from pathlib import Path
from protocol.wire.votes import Vote
from validator.journal import Ballot, Journal
journal = Journal(Path(sys.argv[1]))
for number in range(1_000_000):
    root = number.to_bytes(32, "big")
    standing = journal.record(Ballot(number, 0, bytes(32)), Vote(number, 0, b"", root), b"evidence" * 100)
    print(number, standing.salt.hex(), flush=True)
"""


def test_a_vote_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = Journal(tmp_path).record(BALLOT, VOTE, b"bundle")
    found = Journal(tmp_path).find(BALLOT)
    assert found == written
    assert found is not None
    assert found.vote == VOTE
    assert len(found.salt) == 32
    assert Journal(tmp_path).evidence(VOTE.evidence_root) == b"bundle"


def test_the_first_vote_stands(tmp_path: Path) -> None:
    first = Journal(tmp_path).record(BALLOT, VOTE, b"bundle")
    assert Journal(tmp_path).record(BALLOT, abstention(), b"") == first


def test_another_attempt_or_beacon_is_another_vote(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = journal.record(BALLOT, VOTE, b"bundle")
    redrawn = journal.record(Ballot(BALLOT.round, 1, BALLOT.beacon), VOTE, b"bundle")
    reorganised = journal.record(Ballot(BALLOT.round, 0, bytes(32)), abstention(), b"")
    assert len({first.salt, redrawn.salt, reorganised.salt}) == 3
    assert reorganised.vote.abstains


def test_what_is_not_published_is_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(BALLOT, VOTE, b"bundle")
    journal.record(Ballot(8, 0, bytes(32)), abstention(), b"")
    assert [standing.ballot for standing in Journal(tmp_path).unpublished()] == [BALLOT]
    journal.mark_published(BALLOT)
    assert Journal(tmp_path).unpublished() == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot be written"):
        Journal(tmp_path / "file" / "state")


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_a_killed_process_loses_no_vote_it_spoke_of(tmp_path: Path, seconds: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    spoken = [child.stdout.readline()]
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    spoken += [line for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()
    journal = Journal(tmp_path)
    for line in spoken:
        number, salt = line.split()
        ballot = Ballot(int(number), 0, bytes(32))
        standing = journal.record(ballot, abstention(), b"")
        assert standing.salt.hex() == salt
        assert standing.vote.accept == int(number)
        assert journal.evidence(standing.vote.evidence_root) == b"evidence" * 100
