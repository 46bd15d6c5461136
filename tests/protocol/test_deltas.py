"""Versions made from others by deltas: the same bytes, from anybody, and never worse than without them."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

from protocol.broadcast.deltas.applying import MOST_STEPS, Applying, planned
from protocol.broadcast.deltas.making import make_delta
from protocol.broadcast.listing import listed
from protocol.broadcast.peer import serve_beside
from protocol.broadcast.publishing import make_deltas, publish
from protocol.broadcast.relay import Relay
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.traffic import Traffic
from protocol.broadcast.version_store import VersionStore
from protocol.broadcast.versions import fetch_checkpoint
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.relay import app as relay_app
from protocol.wire import delta_manifest
from protocol.wire import manifest as manifests
from protocol.wire.api import DeltaEntry
from protocol.wire.delta_manifest import DeltaFrame, DeltaManifest
from protocol.wire.manifest import Authority, hash_chunk
from tests.protocol.conftest import KeySigner
from tests.protocol.evolving import EvolvingModel, safetensors
from tests.protocol.test_shardcast import CHAIN_ID, MARKET, RUN, contents, counting, wait_for

CHUNK = 16 << 10
ACCOUNT = Account.from_key(b"\x05" * 32)
SHAPES = {"embed": (400, 128), "norm": (128,), "head": (300, 128)}


class Origin:
    """A trainer that publishes version after version of a model."""

    def __init__(self, folder, signer):
        self.folder, self.signer = folder, signer
        self.authority = Authority(CHAIN_ID, MARKET, signer.address)
        self.store, self.model = VersionStore(folder / "origin"), EvolvingModel(SHAPES)
        self.signed, self.chunk_bytes = [], CHUNK

    def publish(self, versions=1, spans=(1, 2, 4, 8)):
        for _ in range(versions):
            version = len(self.signed)
            directory = self.model.write(self.folder / f"v{version}")
            signed = publish(directory, RUN, version, CHAIN_ID, MARKET, self.signer, self.store, self.chunk_bytes)
            make_deltas(directory, signed, self.authority, self.signer, self.store, spans)
            self.signed.append(signed)
            self.model.step()
        return self.signed[-1]

    def expected(self, version):
        return contents(self.folder / f"v{version}")


@pytest.fixture
def origin(tmp_path, signer):
    return Origin(tmp_path, signer)


@pytest.fixture
def asked():
    return []


@pytest.fixture
def url(origin, serve, asked):
    return serve(counting(create_app(origin.store), asked)).url


def fetched(urls, signed, authority, store):
    with closing(Sources(urls)) as sources:
        return fetch_checkpoint(sources, RUN, signed.manifest.version, signed.manifest.root, authority, store)


def bytes_asked(store, asked):
    """What the requests for chunks and frames came to."""
    digests = [bytes.fromhex(path.removeprefix("/chunks/")) for path in asked if path.startswith("/chunks/")]
    return sum(len(store.read(digest)) for digest in digests)


def test_the_next_version_is_made_from_the_one_before(tmp_path, origin, url, asked):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(), origin.authority, mine)
    whole = bytes_asked(origin.store, asked)
    asked.clear()
    assert contents(fetched([url], origin.publish(), origin.authority, mine)) == origin.expected(1)
    assert 0 < bytes_asked(origin.store, asked) < whole / 10


def test_a_node_eight_versions_behind_needs_one_delta(tmp_path, origin, url, asked):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(), origin.authority, mine)
    newest = origin.publish(8)
    asked.clear()
    assert contents(fetched([url], newest, origin.authority, mine)) == origin.expected(8)
    one = next(each.delta.size for each in origin.store.deltas(RUN) if each.delta.version == 1)
    assert bytes_asked(origin.store, asked) < 8 * one
    assert [version for version, _ in mine.checkpoints(RUN)] == [0, 8]


def test_a_node_seven_versions_behind_goes_over_two_others(tmp_path, origin, url, asked):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(), origin.authority, mine)
    newest = origin.publish(7)
    asked.clear()
    assert contents(fetched([url], newest, origin.authority, mine)) == origin.expected(7)
    assert len([path for path in asked if "/deltas/" in path]) == 3


def test_relays_pass_deltas_on_and_use_them(tmp_path, origin, url, asked, serve):
    store = VersionStore(tmp_path / "relay")
    relay = Relay(store, Sources([url]), {RUN: origin.authority}, list_wait_seconds=0.2)
    relay.start()
    try:
        served, mine = serve(create_app(store)).url, VersionStore(tmp_path / "mine")
        first = origin.publish()
        wait_for(lambda: store.folder(first).exists())
        fetched([served], first, origin.authority, mine)
        asked.clear()
        second = origin.publish()
        wait_for(lambda: store.folder(second).exists())
        assert bytes_asked(origin.store, asked) < second.manifest.size / 10
        assert contents(fetched([served], second, origin.authority, mine)) == origin.expected(1)
        assert len(mine.deltas(RUN)) == 1
    finally:
        relay.stop()


def test_a_stranger_s_delta_is_as_good(tmp_path, origin, other_signer, url, asked):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(spans=()), origin.authority, mine)
    newest = origin.publish(3, spans=())
    make_deltas(tmp_path / "v3", newest, origin.authority, other_signer, origin.store, spans=(3,))
    asked.clear()
    assert contents(fetched([url], newest, origin.authority, mine)) == origin.expected(3)
    assert bytes_asked(origin.store, asked) < newest.manifest.size / 10


def false_delta(origin, key, change):
    """Replaces the delta to the newest version by one that ``change`` made of its first frame."""
    (signed,) = [each for each in origin.store.deltas(RUN) if each.delta.version == len(origin.signed) - 1]
    frame, *others = signed.delta.frames
    data = change(origin.store.read(frame.hash))
    frames = (replace(frame, size=len(data), hash=hash_chunk(data)), *others)
    false = delta_manifest.sign(replace(signed.delta, frames=frames), RUN, CHAIN_ID, MARKET, key)
    origin.store.remove(signed)
    with origin.store.workplace(RUN) as folder:
        (folder / "frames").write_bytes(data)
        origin.store.take(false, folder)
    return false


@pytest.mark.parametrize("change", [lambda data: b"junk", lambda data: data[:-100] + b"\xff" + data[-99:]])
def test_a_false_delta_costs_its_bytes_and_names_its_maker(tmp_path, origin, other_signer, url, change):
    mine = VersionStore(tmp_path / "mine")
    with closing(Sources([url])) as sources:
        for signed in (origin.publish(), origin.publish(spans=(1,))):
            if signed is origin.signed[1]:
                false_delta(origin, other_signer, change)
            place = RUN, signed.manifest.version, signed.manifest.root, origin.authority
            directory = fetch_checkpoint(sources, *place, mine)
        assert contents(directory) == origin.expected(1)
        assert sources.doubted(other_signer.address)
        assert not sources.doubted(origin.signer.address)
        assert sources.choose() == url, "a source that sends what was signed does not lie"


def test_a_base_that_is_damaged_on_disk_is_nobody_s_fault_but_the_disk_s(tmp_path, origin, url):
    mine = VersionStore(tmp_path / "mine")
    with closing(Sources([url])) as sources:
        for signed in (origin.publish(), origin.publish()):
            place = RUN, signed.manifest.version, signed.manifest.root, origin.authority
            if signed is origin.signed[1]:
                with (mine.folder(origin.signed[0]) / "model.safetensors").open("r+b") as file:
                    file.seek(50_000)
                    file.write(bytes(4096))
            directory = fetch_checkpoint(sources, *place, mine)
        assert contents(directory) == origin.expected(1)
        assert not sources.doubted(origin.signer.address)
    assert not mine.folder(origin.signed[0]).exists()


def test_an_attempt_that_was_cut_off_fetches_no_frame_twice(tmp_path, origin, url, asked):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(), origin.authority, mine)
    newest = origin.publish()
    partial = VersionStore(tmp_path / "partial")
    shutil.copytree(tmp_path / "mine", tmp_path / "partial", dirs_exist_ok=True)
    (delta,) = origin.store.deltas(RUN)
    partial.put_manifest(delta)
    for chunk in delta.delta.chunks():
        partial.put(delta, chunk.hash, origin.store.read(chunk.hash))
    asked.clear()
    resumed = VersionStore(tmp_path / "partial")
    assert contents(fetched([url], newest, origin.authority, resumed)) == origin.expected(1)
    assert bytes_asked(origin.store, asked) == 0


def test_tensors_that_come_and_go_or_change_format_are_sent_as_they_are(tmp_path, origin, url):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(), origin.authority, mine)
    tensors = dict(reversed(origin.model.tensors().items()))
    tensors["head"] = ("F16", *tensors["head"][1:])
    tensors |= {"new": ("I64", (3,), bytes(24)), "none": ("F32", (0,), b"")}
    del tensors["norm"]
    directory = origin.model.write(tmp_path / "v1")
    (directory / "model.safetensors").write_bytes(safetensors(tensors))
    (directory / "config.json").write_text('{"model_type": "llama"}')
    signed = publish(directory, RUN, 1, CHAIN_ID, MARKET, origin.signer, origin.store, CHUNK)
    assert contents(fetched([url], signed, origin.authority, mine)) == contents(directory)


def test_a_delta_that_saves_little_is_not_made(origin):
    origin.model.rate = 1.0
    origin.publish(2)
    assert not origin.store.deltas(RUN)


def test_a_delta_is_gone_with_the_version_that_it_makes(origin):
    origin.publish(3)
    origin.store.retain(RUN, 1)
    assert {each.delta.version for each in origin.store.deltas(RUN)} == {2}


def test_a_signed_delta_is_parsed_back_and_any_other_spelling_refused(origin):
    origin.publish(2)
    (signed,) = origin.store.deltas(RUN)
    assert delta_manifest.parse_signed(signed.canonical) == signed
    assert signed.maker(CHAIN_ID, MARKET) == origin.signer.address
    for other in (signed.canonical + b" ", signed.canonical.replace(b'"run":1', b'"run":01')):
        with pytest.raises(Rejected):
            delta_manifest.parse_signed(other)
    twice = delta_manifest.sign(
        replace(signed.delta, frames=signed.delta.frames * 2), RUN, CHAIN_ID, MARKET, origin.signer
    )
    with pytest.raises(Rejected, match="ascending"):
        delta_manifest.parse_signed(twice.canonical)


ROOTS = [bytes([index]) * 32 for index in range(6)]
ENTRIES = st.builds(
    DeltaEntry,
    version=st.integers(0, 9),
    target=st.sampled_from(ROOTS),
    base=st.sampled_from(ROOTS),
    delta=st.sampled_from(ROOTS),
    size=st.integers(0, 50),
)


@given(st.sets(st.sampled_from(ROOTS[:-1])), st.lists(ENTRIES, max_size=25), st.integers(0, 120))
@settings(max_examples=300, deadline=None)
def test_a_way_begins_at_what_is_held_ends_at_what_is_wanted_and_is_the_shortest(held, offers, most):
    way = planned(held, ROOTS[-1], offers, most)
    best = dict.fromkeys(held, 0)
    for _ in range(MOST_STEPS):
        reached = dict(best)
        for offer in offers:
            if offer.base in best:
                reached[offer.target] = min(reached.get(offer.target, 1 << 60), best[offer.base] + offer.size)
        best = reached
    if not way:
        assert best.get(ROOTS[-1], most) >= most
        return
    assert way[0].base in held
    assert way[-1].target == ROOTS[-1]
    assert all(offer.target == following.base for offer, following in itertools.pairwise(way))
    assert sum(offer.size for offer in way) == best[ROOTS[-1]] < most


def test_a_manifest_of_a_version_is_never_taken_for_a_delta_s(origin):
    signed = origin.publish()
    with pytest.raises(Rejected):
        delta_manifest.parse_signed(signed.canonical)
    origin.publish()
    (delta,) = origin.store.deltas(RUN)
    with pytest.raises(Rejected):
        manifests.parse_signed(delta.canonical)


def test_a_relay_tells_what_it_holds_and_has_moved(tmp_path, origin, url, serve):
    store, traffic = VersionStore(tmp_path / "relay"), Traffic()
    relay = Relay(store, Sources([url]), {RUN: origin.authority}, list_wait_seconds=0.2, traffic=traffic)
    relay.start()
    try:
        served = serve(create_app(store, traffic=traffic, status_of=relay.status)).url
        first, second = origin.publish(), origin.publish()
        wait_for(lambda: store.folder(second).exists() and store.folder(first).exists())
        mine = VersionStore(tmp_path / "mine")
        for signed in (first, second):
            fetched([served], signed, origin.authority, mine)
        status = httpx.get(f"{served}/status").json()
        assert [(each["version"], each["held"] == each["size"]) for each in status["versions"]] == [
            (0, True),
            (1, True),
        ]
        assert status["versions"][1]["deltas"] == [0]
        assert status["received"] > 0 < status["sent_frames"] < status["sent_chunks"]
        assert status["peers"] == [{"peer": "127.0.0.1", "sent": status["sent_frames"] + status["sent_chunks"]}]
        assert httpx.get(f"{served}/metrics").status_code == 404, "they are on a port of their own"
        shown = CliRunner().invoke(relay_app, ["status", "--url", served])
        assert shown.exit_code == 0, shown.output
        assert "whole" in shown.output
        assert "127.0.0.1" in shown.output
    finally:
        relay.stop()


def test_a_scrub_finds_damage_and_mends_it(tmp_path, origin, url):
    store = VersionStore(tmp_path / "relay")
    relay = Relay(store, Sources([url]), {RUN: origin.authority}, list_wait_seconds=0.2)
    relay.start()
    try:
        signed = origin.publish()
        wait_for(lambda: store.folder(signed).exists())
        assert relay.scrub() == 0
        with (store.folder(signed) / "model.safetensors").open("r+b") as file:
            file.seek(70_000)
            file.write(bytes(100))
        assert relay.scrub() == 1
        assert contents(store.folder(signed)) == origin.expected(0)
        assert relay.status(with_peers=False).damaged == 1
    finally:
        relay.stop()


def test_a_relay_mends_what_was_damaged_while_it_was_down(tmp_path, origin, url):
    signed, folder = origin.publish(), tmp_path / "relay"
    for _ in range(2):
        store = VersionStore(folder)
        with closing(Sources([url])) as sources:
            Relay(store, sources, {RUN: origin.authority}).take(RUN, listed(origin.store, RUN))
        assert contents(store.folder(signed)) == origin.expected(0)
        with (store.folder(signed) / "model.safetensors").open("r+b") as file:
            file.seek(70_000)
            file.write(bytes(100))


def test_a_relay_keeps_what_its_disk_is_for_and_does_not_fetch_the_rest_again(tmp_path, origin, url, asked):
    last = origin.publish(4)
    store = VersionStore(tmp_path / "relay")
    room = int(2.5 * last.manifest.size)
    relay = Relay(store, Sources([url]), {RUN: origin.authority}, list_wait_seconds=0.2, most_bytes=room)
    relay.start()
    try:
        wait_for(lambda: [version for version, _ in store.checkpoints(RUN)] == [2, 3])
        newest = origin.publish()
        wait_for(lambda: [version for version, _ in store.checkpoints(RUN)] == [3, 4])
        wait_for(lambda: store.folder(newest).exists())
        beyond = {chunk.hash for signed in origin.signed[:2] for chunk in signed.manifest.chunks()}
        beyond -= {chunk.hash for signed in origin.signed[2:] for chunk in signed.manifest.chunks()}
        assert beyond
        assert not {f"/chunks/{digest.hex()}" for digest in beyond} & set(asked)
        assert max(asked.count(f"/runs/{RUN}/checkpoints/{version}") for version in (0, 1)) == 1
    finally:
        relay.stop()


def test_what_goes_out_keeps_to_the_cap(tmp_path, origin, serve):
    signed = origin.publish()
    served = serve(create_app(origin.store, traffic=Traffic(1_000_000))).url
    began = time.monotonic()
    fetched([served], signed, origin.authority, VersionStore(tmp_path / "mine"))
    assert time.monotonic() - began > 0.5 * signed.manifest.size / 1_000_000


FORMATS = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


@st.composite
def checkpoints(draw):
    """Two sets of tensors: some in both, moved a little, by any bits or not; some in one or in another format."""
    before, after = {}, {}
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)):
        dtype, count = draw(st.sampled_from(sorted(FORMATS))), draw(st.integers(0, 300))
        values = draw(st.binary(min_size=count * FORMATS[dtype], max_size=count * FORMATS[dtype]))
        moved = bytearray(values)
        for at in draw(st.lists(st.integers(0, max(0, len(values) - 1)), max_size=20)) if values else ():
            moved[at] = draw(st.integers(0, 255))
        kept = draw(st.sampled_from(("both", "both", "both", "removed", "new", "other format")))
        if kept != "new":
            before[name] = (dtype, (count,), values)
        if kept == "other format":
            after[name] = ("U8", (len(values),), bytes(moved))
        elif kept != "removed":
            after[name] = (dtype, (count,), bytes(moved))
    return before, dict(draw(st.permutations(sorted(after.items()))))


@given(checkpoints())
@settings(max_examples=30, deadline=None)
def test_any_two_checkpoints_go_through_a_delta_and_back_to_the_bit(pair):
    key = KeySigner(ACCOUNT)
    authority = Authority(CHAIN_ID, MARKET, key.address)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        store, mine, signed = VersionStore(place / "store"), VersionStore(place / "mine"), []
        for version, tensors in enumerate(pair):
            (place / str(version)).mkdir()
            (place / str(version) / "model.safetensors").write_bytes(safetensors(tensors))
            manifest = manifests.from_directory(place / str(version), version, 1024)
            signed.append(manifests.sign(manifest, RUN, CHAIN_ID, MARKET, key))
        store.take(signed[0], place / "0")
        mine.take(signed[0], place / "0")
        mine.put_manifest(signed[1])
        delta = make_delta(store, *signed, place / "1", authority, key, largest_share=math.inf)
        if delta is None:  # no tensor in the new version, or no change
            return
        applying = Applying(delta, *signed, mine)
        for frame in applying.needed():
            applying.take(frame, memoryview(store.read(frame.hash)))
        assert not mine.missing(signed[1])
        assert contents(mine.finish(signed[1])) == contents(place / "1")


@pytest.mark.parametrize("part", ["/checkpoints?", "/deltas/", "/chunks/"])
def test_a_byte_changed_anywhere_on_the_way_never_loads(tmp_path, origin, serve, part):
    mine, honest, changed = VersionStore(tmp_path / "mine"), create_app(origin.store), []

    async def damaging(scope, receive, send):
        async def altered(message):
            body = message.get("body", b"")
            if body and part in f"{scope['path']}?" and len(changed) < 40:
                at = (7919 * len(changed)) % len(body)
                message = message | {"body": body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]}
                changed.append(scope["path"])
            await send(message)

        scope = scope | {"extensions": {}} if "extensions" in scope else scope
        await honest(scope, receive, altered)

    first, second = serve(honest).url, serve(damaging).url
    fetched([first], origin.publish(), origin.authority, mine)
    for _ in range(8):
        newest = origin.publish()
        assert contents(fetched([second, first], newest, origin.authority, mine)) == origin.expected(
            newest.manifest.version
        )
    assert changed


def test_a_node_serves_what_it_holds_to_another(tmp_path, origin, url):
    holder = VersionStore(tmp_path / "holder")
    signed = origin.publish()
    fetched([url], signed, origin.authority, holder)
    port = serve_beside(holder, "127.0.0.1:0")
    mine = VersionStore(tmp_path / "mine")
    assert contents(fetched([f"http://127.0.0.1:{port}"], signed, origin.authority, mine)) == origin.expected(0)


@pytest.mark.parametrize("address", ["8730", ":8730", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_invalid_address_to_serve_at_is_one_sentence(tmp_path, address):
    with pytest.raises(Misconfigured, match="expected host:port"):
        serve_beside(VersionStore(tmp_path), address)


def lying(origin, entries):
    """Serves the origin, with a list of deltas of one's own."""
    honest = create_app(origin.store)

    async def listing(request):
        every = listed(origin.store, RUN)
        return Response(every.model_copy(update={"deltas": entries}).model_dump_json(), headers={"ETag": '"x"'})

    honest.router.routes.insert(0, Route("/runs/{run:int}/checkpoints", listing))
    return honest


def test_a_list_that_lies_about_a_delta_puts_no_blame_on_who_made_or_sends_it(tmp_path, origin, serve, url):
    mine, entries = VersionStore(tmp_path / "mine"), []
    served = serve(lying(origin, entries)).url
    for signed in (origin.publish(), origin.publish(), origin.publish()):
        true = [each for each in listed(origin.store, RUN).deltas if each.version == 1]
        entries[:] = [
            each.model_copy(update={"version": 2, "base": each.target, "target": signed.manifest.root, "size": 1})
            for each in true
        ]
        with closing(Sources([served, url])) as sources:
            place = RUN, signed.manifest.version, signed.manifest.root, origin.authority
            directory = fetch_checkpoint(sources, *place, mine)
            assert not sources.doubted(origin.signer.address)
            assert all(health.failures == 0 for health in sources.health_by_url.values())
    assert contents(directory) == origin.expected(2)


def test_a_way_over_versions_between_that_deltas_do_not_make_leaves_nothing_behind(tmp_path, origin, other_signer, url):
    mine = VersionStore(tmp_path / "mine")
    fetched([url], origin.publish(spans=()), origin.authority, mine)
    for _ in range(2):
        newest = origin.publish(spans=())
    for base, target in zip(origin.signed, origin.signed[1:], strict=False):
        frame = DeltaFrame("model.safetensors", 0, 1, 4, hash_chunk(b"junk"))
        roots = target.manifest.version, target.manifest.root, base.manifest.version, base.manifest.root
        for earlier in origin.store.deltas(RUN):
            if (earlier.delta.base, earlier.delta.target) == (base.manifest.root, target.manifest.root):
                origin.store.remove(earlier)
        with origin.store.workplace(RUN) as folder:
            (folder / "frames").write_bytes(b"junk")
            false = delta_manifest.sign(DeltaManifest(*roots, (frame,)), RUN, CHAIN_ID, MARKET, other_signer)
            origin.store.take(false, folder)
    assert contents(fetched([url], newest, origin.authority, mine)) == origin.expected(2)
    assert [version for version, _ in mine.checkpoints(RUN)] == [0, 2]
    assert mine.deltas(RUN) == []


def test_a_base_that_is_damaged_at_the_origin_gives_no_delta(origin):
    first = origin.publish()
    file = origin.store.folder(first) / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.unlink()
    file.write_bytes(data)
    origin.publish()
    assert origin.store.deltas(RUN) == []
    assert [version for version, _ in origin.store.checkpoints(RUN)] == [0, 1]


def test_a_delta_without_frames_is_refused(signer):
    delta = DeltaManifest(1, b"\x02" * 32, 0, b"\x01" * 32, ())
    with pytest.raises(Rejected, match="frames"):
        delta_manifest.parse_signed(delta_manifest.sign(delta, RUN, CHAIN_ID, MARKET, signer).canonical)


def test_a_relay_takes_the_trainer_s_signature_of_a_delta_and_no_other(tmp_path, origin, other_signer, url):
    origin.publish(2)
    (true,) = origin.store.deltas(RUN)
    store = VersionStore(tmp_path / "relay")
    store.put_manifest(delta_manifest.sign(true.delta, RUN, CHAIN_ID, MARKET, other_signer))
    with closing(Sources([url])) as sources:
        relay = Relay(store, sources, {RUN: origin.authority})
        relay.take(RUN, listed(origin.store, RUN))
    assert store.deltas(RUN) == [true]
    assert store.folder(true).is_dir()
