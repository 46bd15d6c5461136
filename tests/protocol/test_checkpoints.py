"""The checkpoints a node keeps, fetched from a real origin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from protocol.errors import Rejected, Unavailable
from protocol.files import lock
from protocol.transport import checkpoints as module
from protocol.transport.checkpoints import KEPT, Checkpoints
from protocol.transport.chunks import ChunkStore
from protocol.transport.shardcast import Authority, publish
from protocol.transport.shardcast_server import create_app
from protocol.transport.sources import Sources
from tests.protocol.conftest import KeySigner, Served

CHAIN_ID, RUN = 31337, 1
MARKET = "0x" + "11" * 20


class Origin:
    """A trainer's origin; ``publish`` makes a version with a content of its own."""

    def __init__(self, folder: Path, signer: KeySigner, serve: Callable[..., Served]) -> None:
        self.folder, self.signer, self.store = folder, signer, ChunkStore(folder / "origin")
        self.served = serve(create_app(self.store))

    def publish(self, version: int, branch: bytes = b"") -> bytes:
        model = self.folder / f"model-{version}"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(branch + b"weights of version %d" % version * 100)
        return publish(model, RUN, version, CHAIN_ID, MARKET, self.signer, self.store).manifest.root


@pytest.fixture
def origin(tmp_path: Path, signer: KeySigner, serve: Callable[..., Served]) -> Origin:
    return Origin(tmp_path, signer, serve)


@pytest.fixture
def checkpoints(tmp_path: Path, origin: Origin) -> Iterator[Checkpoints]:
    authority = Authority(CHAIN_ID, MARKET, origin.signer.address)
    with closing(Sources([origin.served.url])) as sources:
        yield Checkpoints(sources, RUN, authority, tmp_path / "held")


def test_a_version_is_fetched_once_and_then_needs_nobody(origin: Origin, checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() is None
    root = origin.publish(0)
    directory = checkpoints.directory(0, root)
    assert (directory / "model.safetensors").read_bytes().startswith(b"weights of version 0")
    assert checkpoints.newest() == 0
    origin.served.stop()
    assert checkpoints.directory(0, root) == directory


def test_only_a_few_versions_are_kept_the_newest_ones(origin: Origin, checkpoints: Checkpoints) -> None:
    directories = [checkpoints.directory(version, origin.publish(version)) for version in range(KEPT + 3)]
    assert [directory.exists() for directory in directories] == [False] * 3 + [True] * KEPT
    assert checkpoints.newest() == KEPT + 2


def test_two_roots_of_one_version_are_two_checkpoints(origin: Origin, checkpoints: Checkpoints, tmp_path: Path) -> None:
    first = checkpoints.directory(1, origin.publish(1))
    (tmp_path / "model-1").rename(tmp_path / "elsewhere")
    other = origin.publish(1)
    (tmp_path / "model-1" / "model.safetensors").write_bytes(b"another branch")
    changed = publish(tmp_path / "model-1", RUN, 1, CHAIN_ID, MARKET, origin.signer, origin.store).manifest.root
    assert other != changed
    second = checkpoints.directory(1, changed)
    assert first != second
    assert (second / "model.safetensors").read_bytes() == b"another branch"


def test_directories_of_a_branch_that_was_reorganised_away_are_removed(
    origin: Origin, checkpoints: Checkpoints
) -> None:
    kept = [checkpoints.directory(version, origin.publish(version)) for version in range(2)]
    dropped = [checkpoints.directory(version, origin.publish(version)) for version in (2, 3, 4)]
    replacing = checkpoints.directory(2, origin.publish(2, b"another branch: "))
    assert [path.exists() for path in (*kept, *dropped, replacing)] == [True] * 2 + [False] * 3 + [True]
    assert checkpoints.newest() == 2
    following = checkpoints.directory(3, origin.publish(3, b"another branch: "))
    assert sorted(checkpoints.folder.iterdir()) == [*kept, replacing, following]


def test_an_old_version_is_fetched_beside_newer_ones_and_removed_with_the_next(
    origin: Origin, checkpoints: Checkpoints
) -> None:
    roots = [origin.publish(version) for version in range(KEPT + 2)]
    for version, root in enumerate(roots[:-1]):
        checkpoints.directory(version, root)
    old = checkpoints.directory(0, roots[0])
    assert old.is_dir()
    assert len(list(checkpoints.folder.iterdir())) == KEPT
    newest = checkpoints.directory(KEPT + 1, roots[-1])
    assert newest.is_dir()
    assert not old.exists()


def test_a_directory_that_changed_on_disk_is_fetched_again_by_the_next_process(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    root = origin.publish(0)
    directory = checkpoints.directory(0, root)
    (directory / "model.safetensors").write_bytes(b"rotten")
    (checkpoints.folder / ".0000000000-left.partial").mkdir()
    restarted = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "held")
    assert (restarted.directory(0, root) / "model.safetensors").read_bytes().startswith(b"weights of version 0")
    assert list(restarted.folder.iterdir()) == [directory]


def test_bytes_other_than_the_chain_promises_are_refused_and_leave_nothing(
    origin: Origin, checkpoints: Checkpoints
) -> None:
    origin.publish(2)
    with pytest.raises((Rejected, Unavailable)):
        checkpoints.directory(2, b"\x07" * 32)
    assert checkpoints.newest() is None


def test_a_checkpoint_signed_by_another_key_is_refused(origin: Origin, other_signer: KeySigner, tmp_path: Path) -> None:
    root = origin.publish(0)
    with closing(Sources([origin.served.url])) as sources:
        wary = Checkpoints(sources, RUN, Authority(CHAIN_ID, MARKET, other_signer.address), tmp_path / "wary")
        with pytest.raises(Rejected, match="sign"):
            wary.directory(0, root)
        assert wary.newest() is None


def test_a_source_that_is_gone_is_waited_for(origin: Origin, checkpoints: Checkpoints) -> None:
    root = origin.publish(0)
    origin.served.stop()
    with pytest.raises(Unavailable):
        checkpoints.directory(0, root)


def test_threads_that_want_the_same_version_get_the_same_directory(origin: Origin, checkpoints: Checkpoints) -> None:
    root, found = origin.publish(0), []
    threads = [threading.Thread(target=lambda: found.append(checkpoints.directory(0, root))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_fetches_into_one_folder_leave_one_anothers_files_alone(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [origin.publish(version) for version in range(2)]
    other = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "held")
    writing, goes_on, found, read = threading.Event(), threading.Event(), [], checkpoints.store.read

    def read_slowly(digest: bytes) -> bytes | None:
        if any(checkpoints.folder.glob(".*.partial")):
            writing.set()
            assert goes_on.wait(10)
        return read(digest)

    monkeypatch.setattr(checkpoints.store, "read", read_slowly)
    first = threading.Thread(target=lambda: found.append(checkpoints.directory(0, roots[0])))
    second = threading.Thread(target=lambda: found.append(other.directory(1, roots[1])))
    first.start()
    assert writing.wait(10)
    second.start()
    second.join(0.5)
    goes_on.set()
    first.join()
    second.join()
    assert [path.is_dir() for path in found] == [True, True]


def test_a_process_that_fetches_for_too_long_is_not_waited_for_without_end(
    origin: Origin, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
    root = origin.publish(0)
    with lock(checkpoints.folder.with_suffix(".lock")), pytest.raises(Unavailable, match="another process is fetching"):
        checkpoints.directory(0, root)
    assert checkpoints.directory(0, root).is_dir()
