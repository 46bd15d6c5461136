"""A real Chromium before the explorer of a real chain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ledger.store.database import Database
from ledger.store.index import sync
from tests.conftest import ROOT
from tests.ledger.conftest import everything, told_once
from tests.ledger.scenario import Story
from tests.ledger.shown import Shown, shown

__all__ = ["everything", "told_once"]

CHROMIUM = ROOT / ".venv" / "browser" / "browser.json"
"""Path and flags of the browser that ``make test`` unpacks."""
WITHOUT = ("--single-process", "--no-zygote", "--disable-web-security", "--allow-running-insecure-content")
"""Flags for a server without processes, under which a page is not as isolated as in a reader's browser."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window. Its driver's event loop is this thread's, so that it ends with a file's tests."""
    unpacked = json.loads(CHROMIUM.read_text())
    flags = [flag for flag in unpacked["args"] if not flag.startswith(WITHOUT)]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=unpacked["path"], args=flags)
        yield running
        running.close()


@pytest.fixture(scope="module")
def explorer(everything: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the ledger of ``everything``, served by the command."""
    with served(everything, tmp_path_factory.mktemp("explorer")) as url:
        yield url


@pytest.fixture(scope="module")
def round_shown(everything: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A round on that chain whose artifacts and evidence can be had."""
    with shown(everything, tmp_path_factory.mktemp("shown")) as told:
        yield told


@pytest.fixture(scope="module")
def explorer_of_bytes(round_shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the ledger of that chain, started with its coordinator and its relay."""
    with served(round_shown.story, tmp_path_factory.mktemp("bytes"), *round_shown.options) as url:
        yield url


@contextmanager
def served(story: Story, folder: Path, *options: str) -> Iterator[str]:
    """Serves the ledger of a story's chain, read up to its head, by ``assize ledger serve``; yields its address."""
    chain, addresses, books = story.market.chain, folder / "addresses.json", folder / "ledger.sqlite"
    chain.deployment.save(addresses)
    with closing(Database(books, chain.deployment)) as database:
        sync(chain, database)
    command = (sys.executable, ROOT / "assize.py", "ledger", "serve", "--port", "0", "--db", books)
    command += ("--addresses", addresses, "--rpc", story.market.anvil.url, *options)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("ledger at "), line
        yield line.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


class Reader:
    """One tab; it keeps what went wrong in it, and each request to another address than its ``own``."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.own: tuple[str, ...] = (url, "data:", "blob:")
        self.problems: list[str] = []
        page.on("console", lambda message: self._note(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", lambda request: None if self._own(request.url) else self._note(f"asked {request.url}"))

    def open(self, path: str) -> Page:
        """Opens a page of the server."""
        self.page.goto(self.url + path)
        return self.page

    def _own(self, url: str) -> bool:
        return url.startswith(self.own)

    def _note(self, problem: str) -> None:
        self.problems.append(f"{self.page.url}: {problem}")


@pytest.fixture
def reading(browser: Browser) -> Iterator[Callable[..., Reader]]:
    """Opens a tab before a server: its address, then how the context is made (colour scheme, size of the window)."""
    with _tabs(browser) as tabs:
        yield tabs


@contextmanager
def _tabs(browser: Browser) -> Iterator[Callable[..., Reader]]:
    contexts = []

    def tab(url: str, **context: object) -> Reader:
        # A browser whose system is set to no language names one to its pages that no script takes.
        contexts.append(browser.new_context(**{"locale": "en-US", **context}))  # type: ignore[arg-type]
        return Reader(contexts[-1].new_page(), url)

    yield tab
    for context in contexts:
        context.close()
