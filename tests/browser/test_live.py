"""Pages that stay current in a browser, and the streams that tell them of new blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from playwright.sync_api import Page, expect

from protocol.chain.structs import Role
from tests.browser.conftest import Reader
from tests.ledger.scenario import Story

names = (f"late-{number}" for number in itertools.count())


def registered(story: Story) -> int:
    """Registers one more worker; returns its number."""
    return story.market.register(next(names), Role.WORKER, 1).node


def live(page: Page) -> None:
    """Waits until a page says that it is live."""
    expect(page.locator("#live")).to_contain_text("Live")


def test_a_page_becomes_the_present_one_around_its_reader(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    reader = reading(explorer)
    page = reader.open("/nodes")
    live(page)
    page.fill("#q", "half a quest")
    link = page.locator("main tbody a").nth(4)
    link.focus()
    kept = link.get_attribute("href")
    page.evaluate("document.activeElement.marked = true")
    node = registered(everything)
    expect(page.locator(f'main a[href="/nodes/{node}"]')).to_be_visible()
    assert page.input_value("#q") == "half a quest"
    assert page.evaluate("[document.activeElement.marked, document.activeElement.getAttribute('href')]") == [True, kept]
    assert not reader.problems
