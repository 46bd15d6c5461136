"""Deletion of artifacts and evidence of rounds that ended long ago."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlmodel import select

from coordinator.blobs import KeptBlobs
from coordinator.driver.retention import DAY_SECONDS, Retention
from coordinator.settings import LEAST_KEEP_DAYS, CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import EndedRoundRow, EvidenceRow, RoundRow, UploadRow
from protocol.chain.structs import State
from protocol.errors import Misconfigured, Unavailable
from protocol.transport.objects import Objects
from protocol.wire.receipts import HELD_SECONDS

ARTIFACT, EVIDENCE = b"\x01" * 32, b"\x02" * 32
KEEP = LEAST_KEEP_DAYS * DAY_SECONDS
RUN, ROUND, APPEAL = 3, 7, 8


@pytest.fixture
def settings(tmp_path: Path) -> CoordinatorSettings:
    """What a coordinator reads that keeps blobs in folders, for as short as it may."""
    given = {"addresses": tmp_path, "keystore": "coordinator", "state_dir": tmp_path, "run": RUN, "rules": tmp_path}
    return CoordinatorSettings(**given, keep_days=LEAST_KEEP_DAYS)


@pytest.fixture
def store(settings: CoordinatorSettings) -> Iterator[Store]:
    """A database that knows of one round, its artifact, and a juror's evidence."""
    with closing(Store(settings.database)) as made:
        with made.writing() as session:
            session.add(round_of(ROUND, State.TALLIED))
            session.add(UploadRow(round=ROUND, job=0, root=ARTIFACT, node=1, size=5))
            session.add(EvidenceRow(root=EVIDENCE, round=ROUND, attempt=0, juror=2))
        yield made


@pytest.fixture
def blobs(settings: CoordinatorSettings) -> KeptBlobs:
    """The blobs of these rows."""
    made = KeptBlobs.open(settings)
    made.artifacts.put(ARTIFACT, b"bytes")
    made.evidence.put(EVIDENCE, b"bytes")
    return made


def round_of(number: int, state: State, parent: int = 0) -> RoundRow:
    times = {"opened_at": 0, "deadline": 0, "reveal_seconds": 0, "open_block": 0}
    plain = {"step": 0, "policy_version": 0, "jobs": 1, "slot_count": 1, "beacon": b"", "assignments": b""}
    return RoundRow(id=number, run=RUN, parent=parent, state=state, **times, **plain)


def set_state(store: Store, number: int, state: State) -> None:
    with store.writing() as session:
        session.get_one(RoundRow, number).state = state


def test_a_round_is_deleted_so_long_after_it_was_first_seen_ended(
    settings: CoordinatorSettings, store: Store, blobs: KeptBlobs
) -> None:
    retention = Retention(settings, store, blobs)
    retention.sweep(10 * KEEP)
    set_state(store, ROUND, State.SETTLED)
    retention.sweep(20 * KEEP)  # however long ago it ended
    retention.sweep(21 * KEEP - 1)
    assert blobs.artifacts.has(ARTIFACT)
    retention.sweep(21 * KEEP)
    assert not blobs.artifacts.has(ARTIFACT)
    assert not blobs.evidence.has(EVIDENCE)
    with store.reading() as session:
        for row in (UploadRow, EvidenceRow, EndedRoundRow):
            assert session.exec(select(row)).all() == []
    retention.sweep(22 * KEEP)


def test_what_an_appeal_may_need_is_kept_until_it_has_ended(
    settings: CoordinatorSettings, store: Store, blobs: KeptBlobs
) -> None:
    retention = Retention(settings, store, blobs)
    set_state(store, ROUND, State.SETTLED)
    with store.writing() as session:
        session.add(round_of(APPEAL, State.VOTING, parent=ROUND))
    for each in (1, 2, 9):
        retention.sweep(each * KEEP)
    assert blobs.artifacts.has(ARTIFACT)
    set_state(store, APPEAL, State.SETTLED)
    retention.sweep(10 * KEEP)
    assert not blobs.artifacts.has(ARTIFACT)


def test_a_round_that_a_reorganisation_reopened_counts_anew(
    settings: CoordinatorSettings, store: Store, blobs: KeptBlobs
) -> None:
    retention = Retention(settings, store, blobs)
    for state, at in ((State.SETTLED, 1), (State.TALLIED, 2), (State.SETTLED, 3)):
        set_state(store, ROUND, state)
        retention.sweep(at * KEEP)
    assert blobs.artifacts.has(ARTIFACT)
    retention.sweep(4 * KEEP)
    assert not blobs.artifacts.has(ARTIFACT)


def test_without_keep_days_nothing_is_deleted(settings: CoordinatorSettings, store: Store, blobs: KeptBlobs) -> None:
    retention = Retention(settings.model_copy(update={"keep_days": None}), store, blobs)
    set_state(store, ROUND, State.SETTLED)
    for each in (1, 9):
        retention.sweep(each * KEEP)
    assert blobs.artifacts.has(ARTIFACT)


def test_a_crash_half_way_is_made_good_by_the_next_sweep(
    settings: CoordinatorSettings, store: Store, blobs: KeptBlobs
) -> None:
    set_state(store, ROUND, State.SETTLED)
    Retention(settings, store, blobs).sweep(KEEP)
    blobs.artifacts.drop(ARTIFACT)  # and then it was killed
    Retention(settings, store, blobs).sweep(2 * KEEP)
    assert not blobs.evidence.has(EVIDENCE)


def test_what_a_receipt_promises_is_kept_at_least(settings: CoordinatorSettings) -> None:
    assert LEAST_KEEP_DAYS * DAY_SECONDS > HELD_SECONDS
    with pytest.raises(ValueError, match="greater than or equal to 8"):
        CoordinatorSettings(**settings.model_dump(exclude_unset=True) | {"keep_days": 7})


@pytest.mark.parametrize("url", ["bucket/prefix", "http://host/bucket", "s3://", "memory:///", "file://a/b"])
def test_an_invalid_store_is_one_sentence(settings: CoordinatorSettings, url: str) -> None:
    with pytest.raises(Misconfigured, match=r"^invalid obj[^\n]*$"):
        KeptBlobs.open(settings.model_copy(update={"objects": url}))


def test_a_directory_by_its_url_holds_the_blobs(settings: CoordinatorSettings, tmp_path: Path) -> None:
    blobs = KeptBlobs.open(settings.model_copy(update={"objects": f"file://{tmp_path}/shared"}))
    blobs.artifacts.put(ARTIFACT, b"bytes")
    assert (tmp_path / "shared" / "artifacts" / "01" / ARTIFACT.hex()).read_bytes() == b"bytes"
    assert blobs.objects is None


def test_keys_come_from_the_file_that_the_provider_s_tools_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = ONE\naws_secret_access_key = p%wd\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert "Credential=ONE%2F" in Objects("s3://bucket").sign_put("key", 60)
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(Misconfigured, match="has no profile 'other'"):
        Objects("s3://bucket")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match="cannot read the credentials file"):
        Objects("s3://bucket")


def test_a_store_that_nobody_serves_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(Unavailable, match=r"^s3://bucket does not answer for key: [^\n]*$"):
        Objects("s3://bucket").head("key")
