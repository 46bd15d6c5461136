"""Pages that show bytes: what a worker wrote and what jurors measured, from a real coordinator and a real relay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from fastapi.testclient import TestClient

from ledger.api.app import create_app
from ledger.api.blobs import BlobSource
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from tests.ledger.scenario import Story
from tests.ledger.shown import FALSE_SUM, TRUE_SUM, Shown, shown

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def round_shown(told_once: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shown(told_once, tmp_path_factory.mktemp("shown")) as told:
        yield told


@pytest.fixture(scope="module")
def database(round_shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    chain = round_shown.story.market.chain
    with closing(Database(tmp_path_factory.mktemp("books") / "ledger.sqlite", chain.deployment)) as opened:
        sync(chain, opened)
        yield opened


@pytest.fixture(scope="module")
def told(round_shown: Shown, database: Database) -> Iterator[TestClient]:
    """The ledger of the round, started with its coordinator and its relay."""
    chain = round_shown.story.market.chain
    with closing(BlobSource([round_shown.coordinator.url], [round_shown.relay])) as source:
        yield TestClient(create_app(chain, database, Follower(chain, database), source), headers=HTML)


def test_a_job_shows_its_prompts_and_completions_as_text(told: TestClient, round_shown: Shown) -> None:
    page = told.get(f"/why/jobs/{round_shown.round}/4")
    assert page.status_code == 200
    assert TRUE_SUM[:6] in page.text
    assert FALSE_SUM[6:] in page.text
