"""A worker's artifacts and signatures, kept on disk until their round ends.

    ROUND/assignments.json           the coordinator's assignment, beacon included
    ROUND/JOB.parquet                an artifact, written before it is uploaded
    ROUND/JOB.leaf                   its leaf, packed, written after it
    ROUND/submission-FIRST.json      signed leaves, written before they are sent

After a crash between two steps the worker repeats a step. The node can also submit without the coordinator.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from protocol.files import write_atomically
from protocol.wire.api import Assignment, SubmissionRequest
from protocol.wire.assignments import Leaf, pack_leaves, unpack_leaves


class Outbox:
    """Files of the rounds that this node works in, under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def remember(self, assignment: Assignment) -> None:
        """Keeps an assignment, for submitting without the coordinator.

        Drops what is kept of a round with another beacon: a reorganisation has replaced it.
        """
        earlier = self.assignment(assignment.round)
        if earlier is not None and earlier.beacon != assignment.beacon:
            self.drop(assignment.round)
        self._write(assignment.round, "assignments.json", assignment.model_dump_json().encode())

    def assignment(self, round_: int) -> Assignment | None:
        """Returns the assignment of a round, or None if a crash came before it was kept."""
        path = self._round(round_) / "assignments.json"
        return Assignment.model_validate_json(path.read_bytes()) if path.exists() else None

    def rounds(self) -> list[int]:
        """Returns the rounds of which files are kept, ascending."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def put_artifact(self, round_: int, job: int, file: bytes) -> None:
        """Keeps an artifact."""
        self._write(round_, f"{job}.parquet", file)

    def artifact(self, round_: int, job: int) -> bytes | None:
        """Returns the artifact of a job, or None if it was not made."""
        path = self._round(round_) / f"{job}.parquet"
        return path.read_bytes() if path.exists() else None

    def put_leaf(self, round_: int, leaf: Leaf) -> None:
        """Keeps the leaf of a job whose artifact is kept."""
        self._write(round_, f"{leaf.job}.leaf", pack_leaves([leaf]))

    def unsigned_leaves(self, round_: int) -> list[Leaf]:
        """Returns the leaves of a round that no kept submission signs, ascending by job."""
        kept = [leaf for path in self._round(round_).glob("*.leaf") for leaf in unpack_leaves(path.read_bytes())]
        signed = self.signed_jobs(round_)
        return sorted((leaf for leaf in kept if leaf.job not in signed), key=lambda leaf: leaf.job)

    def put_submission(self, round_: int, first_job: int, submission: SubmissionRequest) -> None:
        """Keeps signed leaves, named after the first job among them."""
        self._write(round_, f"submission-{first_job}.json", submission.model_dump_json().encode())

    def submissions(self, round_: int) -> Iterator[SubmissionRequest]:
        """Yields the signed leaves of a round."""
        for path in sorted(self._round(round_).glob("submission-*.json")):
            yield SubmissionRequest.model_validate_json(path.read_bytes())

    def signed_jobs(self, round_: int) -> set[int]:
        """Returns the jobs of a round whose leaves are signed; their artifacts were kept before."""
        return {leaf.job for submission in self.submissions(round_) for leaf in unpack_leaves(submission.leaves)}

    def drop(self, round_: int) -> None:
        """Removes the files of a round that is over."""
        shutil.rmtree(self._round(round_), ignore_errors=True)

    def _round(self, round_: int) -> Path:
        return self.folder / str(round_)

    def _write(self, round_: int, name: str, data: bytes) -> None:
        self._round(round_).mkdir(exist_ok=True)
        write_atomically(self._round(round_) / name, data)
