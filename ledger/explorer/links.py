"""Links and values as markup. Each piece of text is escaped as it enters a template string; none is trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from protocol.amounts import UNIT, rounded, tokens

MOST_CHARACTERS = 300
"""Characters of a party's own text that a page shows; its length is said beside it."""
MOST_LINES = 60
"""Lines of a party's own text that a page shows."""
PICTURES = {code: chr(0x2400 + code) for code in range(32)} | {127: "\u2421"}
"""Control characters to their visible symbols (Unicode block Control Pictures)."""
FORMATTING = (
    *range(0x80, 0xA0),
    0x061C,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
)
"""Characters without a shape of their own, those that turn the direction of text among them."""
FOLDERS = {"node": "nodes", "validator": "nodes", "round": "rounds", "appeal": "rounds", "run": "runs"}
"""Word before a number to the folder of its page."""
NAMED = re.compile(
    r"\b(nodes?|validators?|rounds?|appeal|run) ([0-9]{1,18}(?:, [0-9]{1,18})*)\b(?!/)|\buntil ([0-9]{9,11})\b"
    r"|\b(0x[0-9a-fA-F]{40})\b|\b(0x[0-9a-fA-F]{64})\b",
    re.ASCII,
)
"""Mentions in the ledger's own sentences."""
VISIBLE = PICTURES | {code: f"⟨U+{code:04X}⟩" for code in FORMATTING}


@dataclass(frozen=True, slots=True)
class Links:
    """Links of one page; they carry ``as_of``, the hash of the block as of which it was asked, if there is one.

    ``base`` is the address of another server that they lead to. Without any, being None, their text stands alone.
    """

    as_of: str | None = None
    base: str | None = ""

    @property
    def leads(self) -> bool:
        """False where links are but their text."""
        return self.base is not None

    def url(self, path: str, /, **query: Any) -> str:
        """Returns an address on this server; of several slashes in front, which would name another host, one stays."""
        given = {name: value for name, value in query.items() if value is not None}
        if self.as_of is not None:
            given["as_of"] = self.as_of
        return (self.base or "") + "/" + quote(path.lstrip("/"), safe="/") + ("?" + urlencode(given) if given else "")

    def page(self, path: str, text: object, /, **query: Any) -> Markup:
        """Returns a link to a page."""
        shown = legible(text) if isinstance(text, str) and not isinstance(text, Markup) else text
        if self.base is None:
            return escape(shown)
        return Markup('<a href="{}">{}</a>').format(self.url(path, **query), shown)

    def run(self, number: int) -> Markup:
        """Returns a link to a run."""
        return self.page(f"/runs/{number}", number)

    def round(self, number: int) -> Markup:
        """Returns a link to a round, or the trial of an appeal."""
        return self.page(f"/rounds/{number}", number)

    def job(self, round_: int, job: int) -> Markup:
        """Returns a link to a job's story."""
        return self.page(f"/why/jobs/{round_}/{job}", f"{round_}/{job}")

    def node(self, number: int) -> Markup:
        """Returns a link to a node."""
        return self.page(f"/nodes/{number}", number)

    def version(self, run: int, version: int, text: object = None) -> Markup:
        """Returns a link to a checkpoint."""
        return self.page(f"/checkpoints/{run}/{version}", version if text is None else text)

    def entry(self, block: int, log: int, text: object) -> Markup:
        """Returns a link to the explanation of a movement of credits, or of a slash."""
        return self.page(f"/why/entries/{block}/{log}", text)

    def owner(self, address: str) -> Markup:
        """Returns a link to an owner: its address short, whole in the title."""
        return self._named(self.url(f"/credits/{address}"), address)

    def address(self, address: str) -> Markup:
        """Returns a link to everything known of an address that may be other than an owner's."""
        return self._named(self.url("/search", q=address), address)

    def linked(self, text: str, most: int = MOST_CHARACTERS) -> Markup:
        """Returns a sentence whose nodes, rounds, runs and addresses are links, and whose hashes are short."""
        parts, end = list[str](), 0
        for found in NAMED.finditer(text[:most]):
            parts += [escape(legible(text[end : found.start()])), self._mention(found)]
            end = found.end()
        parts.append(quoted(text[end:], most - end))
        return Markup("").join(parts)

    def _mention(self, found: re.Match[str]) -> Markup:
        word, numbers, second, address, digest = found.groups()
        if digest:
            return hashed(digest)
        if address:
            return self.address(address)
        if second:
            return Markup("until {}").format(when(int(second)))
        folder = FOLDERS[word.removesuffix("s")]
        each = [self.page(f"/{folder}/{number}", number) for number in numbers.split(", ")]
        return Markup("{} {}").format(word, Markup(", ").join(each))

    def tx(self, tx_hash: bytes | str, block: int | None = None) -> Markup:
        """Returns a link to a transaction; ``block`` saves asking the chain where it lies."""
        name = spelled(tx_hash)
        return self._named(self.url(f"/transactions/{name}", block=block), name)

    def _named(self, url: str, name: str) -> Markup:
        """Returns a link whose text is an address or hash, short, whole in the title."""
        if self.base is None:
            return hashed(name)
        link = '<a href="{}" title="{}"><code>{}</code></a>'
        return Markup(link).format(url, legible(name), short(name))


def spelled(value: bytes | str) -> str:
    """Returns a hash as text."""
    return value if isinstance(value, str) else "0x" + value.hex()


def short(value: bytes | str) -> str:
    """Returns an address or hash with its middle left out."""
    name = legible(spelled(value))
    return name if len(name) <= 14 else f"{name[:6]}…{name[-4:]}"


def hashed(value: bytes | str) -> Markup:
    """Returns a hash short, whole in the title."""
    return Markup('<code title="{}">{}</code>').format(legible(spelled(value)), short(value))


def amount(wei: int | str) -> Markup:
    """Returns an amount in tokens as it reads at a glance, with the exact one and its wei in the title."""
    if not isinstance(wei, int):  # a stored value that is no number; the audit names it
        return Markup("<bdi>{}</bdi>").format(legible(wei))
    exact = f"{wei} wei" if rounded(wei).replace(",", "") == tokens(wei).split()[0] else f"{tokens(wei)} = {wei} wei"
    text = '<data value="{}" title="{}">{} <abbr title="tokens of this market">{}</abbr></data>'
    return Markup(text).format(wei, exact, rounded(wei), UNIT)


def when(second: int) -> Markup:
    """Returns a Unix second as date and time in UTC; the number where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError, OSError, TypeError):
        return Markup("second {}").format(legible(second))
    machine = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    text = '<time datetime="{}">{} <abbr title="Coordinated Universal Time">UTC</abbr></time>'
    return Markup(text).format(machine, moment.strftime("%Y-%m-%d %H:%M:%S"))


def number(value: int | float | str) -> str:
    """Returns a number with separators between thousands, without a fraction of zero."""
    if isinstance(value, float):
        return f"{value:,.10g}"
    return f"{value:,}" if isinstance(value, int) else legible(value)


def measured(value: float) -> str:
    """Returns a measured number with five significant digits."""
    return f"{value:.5g}"


def passage(text: str, most_bytes: int) -> Markup:
    """Returns a party's own text of several lines, each isolated; what takes more bytes or lines than is fit is cut."""
    shown = "\n".join(text[:most_bytes].split("\n")[:MOST_LINES])
    while len((markup := _lines(shown)).encode()) > most_bytes:
        shown = shown[: len(shown) * 3 // 4]
    if len(shown) == len(text):
        return markup
    cut = '{}\n<span class="muted">… {} of {} characters</span>'
    return Markup(cut).format(markup, number(len(shown)), number(len(text)))


def _lines(text: str) -> Markup:
    return Markup("\n").join(Markup("<bdi>{}</bdi>").format(legible(line)) for line in text.split("\n"))


def legible(value: object) -> str:
    """Returns text in which each character is seen: controls, turns of direction and halves of pairs by name."""
    text = str(value).translate(VISIBLE)
    return "".join(f"⟨U+{ord(each):04X}⟩" if 0xD800 <= ord(each) < 0xE000 else each for each in text)


def quoted(value: object, most: int = MOST_CHARACTERS) -> Markup:
    """Returns a party's own text, isolated from the direction of the text around it; the end of long text is cut."""
    text = str(value)
    shown = Markup("<bdi>{}</bdi>").format(legible(text[:most]))
    if len(text) <= most:
        return shown
    return Markup('{}<span class="muted">… {} of {} characters</span>').format(shown, number(most), number(len(text)))
