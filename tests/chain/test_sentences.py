"""A contract's refusal as a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from eth_abi.abi import encode

from protocol.chain.abi import Entry, custom_errors
from protocol.chain.reverts import decode_revert
from protocol.chain.sentences import SENTENCES, TERMS
from tests.conftest import ROOT, TOKEN

SOURCES = sorted((ROOT / "contracts" / "src").rglob("*.sol"))
OURS = {name for source in SOURCES for name in re.findall(r"^\s*error (\w+)\(", source.read_text(), re.MULTILINE)}
ERRORS = {entry.name: entry for entry in custom_errors().values()}
VALUES = {"bool": True, "string": "seconds", "bytes32": b"\1" * 32, "address": "0x" + "11" * 20}


def said(entry: Entry, values: dict[str, object] | None = None) -> str:
    """The sentence for an error with these values, and others by type."""
    named = zip(entry.parameters, entry.input_types, strict=True)
    given = [(values or {}).get(name, VALUES.get(kind, 1)) for name, kind in named]
    return str(decode_revert(entry.selector + encode(entry.input_types, given)))


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_error_of_ours_is_one_sentence_with_its_name(name: str) -> None:
    text = said(ERRORS[name])
    assert text.startswith("the contract refused: ")
    assert text.endswith(f"({name})")
    assert "\n" not in text
    assert "{" not in text


def test_no_sentence_is_for_an_error_that_no_contract_has() -> None:
    assert set(SENTENCES) <= set(ERRORS)


def test_every_field_that_terms_may_be_refused_for_says_what_is_expected() -> None:
    fields = set(re.findall(r'BadTerms\("(\w+)"\)', Path(ROOT / "contracts" / "src" / "Market.sol").read_text()))
    assert fields == set(TERMS)
    assert "must fit into the longest round" in said(ERRORS["BadTerms"])


def test_amounts_are_tokens_times_are_clock_times_and_bitmaps_are_jobs() -> None:
    few = said(ERRORS["CreditTooSmall"], {"have": TOKEN, "need": 5 * TOKEN // 2})
    assert "has 1 ASZ in credits and needs 2.5 ASZ" in few
    assert "2001-09-09 01:46:40 UTC" in said(ERRORS["StruckOut"], {"until": 10**9})
    assert f"second {2**255}" in said(ERRORS["TooEarly"], {"deadline": 2**255})
    assert "these jobs are not accepted: 1, 3" in said(ERRORS["NotAccepted"], {"jobs": 0b1010})


def test_an_error_of_a_library_keeps_its_name_and_numbers() -> None:
    assert said(ERRORS["SafeCastOverflowedUintDowncast"]) == "reverted: SafeCastOverflowedUintDowncast(bits=1, value=1)"
