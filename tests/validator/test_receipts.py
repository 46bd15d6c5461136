"""Votes on submissions with and without receipts, by jurors on a real chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from protocol.chain.structs import State
from protocol.chain.writing.actions import drip
from protocol.chain.writing.appealing import open_appeal
from protocol.node.wallet import Wallet
from protocol.wire.artifact_blob import HEAD_BYTES
from protocol.wire.reasons import Reason
from protocol.wire.rules import ArtifactStore, Rules, with_stores
from tests.conftest import TOKEN
from tests.validator.conftest import RULES
from tests.validator.scene import Cast, Scene

pytestmark = pytest.mark.usefixtures("loopback")

UNAVAILABLE, ACCEPTED = bytes([Reason.UNAVAILABLE] * 2), b""


@pytest.fixture
def keys(make_wallet: Callable[[str], Wallet]) -> list[Wallet]:
    """Keys of two stores."""
    return [make_wallet(f"store-{index}") for index in range(2)]


def under(keys: Sequence[Wallet], urls: Sequence[str], receipts: int) -> Rules:
    """Rules that name these stores."""
    stores = [ArtifactStore(key=key.address, url=url) for key, url in zip(keys, urls, strict=True)]
    return with_stores(RULES, stores, receipts)


class Elsewhere(SimpleHTTPRequestHandler):
    """A store that sends junk in place of what it holds."""

    def do_GET(self) -> None:
        """Answers with junk, or says that it has nothing."""
        name = self.path.rsplit("/", 1)[1]
        held = Path(self.directory) / name
        data = held.read_bytes() if held.exists() else b""
        if not data:
            self.send_error(404)
            return
        junk = data[:HEAD_BYTES] + b"junk" + data[HEAD_BYTES + 4 :]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(junk)

    def log_message(self, format: str, *args: object) -> None:
        pass


def served(handler: type[SimpleHTTPRequestHandler], directory: Path, closing: list[Callable[[], None]]) -> str:
    """URL under which what lies in ``directory`` is served in this way."""
    directory.mkdir(exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    closing += [server.server_close, server.shutdown]
    return f"http://127.0.0.1:{server.server_port}"


def votes(scene: Scene, round_: int) -> set[bytes]:
    return {revealed.reasons for revealed in scene.reveals() if revealed.round == round_}


def test_a_submission_with_a_receipt_of_each_store_is_judged_as_ever(
    make_scene: Callable[..., Scene], file_server: tuple[Path, str], keys: list[Wallet]
) -> None:
    scene = make_scene(rules=under(keys, [file_server[1]] * 2, 2))
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1}, keys, places=())
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert votes(scene, opened.round) == {ACCEPTED}


def test_without_receipts_every_juror_votes_unavailable_on_trial_too_and_nobody_is_fined(
    make_scene: Callable[..., Scene], file_server: tuple[Path, str], keys: list[Wallet], cast: Cast
) -> None:
    appeals = {"validators": 4, "committee": 1, "appeal_seats": 3, "challenge_seconds": 3600}
    scene = make_scene(rules=under(keys, [file_server[1]] * 2, 2), **appeals)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1}, keys[:1])
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert votes(scene, opened.round) == {UNAVAILABLE}, "although every byte was there to be read"
    appellant = cast.sender("appellant")
    drip(appellant, TOKEN).carry_out("drip")
    appeal = open_appeal(appellant, opened.round, 0).carry_out("appeal").appeal
    scene.tick_until(appeal, State.SETTLED, 60)
    assert votes(scene, appeal) == {UNAVAILABLE[:1]}
    assert scene.chain.latest().view("Registry", "treasuryBalance") == 0


def test_a_store_that_gave_a_receipt_and_hides_or_serves_junk_harms_nobody_while_another_holder_serves(
    make_scene: Callable[..., Scene], cast: Cast, keys: list[Wallet], tmp_path: Path
) -> None:
    held = tmp_path / "hidden"
    hiding = served(Elsewhere, held, cast.closing)
    scene = make_scene(rules=under(keys[:1], [hiding], 1))
    opened = scene.open()
    hidden, junk = scene.work(opened)
    (held / f"0x{junk.root.hex()}").write_bytes(junk.blob)
    scene.submit(opened, [hidden, junk], {0, 1}, keys[:1])
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert votes(scene, opened.round) == {ACCEPTED}, "the bytes were at the place that the worker named"


def test_jurors_put_back_what_the_coordinators_store_has_lost(
    make_scene: Callable[..., Scene],
    file_server: tuple[Path, str],
    cast: Cast,
    keys: list[Wallet],
    tmp_path: Path,
) -> None:
    files, url = file_server
    own = served(SimpleHTTPRequestHandler, tmp_path / "own", cast.closing)
    scene = make_scene(rules=under(keys[:1], [url], 1))
    opened = scene.open()
    jobs = scene.work(opened)
    put_back = {files / "rounds" / str(opened.round) / "jobs" / str(job.job) / "blob": job.blob for job in jobs}
    for path in put_back:
        path.parent.mkdir(parents=True)
    for job in jobs:
        (tmp_path / "own" / f"0x{job.root.hex()}").write_bytes(job.blob)
    scene.submit(opened, jobs, set(), keys[:1], places=[f"{own}/"])
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert votes(scene, opened.round) == {ACCEPTED}
    give_up = time.monotonic() + 20
    while not all(path.is_file() and path.read_bytes() == blob for path, blob in put_back.items()):
        assert time.monotonic() < give_up, "nobody put it back"
        scene.tick()


def test_a_store_that_hides_a_whole_round_makes_it_unavailable_and_no_juror_abstain(
    make_scene: Callable[..., Scene], cast: Cast, keys: list[Wallet], tmp_path: Path
) -> None:
    held = tmp_path / "hidden"
    hiding = served(Elsewhere, held, cast.closing)
    scene = make_scene(rules=under(keys[:1], [hiding], 1))
    opened = scene.open()
    hidden, junk = scene.work(opened)
    (held / f"0x{junk.root.hex()}").write_bytes(junk.blob)
    scene.submit(opened, [hidden, junk], set(), keys[:1], places=())
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert votes(scene, opened.round) == {UNAVAILABLE}
