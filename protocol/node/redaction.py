"""Removes secrets from text that is to be passed on. PURE.

What is known to be private, such as the value of a setting or a line of a password file, is replaced by its name
wherever it stands, as it is or escaped. So is what only looks like a secret: credentials, paths and queries of URLs,
values named password or token, private keys, words of a seed phrase.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, urlsplit

LEAST_KNOWN = 6
"""Shortest value that is replaced as known: shorter ones are parts of ordinary words and numbers."""
SEED_WORDS = 12
"""Words of a seed phrase, at least."""

_SECRETS = (
    "passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|mnemonic|"
    "seed[_-]?phrase|authorization|cookie"
)
_SECRET = re.compile(_SECRETS, re.IGNORECASE)
_COUNT = r"tokens?[\w-]{0,40}[\"']?\s{0,4}[:=]\s{0,4}-?\d{1,15}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?(?:[\s,;}\]]|\Z)"
"""A number of tokens is none that opens anything; a password may be a number."""

_WORDS = re.compile(rf"\b[a-z]{{3,8}}(?:[ ,]{{1,3}}[a-z]{{3,8}}){{{SEED_WORDS - 1},}}\b")
_WORD = re.compile("[a-z]+")
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(-----BEGIN [A-Z ]{1,40}-----.*?(?:-----END [A-Z ]{1,40}-----|\Z))", re.DOTALL), lambda _: "<key>"),
    (re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]+)"), lambda match: shown_url(match[1])),
    (
        re.compile(
            rf"(?i)(?!{_COUNT})(?:{_SECRETS})[\w-]{{0,40}}[\"']?\s{{0,4}}[:=]\s{{0,4}}(?!\{{\s{{0,4}}[\"'}}])"
            r"(\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|(?:Bearer |Basic )?[^\s,;}]+)"
        ),
        lambda _: "***",
    ),
    (re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}([A-Za-z0-9+/=._~-]{8,})"), lambda _: "***"),
    (
        re.compile(r"(?<![0-9A-Za-z])(?:0x)?([0-9a-fA-F]{64,})(?![0-9A-Za-z])"),
        lambda match: f"{match[1][:6]}<{len(match[1])} digits>",
    ),
    (
        re.compile(r"(?<![\w/+-])((?!0x)(?=[\w+/-]*\d)(?=[\w+/-]*[A-Za-z])[\w+/-]{24,}={0,2})(?![\w+/=-])"),
        lambda _: "***",
    ),
)
"""What looks like a secret: the first group is replaced. Strangers write into logs, so no pattern looks twice at what
it has passed over: repetitions are bounded, or begin at the edge of a word."""

_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


class Redaction:
    """Removes secrets from texts.

    Args:
        known: private values by the name that replaces them.
        is_seed_word: returns whether a word may be one of a seed phrase.
    """

    def __init__(self, known: Mapping[str, str], is_seed_word: Callable[[str], bool] = lambda word: True) -> None:
        names: dict[str, str] = {}
        for name, value in known.items():
            for form in {value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1]}:
                if len(form) >= LEAST_KNOWN:
                    names.setdefault(form, name)
        self._names, self._is_seed_word = names, is_seed_word
        longest_first = sorted(names, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if names else None

    def __call__(self, text: str) -> str:
        """Returns the text without secrets. All are found in the text as it was: one never hides another."""
        found = sorted(self._found(text), key=lambda each: (each[0], -each[1]))
        shown, at = list[str](), 0
        for start, end, instead in found:
            if start >= at:
                shown += [text[at:start], instead]
            at = max(at, end)
        return "".join([*shown, text[at:]])

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yields the beginning and end of each secret, and what stands in its place."""
        for match in self._known.finditer(text) if self._known is not None else ():
            yield *match.span(), f"<{self._names[match[0]]}>"
        for pattern, instead in _PATTERNS:
            for match in pattern.finditer(text):
                yield *match.span(1), instead(match)
        for match in _WORDS.finditer(text):
            yield from self._seed_phrases(match)

    def _seed_phrases(self, match: re.Match[str]) -> Iterator[tuple[int, int, str]]:
        run: list[re.Match[str]] = []
        for word in (*_WORD.finditer(match[0]), None):
            if word is not None and self._is_seed_word(word[0]):
                run.append(word)
                continue
            if len(run) >= SEED_WORDS:
                yield match.start() + run[0].start(), match.start() + run[-1].end(), "<seed phrase>"
            run = []


def shown_url(url: str) -> str:
    """Returns of a URL its scheme, and host and port if it is this machine: any other part may be a key. PURE."""
    try:
        parts = urlsplit(url)
        local, port = is_local(parts.hostname), parts.port
    except ValueError:
        return "<URL>"
    where = f"{parts.hostname}{f':{port}' if port else ''}" if local else "<host>"
    more = "/***" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{where}{more}"


def names_secret(name: str) -> bool:
    """Returns whether what has this name is a secret. PURE."""
    return _SECRET.search(name) is not None


def is_local(host: str | None) -> bool:
    """Returns whether a host is this machine. PURE."""
    return host in _LOCAL
