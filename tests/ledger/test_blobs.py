"""Raw bytes behind the ledger: from the coordinator that the operator named, checked before they are passed on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import FastAPI, Response

from ledger.api.blobs import MOST_BYTES, BlobSource, NoBytes
from protocol.chain.reading.client import Chain
from protocol.errors import Rejected, Unavailable
from protocol.wire import rollout
from protocol.wire.artifact_blob import HEAD_BYTES, ArtifactHead, parse_blob
from protocol.wire.evidence import Evidence, SignedEvidence, parse_signed
from tests.artifacts import signed_head
from tests.conftest import serving
from tests.coordinator.swarm import artifact
from tests.ledger.conftest import shared_story as story
from tests.ledger.coordinating import Keeping, coordinating
from tests.ledger.scenario import Story

__all__ = ["story"]


@pytest.fixture
def keeping(story: Story, tmp_path: Path) -> Iterator[Keeping]:
    """The run's coordinator."""
    (tmp_path / "coordinator").mkdir()
    with coordinating(story, tmp_path / "coordinator") as kept:
        yield kept


@pytest.fixture
def source(keeping: Keeping) -> Iterator[BlobSource]:
    """The blobs of that coordinator."""
    made = BlobSource([keeping.url])
    yield made
    made.close()


def blob_of(chain: Chain, job: int = 0) -> tuple[bytes, bytes]:
    """The blob of an artifact, and its root."""
    file = rollout.encode(artifact(1, job, 1))
    head = signed_head(chain.chain_id, chain.deployment.rounds, file)
    return head.packed + file, head.root


def evidence_of(chain: Chain, juror: int = 3) -> SignedEvidence:
    about = (chain.chain_id, chain.deployment.rounds, 1, 1, 0, juror, 0, bytes(32), bytes(32))
    return SignedEvidence(Evidence(*about, {"toploc": 1.0}, ()), bytes(65))


def test_artifacts_and_evidence_come_as_the_bytes_that_their_roots_name(
    source: BlobSource, keeping: Keeping, chain: Chain
) -> None:
    blob, root = blob_of(chain)
    signed = evidence_of(chain)
    keeping.keep_artifact(root, blob)
    keeping.keep_evidence(signed.evidence.root, signed)
    found = source.get("artifact", root)
    assert found == blob
    assert parse_blob(found, root)[1] == blob[HEAD_BYTES:]
    assert parse_signed(source.get("evidence", signed.evidence.root), signed.evidence.root) == signed


def test_without_a_source_or_its_bytes_there_is_a_sentence(source: BlobSource) -> None:
    with pytest.raises(NoBytes, match=f"that this ledger asks does not have the artifact 0x{'ab' * 32}"):
        source.get("artifact", b"\xab" * 32)
    with closing(BlobSource()) as bare, pytest.raises(NoBytes, match="this ledger asks no coordinator"):
        bare.get("evidence", b"\xab" * 32)


def test_other_bytes_under_a_root_are_not_passed_on(source: BlobSource, keeping: Keeping, chain: Chain) -> None:
    blob, root = blob_of(chain)
    for wrong, name in ((blob_of(chain, 1)[0], root), (blob[:-1] + b"\x00", b"\x07" * 32), (blob + b"\x00", root)):
        keeping.keep_artifact(name, wrong)
        with pytest.raises(NoBytes):
            source.get("artifact", name)
    keeping.keep_evidence(b"\x08" * 32, evidence_of(chain))
    with pytest.raises(NoBytes):
        source.get("evidence", b"\x08" * 32)


def test_a_source_that_sends_too_much_or_nothing_at_all_is_given_up() -> None:
    hostile, asked = FastAPI(), list[str]()

    @hostile.get("/artifacts/{root}")
    def endless(root: str) -> Response:
        asked.append(root)
        head = ArtifactHead(bytes(32), bytes(32), MOST_BYTES + 1).packed
        return Response(head + bytes(MOST_BYTES))

    large, refused = ArtifactHead(bytes(32), bytes(32), MOST_BYTES + 1).root, "does not have the artifact"
    with serving(hostile) as url, closing(BlobSource([url])) as source, pytest.raises(Rejected, match=refused):
        source.get("artifact", large)
    with closing(BlobSource([url])) as source, pytest.raises(Unavailable, match="does not answer"):
        source.get("artifact", bytes(32))
    assert len(asked) == 1


def test_one_root_is_fetched_once_however_many_ask(chain: Chain) -> None:
    blob, root = blob_of(chain)
    counting, asked, go = FastAPI(), list[str](), threading.Event()

    @counting.get("/artifacts/{name}")
    def slow(name: str) -> Response:
        asked.append(name)
        go.wait(10)
        return Response(blob)

    with serving(counting) as url, closing(BlobSource([url])) as source:
        with pytest.raises(Unavailable, match="still being fetched"):
            source.get("artifact", root, seconds=0.05)
        found = list[bytes]()
        threads = [threading.Thread(target=lambda: found.append(source.get("artifact", root))) for _ in range(6)]
        for each in threads:
            each.start()
        go.set()
        for each in threads:
            each.join()
        assert found == [blob] * 6
        assert source.get("artifact", root) == blob
    assert asked == [f"0x{root.hex()}"]
