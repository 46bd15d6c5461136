"""Amounts as people type and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amounts import coin, positive_wei, tokens, wei_of
from protocol.errors import Misconfigured
from tests.conftest import TOKEN


@given(st.integers(0, 2**128 - 1))
def test_a_printed_amount_is_the_same_amount_when_typed(wei: int) -> None:
    assert wei_of(tokens(wei)) == wei


@pytest.mark.parametrize(
    ("typed", "wei"),
    [
        ("48", 48 * TOKEN),
        ("1.5", TOKEN * 3 // 2),
        (".5", TOKEN // 2),
        ("20 ASZ", 20 * TOKEN),
        ("20asz", 20 * TOKEN),
        ("1,250", 1250 * TOKEN),
        (" 0.000000000000000001 ", 1),
        ("1.500000000000000000000", TOKEN * 3 // 2),
        ("5wei", 5),
        ("5 wei", 5),
    ],
)
def test_a_number_without_a_unit_counts_tokens(typed: str, wei: int) -> None:
    assert wei_of(typed) == wei


@pytest.mark.parametrize(
    "typed",
    [
        *(
            "",
            ".",
            "-1",
            "+1",
            "1e18",
            "0x10",
            "1_000",
            "1,5",
            "12,34,567",
            "many",
            "5 gwei",
            "1.5wei",
            "1.0wei",
        ),
        *("5 ASZ ASZ", "ASZ", "1.2.3", "١", "nan", "inf", "0.0000000000000000001", "all", "1  ASZ"),
    ],
)
def test_what_is_no_amount_is_refused_with_the_forms_that_are(typed: str) -> None:
    with pytest.raises(Misconfigured, match="invalid amount") as refused:
        wei_of(typed)
    assert repr(typed) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_is_everything_there_is_where_it_has_a_meaning() -> None:
    assert wei_of("all", most=7) == 7
    for typed, most in (("all", 0), ("0", None), ("0wei", 5)):
        with pytest.raises(Misconfigured, match="it is 0, expected more"):
            positive_wei(typed, most)


def test_gas_is_paid_in_another_coin() -> None:
    assert (tokens(TOKEN * 3 // 2), coin(10**15), tokens(-TOKEN)) == ("1.5 ASZ", "0.001 coin", "-1 ASZ")
