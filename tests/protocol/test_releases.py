"""The least version that rules ask for: an optional part of them, compared by numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Misconfigured, Rejected
from protocol.node.release import behind
from protocol.wire.releases import is_older, release_numbers
from protocol.wire.rules import decode_rules, encode_rules, rules_hash, with_least_version
from tests.coordinator.swarm import RULES

NUMBERS = st.tuples(*[st.integers(0, 999_999)] * 3)


def test_a_least_version_is_part_of_the_rules_only_where_it_is_set() -> None:
    assert b"least_version" not in encode_rules(RULES)
    asking = with_least_version(RULES, "0.3")
    encoded = encode_rules(asking)
    assert b'"least_version":"0.3",' in encoded
    assert decode_rules(encoded, rules_hash(encoded)) == asking


@pytest.mark.parametrize("text", ["", "1.2.3.4", "01.2", "v1", "1.", "1.2rc1", "-1", "1e3", "9999999", "1.2 ", "१.२"])
def test_other_forms_of_a_least_version_are_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="expected numbers such as"):
        with_least_version(RULES, text)
    encoded = encode_rules(with_least_version(RULES, "0.3")).decode()
    with pytest.raises(Rejected):
        decode_rules(encoded.replace('"0.3"', f'"{text}"').encode())


@given(NUMBERS, NUMBERS)
def test_versions_are_compared_by_their_numbers(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert is_older(".".join(map(str, first)), ".".join(map(str, second))) == (first < second)


def test_missing_numbers_are_nought_and_what_follows_numbers_does_not_count() -> None:
    assert [release_numbers(text) for text in ("0.3", "1", "0.3.1rc2", "0.3.1+local.7", "1.2.dev3")] == [
        *((0, 3, 0), (1, 0, 0), (0, 3, 1), (0, 3, 1), (1, 2, 0)),
    ]
    with pytest.raises(Misconfigured, match="invalid version 'none'"):
        release_numbers("none")


def test_the_sentence_says_what_is_asked_for_what_this_is_and_from_when() -> None:
    asking = with_least_version(RULES, "0.3.1")
    assert [behind(7, RULES), behind(7, asking, own="0.3.1"), behind(7, asking, own="1.0")] == ["", "", ""]
    assert behind(7, asking, own="0.3.0") == (
        "run 7 asks for assize 0.3.1 or later, and this is 0.3.0: see assize update"
    )
    assert "or later from 2033-05-18 03:33:20 UTC on, and this is 0.2" in behind(7, asking, 2_000_000_000, "0.2")
