"""Pages that stay current in a browser, and what else their scripts do; without scripts they are whole."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from protocol.chain.structs import Role
from tests.browser.conftest import Reader, served
from tests.conftest import until
from tests.ledger.scenario import Story

names = (f"late-{number}" for number in itertools.count())
UPDATE_MILLISECONDS = 1_200
"""Time in which a live page has become the present one."""


def registered(story: Story) -> str:
    """Registers one more worker; returns the path of its page."""
    return f"/nodes/{story.market.register(next(names), Role.WORKER, 1).node}"


def live(page: Page) -> Page:
    """Waits until a page says that it is live."""
    expect(page.locator("#live")).to_contain_text("Live")
    return page


def hide(page: Page, hidden: bool) -> None:
    """Has a page believe that its tab was hidden, or shown again; nothing hides a tab of a browser without windows."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});
          document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_a_page_becomes_the_present_one_around_its_reader(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    reader = reading(explorer, viewport={"width": 390, "height": 500})
    page = live(reader.open("/nodes"))
    page.fill("#q", "half a question")
    page.evaluate("scrollTo(0, 400); document.querySelector('.box').scrollLeft = 60")
    link = page.locator("main tbody a").nth(10)
    link.evaluate("link => link.focus({preventScroll: true})")
    before = link.bounding_box()
    kept = link.get_attribute("href")
    page.evaluate("document.activeElement.marked = true")
    path = registered(everything)
    expect(page.locator(f'main a[href="{path}"]')).to_be_visible()
    assert page.input_value("#q") == "half a question"
    after = page.locator(":focus").bounding_box()
    assert before
    assert after
    assert after["x"] == before["x"]
    assert abs(after["y"] - before["y"]) < 2, "a row came above it, and it is where it was"
    assert page.evaluate("[document.activeElement.marked, document.activeElement.getAttribute('href')]") == [True, kept]
    shown = page.locator(".state strong").inner_text()
    assert shown == f"Block {everything.market.chain.head().number:,}"
    assert not reader.problems


def test_a_page_as_of_a_block_stays_as_it_is(explorer: str, everything: Story, reading: Callable[..., Reader]) -> None:
    head = everything.market.chain.head()
    reader = reading(explorer)
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    page = reader.open(f"/nodes?as_of=0x{head.hash.hex()}")
    path = registered(everything)
    page.wait_for_timeout(UPDATE_MILLISECONDS)
    assert not page.locator(f'main a[href^="{path}"]').count()
    assert not page.locator("#live").count()
    assert not [url for url in asked if url.endswith("/live")]
    page.get_by_role("button", name="Show the newest block").click()
    expect(page.locator(f'main a[href="{path}"]')).to_be_visible()
    page.go_back()
    assert "as_of=" in page.url
    assert not page.locator(f'main a[href^="{path}"]').count()
    assert not reader.problems


def test_a_reader_pauses_a_page_and_resumes_it_by_keyboard(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    page = live(reading(explorer).open("/nodes"))
    page.locator("#live button").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#live")).to_contain_text("Paused")
    path = registered(everything)
    page.wait_for_timeout(UPDATE_MILLISECONDS)
    assert not page.locator(f'main a[href="{path}"]').count()
    page.keyboard.press("Space")
    expect(page.locator(f'main a[href="{path}"]')).to_be_visible()
    expect(page.locator("#live")).to_contain_text("Live")
    assert page.evaluate("document.activeElement.textContent") == "Pause"


def test_a_hidden_tab_asks_for_nothing_and_catches_up_when_it_is_shown(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    page = live(reading(explorer).open("/nodes"))
    asked: list[str] = []
    hide(page, True)
    page.on("request", lambda request: asked.append(request.url))
    path = registered(everything)
    page.wait_for_timeout(UPDATE_MILLISECONDS)
    assert asked == []
    hide(page, False)
    expect(page.locator(f'main a[href="{path}"]')).to_be_visible()


def test_pages_are_asked_for_one_at_a_time_and_once_a_second_at_most(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    page = live(reading(explorer).open("/nodes"))
    under_way, most, began = 0, 0, list[float]()

    def begun(request: object) -> None:
        nonlocal under_way, most
        if request.resource_type == "fetch":  # type: ignore[attr-defined]
            under_way, most = under_way + 1, max(most, under_way + 1)
            began.append(time.monotonic())

    def ended(request: object) -> None:
        nonlocal under_way
        under_way -= request.resource_type == "fetch"  # type: ignore[attr-defined]

    page.on("request", begun)
    page.on("requestfinished", ended)
    for _ in range(8):
        everything.market.anvil.rpc.call("evm_mine")
        page.wait_for_timeout(300)
    page.wait_for_timeout(UPDATE_MILLISECONDS)
    assert most == 1
    assert 2 <= len(began) <= 5
    assert page.locator(".state strong").inner_text() == f"Block {everything.market.chain.head().number:,}"


def test_a_server_that_ends_lets_go_of_its_streams_and_pages_keep_what_they_have(
    everything: Story, tmp_path: Path, reading: Callable[..., Reader]
) -> None:
    with httpx.Client(trust_env=False) as http:
        with served(everything, tmp_path) as url:
            page = live(reading(url).open("/nodes"))
            streams = [http.send(http.build_request("GET", f"{url}/live"), stream=True) for _ in range(20)]
            first = [next(each.iter_text()) for each in streams]
            told_to_end = time.monotonic()
        assert time.monotonic() - told_to_end < 3
        assert {each.headers["content-type"] for each in streams} == {"text/event-stream; charset=utf-8"}
        assert {each.headers["cache-control"] for each in streams} == {"no-store"}
        assert all(each.startswith("retry: ") for each in first)
        for each in streams:
            each.close()
    expect(page.locator("#live")).to_contain_text("Not live, trying again")
    assert page.locator("main tbody tr").count() > 5
    assert page.locator("#live [role=status]").is_visible()


def test_dates_are_in_the_readers_zone_and_in_utc_beside(explorer: str, reading: Callable[..., Reader]) -> None:
    page = reading(explorer, timezone_id="Asia/Tokyo").open("/rounds")
    first = page.locator("main time").first
    machine = first.get_attribute("datetime") or ""
    here = page.evaluate("when => new Date(Date.parse(when) + 9 * 3600e3).toISOString()", machine)
    assert first.inner_text() == f"{here[:10]} {here[11:19]} GMT+9"
    assert first.get_attribute("title") == f"{machine[:10]} {machine[11:19]} UTC"


def test_what_is_shown_short_is_copied_whole_by_keyboard(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    reader = reading(explorer, permissions=["clipboard-read", "clipboard-write"])
    page = live(reader.open(f"/nodes/{everything.honest.node}"))
    owner = everything.honest.owner.address
    button = page.locator(f'main a[title="{owner}"] + button.copy').first
    registered(everything)
    page.wait_for_timeout(UPDATE_MILLISECONDS)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == owner
    expect(button).to_have_accessible_name(f"Copy {owner[:6]}…{owner[-4:]}")
    assert page.locator("main .copy").count() == page.locator('main [title^="0x"]').count(), "one beside each"
    assert not reader.problems


def test_a_table_is_drawn_as_a_chart_that_stays_while_its_numbers_change(
    explorer: str, everything: Story, reading: Callable[..., Reader]
) -> None:
    reader = reading(explorer, color_scheme="light")
    page = live(reader.open(f"/runs/{everything.market.run}"))
    chart = page.locator(".chart").filter(has_text="Jobs by round")
    plot = chart.get_by_role("img")
    expect(plot).to_have_accessible_name(
        "Line chart. Jobs by round, Round 1 to 3. Accepted: 0 to 2, newest 0. Void: 0 to 1, newest 1. "
        "Fraud: 0 to 2, newest 0. Unavailable: 0 to 0, newest 0. Missing: 1 to 2, newest 1."
    )
    legend = chart.locator(".u-legend")
    expect(legend).to_have_text("Round3Accepted0Void1Fraud0Unavailable0Missing1")  # the newest
    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + 2, box["y"] + 30)
    expect(legend).to_have_text("Round1Accepted2Void0Fraud2Unavailable0Missing1")  # those at the cursor
    inked = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(each => each)"
    assert chart.locator("canvas").evaluate(inked)
    chart.locator("summary").click()
    chart.locator("canvas").evaluate("canvas => { canvas.marked = true }")
    head = page.locator(".state strong").inner_text()
    registered(everything)
    expect(page.locator(".state strong")).not_to_have_text(head)
    assert chart.locator("canvas").evaluate("canvas => canvas.marked")
    assert chart.locator("table[data-chart]").is_visible(), "the table is open as its reader left it"
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    until(lambda: chart.locator("canvas").evaluate("canvas => canvas.clientWidth < 390"), 5, "a narrower chart")
    assert page.locator(".chart canvas").count() >= 2
    assert not reader.problems


def test_pages_are_whole_without_scripts(explorer: str, everything: Story, reading: Callable[..., Reader]) -> None:
    page = reading(explorer, java_script_enabled=False).open(f"/runs/{everything.market.run}")
    assert page.get_by_role("table", name="Jobs by round").is_visible()
    assert page.locator("main time").first.inner_text().endswith(" UTC")
    assert not page.locator("#live, .copy, .chart").filter(visible=True).count()
    page.fill("#q", str(everything.cheat.owner.address))
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Owner")


def test_the_content_is_one_key_away(explorer: str, reading: Callable[..., Reader]) -> None:
    page = live(reading(explorer).open("/slashes"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.locator("main tbody a").first.press("Enter")
    expect(page).not_to_have_url(f"{explorer}/slashes")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Slashes")
    live(page)
