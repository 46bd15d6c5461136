"""Questions that are the same, or nearly: MinHash of runs of five words, banded, then compared exactly.

Two texts are one question if their normal forms are equal, or if both are long, have the same numbers in the same
order, and share four fifths of their runs of five words. Numbers must agree, as sums may differ by nothing else. PURE.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

SAME = 0.8
"""Least share of runs in common, of those in either text, of two texts that are one question."""
RUN, SHORT = 5, 8
"""Words of a run; below ``SHORT`` words a text is compared as a whole alone."""
BANDS, ROWS = 25, 5
_MOST_IN_A_BAND, _MOST_COMPARED = 32, 16
"""Bounds of the work for texts of one pattern: the first ones of a band, and the likeliest of a text."""
_LIKELY = 0.65
"""Estimated share below which two texts are not compared; at ``SAME`` an estimate deviates by 0.04."""
_PAIRS_AT_ONCE = 1 << 16

_WORD = re.compile(r"\d+|[^\W\d]+|[^\w\s]")
_NUMBERING = re.compile(r"\s*(?:(?:problem|example|exercise|question|task)\s*)?\d+(?:\.\d+)*\s*[.)]\s")
_DOMAIN = b"assize/tasks/held-out-question/1"
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
Flags = NDArray[np.bool_]


def normal(text: str) -> str:
    """Returns a text's words and signs in compatible forms and lower case, one space between them."""
    return " ".join(_words(text))


def digest_of(normal_text: str) -> bytes:
    """Returns 16 bytes that name a question."""
    return blake3(_DOMAIN + normal_text.encode()).digest(16)


def share_of(digest: bytes) -> float:
    """Returns the place of a question between 0 and 1, at random but always the same."""
    return int.from_bytes(digest[:8], "big") / 2**64


def near_duplicates(texts: Sequence[str]) -> Flags:
    """Tells of each text whether it is nearly an earlier one that stays. Equal texts are left to ``digest_of``."""
    words = [_words(_NUMBERING.sub("", text, count=1)) for text in texts]
    long = [index for index, found in enumerate(words) if len(found) >= SHORT]
    dropped = np.zeros(len(texts), np.bool_)
    if len(long) > 1:
        dropped[long] = _near([words[index] for index in long])
    return dropped


def _words(text: str) -> list[str]:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _WORD.findall(plain.casefold())


def _near(words: Sequence[Sequence[str]]) -> Flags:
    """Tells of each text, given as at least ``SHORT`` words, whether it is nearly an earlier one that stays."""
    runs, starts, numbers = _runs(words)
    minima = _minima(runs, starts)
    sizes = np.diff(np.append(starts, len(runs)))
    pairs = _candidates(minima, numbers)
    first, second = pairs // len(words), pairs % len(words)
    alike = np.minimum(sizes[first], sizes[second]) >= SAME * np.maximum(sizes[first], sizes[second])
    first, second = first[alike], second[alike]
    estimates = np.concatenate(
        [np.zeros(0)]
        + [
            (minima[first[at : at + _PAIRS_AT_ONCE]] == minima[second[at : at + _PAIRS_AT_ONCE]]).mean(axis=1)
            for at in range(0, len(first), _PAIRS_AT_ONCE)
        ]
    )
    likely = np.flatnonzero(estimates >= _LIKELY)
    likely = likely[np.lexsort((first[likely], -estimates[likely], second[likely]))]
    dropped = np.zeros(len(words), np.bool_)
    compared = np.zeros(len(words), np.int64)
    for earlier, later in zip(first[likely].tolist(), second[likely].tolist(), strict=True):
        if dropped[earlier] or dropped[later] or compared[later] >= _MOST_COMPARED:
            continue
        compared[later] += 1
        one, other = (runs[starts[index] : starts[index] + sizes[index]] for index in (earlier, later))
        common = len(np.intersect1d(one, other, assume_unique=True))
        dropped[later] = common >= SAME * (sizes[earlier] + sizes[later] - common)
    return dropped


def _runs(words: Sequence[Sequence[str]]) -> tuple[U64, NDArray[np.int64], U64]:
    """Returns the distinct runs of all texts, hashed, one text after another; their starts; a hash of a text's numbers.

    The hash of numbers is of all of them, in their order.
    """
    places: dict[str, int] = {}
    flat = np.fromiter(
        (places.setdefault(word, len(places)) for found in words for word in found), np.int64, sum(map(len, words))
    )
    digests = b"".join(hashlib.blake2b(word.encode(errors="replace"), digest_size=8).digest() for word in places)
    hashed = np.frombuffer(digests, "<u8").astype(np.uint64)
    is_number = np.fromiter((word[0].isdigit() for word in places), np.bool_, len(places))
    ends = np.cumsum([len(found) for found in words])
    begins = np.concatenate([[0], ends[:-1]])
    counted = np.cumsum(is_number[flat])
    place = counted - np.repeat(counted[begins] - is_number[flat[begins]], np.diff(np.append(begins, len(flat))))
    placed = _mixed(hashed[flat] + _PRIMES[1] * place.astype(np.uint64))
    of_numbers = np.add.reduceat(np.where(is_number[flat], placed, np.uint64(0)), begins)
    rolled = np.zeros(len(flat) - RUN + 1, np.uint64)
    for step in range(RUN):
        rolled = _mixed(rolled ^ hashed[flat[step : len(rolled) + step]])
    text_of = np.repeat(np.arange(len(words)), np.diff(np.append(begins, len(flat))))
    whole = text_of[: len(rolled)] == text_of[RUN - 1 :]
    rolled, text_of = rolled[whole], text_of[: len(whole)][whole]
    order = np.lexsort((rolled, text_of))
    rolled, text_of = rolled[order], text_of[order]
    new = np.ones(len(rolled), np.bool_)
    new[1:] = (rolled[1:] != rolled[:-1]) | (text_of[1:] != text_of[:-1])
    rolled, text_of = rolled[new], text_of[new]
    return rolled, np.searchsorted(text_of, np.arange(len(words))), of_numbers


def _minima(runs: U64, starts: NDArray[np.int64]) -> U32:
    """Returns for each text the least of its runs' hashes under each of many functions, as rows."""
    minima = np.empty((len(starts), BANDS * ROWS), np.uint32)
    high = (runs >> np.uint64(32)).astype(np.uint32)
    seeds = _mixed(np.arange(1, BANDS * ROWS + 1, dtype=np.uint64))
    for column, seed in enumerate(seeds):
        changed = high * np.uint32(seed | np.uint64(1)) + np.uint32(seed >> np.uint64(32))
        changed ^= changed >> np.uint32(15)
        changed *= np.uint32(0x85EBCA6B)
        minima[:, column] = np.minimum.reduceat(changed, starts)
    return minima


def _candidates(minima: U32, numbers: U64) -> NDArray[np.int64]:
    """Returns pairs of texts that agree in a band and in their numbers, each once, as ``earlier * texts + later``."""
    texts = len(minima)
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for band in range(BANDS):
        key = numbers.copy()
        for column in range(band * ROWS, band * ROWS + ROWS):
            key = _mixed(key ^ minima[:, column])
        order = np.argsort(key, kind="stable")
        fresh = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))
        sizes = np.diff(np.append(fresh, texts))
        begin = np.repeat(fresh, sizes)
        place = np.arange(texts) - begin
        for lead in range(min(_MOST_IN_A_BAND, int(sizes.max()) - 1)):
            later = np.flatnonzero(place > lead)
            found.append(order[begin[later] + lead] * texts + order[later])
    return np.unique(np.concatenate(found))


def _mixed(values: U64) -> U64:
    """Returns hashes of hashes: each bit of a value changes about half of the result's."""
    values = values + _PRIMES[0]
    values = (values ^ (values >> np.uint64(30))) * _PRIMES[1]
    values = (values ^ (values >> np.uint64(27))) * _PRIMES[2]
    return values ^ (values >> np.uint64(31))
