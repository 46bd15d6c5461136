"""Published files of versions on the run's page: read from relays, believed by the chain's roots alone."""

from __future__ import annotations

import re
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ledger.api import published as reading
from ledger.api.app import create_app
from ledger.api.blobs import BlobSource, VersionPlace
from ledger.api.published import PublishedVersions, VersionRewards, summed
from ledger.facts import Checkpoint
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from ledger.store.rows import find_fact
from protocol.broadcast.server import create_app as relaying
from protocol.errors import Misconfigured, Unavailable
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Authority
from protocol.wire.pins import PinnedFile
from protocol.wire.rewards import JobRewards, Rewards
from tests.conftest import serving, until
from tests.ledger.publishing import Publishing, published, publishing
from tests.ledger.scenario import Story
from tests.ledger.test_explorer import HTML
from tests.ledger.test_explorer import Page as ReadPage

__all__ = ["published", "publishing"]


@pytest.fixture(scope="module")
def books(published: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    chain = published.market.chain
    with closing(Database(tmp_path_factory.mktemp("books") / "ledger.sqlite", chain.deployment)) as opened:
        sync(chain, opened)
        yield opened


def reader(story: Story, books: Database, folder: Path, *urls: str) -> PublishedVersions:
    return PublishedVersions(story.market.deployment, books, urls, folder)


def point(books: Database, story: Story, version: int) -> Checkpoint:
    with books.reading() as connection:
        found = find_fact(connection, Checkpoint, story.market.run, version)
    assert found
    return found


def known(versions: PublishedVersions, story: Story, books: Database) -> dict[int, VersionRewards]:
    return versions.rewards(story.market.run, [point(books, story, version) for version in (1, 3)])


def rows(page: str, label: str) -> list[list[str]]:
    """Returns the text of each cell of the table with this label."""
    table = page.partition(f'aria-label="{label}"')[2].partition("</table>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row)] for row in found]


def test_the_runs_page_has_the_rewards_of_its_versions(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path
) -> None:
    chain, run = published.market.chain, published.market.run
    with (
        closing(reader(published, books, tmp_path, publishing.url)) as versions,
        TestClient(create_app(chain, books, Follower(chain, books), published=versions)) as client,
    ):
        until(lambda: len(known(versions, published, books)) == 2, 20, "the rewards")
        page = client.get(f"/runs/{run}", headers=HTML).text
        assert ReadPage(page).runs_nothing
        assert rows(page, "Reward by version") == [["Version", "Mean reward"], ["3", "0.750"], ["1", "0.250"]]
        assert rows(page, "Newest versions")[1][:6] == ["3", "0.750", "4", "1", "0", "1.0"]
        assert rows(page, "Jobs by round")[-1] == [str(published.rounds[0]), "2", "0", "2", "0", "1"]
        raw = client.get(f"/blobs/manifests/{run}/3")
        assert raw.content == publishing.signed[3].canonical
        assert raw.headers["content-type"] == "application/json"
        assert client.get(f"/blobs/manifests/{run}/99").status_code == 404
        never = client.get(f"/blobs/manifests/{run}/0")
        assert (never.status_code, "was not read yet" in never.json()["error"]) == (404, True)


def test_versions_outlast_the_origin_that_drops_them(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path
) -> None:
    with closing(reader(published, books, tmp_path, publishing.url)) as versions:
        versions.read(published.market.run, 20)
    with closing(reader(published, books, tmp_path, "http://127.0.0.1:9")) as versions:
        versions.read(published.market.run, 20)
        assert {at: each.mean for at, each in known(versions, published, books).items()} == {1: 0.25, 3: 0.75}
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with closing(reader(published, books, tmp_path, "http://127.0.0.1:9")) as versions:
        versions.read(published.market.run, 20)
        assert known(versions, published, books) == {}, "damaged files are read again"
        assert "127.0.0.1:9" in versions.problem


def test_a_manifest_that_is_not_the_one_on_chain_is_refused(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path
) -> None:
    story, run = published, published.market.run
    honest, deployment = publishing.signed[3], published.market.deployment
    other = replace(honest.manifest, chunk_bytes=honest.manifest.chunk_bytes * 2)
    false = manifests.sign(other, run, deployment.chain_id, deployment.market, story.trainer)

    async def lie(request: object) -> Response:
        return Response(false.canonical)

    chain = story.market.chain
    with (
        serving(Starlette(routes=[Route("/runs/{run}/checkpoints/{version}", lie)])) as url,  # type: ignore[arg-type]
        closing(reader(story, books, tmp_path, url)) as versions,
        TestClient(create_app(chain, books, Follower(chain, books), published=versions)) as client,
    ):
        until(lambda: len(known(versions, story, books)) == 2, 20, "the refusals")
        page = ReadPage(client.get(f"/runs/{run}", headers=HTML).text)
        assert "Reward by version" not in page.text
        assert "refused: " + url in page.text
        assert client.get(f"/blobs/manifests/{run}/3").status_code == 404
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_another_key_signed_is_refused(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path
) -> None:
    deployment = published.market.deployment
    honest = publishing.signed[3]
    forged = manifests.sign(
        honest.manifest, honest.run, deployment.chain_id, deployment.market, published.market.make_wallet("other")
    )

    async def lie(request: object) -> Response:
        return Response(forged.canonical)

    with (
        serving(Starlette(routes=[Route("/runs/{run}/checkpoints/3", lie)])) as url,  # type: ignore[arg-type]
        closing(reader(published, books, tmp_path, url)) as versions,
    ):
        versions.read(published.market.run, 20)
        assert "refused" in known(versions, published, books)[3].fault


def test_a_page_does_not_wait_for_a_relay(published: Story, books: Database, tmp_path: Path) -> None:
    chain = published.market.chain
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        closing(reader(published, books, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")) as versions,
        TestClient(create_app(chain, books, Follower(chain, books), published=versions)) as client,
    ):
        time.sleep(1.2)  # until a request is under way
        began = time.monotonic()
        page = ReadPage(client.get(f"/runs/{published.market.run}", headers=HTML).text)
        assert time.monotonic() - began < 2
        assert "Those of 2 of the newest 2 versions are not read yet" in page.text


def test_after_an_outage_versions_are_read_at_once_however_long_it_lasted(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "OUTAGE_SECONDS", 0.0)
    down, whole = [True], relaying(publishing.store)

    async def relay(scope: Scope, receive: Receive, send: Send) -> None:
        await (Response(status_code=503) if down[0] else whole)(scope, receive, send)

    with serving(relay) as url, closing(reader(published, books, tmp_path, url)) as versions:  # type: ignore[arg-type]
        for _ in range(8):
            versions.read(published.market.run, 20)
        assert versions.problem
        down[0] = False
        versions.read(published.market.run, 20)
        assert len(known(versions, published, books)) == 2


def test_a_disk_without_room_is_named_and_ends_no_reading(
    published: Story, publishing: Publishing, books: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(reader(published, books, tmp_path, publishing.url)) as versions, monkeypatch.context() as full:
        full.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        versions.read(published.market.run, 20)
        assert versions.problem.startswith("cannot write to a temporary folder: ")
        place = VersionPlace(published.market.run, 1, bytes(32), Authority(1, "", ""))
        pin = PinnedFile("tokenizer.json", 9, bytes(32))
        with closing(BlobSource([], [publishing.url])) as blobs, pytest.raises(Unavailable):
            blobs.file(place, pin)


def test_rewards_of_other_jobs_than_the_chains_do_not_count() -> None:
    rewards = Rewards((JobRewards(1, 0, np.array([1, 0], "<f4")), JobRewards(1, 2, np.array([1, 1], "<f4"))))
    assert summed(rewards, frozenset({(1, 0), (1, 2)})) == VersionRewards(0.75, 4)
    assert summed(rewards, frozenset({(1, 0), (1, 1)})) == VersionRewards(
        0.5, 2, "published for 1 of its 2 jobs, and for 1 others"
    )
    assert summed(Rewards(()), frozenset({(1, 0)})).mean is None


def test_a_relay_is_named_by_its_address(published: Story, books: Database, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="invalid source of weights 'relay'"):
        reader(published, books, tmp_path, "relay")
