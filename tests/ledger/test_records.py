"""Every event survives being kept as canonical JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.report import shown
from ledger.store.records import decode_event, encode_event
from protocol.chain.events import EVENTS, Event, RunFunded, VoteRevealed

events = st.sampled_from(sorted(EVENTS.values(), key=lambda kind: kind.__name__)).flatmap(st.builds)


@given(events)
def test_an_event_read_back_is_the_same(event: Event) -> None:
    text = encode_event(event)
    assert decode_event(type(event).__name__, text) == event
    assert encode_event(decode_event(type(event).__name__, text)) == text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False) == text


def test_json_holds_sorted_keys_decimal_strings_and_hexadecimal() -> None:
    assert encode_event(RunFunded(1, "0xA", 2**200, 3)) == (
        f'{{"amount":"{2**200}","escrow":"3","requester":"0xA","run":"1"}}'
    )
    revealed = VoteRevealed(1, 2, 0, 5, 0, b"\x04", bytes(32), b"\xff" * 32)
    assert json.loads(encode_event(revealed))["reasons"] == "0x04"


def test_values_are_shown_as_people_read_them() -> None:
    assert shown((1, b"\x0f")) == "1/0x0f"
