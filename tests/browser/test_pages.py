"""Every page in a browser: light and dark, on a phone and on a desk, without a problem, and open to all."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.conftest import Reader
from tests.conftest import ROOT
from tests.ledger.scenario import Story, checks_of, pages_of
from tests.ledger.shown import Shown, pages_with_bytes

AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = os.environ.get("ASSIZE_PICTURES")
"""Folder for pictures of the pages, which `make pictures` names; a test has no use of them."""
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


def looks_sound(page: Any, name: str, part: str = "html") -> None:
    """Asks axe about a page as it is, or a part of it, in both schemes and widths; takes pictures where asked."""
    page.evaluate(AXE.read_text())
    later = {rule: {"enabled": False} for rule in BY_LOOKS}
    assert not violations(page, {"runOnly": {"type": "tag", "values": EVERY_RULE}, "rules": later}, part), name
    for scheme, (width, pixels) in itertools.product(("light", "dark"), WIDTHS.items()):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": pixels, "height": 900})
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{name} is {over} pixels wider than the window"
        assert not violations(page, {"runOnly": {"type": "rule", "values": BY_LOOKS}}, part), name
        if PICTURES:
            file = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "now"
            path = Path(PICTURES) / f"{scheme}-{width}" / f"{file}.jpg"
            page.screenshot(path=path, type="jpeg", quality=70, full_page=True)


def violations(page: Any, options: dict[str, Any], part: str = "html") -> list[str]:
    """Returns what axe, asked as ``options`` say, finds against a page in which it was loaded, or a selector's part."""
    options = {"resultTypes": ["violations"], **options}
    found = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
