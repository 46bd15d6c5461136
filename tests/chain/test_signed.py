"""Signed transactions of strangers: each is decoded as it is, or refused with a sentence."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.abi import CONTRACTS
from protocol.chain.deployment import Deployment
from protocol.chain.writing import calls
from protocol.chain.writing.signed import MOST_BYTES, decoded
from protocol.errors import Rejected
from protocol.node.wallet import Wallet

ADDRESSES = {name: "0x" + f"{number:02x}" * 20 for number, name in enumerate(CONTRACTS, 0x11)}
DEPLOYMENT = Deployment.from_json(
    {"chainId": 31337, "startBlock": 1, "startHash": "0x" + "22" * 32, "contracts": ADDRESSES}
)
ALICE = Wallet("alice", bytes(31) + b"\7")
DRIP = calls.drip(DEPLOYMENT, ALICE.address, 5)

KINDS: dict[str, dict[str, Any]] = {
    "legacy": {"gasPrice": 7},
    "with an access list": {"type": 1, "gasPrice": 7, "accessList": []},
    "of London": {"type": 2, "maxFeePerGas": 7, "maxPriorityFeePerGas": 1},
}


def signed(**changed: Any) -> bytes:
    fields = {"chainId": 31337, "nonce": 3, "to": DRIP.to, "value": 0, "gas": 90_000, "data": DRIP.data}
    return ALICE.sign_transaction({name: value for name, value in (fields | changed).items() if value is not None})


@pytest.mark.parametrize("kind", KINDS)
def test_every_usual_kind_is_decoded(kind: str) -> None:
    found = decoded(signed(**KINDS[kind]), DEPLOYMENT)
    assert (found.sender, found.nonce, found.gas, found.max_fee, found.chain_id) == (ALICE.address, 3, 90_000, 7, 31337)
    assert found.call == DRIP


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"data": b""}, "send 0 coin to 0x"),
        ({"data": DRIP.data[:-1]}, "a call of Token that it does not have"),
        ({"data": b"\1\2\3\4"}, "a call of Token that it does not have (0x01020304, 4 bytes)"),
        ({"to": "0x" + "99" * 20}, "none of the deployment's contracts"),
        ({"to": None, "data": b"\1"}, "create a contract"),
    ],
)
def test_what_a_transaction_does_is_said_in_words(changed: dict[str, Any], words: str) -> None:
    assert words in decoded(signed(**KINDS["of London"], **changed), DEPLOYMENT).call.description


def test_a_transaction_for_any_chain_and_one_too_long_are_refused() -> None:
    with pytest.raises(Rejected, match="it names no chain"):
        decoded(signed(gasPrice=7, chainId=None), DEPLOYMENT)
    with pytest.raises(Rejected, match="nodes take at most"):
        decoded(bytes(MOST_BYTES + 1), DEPLOYMENT)


@given(
    st.sampled_from(list(KINDS)),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    st.integers(0, 300),
)
def test_damaged_bytes_are_refused_or_decoded_and_nothing_else(
    kind: str, damage: list[tuple[int, int]], length: int
) -> None:
    raw = bytearray(signed(**KINDS[kind]))
    for place, value in damage:
        raw[place % len(raw)] = value
    with suppress(Rejected):
        assert decoded(bytes(raw[:length] if length < 100 else raw), DEPLOYMENT).call.description


@given(st.binary(max_size=200))
def test_garbage_is_refused(raw: bytes) -> None:
    with pytest.raises(Rejected):
        decoded(raw, DEPLOYMENT)
