"""Rendering: templates to pages with strict headers, and style sheets and scripts under the hashes of their bytes.

Scripts are bundled into ``static/built`` when an environment is set up. Pages are whole without them.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from ledger.explorer import links
from ledger.explorer.chart import chart, legend
from ledger.explorer.negotiation import STATIC
from ledger.explorer.series import series_of
from ledger.facts import Node
from protocol.times import spell

BUILT = files("ledger.explorer").joinpath("static", "built")
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html"}

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
    "bad": (
        "fraud",
        "failed",
        "overturned",
        "absence",
        "short of bond",
        "significant",
        "strike",
        "differs from its evidence",
    ),
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
        "doubtful",
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


@dataclass(frozen=True, slots=True)
class Asset:
    """A style sheet or script; its ``name`` on the server has the hash of its bytes."""

    name: str
    data: bytes

    @property
    def url(self) -> str:
        """Address on the server."""
        return STATIC + self.name


@cache
def asset(name: str) -> Asset | None:
    """Returns the style sheet or script of a name, such as ``explorer.js``; None if it was not built."""
    own = files("ledger.explorer").joinpath("static", name)
    found = own if own.is_file() else BUILT.joinpath(name)
    if not found.is_file():
        return None
    data, (stem, _, suffix) = found.read_bytes(), name.rpartition(".")
    return Asset(f"{stem}.{hashlib.sha256(data).hexdigest()[:16]}.{suffix}", data)


@cache
def assets() -> dict[str, Asset]:
    """Returns every style sheet and script by its name on the server."""
    folders = (files("ledger.explorer").joinpath("static"), *([BUILT] if BUILT.is_dir() else []))
    names = {each.name for folder in folders for each in folder.iterdir()}
    found = (asset(name) for name in names if name.rpartition(".")[2] in MEDIA_TYPES)
    return {each.name: each for each in found if each}


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
        "passage": links.passage,
        "measured": links.measured,
        "spell": spell,
    }
    made.filters |= {"bits": int.bit_count, "joined": int.__or__, "any_bit": any}
    made.globals |= {
        "asset": asset,
        "tone": tone,
        "condition": condition,
        "short": links.short,
        "spelled": links.spelled,
        "series_of": series_of,
        "chart": chart,
        "legend": legend,
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


def render_file(template: str, **context: Any) -> bytes:
    """Returns a page that is whole in one file: with its style sheet, and a policy under which it loads nothing."""
    found = asset("explorer.css")
    assert found
    style = base64.b64encode(hashlib.sha256(found.data).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    sheet = Markup(found.data.decode())  # our own, and the policy names its hash
    page = environment().get_template(template).render(context, policy=policy, sheet=sheet, alone=True)
    return page.encode(errors="backslashreplace")


def static(name: str) -> Response | None:
    """Returns a style sheet or script by its name on the server, to be kept for good; None if there is no such."""
    found = assets().get(name)
    if found is None:
        return None
    kind = name.rpartition(".")[2]
    kept = FOREVER | (
        {"Content-Disposition": f'attachment; filename="assize-{name.partition(".")[0]}.html"'}
        if kind == "html"
        else {}
    )
    return Response(found.data, media_type=MEDIA_TYPES[kind], headers=kept)
