"""The checkpoints a node keeps, fetched from a real origin."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.broadcast import checkpoints as module
from protocol.broadcast.checkpoints import KEPT, Checkpoints
from protocol.broadcast.publishing import publish
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import SPARE_BYTES, VersionStore
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.files import lock
from protocol.wire import manifest
from protocol.wire.manifest import MIN_CHUNK_BYTES, Authority, SignedManifest
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.rules import Rules, with_checkpoint
from tests.checkpoints import CONFIG, TENSORS, smallest
from tests.conftest import Served
from tests.coordinator.swarm import RULES
from tests.protocol.conftest import KeySigner
from tests.protocol.test_shardcast import counting

CHAIN_ID, RUN, SIZE = 31337, 1, 1600
MARKET = "0x" + "11" * 20


class Origin:
    """A trainer's origin; ``publish`` makes a version with a content of its own."""

    def __init__(self, folder: Path, signer: KeySigner, serve: Callable[..., Served]) -> None:
        self.folder, self.signer, self.store = folder, signer, VersionStore(folder / "origin")
        self.asked: list[str] = []
        self.served = serve(counting(create_app(self.store), self.asked))

    def publish(self, version: int, branch: bytes = b"") -> bytes:
        model = smallest(self.folder / f"model-{version}", (branch + b"weights of version %d" % version * 100)[:SIZE])
        return publish(model, RUN, version, CHAIN_ID, MARKET, self.signer, self.store).manifest.root


@pytest.fixture
def origin(tmp_path: Path, signer: KeySigner, serve: Callable[..., Served]) -> Origin:
    return Origin(tmp_path, signer, serve)


@pytest.fixture
def checkpoints(tmp_path: Path, origin: Origin) -> Iterator[Checkpoints]:
    authority = Authority(CHAIN_ID, MARKET, origin.signer.address)
    with closing(Sources([origin.served.url])) as sources:
        yield Checkpoints(sources, RUN, authority, tmp_path / "held", pinned(tmp_path))


def pinned(folder: Path) -> Rules:
    """Rules that pin what ``Origin`` publishes."""
    return with_checkpoint(RULES, smallest(folder / "model", bytes(SIZE)))


def directories_of(checkpoints: Checkpoints) -> list[Path]:
    """Every directory of a version, whole or not, the oldest first."""
    return sorted(path for path in (checkpoints.store.directory / "runs" / str(RUN)).glob("[0-9]*") if path.is_dir())


def test_whoever_watches_is_told_of_what_arrives(origin: Origin, checkpoints: Checkpoints) -> None:
    told = list[tuple[int, int, int]]()
    checkpoints.progress = lambda version, done, total, seconds: told.append((version, done, total))
    directory = checkpoints.directory(0, origin.publish(0))
    size = sum(path.stat().st_size for path in directory.iterdir())
    assert told[-1] == (0, size, size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    told.clear()
    later = checkpoints.directory(1, origin.publish(1))  # most of whose files are there
    size = sum(path.stat().st_size for path in later.iterdir())
    assert told[-1] == (1, size, size)


def test_a_version_is_fetched_once_and_then_needs_nobody(origin: Origin, checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() is None
    root = origin.publish(0)
    directory = checkpoints.directory(0, root)
    assert b"weights of version 0" in (directory / TENSORS).read_bytes()
    assert checkpoints.newest() == 0
    origin.served.stop()
    assert checkpoints.directory(0, root) == directory


def test_only_a_few_versions_are_kept_the_newest_ones(origin: Origin, checkpoints: Checkpoints) -> None:
    directories = [checkpoints.directory(version, origin.publish(version)) for version in range(KEPT + 3)]
    assert [directory.exists() for directory in directories] == [False] * 3 + [True] * KEPT
    assert checkpoints.newest() == KEPT + 2


def test_of_a_large_model_only_as_many_versions_are_kept_as_rounds_need_even_while_one_is_fetched(
    origin: Origin, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 1)
    held, check = list[int](), module.check_contents

    def check_counted(*arguments: Any) -> None:  # the first to fetch
        held.append(len(directories_of(checkpoints)))
        check(*arguments)

    monkeypatch.setattr(module, "check_contents", check_counted)
    directories = [checkpoints.directory(version, origin.publish(version)) for version in range(6)]
    assert [directory.exists() for directory in directories] == [False] * 3 + [True] * 3
    assert max(held) <= 3


def test_two_roots_of_one_version_are_two_checkpoints(origin: Origin, checkpoints: Checkpoints, tmp_path: Path) -> None:
    first = checkpoints.directory(1, origin.publish(1))
    (tmp_path / "model-1").rename(tmp_path / "elsewhere")
    other = origin.publish(1)
    changed = origin.publish(1, b"another branch")
    assert other != changed
    second = checkpoints.directory(1, changed)
    assert first != second
    assert b"another branch" in (second / TENSORS).read_bytes()


def test_directories_of_a_branch_that_was_reorganised_away_are_removed(
    origin: Origin, checkpoints: Checkpoints
) -> None:
    kept = [checkpoints.directory(version, origin.publish(version)) for version in range(2)]
    dropped = [checkpoints.directory(version, origin.publish(version)) for version in (2, 3, 4)]
    replacing = checkpoints.directory(2, origin.publish(2, b"another branch: "))
    assert [path.exists() for path in (*kept, *dropped, replacing)] == [True] * 2 + [False] * 3 + [True]
    assert checkpoints.newest() == 2
    following = checkpoints.directory(3, origin.publish(3, b"another branch: "))
    assert directories_of(checkpoints) == [*kept, replacing, following]


def test_an_old_version_is_fetched_beside_newer_ones_and_removed_with_the_next(
    origin: Origin, checkpoints: Checkpoints
) -> None:
    roots = [origin.publish(version) for version in range(KEPT + 2)]
    for version, root in enumerate(roots[:-1]):
        checkpoints.directory(version, root)
    old = checkpoints.directory(0, roots[0])
    assert old.is_dir()
    assert len(directories_of(checkpoints)) == KEPT
    newest = checkpoints.directory(KEPT + 1, roots[-1])
    assert newest.is_dir()
    assert not old.exists()


def test_a_directory_that_changed_on_disk_is_fetched_again_by_the_next_process(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    root = origin.publish(0)
    directory = checkpoints.directory(0, root)
    (directory / "model.safetensors").write_bytes(b"rotten")
    restarted = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "held", pinned(tmp_path))
    assert b"weights of version 0" in (restarted.directory(0, root) / TENSORS).read_bytes()
    assert directories_of(restarted) == [directory]


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
        authority = Authority(CHAIN_ID, MARKET, other_signer.address)
        wary = Checkpoints(sources, RUN, authority, tmp_path / "wary", pinned(tmp_path))
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
    other = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "held", pinned(tmp_path))
    writing, goes_on, found, finish = threading.Event(), threading.Event(), [], checkpoints.store.finish

    def finish_slowly(signed: SignedManifest) -> Path:
        writing.set()
        assert goes_on.wait(10)
        return finish(signed)

    monkeypatch.setattr(checkpoints.store, "finish", finish_slowly)
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
    with (
        lock(checkpoints.store.directory / f"run-{RUN}.lock"),
        pytest.raises(Unavailable, match="another process is fetching"),
    ):
        checkpoints.directory(0, root)
    assert checkpoints.directory(0, root).is_dir()


def test_a_version_that_the_rules_do_not_allow_is_refused_before_its_weights_are_fetched(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    size = 3 * manifest.CHUNK_BYTES
    rules = with_checkpoint(RULES, smallest(tmp_path / "large", bytes(size)))
    large = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "mine", rules)
    model = smallest(tmp_path / "model-1", b"\x01" * size)
    (model / CONFIG).write_text("[]")
    signed = publish(model, RUN, 1, CHAIN_ID, MARKET, origin.signer, origin.store)
    restarted = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "mine", rules)
    for held in (large, large, restarted):
        with pytest.raises(
            UnfitCheckpoint, match=r"^version 1 is no checkpoint of run 1.*config\.json is another file"
        ):
            held.directory(1, signed.manifest.root)
    assert large.newest() is None
    assert directories_of(large) == [], "nothing is left of it"
    assert sum(path.startswith("/chunks/") for path in origin.asked) <= 2 * 2, "the pinned file and the header, twice"


def test_names_and_sizes_are_refused_by_the_manifest_alone(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    model = smallest(tmp_path / "model-1", bytes(SIZE))
    (model / "tokenizer.json").write_text("{}")
    signed = publish(model, RUN, 1, CHAIN_ID, MARKET, origin.signer, origin.store)
    (model / "tokenizer.json").unlink()
    smallest(model, bytes(SIZE + 4))
    larger = publish(model, RUN, 2, CHAIN_ID, MARKET, origin.signer, origin.store)
    for version, put, words in (
        (1, signed, "tokenizer.json is not among the files that the run's rules pin"),
        (2, larger, f"bytes: the run's rules pin {checkpoints.pins[1].size}"),
    ):
        with pytest.raises(UnfitCheckpoint, match=words):
            checkpoints.directory(version, put.manifest.root)
        assert not any(path.startswith("/chunks/") for path in origin.asked)


def test_a_manifest_that_gives_a_chunk_another_size_is_the_trainers_fault_and_writes_nothing_more(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    size = 3 * MIN_CHUNK_BYTES
    rules = with_checkpoint(RULES, smallest(tmp_path / "large", bytes(size)))
    for version, (put, words) in enumerate(((2, "has 1024 bytes, the manifest says"), (0, "the manifest says 1024"))):
        folder = tmp_path / f"mine-{version}"
        held = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, folder, rules)
        model = smallest(tmp_path / f"odd-{version}", os.urandom(size))
        honest = manifest.from_directory(model, version, MIN_CHUNK_BYTES)
        config, tensors = honest.files
        chunks = list(tensors.chunks)
        # A whole chunk in the place of the last, which is shorter; or the last in the place of a whole one.
        chunks[-1 if put else 1] = chunks[1 if put else -1]
        lying = replace(honest, files=(config, replace(tensors, chunks=tuple(chunks))))
        origin.store.take(manifest.sign(honest, RUN, CHAIN_ID, MARKET, origin.signer), model)
        origin.store.put_manifest(manifest.sign(lying, RUN, CHAIN_ID, MARKET, origin.signer))
        for _ in range(2):
            with pytest.raises(UnfitCheckpoint, match=words):
                held.directory(version, lying.root)
        assert directories_of(held) == []


def test_a_chunk_named_many_times_is_fetched_once_and_counted_each_time(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 * MIN_CHUNK_BYTES
    model = smallest(tmp_path / "zeros", bytes(size))
    rules = with_checkpoint(RULES, model)
    held = Checkpoints(checkpoints.sources, RUN, checkpoints.authority, tmp_path / "mine", rules)
    place = (RUN, 0, CHAIN_ID, MARKET, origin.signer, origin.store, MIN_CHUNK_BYTES)
    published = publish(model, *place).manifest
    assert len({chunk.hash for chunk in published.chunks()}) < 5

    def leave(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=SPARE_BYTES + free))

    for free in (MIN_CHUNK_BYTES, published.size - 1):
        leave(free)
        with pytest.raises(Unavailable, match="make room"):
            held.directory(0, published.root)
        assert directories_of(held) == []
    leave(published.size)
    assert (held.directory(0, published.root) / TENSORS).stat().st_size == rules.pins[1].size


def test_a_chunk_that_nobody_serves_proves_nothing_against_a_version(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    root = origin.publish(0)
    signed = origin.store.manifest(RUN, 0, root)
    assert signed is not None
    shutil.rmtree(origin.store.folder(signed))
    with pytest.raises(Unavailable):
        checkpoints.directory(0, root)
    smallest(tmp_path / "model-0", bytes(SIZE))
    origin.publish(0)
    assert checkpoints.directory(0, root).is_dir()


def test_a_cap_on_disk_is_kept_to_even_while_fetching_and_must_have_room_for_what_rounds_need(
    origin: Origin, checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = origin.publish(0)
    size = sum(path.stat().st_size for path in checkpoints.directory(0, root).iterdir())
    where, held = (checkpoints.sources, RUN, checkpoints.authority), list[int]()
    capped = Checkpoints(*where, tmp_path / "capped", pinned(tmp_path), most_bytes=3 * size)
    check = module.check_contents

    def check_measured(*arguments: Any) -> None:  # the first to fetch
        held.append(sum(path.stat().st_size for each in directories_of(capped) for path in each.iterdir()))
        check(*arguments)

    monkeypatch.setattr(module, "check_contents", check_measured)
    roots = [origin.publish(version) for version in range(6)]
    directories = [capped.directory(version, each) for version, each in enumerate(roots)]
    assert [directory.exists() for directory in directories] == [False] * 3 + [True] * 3
    assert capped.directory(0, roots[0]).is_dir()
    assert max(held) <= 3 * size
    small = Checkpoints(*where, tmp_path / "small", pinned(tmp_path), most_bytes=3 * size - 1)
    with pytest.raises(Misconfigured, match="3 versions are needed"):
        small.directory(0, root)


def test_with_one_version_kept_all_others_are_removed(origin: Origin, checkpoints: Checkpoints) -> None:
    checkpoints.kept = 1
    directories = [checkpoints.directory(version, origin.publish(version)) for version in range(3)]
    assert [directory.exists() for directory in directories] == [False, False, True]


def test_a_cap_on_bandwidth_holds_for_all_threads_together(origin: Origin, tmp_path: Path) -> None:
    root, authority = origin.publish(0), Authority(CHAIN_ID, MARKET, origin.signer.address)
    with closing(Sources([origin.served.url], most_bytes_per_second=4 * SIZE)) as sources:
        started = time.monotonic()
        Checkpoints(sources, RUN, authority, tmp_path / "slow", pinned(tmp_path)).directory(0, root)
        assert time.monotonic() - started > 0.25
