"""Every page in a browser: light and dark, on a phone and on a desk, without a problem, and open to all."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from tests.browser.conftest import Reader
from tests.conftest import ROOT
from tests.ledger.scenario import Story, checks_of, pages_of
from tests.ledger.shown import Shown, pages_with_bytes

AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / ".pictures"
WIDTHS = {"phone": 390, "desk": 1440}
EVERY_RULE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
BY_LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]
"""Rules of axe whose findings may differ with colours and the window's width; the others are asked once a page."""


def test_every_page_is_sound_to_look_at(explorer: str, everything: Story, reading: Callable[..., Reader]) -> None:
    look_at(reading(explorer), [*pages_of(everything), *checks_of(everything)])


def test_pages_that_show_bytes_are_sound_to_look_at(
    explorer_of_bytes: str, round_shown: Shown, reading: Callable[..., Reader]
) -> None:
    look_at(reading(explorer_of_bytes), pages_with_bytes(round_shown))


def look_at(reader: Reader, paths: list[str]) -> None:
    """Opens pages one after another, each of which must be sound to look at."""
    for path in paths:
        looks_sound(reader.open(path), path)
    assert not reader.problems


def looks_sound(page: Any, path: str, part: str = "html") -> None:
    """Asks axe about a page as it is, or a part of it, in both schemes and widths, and takes its pictures."""
    page.evaluate(AXE.read_text())
    assert not violations(page, {"type": "tag", "values": EVERY_RULE}, part), path
    for scheme, (width, pixels) in itertools.product(("light", "dark"), WIDTHS.items()):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": pixels, "height": 900})
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{path} is {over} pixels wider than the window"
        assert not violations(page, {"type": "rule", "values": BY_LOOKS}, part), path
        folder = PICTURES / f"{scheme}-{width}"
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_") or "now"
        page.screenshot(path=folder / f"{name}.jpg", type="jpeg", quality=70, full_page=True)


def violations(page: Any, rules: dict[str, Any], part: str = "html") -> list[str]:
    """Returns what axe finds against a page, in which it was loaded, or the part of a selector."""
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    found = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
