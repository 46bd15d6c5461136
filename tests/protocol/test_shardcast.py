"""Weights through real servers and real files, honest and hostile."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from protocol.broadcast import chunk_queue
from protocol.broadcast.chunk_queue import ChunkQueue
from protocol.broadcast.fetching import reading
from protocol.broadcast.publishing import publish
from protocol.broadcast.relay import Relay
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import SourceHealth, Sources, weights
from protocol.broadcast.version_store import VersionStore
from protocol.broadcast.versions import fetch_checkpoint
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Authority, Chunk
from protocol.wire.pins import UnfitCheckpoint

CHAIN_ID, RUN = 31337, 1
MARKET = "0x" + "11" * 20
CHUNK = 64 << 10


def make_model(directory: Path, size: int = 500_000, seed: int = 0) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')
    (directory / "empty.txt").write_text("")
    (directory / "model.safetensors").write_bytes(bytes([seed]) + os.urandom(size))
    return directory


def replace_weights(model: Path, values: bytes) -> None:
    """Writes other weights as a trainer does, in a new file: published ones are not changed in place."""
    (model / "new").write_bytes(values)
    (model / "new").rename(model / "model.safetensors")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


@pytest.fixture
def origin(tmp_path):
    return VersionStore(tmp_path / "origin")


@pytest.fixture
def authority(signer):
    return Authority(CHAIN_ID, MARKET, signer.address)


def put(model, version, signer, store):
    return publish(model, RUN, version, CHAIN_ID, MARKET, signer, store, chunk_bytes=CHUNK)


def fetch(urls, signed, authority, store, **more):
    with closing(Sources(urls)) as sources:
        return fetch_from(sources, signed, authority, store, **more)


def fetch_from(sources, signed, authority, store, **more):
    root, version = signed.manifest.root, signed.manifest.version
    return fetch_checkpoint(sources, RUN, version, root, authority, store, **more)


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def start_relay(tmp_path, serve, authority):
    """Call it with upstreams: a relay follows them until the test ends. Returns its store and what serves it."""
    relays = []

    def start(upstreams, name="relay", **more):
        store = VersionStore(tmp_path / name)
        relays.append(Relay(store, Sources(upstreams), {RUN: authority}, list_wait_seconds=0.2, **more))
        relays[-1].start()
        return store, serve(create_app(store))

    yield start
    for relay in relays:
        relay.stop()


def tampering(store, change):
    """Serves ``store`` with every chunk passed through ``change``."""
    honest = create_app(store)

    async def chunk(request):
        data = store.read(bytes.fromhex(request.path_params["hash"]))
        return Response(change(data))

    honest.router.routes.insert(0, Route("/chunks/{hash}", chunk))
    return honest


def test_a_checkpoint_arrives_byte_for_byte(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    url = serve(create_app(origin)).url
    destination = fetch([url], signed, authority, VersionStore(tmp_path / "mine"))
    assert contents(destination) == contents(model)
    assert manifests.from_directory(destination, 1, CHUNK).root == signed.manifest.root


def test_a_small_checkpoint_takes_less_than_a_moment(tmp_path, signer, authority, serve, origin):
    sources = Sources([serve(create_app(origin)).url])
    took = []
    for version in range(1, 5):
        model = make_model(tmp_path / f"model{version}", 2_500_000, version)
        signed = publish(model, RUN, version, CHAIN_ID, MARKET, signer, origin)
        started = time.perf_counter()
        fetch_from(sources, signed, authority, VersionStore(tmp_path / "mine"))
        took.append(time.perf_counter() - started)
    sources.close()
    assert min(took[1:]) < 0.2, took  # about 0.02 s on an idle machine


def test_through_two_relays_in_a_row(tmp_path, model, origin, signer, authority, serve, start_relay):
    first = start_relay([serve(create_app(origin)).url], "first")
    second = start_relay([first[1].url], "second")
    signed = put(model, 1, signer, origin)
    wait_for(lambda: second[0].latest(RUN) == 1)
    destination = fetch([second[1].url], signed, authority, VersionStore(tmp_path / "mine"))
    assert contents(destination) == contents(model)


def test_a_relay_serves_a_chunk_before_the_next_one_reached_it(tmp_path, model, origin, signer, serve, start_relay):
    """The upstream holds its last chunk back until the client already has the first, through the relay."""
    signed = put(model, 1, signer, origin)
    chunks = list(signed.manifest.chunks())
    released = threading.Event()
    app = create_app(origin)

    def chunk(request):
        if request.path_params["hash"] == chunks[-1].hash.hex():
            released.wait(10)
        return Response(origin.read(bytes.fromhex(request.path_params["hash"])))

    app.router.routes.insert(0, Route("/chunks/{hash}", chunk))
    store, served = start_relay([serve(app).url])
    wait_for(lambda: store.latest(RUN) == 1)
    first = httpx.get(f"{served.url}/chunks/{chunks[0].hash.hex()}", timeout=10)
    assert first.status_code == 200
    assert not store.has(chunks[-1].hash)
    threading.Timer(0.2, released.set).start()
    last = httpx.get(f"{served.url}/chunks/{chunks[-1].hash.hex()}", timeout=10)
    assert last.status_code == 200
    assert manifests.hash_chunk(last.content) == chunks[-1].hash


def test_flipped_chunk_bytes_from_one_relay_are_taken_from_another(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    liar = serve(tampering(origin, lambda data: bytes([data[0] ^ 1]) + data[1:])).url
    honest = serve(create_app(origin)).url
    sources = Sources([liar, honest])
    destination = fetch_from(sources, signed, authority, VersionStore(tmp_path / "mine"))
    sources.close()
    assert contents(destination) == contents(model)
    assert sources.health_by_url[liar].success <= sources.health_by_url[honest].success


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[::-1]],
    ids=["truncated", "too long", "empty", "scrambled"],
)
def test_false_chunks_never_reach_the_store_nor_the_directory(
    tmp_path, model, origin, signer, authority, serve, change
):
    signed = put(model, 1, signer, origin)
    store = VersionStore(tmp_path / "mine")
    with pytest.raises(Unavailable):
        fetch([serve(tampering(origin, change)).url], signed, authority, store)
    assert not store.folder(signed).exists()
    assert len(store.missing(signed)) == len({chunk.hash for chunk in signed.manifest.chunks()})


def test_a_manifest_signed_by_another_key_is_rejected(tmp_path, model, origin, signer, other_signer, authority, serve):
    signed = put(model, 1, other_signer, origin)
    store = VersionStore(tmp_path / "mine")
    with pytest.raises(Rejected, match="not by the trainer"):
        fetch([serve(create_app(origin)).url], signed, authority, store)
    assert store.latest(RUN) is None


def test_another_manifest_than_the_one_on_chain_is_rejected(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    app = create_app(origin)

    async def any_root(request):
        return Response(signed.canonical)

    app.router.routes.insert(0, Route("/runs/1/checkpoints/1", any_root))
    expected = replace(signed, manifest=replace(signed.manifest, files=signed.manifest.files[:1]))
    with pytest.raises(Rejected, match="on chain is"):
        fetch([serve(app).url], expected, authority, VersionStore(tmp_path / "mine"))
    assert VersionStore(tmp_path / "mine").latest(RUN) is None


def test_a_relay_does_not_pass_on_what_the_trainer_did_not_sign(
    tmp_path, model, origin, signer, other_signer, serve, start_relay
):
    put(model, 2, other_signer, origin)
    store, _ = start_relay([serve(create_app(origin)).url])
    time.sleep(0.3)
    assert store.latest(RUN) is None


def test_a_version_that_no_bytes_can_fit_does_not_keep_a_relay_from_others(
    tmp_path, model, origin, signer, serve, start_relay
):
    good = put(model, 1, signer, origin)
    small, *others = good.manifest.files
    lying = replace(good.manifest, version=2, files=(replace(small, size=small.size + 1), *others))
    origin.put_manifest(manifests.sign(lying, RUN, CHAIN_ID, MARKET, signer))
    store, served = start_relay([serve(create_app(origin)).url])
    wait_for(lambda: store.folder(good).exists())
    digest = small.chunks[0]
    assert httpx.get(f"{served.url}/chunks/{digest.hex()}").status_code == 200


def test_a_manifest_that_lies_about_a_chunk_spoils_no_version_of_another_run(
    tmp_path, model, origin, signer, other_signer, authority, serve
):
    good, store = put(model, 1, signer, origin), VersionStore(tmp_path / "mine")
    files = tuple(replace(file, size=file.size + bool(file.size)) for file in good.manifest.files)
    lying = manifests.sign(replace(good.manifest, files=files), RUN + 1, CHAIN_ID, MARKET, other_signer)
    store.put_manifest(lying)
    assert store.missing(lying)
    url = serve(create_app(origin)).url
    assert contents(fetch([url], good, authority, store)) == contents(model)
    other = Authority(CHAIN_ID, MARKET, other_signer.address)
    with closing(Sources([url])) as sources, pytest.raises(UnfitCheckpoint, match="the manifest says"):
        fetch_checkpoint(sources, RUN + 1, 1, lying.manifest.root, other, store)


def test_a_chunk_damaged_in_one_version_is_read_from_another(tmp_path, model, origin, signer):
    first, second = (put(model, version, signer, origin) for version in (1, 2))
    digest = first.manifest.files[2].chunks[0]
    for signed in (first, second):
        copy = tmp_path / "copy"
        copy.write_bytes((model / "model.safetensors").read_bytes())
        copy.rename(origin.folder(signed) / "model.safetensors")
    (origin.folder(first) / "model.safetensors").write_bytes(b"rot")
    assert manifests.hash_chunk(origin.read(digest)) == digest


def test_an_older_version_does_not_become_the_latest_of_a_relay(tmp_path, origin, signer, serve, start_relay):
    put(make_model(tmp_path / "new"), 5, signer, origin)
    store, served = start_relay([serve(create_app(origin)).url])
    wait_for(lambda: store.latest(RUN) == 5)
    put(make_model(tmp_path / "old", seed=1), 4, signer, origin)
    wait_for(lambda: len(store.checkpoints(RUN)) == 2)
    assert httpx.get(f"{served.url}/runs/{RUN}/checkpoints/latest").json() == {"version": 5}


def test_a_relay_killed_in_the_middle_of_a_chunk_costs_only_that_chunk(
    tmp_path, model, origin, signer, authority, serve
):
    signed = put(model, 1, signer, origin)
    breaking, port = breaking_source(origin, signed, chunks_served=4)
    store = VersionStore(tmp_path / "mine")
    store.put_manifest(signed)
    with pytest.raises(Unavailable):
        fetch([f"http://127.0.0.1:{port}"], signed, authority, store)
    assert not store.folder(signed).exists()
    missing = {chunk.hash.hex() for chunk in store.missing(signed)}
    assert 0 < len(missing) < len(list(signed.manifest.chunks()))
    breaking.close()
    asked: list[str] = []
    url = serve(counting(create_app(origin), asked)).url
    resumed = VersionStore(tmp_path / "mine")  # of another process, which verifies what this one left
    assert contents(fetch([url], signed, authority, resumed)) == contents(model)
    assert {path.removeprefix("/chunks/") for path in asked} == missing


def test_a_chunk_broken_off_is_resumed_at_another_source(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    breaking, port = breaking_source(origin, signed, chunks_served=0)
    ranges: list[str] = []

    def watch(scope):
        ranges.extend(value.decode() for name, value in scope["headers"] if name == b"range")

    honest = serve(watching(create_app(origin), watch)).url
    store = VersionStore(tmp_path / "mine")
    store.put_manifest(signed)
    destination = fetch([f"http://127.0.0.1:{port}", honest], signed, authority, store)
    assert contents(destination) == contents(model)
    assert all(value.startswith("bytes=") for value in ranges)
    breaking.close()


@pytest.mark.parametrize("alone", [False, True])
def test_a_source_that_is_much_slower_is_overtaken(
    tmp_path, model, origin, signer, authority, serve, monkeypatch, alone
):
    monkeypatch.setattr(chunk_queue, "OVERTAKE_SECONDS", 0.3)
    monkeypatch.setattr(chunk_queue, "FIRST_OVERTAKE_SECONDS", 0.3)
    signed = put(model, 1, signer, origin)
    going_on, held_up = threading.Event(), []

    def stalling(data):
        if not held_up:
            held_up.append(data)
            going_on.wait(30)
        return data

    app = create_app(origin)

    def chunk(request):
        return Response(stalling(origin.read(bytes.fromhex(request.path_params["hash"]))))

    app.router.routes.insert(0, Route("/chunks/{hash}", chunk))
    urls = [serve(app).url, serve(create_app(origin)).url]
    with closing(Sources(urls)) as sources:
        for attempt in range(20):  # until the slow one is drawn
            store = VersionStore(tmp_path / f"mine-{attempt}")
            if alone:
                store.put_manifest(signed)
                file = signed.manifest.files[0].name
                assert reading(sources, signed, store)(file, 0, 8) == (model / file).read_bytes()[:8]
            else:
                assert contents(fetch_from(sources, signed, authority, store)) == contents(model)
            if held_up:
                break
        assert held_up
        assert not going_on.is_set(), "its chunk came from the other one"
        going_on.set()


def test_a_source_that_overtakes_and_fails_is_given_time(monkeypatch):
    monkeypatch.setattr(chunk_queue, "FIRST_OVERTAKE_SECONDS", 0.0)
    monkeypatch.setattr(chunk_queue, "OVERTAKE_SECONDS", 0.2)
    queue = ChunkQueue([Chunk("model.safetensors", 0, 4, bytes(32))], sources=2)
    slow = queue.take()
    slow.url = "http://slow"
    queue.failed(queue.take(), Unavailable("it does not answer"))
    began = time.monotonic()
    assert queue.take().avoided == slow.url
    assert time.monotonic() - began >= 0.2


def test_publishing_links_the_files_and_writes_none(tmp_path, model, origin, signer):
    signed = put(model, 1, signer, origin)
    for file in signed.manifest.files:
        published, own = (origin.folder(signed) / file.name).stat(), (model / file.name).stat()
        assert published.st_ino == own.st_ino or published.st_blocks == own.st_blocks
    assert contents(origin.folder(signed)) == contents(model)


def test_a_request_for_a_chunk_goes_on_while_its_version_gets_its_final_name(
    tmp_path, model, origin, signer, authority, serve
):
    signed, store = put(model, 1, signer, origin), VersionStore(tmp_path / "mine")
    store.put_manifest(signed)
    chunks = store.missing(signed)
    for chunk in chunks:
        store.put(signed, chunk.hash, origin.read(chunk.hash))
    file, place = store.open(chunks[0].hash)
    with file:
        store.finish(signed)
        assert os.pread(file.fileno(), place.size, place.offset) == origin.read(chunks[0].hash)
    assert store.read(chunks[0].hash) == origin.read(chunks[0].hash)
    assert store.missing(signed) == []


def test_a_version_that_another_process_removed_is_absent(tmp_path, model, origin, signer, serve):
    signed = put(model, 1, signer, origin)
    store = VersionStore(tmp_path / "mine")
    store.put_manifest(signed)
    for chunk in store.missing(signed):
        store.put(signed, chunk.hash, origin.read(chunk.hash))
    digest = signed.manifest.files[2].chunks[0]
    url = serve(create_app(store, chunk_wait_seconds=0.1)).url
    assert httpx.get(f"{url}/chunks/{digest.hex()}").status_code == 200
    shutil.rmtree(store.folder(signed).with_name(store.folder(signed).name + ".partial"))
    assert store.open(digest) is None
    assert httpx.get(f"{url}/chunks/{digest.hex()}").status_code == 404


def test_chunks_of_an_older_version_are_not_fetched_again(tmp_path, model, origin, signer, authority, serve):
    first = put(model, 1, signer, origin)
    asked: list[str] = []
    url = serve(counting(create_app(origin), asked)).url
    store = VersionStore(tmp_path / "mine")
    fetch([url], first, authority, store)
    replace_weights(model, os.urandom(CHUNK))
    second = put(model, 2, signer, origin)
    asked.clear()
    directory = fetch([url], second, authority, store)
    chunks = [path for path in asked if path.startswith("/chunks/")]
    assert len(chunks) == 1
    assert contents(directory) == contents(model)


def test_a_directory_that_holds_the_version_already_is_left_alone(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    asked: list[str] = []
    url, store = serve(counting(create_app(origin), asked)).url, VersionStore(tmp_path / "mine")
    fetch([url], signed, authority, store)
    asked.clear()
    fetch([url], signed, authority, store)
    assert asked == []


def test_a_damaged_directory_is_replaced(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    url, store = serve(create_app(origin)).url, VersionStore(tmp_path / "mine")
    destination = fetch([url], signed, authority, store)
    (destination / "model.safetensors").write_bytes(b"short")
    fetch([url], signed, authority, VersionStore(tmp_path / "mine"))
    assert contents(destination) == contents(model)
    assert [path.name for path in destination.parent.iterdir() if path.is_dir()] == [destination.name]


def test_of_a_damaged_version_only_the_damage_is_fetched_again(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    asked: list[str] = []
    url, store = serve(counting(create_app(origin), asked)).url, VersionStore(tmp_path / "mine")
    weights = fetch([url], signed, authority, store) / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(2 * CHUNK + 5)
        file.write(b"rot")
    damaged = signed.manifest.files[2].chunks[2]
    assert signed.manifest.files[2].name == "model.safetensors"
    assert store.read(damaged) is None
    asked.clear()
    assert contents(fetch([url], signed, authority, VersionStore(tmp_path / "mine"))) == contents(model)
    assert asked == [f"/chunks/{damaged.hex()}"]


def test_no_source_left_is_unavailable(tmp_path, model, origin, signer, authority):
    signed = put(model, 1, signer, origin)
    with pytest.raises(Unavailable):
        fetch(["http://127.0.0.1:9"], signed, authority, VersionStore(tmp_path / "mine"))


def test_two_manifests_of_one_version_are_told_apart_by_their_root(tmp_path, model, origin, signer, authority, serve):
    """A trainer that died between signing and the chain may sign the same version twice."""
    forgotten = put(model, 1, signer, origin)
    replace_weights(model, os.urandom(1000))
    on_chain = put(model, 1, signer, origin)
    url = serve(create_app(origin)).url
    for signed in (forgotten, on_chain):
        destination = fetch([url], signed, authority, VersionStore(tmp_path / "mine"))
        assert manifests.from_directory(destination, 1, CHUNK).root == signed.manifest.root


def test_retention_keeps_the_newest_versions_and_nothing_of_the_others(tmp_path, model, origin, signer):
    first = put(model, 1, signer, origin)
    for version in range(2, 5):
        replace_weights(model, os.urandom(100_000))
        newest = put(model, version, signer, origin)
    origin.retain(RUN, 2)
    assert [version for version, _ in origin.checkpoints(RUN)] == [3, 4]
    assert origin.has(next(first.manifest.chunks()).hash), "a later version has it too"
    assert not origin.has(first.manifest.files[2].chunks[0])
    assert origin.missing(newest) == []
    kept = {path.name.partition("-")[0] for path in (tmp_path / "origin" / "runs" / str(RUN)).iterdir()}
    assert kept == {"0000000003", "0000000004"}


def test_the_server_answers_ranges_tags_and_nonsense(model, origin, signer, serve):
    chunk = max(put(model, 1, signer, origin).manifest.chunks(), key=lambda chunk: chunk.size)
    url = serve(create_app(origin)).url
    path, data = f"{url}/chunks/{chunk.hash.hex()}", origin.read(chunk.hash)
    part = httpx.get(path, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, data[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(data)}"
    assert httpx.get(path, headers={"Range": "bytes=10-"}).content == data[10:]
    assert httpx.get(path, headers={"Range": f"bytes={len(data)}-"}).status_code == 416
    assert httpx.get(path, headers={"Range": "lines=1-2"}).content == data
    assert httpx.get(path, headers={"If-None-Match": f'"{chunk.hash.hex()}"'}).status_code == 304
    assert "immutable" in httpx.get(path).headers["cache-control"]
    for nonsense in ("/chunks/..%2f..%2fetc%2fpasswd", "/chunks/xyz", f"/chunks/{'A' * 64}"):
        assert httpx.get(url + nonsense).status_code in (400, 404)
    assert httpx.get(f"{url}/chunks/{'0' * 64}").status_code == 404
    assert httpx.get(f"{url}/runs/7/checkpoints/latest").status_code == 404
    assert httpx.get(f"{url}/runs/1/checkpoints/1?root=0x12").status_code == 400
    assert httpx.get(f"{url}/runs/{10**60}/checkpoints/{10**60}").status_code == 404


def test_sources_must_be_urls():
    for urls in ([], ["localhost:80"], ["ftp://host/x"], ["http://"]):
        with pytest.raises(Misconfigured):
            Sources(urls)


def test_a_source_is_drawn_by_success_and_bandwidth_and_an_untried_one_is_tried():
    fast, slow, failing, untried = (
        SourceHealth(1.0, 8e6),
        SourceHealth(1.0, 1e6),
        SourceHealth(0.1, 8e6),
        SourceHealth(),
    )
    drawn = weights([fast, slow, failing, untried])
    assert drawn[0] == drawn[3] > drawn[1] > drawn[2] > 0


def test_a_failed_source_rests_but_is_asked_where_it_is_alone():
    clock = [0.0]
    sources = Sources(["http://a", "http://b"], clock=lambda: clock[0])
    sources.lied("http://a")
    assert {sources.choose() for _ in range(50)} == {"http://b"}
    assert sources.choose({"http://b"}) == "http://a"
    assert sources.choose({"http://a", "http://b"}) is None
    clock[0] = 61.0
    assert {sources.choose() for _ in range(200)} == {"http://a", "http://b"}
    sources.close()


def watching(app: Starlette, watch):
    async def wrapped(scope, receive, send):
        if scope["type"] == "http":
            watch(scope)
        await app(scope, receive, send)

    return wrapped


def counting(app: Starlette, asked: list[str]):
    return watching(app, lambda scope: asked.append(scope["path"]))


def breaking_source(store, signed, chunks_served):
    """A source that serves so many chunks whole and breaks off in the middle of every later one."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = [chunks_served]

    def answer(connection):
        with connection:
            request = connection.recv(65536).decode()
            data = store.read(bytes.fromhex(request.split(" ")[1].removeprefix("/chunks/")))
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            whole = left[0] > 0
            left[0] -= 1
            connection.sendall(head + (data if whole else data[: len(data) // 2]))

    def loop():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            answer(connection)

    threading.Thread(target=loop, daemon=True).start()
    return listener, listener.getsockname()[1]


def test_the_root_lists_the_paths(origin: VersionStore) -> None:
    told = TestClient(create_app(origin)).get("/").json()
    assert told["service"] == "Assize weights"
    assert {"/health", "/chunks/{hash:str}"} <= set(told["paths"])
