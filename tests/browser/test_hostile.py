"""Hostile text in a real browser: every page shows it, none runs it, and the policy has nothing to refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import quote

import pytest
from playwright.sync_api import Dialog, Page

from ledger.store.database import Database
from ledger.store.index import sync
from tests.browser.conftest import Reader, served
from tests.ledger.scenario import HOSTILE, Story, pages_of
from tests.ledger.spoiling import spoil

TELLS = "addEventListener('securitypolicyviolation', e => told(e.violatedDirective + ': ' + e.blockedURI))"
RUNS = """() => [...document.querySelectorAll("*")].flatMap(element => [
    ...[...element.attributes].filter(one => one.name.startsWith("on")
        || (one.name === "style" && !element.closest(".plot"))
        || (/^(href|src|action|formaction)$/.test(one.name) && !/^(https?:|data:(image|,)|[/#?]|$)/i.test(one.value))),
    ...(/^(iframe|object|embed|base|style)$/i.test(element.tagName)
        || (element.tagName === "SCRIPT" && !element.src.startsWith(origin + "/static/")) ? [element] : []),
].map(found => found.outerHTML ?? `${element.outerHTML.slice(0, 200)}: ${found.name}`))"""
"""Everything in a page that would run, or lead to what runs; the library that draws charts sets styles of its own."""
ASKED = ("/search?q={}", "/rounds?before={}", "/runs?as_of={}", "/credits/{}", "/events?name={}", "/{}")
"""Requests that are refused with a sentence."""


@pytest.fixture(scope="module")
def spoilt(everything: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a ledger whose database holds nothing but hostile text."""
    folder = tmp_path_factory.mktemp("spoilt")
    with closing(Database(folder / "ledger.sqlite", everything.market.chain.deployment)) as database:
        sync(everything.market.chain, database)
        spoil(database)
    with served(everything, folder) as url:
        yield url


class Watched:
    """One tab that keeps what ran in it and what its policy refused."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.page = reader, reader.page
        self.reports: list[str] = []
        self.dialogs: list[str] = []
        self.page.expose_function("told", lambda report: self.reports.append(report))
        self.page.add_init_script(TELLS)
        self.page.on("dialog", self._shown)

    def _shown(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def open(self, path: str) -> Page:
        """Opens a page, and asserts that nothing in it runs."""
        page = self.reader.open(path)
        assert page.evaluate(RUNS) == [], path
        assert (self.reports, self.dialogs) == ([], []), path
        return page


def test_no_hostile_text_runs_in_a_browser(
    spoilt: str, everything: Story, reading: Callable[..., Reader], request: pytest.FixtureRequest
) -> None:
    watched = Watched(reading(spoilt))
    paths = pages_of(everything)
    for path in paths:
        watched.open(path)
    assert "<script>alert(1)</script>" in watched.open("/runs/3").inner_text("main")
    assert not watched.reader.problems
    asked = [each.format(quote(HOSTILE[:150], safe="")) for each in ASKED]
    for path in asked:
        watched.open(path)
    opened, reports = len(paths) + len(asked) + 1, len(watched.reports)
    if (folder := request.config.getoption("--asked")) is not None:
        (folder / "browser.json").write_text(json.dumps({"pages": opened, "csp_reports": reports}))


def test_what_a_page_would_run_is_refused_and_reported(spoilt: str, reading: Callable[..., Reader]) -> None:
    watched = Watched(reading(spoilt))
    page = watched.open("/")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(3)'}))")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(4)>')")
    page.wait_for_timeout(200)
    assert len(page.evaluate(RUNS)) >= 2
    assert len(watched.reports) >= 2, watched.reports
    assert watched.dialogs == []
