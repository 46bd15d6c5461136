"""Receipts in a URI: read back as written, and of no use for anything but what was signed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Misconfigured
from protocol.node.wallet import Wallet
from protocol.wire.assignments import Leaf, pack_leaves
from protocol.wire.receipts import (
    CLOCK_SECONDS,
    MAX_RECEIPTS,
    CarriedReceipt,
    Part,
    holders_of,
    missing_receipts,
    places_of,
    receipts_of,
    write_uri,
)
from protocol.wire.rules import ArtifactStore, Availability, decode_rules, encode_rules, rules_hash, with_stores
from tests.coordinator.swarm import RULES

NOW = 1_900_000_000
LEAVES = pack_leaves([Leaf(0, 5, b"\x01" * 32), Leaf(4, 6, b"\x02" * 32)])
PART = Part(31337, "0x" + "22" * 20, 3, 9, 7, LEAVES, "", NOW)
PLACE = "https://node.example/artifacts/"

signatures = st.binary(min_size=65, max_size=65)
receipts = st.builds(CarriedReceipt, st.integers(0, 255), st.integers(0, 2**32 - 1), signatures)
places = st.lists(st.sampled_from([PLACE, "http://a/", "https://b:81/x/"]), max_size=4)


@pytest.fixture
def keys(make_wallet: Callable[[str], Wallet]) -> list[Wallet]:
    return [make_wallet(f"store-{index}") for index in range(3)]


@pytest.fixture
def availability(keys: list[Wallet]) -> Availability:
    """Three stores, two of which must give receipts."""
    stores = tuple(ArtifactStore(key=key.address, url=f"http://store-{index}") for index, key in enumerate(keys))
    return Availability(stores=stores)


def given_by(keys: list[Wallet], *stores: int, part: Part = PART, time: int = NOW) -> Part:
    """The part, submitted with receipts that these stores signed for ``part``."""
    signed = [CarriedReceipt(store, time, keys[store].sign_typed(part.signed(time))) for store in stores]
    return replace(PART, uri=write_uri((PLACE,), signed))


@given(places, st.lists(receipts, max_size=MAX_RECEIPTS))
def test_what_is_written_is_read_back(held: list[str], signed: list[CarriedReceipt]) -> None:
    uri = write_uri(held, signed)
    assert (places_of(uri), receipts_of(uri)) == (tuple(held), tuple(signed))


@given(st.one_of(st.text(max_size=2000), st.from_regex(r"[a-z]{0,9}#[A-Za-z0-9_=-]{0,200}", fullmatch=True)))
def test_any_text_is_read_and_holds_receipts_only_in_one_spelling(uri: str) -> None:
    found = receipts_of(uri)
    assert len(places_of(uri)) <= 4
    assert not found or write_uri((), found) == "#" + uri.partition("#")[2]


def test_too_many_receipts_are_none() -> None:
    receipt = CarriedReceipt(0, 1, bytes(65))
    assert len(receipts_of(write_uri((), [receipt] * MAX_RECEIPTS))) == MAX_RECEIPTS
    assert receipts_of(write_uri((), [receipt] * (MAX_RECEIPTS + 1))) == ()


def test_the_runs_stores_are_asked_before_the_places_that_a_node_names(availability: Availability) -> None:
    stores = availability.stores
    own = [f"http://store-{index}/artifacts/" for index in range(3)]
    assert holders_of(f"{PLACE} http://store-1/artifacts/#xx", stores) == (*own, PLACE)
    assert holders_of("#", stores) == tuple(own)


def test_enough_stores_of_the_run_make_a_submission_available(keys: list[Wallet], availability: Availability) -> None:
    for stores in ((0, 1), (2, 0), (0, 1, 2), (1, 1, 2)):
        assert missing_receipts(availability, given_by(keys, *stores)) is None
    assert missing_receipts(None, PART) is None, "a run may name no stores"


def test_one_store_is_not_two(keys: list[Wallet], availability: Availability) -> None:
    for stores in ((), (1,), (1, 1)):
        lack = missing_receipts(availability, given_by(keys, *stores))
        assert lack is not None
        assert f"receipts of {len(set(stores))} of the run's stores: expected 2" in lack


@pytest.mark.parametrize(
    "change",
    [
        {"chain_id": 1},
        {"rounds": "0x" + "33" * 20},
        {"run": 4},
        {"round": 10},
        {"node": 8},
        {"leaves": PART.leaves[:41]},
        {"leaves": PART.leaves[:-1] + b"\x03"},
    ],
)
def test_a_receipt_for_another_part_is_none(
    keys: list[Wallet], availability: Availability, change: dict[str, object]
) -> None:
    assert missing_receipts(availability, given_by(keys, 0, 1, part=replace(PART, **change))) is not None  # type: ignore[arg-type]


def test_a_receipt_by_another_key_or_of_no_store_is_none(keys: list[Wallet], availability: Availability) -> None:
    swapped = [CarriedReceipt(1 - store, NOW, keys[store].sign_typed(PART.signed(NOW))) for store in (0, 1)]
    unknown = [CarriedReceipt(store, NOW, keys[2].sign_typed(PART.signed(NOW))) for store in (3, 255)]
    redated = [CarriedReceipt(store, NOW - 1, keys[store].sign_typed(PART.signed(NOW))) for store in (0, 1)]
    for forged in (swapped, unknown, redated):
        assert missing_receipts(availability, replace(PART, uri=write_uri((PLACE,), forged))) is not None


def test_a_receipt_of_a_later_time_than_the_submission_is_none(keys: list[Wallet], availability: Availability) -> None:
    assert missing_receipts(availability, given_by(keys, 0, 1, time=NOW + CLOCK_SECONDS)) is None
    assert missing_receipts(availability, given_by(keys, 0, 1, time=NOW + CLOCK_SECONDS + 1)) is not None


def test_rules_name_enough_stores_and_say_nothing_where_they_name_none(availability: Availability) -> None:
    assert b"availability" not in encode_rules(RULES)
    rules = with_stores(RULES, availability.stores, 2)
    assert decode_rules(encode_rules(rules), rules_hash(encode_rules(rules))) == rules
    with pytest.raises(Misconfigured, match="4 receipts from 3 stores"):
        with_stores(RULES, availability.stores, 4)
    with pytest.raises(Misconfigured, match="two stores have one key"):
        with_stores(RULES, [availability.stores[0]] * 2, 1)
