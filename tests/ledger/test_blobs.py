"""Raw bytes behind the ledger: from the coordinator that the operator named, checked before they are passed on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient

from ledger.api.app import create_app
from ledger.api.blobs import MOST_BYTES, BlobSource
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
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

HTML = {"Accept": "text/html,*/*;q=0.8"}


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


@pytest.fixture
def http(story: Story, chain: Chain, database: Database, source: BlobSource) -> TestClient:
    """The story's ledger, started with that coordinator's address."""
    sync(chain, database)
    return TestClient(create_app(chain, database, Follower(chain, database), source))


def blob_of(chain: Chain, job: int = 0) -> tuple[bytes, bytes]:
    """The blob of an artifact, and its root."""
    file = rollout.encode(artifact(1, job, 1))
    head = signed_head(chain.chain_id, chain.deployment.rounds, file)
    return head.packed + file, head.root


def evidence_of(chain: Chain, juror: int = 3) -> SignedEvidence:
    about = (chain.chain_id, chain.deployment.rounds, 1, 1, 0, juror, 0, bytes(32), bytes(32))
    return SignedEvidence(Evidence(*about, {"toploc": 1.0}, ()), bytes(65))


def test_artifacts_and_evidence_come_as_the_bytes_that_their_roots_name(
    http: TestClient, keeping: Keeping, chain: Chain
) -> None:
    blob, root = blob_of(chain)
    signed = evidence_of(chain)
    keeping.keep_artifact(root, blob)
    keeping.keep_evidence(signed.evidence.root, signed)
    answer = http.get(f"/blobs/artifacts/0x{root.hex()}", headers=HTML)  # a link that a reader follows
    assert (answer.status_code, answer.content) == (200, blob)
    assert parse_blob(answer.content, root)[1] == blob[HEAD_BYTES:]
    told = http.get(f"/blobs/evidence/0x{signed.evidence.root.hex()}")
    assert parse_signed(told.content, signed.evidence.root) == signed
    for each in (answer, told):
        assert each.headers["content-type"] == "application/octet-stream"
        assert each.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in each.headers["cache-control"]


def test_without_a_source_or_its_bytes_there_is_a_sentence(
    http: TestClient, story: Story, chain: Chain, database: Database
) -> None:
    missing = http.get(f"/blobs/artifacts/0x{'ab' * 32}")
    assert (missing.status_code, missing.json()["error"]) == (
        404,
        f"the coordinator that this ledger asks does not have the artifact 0x{'ab' * 32}",
    )
    bare = TestClient(create_app(chain, database, Follower(chain, database)))
    refused = bare.get(f"/blobs/evidence/0x{'ab' * 32}")
    assert refused.status_code == 404
    assert "this ledger asks no coordinator" in refused.json()["error"]
    assert http.get("/blobs/artifacts/0x12").status_code == 422


def test_other_bytes_under_a_root_are_not_passed_on(http: TestClient, keeping: Keeping, chain: Chain) -> None:
    blob, root = blob_of(chain)
    for wrong, name in ((blob_of(chain, 1)[0], root), (blob[:-1] + b"\x00", b"\x07" * 32), (blob + b"\x00", root)):
        keeping.keep_artifact(name, wrong)
        assert http.get(f"/blobs/artifacts/0x{name.hex()}").status_code == 404
    keeping.keep_evidence(b"\x08" * 32, evidence_of(chain))
    assert http.get(f"/blobs/evidence/0x{'08' * 32}").status_code == 404


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
