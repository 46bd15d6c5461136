"""Intake of signed leaves, evidence and lost artifacts: each is checked, made durable, then acknowledged.

As one of the run's stores the coordinator signs receipts for the artifacts that it holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import IO

from sqlmodel import Session, select

from coordinator.api.artifacts import ArtifactIntake, check_assigned
from coordinator.api.gate import Caller
from coordinator.api.refusals import NotHeld, conflicting, forbidden, missing, refusing, unreadable
from coordinator.driver.schedule import claimed_jobs
from coordinator.store import Store, take_turn, upsert
from coordinator.tables import (
    ClaimRow,
    EvidenceRow,
    RoundRow,
    SeatRow,
    SubmittedRow,
    UploadRow,
)
from protocol.chain.deployment import Deployment
from protocol.chain.structs import State
from protocol.transport.blobs import OwnBlobs
from protocol.wire import auth, evidence
from protocol.wire.api import ReceiptRequest, StoreReceipt, StoreRefusal, SubmissionRequest
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.assignments import Leaf, unpack_leaves

MOST_BUNDLES = 4
"""Most different bundles of evidence of one seat. A juror votes for one, and may have judged again before."""

MOST_URI_BYTES = 1024
"""Longest URI of a submission, receipts included; it is part of calldata that the coordinator pays for."""


class Intake:
    """The uploads and claims of the runs driven here."""

    def __init__(
        self,
        store: Store,
        artifacts: ArtifactIntake,
        evidence_blobs: OwnBlobs,
        deployment: Deployment,
        signer: auth.Signer,
    ) -> None:
        self._store, self._deployment, self._signer = store, deployment, signer
        self._artifacts, self._evidence = artifacts, evidence_blobs

    def check_restoring(self, caller: Caller, round_id: int, job: int) -> None:
        """Raises ``Refused`` before a blob is read: not a juror, no such job on chain, or its artifact is here."""
        self.check_juror(caller)
        root, _ = self._submitted(round_id, job)
        if self._artifacts.blobs.has(root):
            raise conflicting(f"the artifact of job {job} of round {round_id} is here already")

    def restore(self, round_id: int, job: int, file: IO[bytes]) -> bytes:
        """Stores the blob of a submitted artifact that is not here, from a juror that has it; returns its root.

        Raises:
            Refused: the bytes are not those that the node signed.
            Unavailable: the blob cannot be stored.
        """
        (root, node), data = self._submitted(round_id, job), file.read()
        with refusing(unreadable):
            head, _ = parse_blob(data, root)
        self._artifacts.keep(UploadRow(round=round_id, job=job, root=root, node=node, size=head.size), data)
        return root

    def _submitted(self, round_id: int, job: int) -> tuple[bytes, int]:
        """Returns root and node of a job on chain. Raises ``Refused`` if it was not submitted."""
        with self._store.reading() as session:
            rows = session.exec(select(SubmittedRow).where(SubmittedRow.round == round_id)).all()
        for row in rows:
            for leaf in unpack_leaves(row.leaves):
                if leaf.job == job:
                    return leaf.root, row.node
        raise missing(f"job {job} of round {round_id} was not submitted, in the blocks that this coordinator has read")

    def find_artifact(self, run: int, root: bytes) -> tuple[int, Iterator[bytes]]:
        """Returns size and pieces of an artifact's blob; raises ``NotHeld``, signed for the run, for an unknown root.

        The store decides, not the database: one that was lost may not make this store refuse what it gave a receipt
        for. Nor is anything refused while the store does not answer.
        """
        found = self._artifacts.blobs.pieces(root)
        if found is None:
            raise NotHeld(f"no artifact with the root 0x{root.hex()} is stored here", self._refusal(run, root))
        return found

    def _refusal(self, run: int, root: bytes) -> StoreRefusal:
        now, deployment = int(time.time()), self._deployment
        statement = auth.refusal(deployment.chain_id, deployment.rounds, run, root, now)
        return StoreRefusal(root=root, time=now, signature=self._signer.sign_typed(statement))

    def receipt(self, caller: Caller, round_id: int, request: ReceiptRequest) -> StoreReceipt:
        """Returns this store's signed receipt for the artifacts of a node's leaves.

        Raises:
            Refused: other nodes' jobs, missing artifacts, or the work phase has ended.
        """
        if request.node != caller.node:
            raise forbidden(f"wrong signer: expected node {request.node} of the leaves, not node {caller.node}")
        with refusing(unreadable):
            leaves = unpack_leaves(request.leaves)
        with self._store.reading() as session:
            check_assigned(
                self._artifacts.open_round(session, caller.run, round_id),
                caller.node,
                tuple(leaf.job for leaf in leaves),
            )
            _check_uploaded(session, round_id, caller.node, leaves)
        lost = [leaf for leaf in leaves if not self._artifacts.blobs.has(leaf.root)]
        if lost:
            raise missing(
                f"the artifact 0x{lost[0].root.hex()} of job {lost[0].job} is no longer here: upload it again"
            )
        now, deployment = int(time.time()), self._deployment
        stated = (deployment.chain_id, deployment.rounds, caller.run, round_id, request.node, request.leaves, now)
        return StoreReceipt(time=now, signature=self._signer.sign_typed(auth.receipt(*stated)))

    def store_submission(self, caller: Caller, round_id: int, request: SubmissionRequest) -> list[int]:
        """Stores signed leaves for relaying and returns their jobs; repeating the request changes nothing.

        Raises:
            Refused: other nodes' jobs, another signer, missing artifacts, or the work phase has ended.
            Unavailable: the leaves cannot be stored.
        """
        claim = ClaimRow(round=round_id, received_at=time.time(), **dict(request))
        with refusing(unreadable):
            leaves = unpack_leaves(claim.leaves)
        self._check_claim(caller, claim)
        with self._store.writing() as session:
            take_turn(session, "claims", round_id, claim.node)  # two claims at once may name the same jobs
            if session.get(ClaimRow, (round_id, claim.node, claim.leaves)) is None:
                round_ = self._artifacts.open_round(session, caller.run, round_id)
                check_assigned(round_, caller.node, tuple(leaf.job for leaf in leaves))
                _check_new(session, round_, claim)
                _check_uploaded(session, round_id, caller.node, leaves)
                session.add(claim)
        return [leaf.job for leaf in leaves]

    def check_juror(self, caller: Caller) -> None:
        """Raises ``Refused`` before evidence is read: the caller never had a seat."""
        with self._store.reading() as session:
            if session.exec(select(SeatRow.round).where(SeatRow.juror == caller.node).limit(1)).first() is None:
                raise forbidden(
                    f"node {caller.node} has no seat in any round, in the blocks that this coordinator has read"
                )

    def store_evidence(self, caller: Caller, root: bytes, file: IO[bytes]) -> None:
        """Stores a juror's signed evidence under its root.

        Raises:
            Refused: the bundle has another root or signer, or the caller has no seat in that round or too many bundles.
            Unavailable: the evidence cannot be stored.
        """
        data = file.read()
        with refusing(unreadable):
            signed = evidence.parse_signed(data, root)
            signed.verify(caller.key)
        bundle = signed.evidence
        if bundle.juror != caller.node:
            raise forbidden(f"wrong signer: expected juror {bundle.juror} of the evidence, not node {caller.node}")
        if max(bundle.round, bundle.attempt) >= 1 << 63:
            raise missing(f"no round {bundle.round} here")
        row = EvidenceRow(root=root, round=bundle.round, attempt=bundle.attempt, juror=caller.node)
        with self._store.reading() as session:
            if session.get(SeatRow, (row.round, row.attempt, row.juror)) is None:
                raise forbidden(
                    f"node {row.juror} has no seat in round {row.round}, in the blocks that this coordinator has read"
                )
            _check_bundles(session, row)
        self._evidence.put(root, data)
        with self._store.writing() as session:
            upsert(session, [row])

    def find_evidence(self, root: bytes) -> tuple[int, Iterator[bytes]]:
        """Returns size and pieces of evidence, once committing has ended: votes cannot be copied.

        Raises ``Refused`` before, and for an unknown root.
        """
        with self._store.reading() as session:
            row = session.get(EvidenceRow, root)
            round_ = session.get(RoundRow, row.round) if row else None
        found = self._evidence.pieces(root) if row else None
        if row is None or found is None:
            raise missing(f"no evidence with the root 0x{root.hex()} is stored here")
        voting = round_ is not None and round_.state == State.VOTING and round_.attempt == row.attempt
        if voting and round_ is not None and not round_.revealing and time.time() <= round_.deadline:
            raise missing("this evidence is served once committing has ended: ask again then")
        return found

    def _check_claim(self, caller: Caller, claim: ClaimRow) -> None:
        if claim.node != caller.node:
            raise forbidden(f"wrong signer: expected node {claim.node}, the node of the leaves, not node {caller.node}")
        if len(claim.uri.encode()) > MOST_URI_BYTES:
            raise unreadable(f"URI too long: expected at most {MOST_URI_BYTES} bytes")
        signed = (claim.round, claim.node, claim.beacon, claim.leaves, claim.uri)
        message = auth.submission(self._deployment.chain_id, self._deployment.rounds, *signed)
        with refusing(unreadable):
            signer = auth.recover(message, claim.signature)
        if signer != caller.key:
            raise forbidden(f"wrong signature: expected the node's key {caller.key}, not {signer}")


def _check_bundles(session: Session, row: EvidenceRow) -> None:
    same = (EvidenceRow.round == row.round, EvidenceRow.attempt == row.attempt, EvidenceRow.juror == row.juror)
    stored = session.exec(select(EvidenceRow.root).where(*same)).all()
    if row.root not in stored and len(stored) >= MOST_BUNDLES:
        raise conflicting(f"this seat already has {MOST_BUNDLES} different bundles, the most that are stored")


def _check_new(session: Session, round_: RoundRow, claim: ClaimRow) -> None:
    if claim.beacon != round_.beacon:
        raise conflicting(
            f"wrong beacon: round {round_.id} has 0x{round_.beacon.hex()} here; the chain may have been reorganised"
        )
    earlier = select(ClaimRow).where(
        ClaimRow.round == claim.round, ClaimRow.node == claim.node, ClaimRow.beacon == round_.beacon
    )
    if any(claimed_jobs(each) & claimed_jobs(claim) for each in session.exec(earlier)):
        raise conflicting("other leaves are stored for one of these jobs")
    if round_.submitted & claimed_jobs(claim):
        raise conflicting("one of these jobs is already on chain")


def _check_uploaded(session: Session, round_id: int, node: int, leaves: tuple[Leaf, ...]) -> None:
    for leaf in leaves:
        upload = session.get(UploadRow, (round_id, leaf.job, leaf.root))
        if upload is None or upload.node != node:
            raise conflicting(f"no artifact with the root 0x{leaf.root.hex()} was uploaded for job {leaf.job}")
