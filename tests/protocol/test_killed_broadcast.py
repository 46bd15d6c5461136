"""Kill -9 at each write of origin, relay and client: nothing false is kept, and nothing verified is fetched again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from protocol.broadcast.relay import Relay
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.broadcast.versions import fetch_checkpoint
from protocol.wire.api import CheckpointEntry
from tests.protocol.test_deltas import RUN, Origin
from tests.protocol.test_shardcast import contents, counting

WRITES = ("pwrite", "rename", "replace", "link", "mkdir", "unlink", "truncate", "ftruncate", "fsync", "write")
MOST_WRITES = 400


def killed_at(write: int, work: Callable[[], object]) -> bool:
    """Does ``work`` in a process that kills itself at its so-manieth write, in the middle of it; False if it ended."""
    child = os.fork()
    if child == 0:
        left = iter(range(write, -1, -1))
        for name in WRITES:
            setattr(os, name, _dying(getattr(os, name), left))
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = _ended(child)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work failed by itself"
    return os.WIFSIGNALED(status)


def _ended(child: int) -> int:
    """The status with which a process ends; one that does not is killed, and fails the test."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the work did not end in a minute")


def _dying(call: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(left) == 0:
            if len(arguments) > 1 and isinstance(arguments[1], bytes | memoryview):
                call(arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:], **named)
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return counted


def nothing_false(store: VersionStore, origin: Origin) -> None:
    """Every version and delta that is whole is what its manifest says."""
    for signed in [*origin.signed, *store.deltas(RUN)]:
        folder = store.folder(signed)
        if folder.is_dir():
            assert store.verify(signed), f"{folder} is not what its manifest says"
            assert {path.name for path in folder.iterdir()} == signed.manifest.sizes.keys()


@pytest.fixture
def origin(tmp_path, signer):
    made = Origin(tmp_path, signer)
    made.chunk_bytes = 96 << 10
    made.publish(2)
    return made


@pytest.fixture
def asked():
    return []


@pytest.fixture
def url(origin, serve, asked):
    return serve(counting(create_app(origin.store), asked)).url


def held(folder: Path, origin: Origin) -> set[str]:
    """Hashes of the chunks and frames that a store of a new process holds."""
    store = VersionStore(folder)
    found: set[str] = set()
    for signed in [*(store.manifest(RUN, each.manifest.version) for each in origin.signed), *store.deltas(RUN)]:
        if signed is not None and not store.verify(signed):
            lacking = {chunk.hash for chunk in store.missing(signed)}
            found |= {chunk.hash.hex() for chunk in signed.manifest.chunks() if chunk.hash not in lacking}
    return found


def through_kills(place: Path, origin: Origin, asked: list[str], work: Callable[[Path], object]) -> Path:
    """Kills ``work`` at each of its writes, in a new folder each time, and has it go on; returns the last folder."""
    for write in range(MOST_WRITES):
        folder = place / str(write)
        killed = killed_at(write, lambda folder=folder: work(folder))
        nothing_false(VersionStore(folder), origin)
        if not killed:
            assert write > 20
            return folder
        before, first = held(folder, origin), len(asked)
        assert not killed_at(MOST_WRITES, lambda folder=folder: work(folder))
        again = {path.removeprefix("/chunks/") for path in asked[first:]} & before
        assert not again, f"fetched again after a kill at write {write}: {again}"
        nothing_false(VersionStore(folder), origin)
        assert contents(VersionStore(folder).folder(origin.signed[1])) == origin.expected(1)
    raise AssertionError("it never ended")


def test_a_client_killed_at_each_write_ends_with_the_version(tmp_path, origin, url, asked):
    def work(folder: Path) -> None:
        with closing(Sources([url])) as sources:
            for signed in origin.signed:
                place = RUN, signed.manifest.version, signed.manifest.root, origin.authority
                fetch_checkpoint(sources, *place, VersionStore(folder))

    through_kills(tmp_path / "mine", origin, asked, work)


def test_a_relay_killed_at_each_write_ends_with_versions_and_deltas(tmp_path, origin, url, asked):
    entries = [CheckpointEntry(version=each.manifest.version, root=each.manifest.root) for each in origin.signed]

    def work(folder: Path) -> None:
        with closing(Sources([url])) as sources:
            relay = Relay(VersionStore(folder), sources, {RUN: origin.authority})
            for entry in entries:
                relay.take(RUN, relay_list(origin, entry))

    store = VersionStore(through_kills(tmp_path / "relay", origin, asked, work))
    assert all(store.folder(delta).is_dir() for delta in origin.store.deltas(RUN))


def relay_list(origin: Origin, entry: CheckpointEntry) -> Any:
    """The list of an upstream that has this version, and the deltas to it."""
    from protocol.broadcast.listing import listed

    every = listed(origin.store, RUN)
    return every.model_copy(
        update={"checkpoints": [entry], "deltas": [each for each in every.deltas if each.target == entry.root]}
    )


def test_an_origin_killed_at_each_write_lists_only_what_is_whole(tmp_path, signer):
    for write in range(MOST_WRITES):
        origin = Origin(tmp_path / str(write), signer)
        origin.publish()
        if not killed_at(write, origin.publish):
            break
        store = VersionStore(tmp_path / str(write) / "origin")
        for version, root in store.checkpoints(RUN):
            signed = store.manifest(RUN, version, root)
            assert signed is not None
            assert store.verify(signed), f"version {version} is listed and not whole, after a kill at write {write}"
        for delta in store.deltas(RUN):
            assert store.verify(delta), f"a delta is listed and not whole, after a kill at write {write}"
    assert write > 5
