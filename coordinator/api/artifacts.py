"""Intake of artifacts: each is checked for its round, job and node, decoded, and durable before it is acknowledged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import IO

from prometheus_client import Counter
from sqlmodel import Session, col, func, select

from coordinator.api.gate import Caller
from coordinator.api.refusals import conflicting, forbidden, missing, refusing, too_many, unreadable
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store, upsert
from coordinator.tables import CheckpointRow, RoundRow, UploadRow
from protocol.chain.deployment import Deployment
from protocol.chain.structs import State
from protocol.transport.blobs import OwnBlobs
from protocol.wire import rollout
from protocol.wire.artifact_blob import ArtifactHead
from protocol.wire.assignments import jobs_of
from protocol.wire.rollout import Artifact, Limits

UPLOADS = Counter("assize_coordinator_uploads", "Artifacts stored")
UPLOADED_BYTES = Counter("assize_coordinator_uploaded_bytes", "Bytes of artifacts stored")

MOST_UPLOADS = 4
"""Most different artifacts of one job. A worker that lost the first may make another, but not fill the disk."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Most artifacts that one node may have in rounds that have not ended, and most bytes of these.

    Rounds that ended do not count: a node is not refused what it was listed for because an operator keeps them long.
    """

    uploads: int
    size: int


class ArtifactIntake:
    """The artifacts of the runs driven here, as nodes send them."""

    def __init__(self, store: Store, blobs: OwnBlobs, deployment: Deployment, limits: Limits, quota: Quota) -> None:
        self.blobs = blobs
        self._store, self._deployment, self._limits, self._quota = store, deployment, limits, quota

    @classmethod
    def of(cls, settings: CoordinatorSettings, store: Store, blobs: OwnBlobs, deployment: Deployment) -> ArtifactIntake:
        """Returns the intake within the settings' limits."""
        limits = Limits(file_bytes=settings.max_artifact_bytes)
        quota = Quota(settings.max_node_uploads, settings.max_node_bytes)
        return cls(store, blobs, deployment, limits, quota)

    def check_upload(self, caller: Caller, round_id: int, job: int, size: int = 0) -> None:
        """Raises ``Refused`` before an artifact is read: another node's job, the work phase has ended, or a full quota.

        ``size`` is that of the artifact's file as far as it is known.
        """
        with self._store.reading() as session:
            check_assigned(self.open_round(session, caller.run, round_id), caller.node, (job,))
            sent = (UploadRow.round == round_id, UploadRow.job == job, UploadRow.node == caller.node)
            if session.exec(select(UploadRow.root).where(*sent).limit(1)).first() is None:  # else it may be sent again
                self._check_quota(session, caller.node, size)

    def store_artifact(self, caller: Caller, round_id: int, job: int, file: IO[bytes], file_hash: bytes) -> bytes:
        """Stores one job's artifact, whose file has this hash; returns its root.

        Raises:
            Refused: another node's job, the work phase has ended, or the artifact is of another job or policy.
            Unavailable: the artifact cannot be stored.
        """
        with self._store.reading() as session:
            check_assigned(self.open_round(session, caller.run, round_id), caller.node, (job,))
        return self.take(caller.node, round_id, job, file.read(), file_hash)

    def take(self, node: int, round_id: int, job: int, data: bytes, file_hash: bytes) -> bytes:
        """Stores the artifact of a node's job, whose file ``data`` has this hash; returns its root.

        Whether the round is open was seen to before, when the node began to send it or told that it had.

        Raises:
            Refused: the artifact is of another job or policy, or too much.
            Unavailable: the artifact cannot be stored.
        """
        with self._store.reading() as session:
            round_ = session.get(RoundRow, round_id)
            policy = session.get(CheckpointRow, (round_.run, round_.policy_version)) if round_ else None
        with refusing(unreadable):
            artifact = rollout.decode(data, self._limits)
        named = (artifact.round, artifact.job, artifact.node)
        if named != (round_id, job, node):
            raise unreadable("wrong artifact: it is of round {}, job {}, node {}".format(*named))
        if round_ is None or policy is None or artifact.manifest_root != policy.manifest_root:
            made_by = "the round's version" if round_ is None else f"version {round_.policy_version}"
            raise unreadable(f"wrong artifact: expected one made by {made_by} of the run")
        rollouts_root = rollout.rollouts_root(self._deployment.chain_id, self._deployment.rounds, artifact)
        return self._keep(artifact, ArtifactHead(rollouts_root, file_hash, len(data)), data)

    def _keep(self, artifact: Artifact, head: ArtifactHead, data: bytes) -> bytes:
        root = head.root
        with self._store.reading() as session:
            known = session.get(UploadRow, (artifact.round, artifact.job, root)) is not None
            if known and self.blobs.has(root):
                return root
            if not known:
                self.check_count(session, artifact.round, artifact.job)
                self._check_quota(session, artifact.node, head.size)
        upload = UploadRow(round=artifact.round, job=artifact.job, root=root, node=artifact.node, size=head.size)
        self.keep(upload, head.packed + data)
        return root

    def keep(self, upload: UploadRow, blob: bytes) -> None:
        """Stores an artifact's checked blob; two processes may do so at once. Raises ``Unavailable``."""
        self.blobs.put(upload.root, blob)
        with self._store.writing() as session:
            upsert(session, [upload])
        UPLOADS.inc()
        UPLOADED_BYTES.inc(upload.size)

    def check_count(self, session: Session, round_id: int, job: int) -> None:
        """Raises ``Refused`` if a job has as many different artifacts as are stored."""
        same = select(func.count()).where(UploadRow.round == round_id, UploadRow.job == job)
        if session.exec(same).one() >= MOST_UPLOADS:
            raise conflicting(f"this job already has {MOST_UPLOADS} different artifacts, the most that are stored")

    def _check_quota(self, session: Session, node: int, size: int) -> None:
        live = select(RoundRow.id).where(col(RoundRow.state) < State.SETTLED)
        mine = select(func.count(), func.coalesce(func.sum(UploadRow.size), 0)).where(
            UploadRow.node == node, col(UploadRow.round).in_(live)
        )
        count, used = session.exec(mine).one()
        if count >= self._quota.uploads or used + size > self._quota.size:
            raise too_many(
                f"quota used: node {node} has {count} artifacts of {used} bytes in rounds that have not ended, "
                f"{size} bytes more would pass {self._quota.uploads} artifacts or {self._quota.size} bytes"
            )

    def open_round(self, session: Session, run: int, round_id: int) -> RoundRow:
        """Returns a round of the run whose work phase has not ended. Raises ``Refused`` for any other."""
        round_ = session.get(RoundRow, round_id)
        if round_ is None or round_.run != run:
            raise missing(f"no round {round_id} of run {run} here")
        if round_.state != State.OPEN or time.time() > round_.deadline:
            raise conflicting(f"the work phase of round {round_id} has ended")
        return round_


def check_assigned(round_: RoundRow, node: int, jobs: tuple[int, ...]) -> None:
    """Raises ``Refused`` unless all these jobs of the round are the node's."""
    foreign = sorted(set(jobs) - set(jobs_of(round_.assignments, node)))
    if foreign:
        raise forbidden(f"job {foreign[0]} of round {round_.id} is not assigned to node {node}")
