"""A version in a person's folder: from real servers, honest and lying, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from starlette.responses import Response
from starlette.routing import Route

from protocol.broadcast.download import download
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.files import lock
from protocol.wire.manifest import Authority
from protocol.wire.pins import UnfitCheckpoint, pin_directory
from tests.checkpoints import smallest
from tests.conftest import ROOT
from tests.protocol.test_shardcast import CHAIN_ID, MARKET, RUN, contents, put, tampering, wait_for

SIZE = 400_000

ALONE = """
import sys
from contextlib import closing
from pathlib import Path
from protocol.broadcast.download import download
from protocol.wire.manifest import Authority
from protocol.broadcast.sources import Sources
from protocol.wire.pins import pin_directory

class Silent:
    def begin(self, total, held): pass
    def took(self, size): pass

url, root, market, trainer, model, out = sys.argv[1:]
with closing(Sources([url])) as sources:
    authority = Authority(31337, market, trainer)
    download(sources, 1, 1, bytes.fromhex(root), authority, pin_directory(Path(model)), Path(out), Silent())
"""
"""A download in a process of its own, to be killed."""


class Counter:
    """What a download told of itself."""

    def __init__(self) -> None:
        self.total, self.held, self.taken = 0, 0, 0

    def begin(self, total: int, held: int) -> None:
        self.total, self.held, self.taken = total, held, 0

    def took(self, size: int) -> None:
        self.taken += size


@pytest.fixture
def model(tmp_path):
    return smallest(tmp_path / "model", os.urandom(SIZE))


@pytest.fixture
def origin(tmp_path):
    return VersionStore(tmp_path / "origin")


@pytest.fixture
def authority(signer):
    return Authority(CHAIN_ID, MARKET, signer.address)


def fetched(urls, signed, authority, model, out, counter=None):
    with closing(Sources(urls)) as sources:
        place = RUN, signed.manifest.version, signed.manifest.root, authority, pin_directory(model)
        return download(sources, *place, out, counter or Counter())


def test_a_version_arrives_whole_and_leaves_nothing_beside_it(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    counter, out = Counter(), tmp_path / "mine" / "v1"
    fetched([serve(create_app(origin)).url], signed, authority, model, out, counter)
    assert contents(out) == contents(model)
    assert (counter.held, counter.taken, counter.total) == (0, signed.manifest.size, signed.manifest.size)
    assert [path.name for path in out.parent.iterdir()] == ["v1"]


def test_a_download_that_was_cut_off_goes_on_where_it_ended(tmp_path, model, origin, signer, authority, serve):
    signed = put(model, 1, signer, origin)
    served, app = [], create_app(origin)

    async def few(request):
        served.append(request.path_params["hash"])
        data = origin.read(bytes.fromhex(request.path_params["hash"]))
        return Response(data) if len(served) <= 4 else Response(status_code=500)

    app.router.routes.insert(0, Route("/chunks/{hash}", few))
    out, counter = tmp_path / "v1", Counter()
    with pytest.raises(Unavailable, match="no source has chunk"):
        fetched([serve(app).url], signed, authority, model, out)
    assert not out.exists()
    fetched([serve(create_app(origin)).url], signed, authority, model, out, counter)
    assert contents(out) == contents(model)
    assert counter.held > 0
    assert counter.held + counter.taken == counter.total


def test_a_killed_download_leaves_no_directory_and_the_next_one_finishes(
    tmp_path, model, origin, signer, authority, serve
):
    signed = put(model, 1, signer, origin)
    going_on, app = threading.Event(), create_app(origin)
    asked = []

    def stalling(request):
        asked.append(request.path_params["hash"])
        if len(asked) > 4:
            going_on.wait(20)
        return Response(origin.read(bytes.fromhex(request.path_params["hash"])))

    app.router.routes.insert(0, Route("/chunks/{hash}", stalling))
    url, out, counter = serve(app).url, tmp_path / "v1", Counter()
    words = [url, signed.manifest.root.hex(), MARKET, authority.trainer, str(model), str(out)]
    process = subprocess.Popen([sys.executable, "-c", ALONE, *words], cwd=ROOT)
    wait_for(lambda: len(asked) > 4, 20)
    process.kill()
    process.wait()
    assert not out.exists()
    going_on.set()
    fetched([url], signed, authority, model, out, counter)
    assert contents(out) == contents(model)
    assert counter.held > 0


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"x" + data[1:]], ids=["short", "changed"])
def test_a_source_that_sends_other_bytes_is_one_sentence_and_no_directory(
    tmp_path, model, origin, signer, authority, serve, change
):
    signed = put(model, 1, signer, origin)
    with pytest.raises(Unavailable, match="no source has chunk"):
        fetched([serve(tampering(origin, change)).url], signed, authority, model, tmp_path / "v1")
    assert not (tmp_path / "v1").exists()


def test_a_version_that_another_key_signed_is_refused(tmp_path, model, origin, signer, other_signer, authority, serve):
    signed = put(model, 1, other_signer, origin)
    with pytest.raises(Rejected, match="not by the trainer"):
        fetched([serve(create_app(origin)).url], signed, authority, model, tmp_path / "v1")
    assert not (tmp_path / "v1").exists()


def test_a_version_that_the_rules_do_not_pin_is_refused_before_its_weights_come(
    tmp_path, model, origin, signer, authority, serve
):
    signed = put(model, 1, signer, origin)
    (model / "config.json").write_text('{"other": 1}')
    counter = Counter()
    with pytest.raises(UnfitCheckpoint, match=r"by its trainer.s fault: config\.json has 2 bytes"):
        fetched([serve(create_app(origin)).url], signed, authority, model, tmp_path / "v1", counter)
    assert counter.total == 0
    assert not (tmp_path / "v1").exists()


def test_a_folder_with_other_files_is_left_as_it_is(tmp_path, model, origin, signer, authority, serve):
    signed, url = put(model, 1, signer, origin), serve(create_app(origin)).url
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    with pytest.raises(Misconfigured, match="expected a folder that is new or empty"):
        fetched([url], signed, authority, model, out)
    assert contents(out) == {"chapter.txt": b"years of work"}
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(Misconfigured, match="expected a folder that is new or empty"):
        fetched([url], signed, authority, model, file)


def test_a_version_that_is_there_already_is_checked_and_not_fetched_again(
    tmp_path, model, origin, signer, authority, serve
):
    signed, url, out = put(model, 1, signer, origin), serve(create_app(origin)).url, tmp_path / "v1"
    fetched([url], signed, authority, model, out)
    before = {path.name: path.stat().st_ino for path in out.iterdir()}
    fetched([url], signed, authority, model, out)
    assert {path.name: path.stat().st_ino for path in out.iterdir()} == before


def test_two_processes_do_not_fetch_into_one_folder(tmp_path, model, origin, signer, authority, serve):
    signed, out = put(model, 1, signer, origin), tmp_path / "v1"
    VersionStore(tmp_path / ".v1.partial")
    with closing(lock(tmp_path / ".v1.partial" / "lock")), pytest.raises(Misconfigured, match="another process"):
        fetched([serve(create_app(origin)).url], signed, authority, model, out)
