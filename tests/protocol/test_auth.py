"""Signatures: only the right key, over exactly what was sent, in the one canonical form."""

from __future__ import annotations

import dataclasses
import json

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from protocol.wire import auth
from tests.conftest import ROOT

CHAIN_ID, NOW = 31337, 1_800_000_000
CONTRACT = "0x" + "11" * 20
AUDIENCE = auth.Audience(CHAIN_ID, CONTRACT, 7)
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def signed(signer, method="PUT", path="/rounds/1/jobs/2/artifact?x=1", body=b"bytes", nonce=2**255, deadline=NOW + 60):
    return auth.sign_request(signer, AUDIENCE, method, path, body, nonce, deadline)


def recovered(headers, method="PUT", path="/rounds/1/jobs/2/artifact?x=1", now=NOW, **audience):
    return auth.recover_request(headers, dataclasses.replace(AUDIENCE, **audience), method, path, now)


def test_a_request_names_who_signed_it(signer):
    assert recovered(signed(signer)) == auth.SignedRequest(signer.address, keccak(b"bytes"), 2**255, NOW + 60)
    lower = {name.lower(): value for name, value in signed(signer).items()}
    assert recovered(lower, method="put").address == signer.address


@pytest.mark.parametrize(
    "sent",
    [
        {"method": "POST"},
        {"path": "/rounds/1/jobs/3/artifact?x=1"},
        {"path": "/rounds/1/jobs/2/artifact?x=2"},
        {"path": "/rounds/1/jobs/2/artifact"},
        {"chain_id": 1},
        {"rounds": "0x" + "12" * 20},
        {"run": 8},
    ],
)
def test_a_request_sent_otherwise_than_it_was_signed_is_rejected(signer, sent):
    with pytest.raises(Rejected):
        recovered(signed(signer), **sent)


@pytest.mark.parametrize(
    "header",
    [
        {auth.HEADER_BODY: "0x" + keccak(b"Bytes").hex()},
        {auth.HEADER_BODY: "0x" + keccak(b"").hex()},
        {auth.HEADER_BODY: keccak(b"bytes").hex()},
        {auth.HEADER_BODY: ""},
        {auth.HEADER_RUN: "8"},
        {auth.HEADER_RUN: "-7"},
        {auth.HEADER_RUN: ""},
        {auth.HEADER_NONCE: "1"},
        {auth.HEADER_DEADLINE: str(NOW + 61)},
        {auth.HEADER_ADDRESS: "0x" + "00" * 20},
        {auth.HEADER_SIGNATURE: "0x" + "00" * 65},
        {auth.HEADER_SIGNATURE: "0x" + "11" * 64 + "1b"},
        {auth.HEADER_SIGNATURE: "0x1234"},
        {auth.HEADER_SIGNATURE: "nonsense"},
        {auth.HEADER_SIGNATURE: ""},
        {auth.HEADER_NONCE: "-1"},
        {auth.HEADER_NONCE: "٣"},
        {auth.HEADER_NONCE: str(2**256)},
        {auth.HEADER_NONCE: "9" * 5000},
    ],
)
def test_a_request_with_a_changed_header_is_rejected(signer, header):
    with pytest.raises(Rejected):
        recovered(signed(signer) | header)


def test_a_request_for_one_coordinator_is_rejected_by_another_also_under_its_own_name(signer):
    with pytest.raises(Rejected, match="is for the coordinator of run 7, this is the one of run 8"):
        recovered(signed(signer), run=8)
    with pytest.raises(Rejected, match="invalid signature"):
        recovered(signed(signer) | {auth.HEADER_RUN: "8"}, run=8)


def test_a_signed_request_is_a_golden_vector(signer):
    vector = json.loads((ROOT / "tests" / "vectors" / "request.json").read_text())
    audience = auth.Audience(**vector["audience"])
    body = bytes.fromhex(vector["body"][2:])
    given = (vector["method"], vector["path"], body, int(vector["nonce"]), vector["deadline"])
    assert auth.digest(auth.request(audience, *given[:2], keccak(body), *given[3:])).hex() == vector["digest"][2:]
    assert auth.sign_request(Wallet("vector", b"\x01" * 32), audience, *given) == vector["headers"]
    now = vector["deadline"] - 60
    assert auth.recover_request(vector["headers"], audience, *given[:2], now).body == keccak(body)


def test_an_unsigned_request_is_rejected():
    with pytest.raises(Rejected, match="not signed"):
        recovered({})


def test_a_deadline_must_lie_between_now_and_two_minutes_ahead(signer):
    recovered(signed(signer, deadline=NOW))
    recovered(signed(signer, deadline=NOW + 120))
    with pytest.raises(Rejected, match="passed"):
        recovered(signed(signer, deadline=NOW - 1))
    with pytest.raises(Rejected, match="ahead"):
        recovered(signed(signer, deadline=NOW + 121))


def test_the_second_signature_that_anyone_can_make_from_a_first_is_rejected(signer):
    message = auth.checkpoint(CHAIN_ID, CONTRACT, 1, 2, bytes(32))
    signature = signer.sign_typed(message)
    assert auth.recover(message, signature) == signer.address
    s = int.from_bytes(signature[32:64], "big")
    twin = signature[:32] + (ORDER - s).to_bytes(32, "big") + bytes([55 - signature[64]])
    with pytest.raises(Rejected):
        auth.recover(message, twin)
    for other in (signature[:64], signature + b"\x00", signature[:64] + bytes([signature[64] - 27])):
        with pytest.raises(Rejected):
            auth.recover(message, other)


@pytest.mark.parametrize(
    "message",
    [
        auth.evidence(1, CONTRACT, 1, 256, 1, bytes(32)),
        auth.evidence(1, CONTRACT, 2**256, 1, 1, bytes(32)),
        auth.evidence(1, "x", 1, 1, 1, bytes(32)),
        auth.evidence(-1, CONTRACT, 1, 1, 1, bytes(32)),
    ],
)
def test_a_message_with_a_value_that_its_field_cannot_hold_is_rejected(message):
    with pytest.raises(Rejected, match="invalid message"):
        auth.recover(message, b"\x01" * 64 + b"\x1b")


WORDS = st.integers(min_value=0, max_value=2**256 - 1)
AUDIENCES = st.builds(
    auth.Audience, WORDS, st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex()), WORDS
)


@given(AUDIENCES, st.text(max_size=8), st.text(max_size=80), st.binary(min_size=32, max_size=32), WORDS, WORDS)
def test_the_short_way_to_a_requests_digest_gives_the_one_that_wallets_sign(audience, method, path, body, nonce, until):
    sent = (audience, method, path, body, nonce, until)
    assert auth.request_digest(*sent) == auth.digest(auth.request(*sent))


@given(st.binary(min_size=65, max_size=65) | st.binary(max_size=70))
def test_any_bytes_are_rejected_or_belong_to_some_key(signature):
    try:
        address = auth.recover(auth.checkpoint(1, CONTRACT, 1, 1, bytes(32)), signature)
    except Rejected:
        return
    assert len(address) == 42


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (
            auth.node_binding(1, CONTRACT, "0x" + "22" * 20, "0x" + "33" * 20, 1, 8, 99),
            "NodeBinding(address owner,address key,uint8 role,uint32 capacity,uint256 deadline)",
        ),
        (
            auth.submission(1, CONTRACT, 5, 7, bytes(32), b"\x01\x02", "http://host/"),
            "Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)",
        ),
        (
            auth.checkpoint(1, CONTRACT, 5, 7, bytes(32)),
            "Checkpoint(uint256 run,uint32 version,bytes32 manifestRoot)",
        ),
        (
            auth.request(AUDIENCE, "GET", "/x", bytes(32), 1, 2),
            "Request(uint256 run,string method,string path,bytes32 body,uint256 nonce,uint256 deadline)",
        ),
    ],
)
def test_every_message_has_the_type_its_contract_hashes(message, encoded):
    fields = ",".join(f"{field['type']} {field['name']}" for field in message["types"][message["primaryType"]])
    assert f"{message['primaryType']}({fields})" == encoded
    signable = encode_typed_data(full_message=message)
    account = Account.create()
    assert auth.recover(message, bytes(account.sign_message(signable).signature)) == account.address
