"""A worker's bytes and signatures, kept until the round is over.

    ROUND/assignments.json           what the coordinator listed, beacon included
    ROUND/JOB.parquet                the artifact, written before it is uploaded
    ROUND/submission-FIRST.json      the signed leaves, written before they are sent

So a crash between any two steps repeats a step and invents nothing, and the node can submit for itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from protocol.wire.api import Assignment, SubmissionRequest
from protocol.wire.assignments import unpack_leaves


class Outbox:
    """Files of the rounds this node works in, under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def remember(self, assignment: Assignment) -> None:
        """Keeps what was listed, for submitting without the coordinator.

        Where a reorganisation has put a round of another beacon in the place of an earlier one, that one is dropped.
        """
        earlier = self.assignment(assignment.round)
        if earlier is not None and earlier.beacon != assignment.beacon:
            self.drop(assignment.round)
        self._write(assignment.round, "assignments.json", assignment.model_dump_json().encode())

    def assignment(self, round_: int) -> Assignment | None:
        """What was listed for a round, None where a crash came before it was kept."""
        path = self._round(round_) / "assignments.json"
        return Assignment.model_validate_json(path.read_bytes()) if path.exists() else None

    def rounds(self) -> list[int]:
        """Rounds of which anything is kept, ascending."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def put_artifact(self, round_: int, job: int, file: bytes) -> None:
        """Keeps an artifact."""
        self._write(round_, f"{job}.parquet", file)

    def artifact(self, round_: int, job: int) -> bytes | None:
        """The artifact of a job, None where it was not made."""
        path = self._round(round_) / f"{job}.parquet"
        return path.read_bytes() if path.exists() else None

    def put_submission(self, round_: int, first_job: int, submission: SubmissionRequest) -> None:
        """Keeps signed leaves, named after the first job among them."""
        self._write(round_, f"submission-{first_job}.json", submission.model_dump_json().encode())

    def submissions(self, round_: int) -> Iterator[SubmissionRequest]:
        """Signed leaves of a round."""
        for path in sorted(self._round(round_).glob("submission-*.json")):
            yield SubmissionRequest.model_validate_json(path.read_bytes())

    def signed_jobs(self, round_: int) -> set[int]:
        """Jobs of a round whose leaves are signed: their artifacts were kept before."""
        return {leaf.job for submission in self.submissions(round_) for leaf in unpack_leaves(submission.leaves)}

    def drop(self, round_: int) -> None:
        """The round is over: nobody will ask again."""
        shutil.rmtree(self._round(round_), ignore_errors=True)

    def _round(self, round_: int) -> Path:
        return self.folder / str(round_)

    def _write(self, round_: int, name: str, data: bytes) -> None:
        self._round(round_).mkdir(exist_ok=True)
        temporary = self._round(round_) / f".{name}.part"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._round(round_) / name)
