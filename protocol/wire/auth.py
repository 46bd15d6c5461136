"""Signatures: every EIP-712 message of the protocol, with its builder and its recovery.

    message       domain (name, version "1", chain id, contract)    signed by      checked by
    NodeBinding   Assize Registry, Registry                         node key       Registry
    Submission    Assize Rounds, Rounds                             node key       Rounds, coordinator, validators
    Checkpoint    Assize Market, Market                             trainer key    every reader of a manifest
    Evidence      Assize Evidence, Rounds                           node key       coordinator, readers of evidence
    Request       Assize Request, Rounds                            node key       coordinator

A request to a coordinator carries four headers, `Assize-Address`, `Assize-Nonce`, `Assize-Deadline` and
`Assize-Signature`, over contract, method, path with query, keccak of the body, nonce and deadline. A server that
accepts one must keep its nonce at least until its deadline. Nothing here reads a clock or a key: `now` is passed in,
and functions that sign take a `Signer`. PURE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eth_account.messages import encode_typed_data
from eth_keys.datatypes import Signature
from eth_utils import keccak

from protocol.errors import Rejected

TypedData = dict[str, Any]
"""A full EIP-712 message: types, primaryType, domain and message."""

MAX_REQUEST_SECONDS = 120
"""Largest distance of a request's deadline, and so the longest time that a nonce must be remembered."""

HEADER_ADDRESS = "Assize-Address"
HEADER_NONCE = "Assize-Nonce"
HEADER_DEADLINE = "Assize-Deadline"
HEADER_SIGNATURE = "Assize-Signature"

_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_DOMAIN_FIELDS = (("name", "string"), ("version", "string"), ("chainId", "uint256"), ("verifyingContract", "address"))


class Signer(Protocol):
    """Holder of a key. Only the wallet implements it, so nothing else reads private keys."""

    @property
    def address(self) -> str:
        """The checksummed address of the key."""

    def sign_typed(self, message: TypedData) -> bytes:
        """Returns the 65-byte signature r ‖ s ‖ v of an EIP-712 message, s in the lower half."""


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request with a valid signature: its signer, and the nonce to keep until the deadline (unix seconds)."""

    address: str
    nonce: int
    deadline: int


def node_binding(
    chain_id: int, registry: str, owner: str, key: str, role: int, capacity: int, deadline: int
) -> TypedData:
    """Returns the node key's consent to serve ``owner``: ``deadline`` in unix seconds, ``role`` as in `Registry`."""
    fields = (
        ("owner", "address", owner),
        ("key", "address", key),
        ("role", "uint8", role),
        ("capacity", "uint32", capacity),
        ("deadline", "uint256", deadline),
    )
    return _typed("Assize Registry", chain_id, registry, "NodeBinding", fields)


def submission(
    chain_id: int, rounds: str, round_id: int, node: int, beacon: bytes, leaves: bytes, uri: str
) -> TypedData:
    """Returns a node's claim for its jobs of a round: packed ``leaves``, and the ``uri`` of their artifacts."""
    fields = (
        ("round", "uint256", round_id),
        ("node", "uint32", node),
        ("beacon", "bytes32", beacon),
        ("leaves", "bytes", leaves),
        ("uri", "string", uri),
    )
    return _typed("Assize Rounds", chain_id, rounds, "Submission", fields)


def checkpoint(chain_id: int, market: str, run: int, version: int, manifest_root: bytes) -> TypedData:
    """Returns the trainer's statement that ``version`` of ``run`` is the manifest with this root."""
    fields = (("run", "uint256", run), ("version", "uint32", version), ("manifestRoot", "bytes32", manifest_root))
    return _typed("Assize Market", chain_id, market, "Checkpoint", fields)


def evidence(chain_id: int, rounds: str, round_id: int, attempt: int, juror: int, root: bytes) -> TypedData:
    """Returns a juror's statement that its bundle for one attempt at a round has this ``root``."""
    fields = (
        ("round", "uint256", round_id),
        ("attempt", "uint8", attempt),
        ("juror", "uint32", juror),
        ("root", "bytes32", root),
    )
    return _typed("Assize Evidence", chain_id, rounds, "Evidence", fields)


def request(
    chain_id: int, contract: str, method: str, path: str, body_hash: bytes, nonce: int, deadline: int
) -> TypedData:
    """Returns a request to the coordinator; ``path`` is the raw path with its query, as sent."""
    fields = (
        ("contract", "address", contract),
        ("method", "string", method),
        ("path", "string", path),
        ("body", "bytes32", body_hash),
        ("nonce", "uint256", nonce),
        ("deadline", "uint256", deadline),
    )
    return _typed("Assize Request", chain_id, contract, "Request", fields)


def sign_request(
    signer: Signer, chain_id: int, contract: str, method: str, path: str, body: bytes, nonce: int, deadline: int
) -> dict[str, str]:
    """Returns the four headers that sign a request; draw ``nonce`` at random from 256 bits."""
    message = request(chain_id, contract, method.upper(), path, keccak(body), nonce, deadline)
    return {
        HEADER_ADDRESS: signer.address,
        HEADER_NONCE: str(nonce),
        HEADER_DEADLINE: str(deadline),
        HEADER_SIGNATURE: "0x" + signer.sign_typed(message).hex(),
    }


def recover_request(
    headers: Mapping[str, str], chain_id: int, contract: str, method: str, path: str, body_hash: bytes, now: int
) -> SignedRequest:
    """Returns the signer of a request.

    ``headers`` is looked up by the names above and, for a plain dict of an ASGI server, in lower case. ``now`` is unix
    seconds.

    Raises:
        Rejected: A header is missing or malformed, the deadline has passed or lies more than `MAX_REQUEST_SECONDS`
            ahead, or the signature is by another key than the one named.
    """
    address, signature = _header(headers, HEADER_ADDRESS), _hex(_header(headers, HEADER_SIGNATURE))
    nonce, deadline = _uint256(headers, HEADER_NONCE), _uint256(headers, HEADER_DEADLINE)
    if deadline < now:
        raise Rejected(f"the request's deadline passed {now - deadline} s ago: check the clock of this machine")
    if deadline > now + MAX_REQUEST_SECONDS:
        raise Rejected(
            f"the request's deadline lies more than {MAX_REQUEST_SECONDS} s ahead: check the clock of this machine"
        )
    signed_by = recover(request(chain_id, contract, method.upper(), path, body_hash, nonce, deadline), signature)
    if signed_by.lower() != address.lower():
        raise Rejected(f"invalid signature of the request: it is not by {address[:42]}, which the request names")
    return SignedRequest(signed_by, nonce, deadline)


def recover(message: TypedData, signature: bytes) -> str:
    """Returns the checksummed address whose key signed ``message``.

    A canonical signature is 65 bytes r ‖ s ‖ v with v 27 or 28 and s at most half the curve order, as the contracts
    require: otherwise a second valid signature could be made from a first without the key.

    Raises:
        Rejected: The signature is not canonical, or belongs to no point of the curve.
    """
    if len(signature) != 65 or signature[64] not in (27, 28):
        raise Rejected("invalid signature: expected 65 bytes r, s and v, with v 27 or 28")
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if not (0 < r < _CURVE_ORDER and 0 < s <= _CURVE_ORDER // 2):
        raise Rejected("invalid signature: r or s is out of range")
    try:
        key = Signature(vrs=(signature[64] - 27, r, s)).recover_public_key_from_msg_hash(digest(message))
    except Exception as error:  # the curve libraries raise their own errors for points that do not exist
        raise Rejected("invalid signature: it belongs to no key") from error
    return str(key.to_checksum_address())


def check(message: TypedData, signature: bytes, key: str, what: str, whose: str) -> None:
    """Raises `Rejected` unless the address ``key`` signed ``message``: ``what`` and ``whose`` name them in errors."""
    signed_by = recover(message, signature)
    if signed_by.lower() != key.lower():
        raise Rejected(f"{what} is signed by {signed_by}, not by {whose} {key}")


def digest(message: TypedData) -> bytes:
    """Returns the 32 bytes a key signs: keccak(0x1901 ‖ domain separator ‖ struct hash) (EIP-712)."""
    signable = encode_typed_data(full_message=message)
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


def _typed(
    name: str, chain_id: int, contract: str, primary: str, fields: tuple[tuple[str, str, object], ...]
) -> TypedData:
    return {
        "types": {
            "EIP712Domain": [{"name": field, "type": kind} for field, kind in _DOMAIN_FIELDS],
            primary: [{"name": field, "type": kind} for field, kind, _ in fields],
        },
        "primaryType": primary,
        "domain": {"name": name, "version": "1", "chainId": chain_id, "verifyingContract": contract},
        "message": {field: value for field, _, value in fields},
    }


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name) or headers.get(name.lower())
    if not value:
        raise Rejected(f"the request is not signed: it has no {name} header")
    return value


def _uint256(headers: Mapping[str, str], name: str) -> int:
    text = _header(headers, name)
    if not re.fullmatch(r"[0-9]{1,78}", text, re.ASCII) or int(text) >> 256:
        raise Rejected(f"invalid {name} header: expected a decimal number below 2^256")
    return int(text)


def _hex(text: str) -> bytes:
    if not re.fullmatch(r"0x([0-9a-fA-F]{2}){0,65}", text, re.ASCII):
        raise Rejected(f"invalid {HEADER_SIGNATURE} header: expected 0x and 130 hex digits")
    return bytes.fromhex(text[2:])
