"""Raw logs to typed events.

Each event gets its decoder once, from the ABI. If every field is one 32-byte word, as in most events, the words are cut
directly, which costs a tenth of a general decoder; the other events go through ``eth_abi``.

    topics   topic0 = keccak(signature) | indexed fields, one word each
    data     the other fields, ABI-encoded
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from itertools import count
from typing import Any

from eth_abi.abi import decode as abi_decode
from eth_utils.crypto import keccak

from protocol.chain.abi import CONTRACTS, artifact, canonical_type, checksummed, converter, decoded_type
from protocol.chain.block import Block
from protocol.chain.events import EVENTS, Event, Log

DIGITS = 64
"""Hexadecimal digits of one 32-byte word."""

Decode = Callable[[list[str], str], Event]
"""Topics and data, 0x-hexadecimal as RPCs return them, to the event."""

Cut = Callable[[str], Any]
"""A word's hexadecimal digits, with or without 0x, to its value."""


@functools.cache
def decoders() -> dict[str, dict[str, Decode]]:
    """Returns decoders by contract name and topic0 (0x-hex, lower case); events without a type are left out."""
    return {contract: _contract_decoders(contract) for contract in CONTRACTS}


def decode_event(contract: str, topics: list[str], data: str) -> Event | None:
    """Returns the typed event of one raw log, or None for an event that Assize does not use."""
    decode = decoders()[contract].get(topics[0]) if topics else None
    return decode(topics, data) if decode else None


def _contract_decoders(contract: str) -> dict[str, Decode]:
    entries = (entry for entry in artifact(contract)["abi"] if entry["type"] == "event" and entry["name"] in EVENTS)
    return {topic_of(entry): _decoder(entry) for entry in entries}


def topic_of(entry: dict[str, Any]) -> str:
    """Returns topic0 of an ABI event entry."""
    types = ",".join(canonical_type(part) for part in entry["inputs"])
    return "0x" + keccak(text=f"{entry['name']}({types})").hex()


def _decoder(entry: dict[str, Any]) -> Decode:
    cls = EVENTS[entry["name"]]
    parts = entry["inputs"]
    cuts = [_word_cut(part) for part in parts]
    data_parts = [part for part in parts if not part["indexed"]]
    if all(cut is not None for cut in cuts):
        return _words_decoder(cls, [bool(part["indexed"]) for part in parts], [cut for cut in cuts if cut])
    return _general_decoder(cls, parts, data_parts)


def _words_decoder(cls: type[Event], indexed: list[bool], cuts: list[Cut]) -> Decode:
    """Returns a decoder that cuts words at known places and fills the event's slots, written out and compiled.

    A loop over the fields takes a third longer, and ``make bench-mirror`` then misses its mark against ranges. Setting
    slots takes little more than half the time of a frozen dataclass's ``__init__``. For a transfer:

        def decode(topics, data):
            if len(topics) != 3 or len(data) < 66:
                raise ValueError("the log has not the fields of Transfer")
            it = new(cls)
            set0(it, cut0(topics[1]))
            set1(it, cut1(topics[2]))
            set2(it, cut2(data[2:66]))
            return it
    """
    topics_wanted, digits_wanted = 1 + sum(indexed), 2 + DIGITS * (len(indexed) - sum(indexed))
    topics, starts = count(1), count(2, DIGITS)
    words = [f"topics[{next(topics)}]" if of else f"data[{(at := next(starts))}:{at + DIGITS}]" for of in indexed]
    lines = [
        "def decode(topics, data):",
        f"    if len(topics) != {topics_wanted} or len(data) < {digits_wanted}:",
        f"        raise ValueError('the log has not the fields of {cls.__name__}')",
        "    it = new(cls)",
        *[f"    set{place}(it, cut{place}({word}))" for place, word in enumerate(words)],
        "    return it",
    ]
    names: dict[str, Any] = {"new": object.__new__, "cls": cls}
    for place, (cut, field) in enumerate(zip(cuts, fields(cls), strict=True)):
        names |= {f"cut{place}": cut, f"set{place}": getattr(cls, field.name).__set__}
    exec("\n".join(lines), names)
    decode: Decode = names["decode"]
    return decode


def _general_decoder(cls: type[Event], parts: list[dict[str, Any]], data_parts: list[dict[str, Any]]) -> Decode:
    types = [decoded_type(part) for part in data_parts]
    converts = [converter(part) for part in parts]
    indexed = [canonical_type(part) if part["indexed"] else None for part in parts]

    topics_wanted = 1 + sum(kind is not None for kind in indexed)

    def decode(topics: list[str], data: str) -> Event:
        if len(topics) != topics_wanted:
            raise ValueError(f"the log has not the fields of {cls.__name__}")
        words, rest = iter(topics[1:]), iter(abi_decode(types, bytes.fromhex(data[2:])))
        raw = [
            next(rest) if kind is None else abi_decode([kind], bytes.fromhex(next(words)[2:]))[0] for kind in indexed
        ]
        return cls(*[convert(value) for convert, value in zip(converts, raw, strict=True)])

    return decode


def _word_cut(part: dict[str, Any]) -> Cut | None:
    """Returns what reads a word of this type, or None if the type takes more than a word."""
    kind, convert = part["type"], converter(part) if not part["type"].startswith("tuple") else None
    if kind.startswith("uint") and "[" not in kind and convert is not None:
        return _enum_cut(convert) if str(part.get("internalType", "")).startswith("enum ") else _unsigned
    return _SIMPLE_CUTS.get(kind)


_SIMPLE_CUTS: dict[str, Cut] = {
    "address": functools.lru_cache(maxsize=65536)(lambda word: checksummed("0x" + word[-40:])),
    "bytes32": lambda word: bytes.fromhex(word[-DIGITS:]),
    "bool": lambda word: word[-1] == "1",
}


def _enum_cut(convert: Callable[[Any], Any]) -> Cut:
    return lambda word: convert(int(word, 16))


def _unsigned(word: str) -> int:
    return int(word, 16)


@functools.lru_cache(maxsize=1024)
def hash_of(digits: str) -> bytes:
    """Returns the bytes of a 0x-hexadecimal hash, cached: the logs of one transaction share them."""
    return bytes.fromhex(digits[2:])


def log_of(raw: dict[str, Any], contract: str, block: Block) -> Log | None:
    """Returns the typed log of ``block`` from the RPC's raw log, or None for an event that Assize does not use."""
    event = decode_event(contract, raw["topics"], raw["data"])
    if event is None:
        return None
    # Positional arguments take half the time of keywords.
    return Log(
        block.number, block.hash, hash_of(raw["transactionHash"]), int(raw["logIndex"], 16), block.timestamp, event
    )
