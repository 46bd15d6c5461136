"""An object store as a source of weights, and the relay that writes to it: a directory here, by the same library."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress

import pytest

from protocol.broadcast.listing import listed
from protocol.broadcast.object_store import ObjectStore, mirror
from protocol.broadcast.relay import Relay
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.errors import Misconfigured, Unavailable
from protocol.transport.objects import is_object_store
from tests.protocol.test_deltas import RUN, Origin, fetched
from tests.protocol.test_shardcast import contents, wait_for


@pytest.fixture
def origin(tmp_path, signer):
    return Origin(tmp_path, signer)


@pytest.fixture
def bucket(tmp_path):
    return f"file://{tmp_path}/bucket"


def test_versions_and_deltas_come_from_an_object_store(tmp_path, origin, bucket):
    first, mine, objects = origin.publish(), VersionStore(tmp_path / "mine"), ObjectStore(bucket)
    mirror(origin.store, [RUN], objects)
    assert contents(fetched([bucket], first, origin.authority, mine)) == origin.expected(0)
    second = origin.publish()
    written = mirror(origin.store, [RUN], objects)
    assert second.manifest.size <= written < 1.1 * second.manifest.size, "what is there is not written again"
    assert contents(fetched([bucket], second, origin.authority, mine)) == origin.expected(1)
    assert mirror(origin.store, [RUN], objects) == 0


def test_a_node_that_has_the_version_before_needs_the_delta_s_objects_only(tmp_path, origin, bucket):
    mine, objects = VersionStore(tmp_path / "mine"), ObjectStore(bucket)
    signed = [origin.publish(), origin.publish()]
    mirror(origin.store, [RUN], objects)
    fetched([bucket], signed[0], origin.authority, mine)
    objects.delete(
        {f"chunks/{chunk.hash.hex()}" for chunk in signed[1].manifest.chunks()}
        - {f"chunks/{chunk.hash.hex()}" for chunk in signed[0].manifest.chunks()}
    )
    assert contents(fetched([bucket], signed[1], origin.authority, mine)) == origin.expected(1)


def test_many_ranges_are_asked_of_an_object_store_at_once(tmp_path, origin, bucket, monkeypatch):
    signed, objects = origin.publish(), ObjectStore(bucket)
    mirror(origin.store, [RUN], objects)
    assert len(list(signed.manifest.chunks())) >= 8
    together, plain = threading.Barrier(8), ObjectStore.receive

    def receive(self, path, part, arrived):
        with suppress(threading.BrokenBarrierError):  # broken once eight have met
            together.wait(20)
            together.abort()
            met.set()
        plain(self, path, part, arrived)

    met = threading.Event()
    monkeypatch.setattr(ObjectStore, "receive", receive)
    assert contents(fetched([bucket], signed, origin.authority, VersionStore(tmp_path / "mine"))) == origin.expected(0)
    assert met.is_set()


def test_what_a_store_no_longer_holds_is_removed(origin, bucket):
    objects = ObjectStore(bucket)
    origin.publish(3)
    mirror(origin.store, [RUN], objects)
    origin.store.retain(RUN, 1)
    mirror(origin.store, [RUN], objects)
    held = {chunk.hash.hex() for chunk in origin.signed[-1].manifest.chunks()}
    held |= {chunk.hash.hex() for delta in origin.store.deltas(RUN) for chunk in delta.delta.chunks()}
    assert objects.keys("chunks") == {f"chunks/{digest}" for digest in held}
    assert len(objects.keys(f"runs/{RUN}/checkpoints")) == 1


def test_a_relay_writes_again_what_an_object_store_did_not_take(tmp_path, origin, bucket, serve, monkeypatch):
    signed, url, store = origin.publish(), serve(create_app(origin.store)).url, VersionStore(tmp_path / "relay")
    objects, plain, failing = ObjectStore(bucket), ObjectStore.put, [True]

    def put(self, key, data):
        if failing.pop() if failing else False:
            raise Unavailable("the store takes nothing now")
        plain(self, key, data)

    monkeypatch.setattr(ObjectStore, "put", put)
    with closing(Sources([url])) as sources:
        relay = Relay(store, sources, {RUN: origin.authority}, objects=objects)
        for _ in range(2):
            relay.take(RUN, listed(origin.store, RUN))
    assert contents(fetched([bucket], signed, origin.authority, VersionStore(tmp_path / "mine"))) == origin.expected(0)


def test_a_relay_writes_to_an_object_store_and_another_follows_it(tmp_path, origin, bucket, serve):
    url, relays = serve(create_app(origin.store)).url, []
    stores = [VersionStore(tmp_path / name) for name in ("first", "second")]
    try:
        for store, upstream, objects in ((stores[0], url, ObjectStore(bucket)), (stores[1], bucket, None)):
            more = {"list_wait_seconds": 0.2, "objects": objects}
            relays.append(Relay(store, Sources([upstream]), {RUN: origin.authority}, **more))
            relays[-1].start()
        for version in range(2):
            signed = origin.publish()
            wait_for(lambda signed=signed: stores[1].folder(signed).is_dir(), 20)
            assert contents(stores[1].folder(signed)) == origin.expected(version)
    finally:
        for relay in relays:
            relay.stop()


def test_a_list_that_does_not_change_is_waited_for(origin, bucket):
    origin.publish()
    objects = ObjectStore(bucket)
    mirror(origin.store, [RUN], objects)
    _, tag = objects.get(f"/runs/{RUN}/checkpoints?wait=0", 1 << 20)
    began = time.monotonic()
    assert objects.get(f"/runs/{RUN}/checkpoints?wait=0.3", 1 << 20, tag) is None
    assert time.monotonic() - began >= 0.3


def test_damaged_objects_are_refused(tmp_path, origin, bucket):
    signed = origin.publish()
    mirror(origin.store, [RUN], ObjectStore(bucket))
    digest = next(chunk.hash.hex() for chunk in signed.manifest.chunks())
    (tmp_path / "bucket" / "chunks" / digest).write_bytes(b"junk")
    with pytest.raises(Unavailable, match=digest[:16]):
        fetched([bucket], signed, origin.authority, VersionStore(tmp_path / "mine"))


@pytest.mark.parametrize("url", ["file://not/absolute", "s3://"])
def test_an_invalid_object_store_is_one_sentence(url):
    assert is_object_store(url)
    with pytest.raises((Misconfigured, Unavailable)) as raised:
        ObjectStore(url).get("/runs/1/checkpoints", 100)
    assert "\n" not in str(raised.value)
