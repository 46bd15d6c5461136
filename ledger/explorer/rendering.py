"""Rendering: templates to pages with strict headers, and the style sheet under the hash of its bytes."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from ledger.explorer import links
from ledger.explorer.negotiation import STATIC
from ledger.facts import Node
from protocol.times import spell

STYLE = files("ledger.explorer").joinpath("static", "explorer.css").read_bytes()
STYLE_NAME = f"explorer.{hashlib.sha256(STYLE).hexdigest()[:16]}.css"

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of every page. A page names its lag, so that no copy of it is current."""
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


TONES = {
    "good": ("accepted", "settled", "revealed", "joined", "serving", "ok", "passed", "upheld", "open"),
    "bad": ("fraud", "failed", "overturned", "absence", "short of bond", "significant", "strike"),
    "warn": (
        "unavailable",
        "provisional",
        "pending",
        "tallied",
        "voting",
        "paused",
        "abstained",
        "undecided",
        "missing",
    ),
}
"""Tone in which a word is shown; every other one is idle."""
_TONES = {word: name for name, words in TONES.items() for word in words}


def tone(word: str) -> str:
    """Returns the tone of a verdict, a state or a cause."""
    return "bad" if word.endswith("tainted") else _TONES.get(word, "idle")


def condition(node: Node, now: int) -> str:
    """Returns the state of a node at the Unix second ``now``, in a word or two."""
    if node.withdrawn or node.retired_at:
        return "withdrawn" if node.withdrawn else "retired"
    if node.revoked:
        return "key revoked"
    if node.active_at > now:
        return "waiting"
    return "serving" if node.bond >= node.posted else "short of bond"


@cache
def environment() -> Environment:
    """Returns the templates, compiled; they escape all text and refuse names without a value."""
    made = Environment(
        loader=PackageLoader("ledger.explorer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_seen,
    )
    made.filters |= {
        "amount": links.amount,
        "when": links.when,
        "hashed": links.hashed,
        "number": links.number,
        "legible": links.legible,
        "quoted": links.quoted,
        "spell": spell,
    }
    made.filters |= {"bits": int.bit_count, "joined": int.__or__, "any_bit": any}
    made.globals |= {
        "style": f"{STATIC}{STYLE_NAME}",
        "tone": tone,
        "condition": condition,
        "short": links.short,
        "spelled": links.spelled,
    }
    for name in made.list_templates():
        made.get_template(name)  # compiled now, not in the first request: half a second in all
    return made


def _seen(value: object) -> object:
    """Returns text as a reader sees all of it; what is markup already, and what is no text, as it is."""
    return links.legible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(template: str, status: int, **context: Any) -> HTMLResponse:
    """Returns a page."""
    page = environment().get_template(template).render(context)
    return HTMLResponse(page.encode(errors="backslashreplace"), status, headers=HEADERS)


def style_sheet() -> Response:
    """Returns the style sheet."""
    return Response(STYLE, media_type="text/css", headers=FOREVER)
