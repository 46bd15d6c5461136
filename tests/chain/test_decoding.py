"""The committed ABI and our types agree, field by field; decoding gives back what was encoded."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from eth_abi.abi import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain import abi
from protocol.chain.events import EVENTS, RunOpened, Submitted, VoteCommitted
from protocol.chain.reading.decoding import decode_event, decoders, topic_of
from protocol.chain.structs import STRUCTS, RunTerms

ENTRIES = [(name, entry) for name in abi.CONTRACTS for entry in abi.artifact(name)["abi"]]
NO_MEANING = {
    "EIP712DomainChanged",
    "DefaultAdminDelayChangeCanceled",
    "DefaultAdminDelayChangeScheduled",
    "DefaultAdminTransferCanceled",
    "DefaultAdminTransferScheduled",
    "RoleAdminChanged",
    "RoleGranted",
    "RoleRevoked",
}


def snake(name: str) -> str:
    """Solidity's name as ours."""
    if name == "from":
        return "from_"
    return "void_jobs" if name == "void_" else re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), name)


def entry_of(contract: str, name: str) -> dict:
    """One ABI entry."""
    return next(entry for entry in abi.artifact(contract)["abi"] if entry.get("name") == name)


def test_every_event_of_the_contracts_has_a_type_with_its_fields_in_order() -> None:
    for contract, entry in ENTRIES:
        if entry["type"] != "event" or entry["name"] in NO_MEANING:
            continue
        ours = [field.name for field in fields(EVENTS[entry["name"]])]
        theirs = [snake(part["name"]) for part in entry["inputs"]]
        if contract == "Token" and entry["name"] == "Transfer":
            theirs[0] = "sender"
        assert ours == theirs, entry["name"]
        assert topic_of(entry) in decoders()[contract]


def test_every_struct_of_the_contracts_has_a_type_with_its_fields_in_order() -> None:
    seen = set()

    def walk(part: dict) -> None:
        for inner in part.get("components", ()):
            walk(inner)
        if part["type"].startswith("tuple"):
            name = part["internalType"].removeprefix("struct ").split("[")[0]
            seen.add(name)
            assert [f.name for f in fields(STRUCTS[name])] == [snake(c["name"]) for c in part["components"]]

    for _, entry in ENTRIES:
        for part in [*entry.get("inputs", ()), *entry.get("outputs", ())]:
            walk(part)
    assert seen == set(STRUCTS)


def test_no_event_is_defined_that_no_contract_emits() -> None:
    assert set(EVENTS) <= {entry["name"] for _, entry in ENTRIES if entry["type"] == "event"}


@given(st.integers(0, 2**256 - 1), st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(min_size=32, max_size=32))
def test_an_event_of_plain_words_decodes_to_what_was_emitted(
    number: int, juror: int, attempt: int, word: bytes
) -> None:
    topics = [topic_of(entry_of("Rounds", "VoteCommitted")), f"0x{number:064x}", f"0x{juror:064x}"]
    data = "0x" + encode(["uint8", "bytes32"], [attempt, word]).hex()
    assert decode_event("Rounds", topics, data) == VoteCommitted(number, juror, attempt, word)


@given(st.binary(max_size=200), st.text(max_size=40).filter(lambda text: text.isprintable()), st.binary(max_size=70))
def test_an_event_with_bytes_and_text_decodes_to_what_was_emitted(leaves: bytes, uri: str, signature: bytes) -> None:
    topics = [topic_of(entry_of("Rounds", "Submitted")), f"0x{7:064x}", f"0x{3:064x}"]
    data = encode(["uint8", "bytes32", "bytes", "string", "bytes"], [1, b"\1" * 32, leaves, uri, signature])
    assert decode_event("Rounds", topics, "0x" + data.hex()) == Submitted(7, 3, 1, b"\1" * 32, leaves, uri, signature)


def test_a_struct_inside_an_event_becomes_its_type() -> None:
    entry = entry_of("Market", "RunOpened")
    terms = ("0x" + "aB" * 20, "0x" + "0c" * 20, b"\2" * 32, 5, 6, 7, 3, 0, 10, 11, 12, 13, 0)
    data = encode([abi.canonical_type(entry["inputs"][2]), "bytes32", "string"], [terms, b"\3" * 32, "here"])
    topics = [topic_of(entry), f"0x{1:064x}", "0x" + "00" * 12 + "11" * 20]
    event = decode_event("Market", topics, "0x" + data.hex())
    assert isinstance(event, RunOpened)
    assert isinstance(event.terms, RunTerms)
    assert event.terms.coordinator == abi.checksummed("0x" + "ab" * 20)
    assert event.terms.juror_fee == 6


@pytest.mark.parametrize(("contract", "name"), [("Rounds", "Submitted"), ("Token", "Transfer")])
def test_a_log_with_too_few_topics_is_refused(contract: str, name: str) -> None:
    entry = entry_of(contract, name)
    data = encode([part["type"] for part in entry["inputs"] if not part["indexed"]], _zeros(entry))
    with pytest.raises(ValueError, match=f"not the fields of {name}"):
        decode_event(contract, [topic_of(entry), f"0x{1:064x}"], "0x" + data.hex())


def _zeros(entry: dict) -> list[object]:
    empty: dict[str, object] = {"string": "", "bytes": b"", "bytes32": bytes(32)}
    return [empty.get(part["type"], 0) for part in entry["inputs"] if not part["indexed"]]


def test_an_unknown_topic_is_no_event_of_ours() -> None:
    assert decode_event("Rounds", ["0x" + "00" * 32], "0x") is None
    assert decode_event("Rounds", [], "0x") is None


@pytest.mark.parametrize("contract", abi.CONTRACTS)
def test_calldata_decodes_to_its_arguments(contract: str) -> None:
    for function in abi.functions(contract).values():
        if set(function.input_types) <= {"uint256", "uint32"}:
            arguments = tuple(range(1, len(function.input_types) + 1))
            assert decode(function.input_types, function.encode(*arguments)[4:]) == arguments


def test_a_string_that_is_no_utf8_stops_nobody() -> None:
    entry = next(each for each in abi.artifact("Rounds")["abi"] if each.get("name") == "Submitted")
    data = encode(
        ["uint8", "bytes32", "bytes", "bytes", "bytes"], [0, b"\1" * 32, b"leaves", b"http://\xff\xfe/", b"s"]
    )
    topics = [topic_of(entry), "0x" + (1).to_bytes(32, "big").hex(), "0x" + (2).to_bytes(32, "big").hex()]
    event = decode_event("Rounds", topics, "0x" + data.hex())
    assert isinstance(event, Submitted)
    assert event.uri == "http://\ufffd\ufffd/"
    assert (event.round, event.node, event.leaves) == (1, 2, b"leaves")
