"""What counts as running in a page that is asked for."""

from __future__ import annotations

import pytest

from tests.openapi.asking import running

SAFE = """<!doctype html><script src="/static/explorer.07b3a77cc1c52ee2.js" defer></script>
<link rel="icon" href="data:,"><a href="/credits/%3Cscript%3E"
title="&lt;img src=x onerror=alert(1) style='x'&gt;">a &lt;script&gt;</a>"""


def test_hostile_text_that_is_shown_runs_nothing() -> None:
    assert list(running(SAFE)) == []


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '<script src="//elsewhere.example/x.js"></script>',
        "<img src=x onerror=alert(1)>",
        '<img src="x"onerror="y">',
        '<p title="\'" ONCLICK="x">',
        "<svg/onload=x>",
        '<a href=" javascript:x">',
        '<iframe src="/">',
        "<style>",
        '<p style="x">',
        '<a title="',
    ],
)
def test_hostile_markup_is_found(hostile: str) -> None:
    assert list(running(SAFE + hostile))
