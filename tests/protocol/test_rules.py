"""Rules are known by their hash: no other bytes will do."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.wire.rules import decode_rules, encode_rules, rules_hash
from tests.coordinator.swarm import RULES

ENCODED = encode_rules(RULES)


def test_rules_are_read_back_from_their_canonical_form() -> None:
    assert decode_rules(ENCODED, rules_hash(ENCODED)) == RULES


def test_what_is_around_a_prompt_and_stop_tokens_are_part_of_the_rules_only_where_they_are_set() -> None:
    assert b"prompt_" not in ENCODED
    assert b"stop_tokens" not in ENCODED
    chat = RULES.model_copy(update={"prompt_before": "<user>\n", "prompt_after": "</user>é", "stop_tokens": (2, 7)})
    encoded = encode_rules(chat)
    assert b'"prompt_after":"</user>\\u00e9","prompt_before":"<user>\\n"' in encoded
    assert b'"stop_tokens":[2,7]' in encoded
    assert decode_rules(encoded) == chat
    assert chat.prompt_text("1+1") == "<user>\n1+1</user>é"
    with pytest.raises(Rejected, match="canonical"):
        decode_rules(encoded.replace(b'"stop_tokens":[2,7],', b'"stop_tokens":[],'))
    with pytest.raises(Rejected, match="canonical"):
        decode_rules(encoded.replace(b'"prompt_before":"<user>\\n"', b'"prompt_before":""'))


def test_centring_and_clearing_are_part_of_the_rules_only_where_they_are_set() -> None:
    assert b"centring" not in ENCODED
    assert b"clearing" not in ENCODED
    fitted = RULES.sequential.model_copy(update={"centring": 0.75, "clearing": 0.25})
    rules = RULES.model_copy(update={"sequential": fitted})
    assert b'"centring":0.75,"clearing":0.25,' in encode_rules(rules)
    assert decode_rules(encode_rules(rules)) == rules
    assert RULES.sequential.least == -math.inf
    assert fitted.least == -0.25 * fitted.bound


@pytest.mark.parametrize("tokens", ["[7,2]", "[2,2]", "[-1]", "[16777216]", str(list(range(17)))])
def test_stop_tokens_are_in_order_and_few(tokens: str) -> None:
    encoded = encode_rules(RULES.model_copy(update={"stop_tokens": (2,)}))
    with pytest.raises(Rejected, match="stop_tokens"):
        decode_rules(encoded.replace(b'"stop_tokens":[2]', b'"stop_tokens":' + tokens.replace(" ", "").encode()))


def test_rules_of_another_hash_than_the_chains_are_refused_with_both() -> None:
    looser = RULES.model_copy(update={"thresholds": RULES.thresholds.model_copy(update={"sampling_void": 9.0})})
    other = encode_rules(looser)
    with pytest.raises(Rejected, match=rules_hash(ENCODED).hex()) as refused:
        decode_rules(other, rules_hash(ENCODED))
    assert rules_hash(other).hex() in str(refused.value)


@given(st.integers(0, len(ENCODED) - 1), st.integers(1, 255))
def test_no_byte_of_rules_can_change_unseen(place: int, change: int) -> None:
    changed = bytearray(ENCODED)
    changed[place] ^= change
    with pytest.raises(Rejected, match="hash to"):
        decode_rules(bytes(changed), rules_hash(ENCODED))


def test_rules_in_another_layout_are_refused() -> None:
    with pytest.raises(Rejected, match="canonical"):
        decode_rules(json.dumps(json.loads(ENCODED), indent=2).encode())
    with pytest.raises(Rejected, match=r"thresholds\.sampling_void"):
        decode_rules(ENCODED.replace(b'"sampling_void":', b'"sampling_void":-'))
    with pytest.raises(Rejected, match="bytes"):
        decode_rules(b" " * 70_000)
