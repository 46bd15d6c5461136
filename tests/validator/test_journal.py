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
from validator.journal import VoteJournal, VoteKey

ROOT = Path(__file__).parents[2]
KEY = VoteKey(2**200 + 7, 0, b"\x0b" * 32)
VOTE = Vote(0b101, 0b010, bytes([8]), b"\xe1" * 32)

WRITER = """
import sys
from pathlib import Path
from protocol.wire.votes import Vote
from validator.journal import VoteKey, VoteJournal
journal = VoteJournal(Path(sys.argv[1]))
for number in range(1_000_000):
    root = number.to_bytes(32, "big")
    written = journal.record(VoteKey(number, 0, bytes(32)), Vote(number, 0, b"", root), b"evidence" * 100)
    print(number, written.salt.hex(), flush=True)
"""


def test_a_vote_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = VoteJournal(tmp_path).record(KEY, VOTE, b"bundle")
    found = VoteJournal(tmp_path).find(KEY)
    assert found == written
    assert found is not None
    assert found.vote == VOTE
    assert len(found.salt) == 32
    assert VoteJournal(tmp_path).evidence(VOTE.evidence_root) == b"bundle"


def test_the_first_vote_stands(tmp_path: Path) -> None:
    first = VoteJournal(tmp_path).record(KEY, VOTE, b"bundle")
    assert VoteJournal(tmp_path).record(KEY, abstention(), b"") == first


def test_another_attempt_or_beacon_is_another_vote(tmp_path: Path) -> None:
    journal = VoteJournal(tmp_path)
    first = journal.record(KEY, VOTE, b"bundle")
    redrawn = journal.record(VoteKey(KEY.round, 1, KEY.beacon), VOTE, b"bundle")
    reorganised = journal.record(VoteKey(KEY.round, 0, bytes(32)), abstention(), b"")
    assert len({first.salt, redrawn.salt, reorganised.salt}) == 3
    assert reorganised.vote.abstains


def test_what_is_not_published_is_remembered(tmp_path: Path) -> None:
    journal = VoteJournal(tmp_path)
    journal.record(KEY, VOTE, b"bundle")
    journal.record(VoteKey(8, 0, bytes(32)), abstention(), b"")
    assert [written.key for written in VoteJournal(tmp_path).unpublished()] == [KEY]
    journal.mark_published(KEY)
    assert VoteJournal(tmp_path).unpublished() == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot be written"):
        VoteJournal(tmp_path / "file" / "state")


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
    journal = VoteJournal(tmp_path)
    for line in spoken:
        number, salt = line.split()
        key = VoteKey(int(number), 0, bytes(32))
        written = journal.record(key, abstention(), b"")
        assert written.salt.hex() == salt
        assert written.vote.accept == int(number)
        assert journal.evidence(written.vote.evidence_root) == b"evidence" * 100
