"""Signatures: every EIP-712 message of the protocol, with its builder and its recovery.

    message       domain (name, version "1", chain id, contract)    signed by      checked by
    NodeBinding   Assize Registry, Registry                         node key       Registry
    Submission    Assize Rounds, Rounds                             node key       Rounds, coordinator, validators
    Checkpoint    Assize Market, Market                             trainer key    every reader of a manifest
    Delta         Assize Market, Market                             its maker      readers of a delta
    Evidence      Assize Evidence, Rounds                           node key       coordinator, readers of evidence
    Request       Assize Request, Rounds                            node key       coordinator
    Receipt       Assize Receipt, Rounds                            store key      workers, validators
    Refusal       Assize Receipt, Rounds                            store key      whoever holds a receipt

A request to a coordinator carries six headers: `Assize-Address`, `Assize-Run`, `Assize-Body`, `Assize-Nonce`,
`Assize-Deadline` and `Assize-Signature`. The signature is over run, method, path with query, keccak of the body, nonce
and deadline, so it is checked before any of the body is read. The run names the audience: a run has one coordinator,
and a request made for one run is refused by the coordinator of another. A server that accepts a request must keep its
nonce at least until its deadline, and compare the body that arrives with the hash. Nothing here reads a clock or a
key: `now` is passed in, and functions that sign take a `Signer`. PURE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from eth_account.messages import encode_typed_data
from eth_keys.datatypes import Signature
from eth_utils import keccak, to_checksum_address

from protocol.errors import Rejected

TypedData = dict[str, Any]
"""A full EIP-712 message: types, primaryType, domain and message."""

MAX_REQUEST_SECONDS = 120
"""Largest distance of a request's deadline, and so the longest time that a nonce must be remembered."""

HEADER_ADDRESS = "Assize-Address"
HEADER_RUN = "Assize-Run"
HEADER_BODY = "Assize-Body"
HEADER_NONCE = "Assize-Nonce"
HEADER_DEADLINE = "Assize-Deadline"
HEADER_SIGNATURE = "Assize-Signature"
HEADERS = {
    HEADER_ADDRESS: ("^0x[0-9a-fA-F]{40}$", "Address of the node's key."),
    HEADER_RUN: ("^[0-9]{1,78}$", "Run whose coordinator the request is for."),
    HEADER_BODY: ("^0x[0-9a-fA-F]{64}$", "keccak256 of the body; of no bytes, if there is none."),
    HEADER_NONCE: ("^[0-9]{1,78}$", "A random number of 256 bits; each is accepted once."),
    HEADER_DEADLINE: ("^[0-9]{1,12}$", f"Expiry in unix seconds, at most {MAX_REQUEST_SECONDS} ahead."),
    HEADER_SIGNATURE: ("^0x[0-9a-fA-F]{130}$", "EIP-712 signature of the Request by that key."),
}
"""Pattern and meaning of each header of a signed request."""

_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_DOMAIN_FIELDS = "string name,string version,uint256 chainId,address verifyingContract"
_REQUEST_FIELDS = "uint256 run,string method,string path,bytes32 body,uint256 nonce,uint256 deadline"
_REQUEST_TYPE = keccak(f"Request({_REQUEST_FIELDS})".encode())

MOST_ADDRESSES = 4096
"""Addresses that are kept in checksummed form: as many keys as sign requests often."""


class Signer(Protocol):
    """Holder of a key. Only the wallet implements it, so nothing else reads private keys."""

    @property
    def address(self) -> str:
        """The checksummed address of the key."""

    def sign_typed(self, message: TypedData) -> bytes:
        """Returns the 65-byte signature r ‖ s ‖ v of an EIP-712 message, s in the lower half."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The coordinator that a request is for: the one of ``run`` on the deployment with this ``Rounds`` contract."""

    chain_id: int
    rounds: str
    run: int


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request with a valid signature.

    ``address`` signed it, ``body`` is the keccak256 that the body must have, and ``nonce`` is to be kept until the
    ``deadline`` (unix seconds).
    """

    address: str
    body: bytes
    nonce: int
    deadline: int


def node_binding(
    chain_id: int, registry: str, owner: str, key: str, role: int, capacity: int, deadline: int
) -> TypedData:
    """Returns the node key's consent to serve ``owner``: ``deadline`` in unix seconds, ``role`` as in `Registry`."""
    fields = "address owner,address key,uint8 role,uint32 capacity,uint256 deadline"
    values = (owner, key, role, capacity, deadline)
    return _typed("Assize Registry", chain_id, registry, "NodeBinding", fields, values)


def submission(
    chain_id: int, rounds: str, round_id: int, node: int, beacon: bytes, leaves: bytes, uri: str
) -> TypedData:
    """Returns a node's claim for its jobs of a round: packed ``leaves``, and the ``uri`` of their artifacts."""
    fields = "uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri"
    return _typed("Assize Rounds", chain_id, rounds, "Submission", fields, (round_id, node, beacon, leaves, uri))


def checkpoint(chain_id: int, market: str, run: int, version: int, manifest_root: bytes) -> TypedData:
    """Returns the trainer's statement that ``version`` of ``run`` is the manifest with this root."""
    fields = "uint256 run,uint32 version,bytes32 manifestRoot"
    return _typed("Assize Market", chain_id, market, "Checkpoint", fields, (run, version, manifest_root))


def delta(chain_id: int, market: str, run: int, version: int, delta_root: bytes) -> TypedData:
    """Returns a maker's statement that the delta with this root makes ``version`` of ``run``."""
    fields = "uint256 run,uint32 version,bytes32 deltaRoot"
    return _typed("Assize Market", chain_id, market, "Delta", fields, (run, version, delta_root))


def evidence(chain_id: int, rounds: str, round_id: int, attempt: int, juror: int, root: bytes) -> TypedData:
    """Returns a juror's statement that its bundle for one attempt at a round has this ``root``."""
    fields = "uint256 round,uint8 attempt,uint32 juror,bytes32 root"
    return _typed("Assize Evidence", chain_id, rounds, "Evidence", fields, (round_id, attempt, juror, root))


def receipt(chain_id: int, rounds: str, run: int, round_id: int, node: int, leaves: bytes, time: int) -> TypedData:
    """Returns a store's statement at ``time`` that it holds, and will serve, the artifacts of a part's ``leaves``."""
    fields = "uint256 run,uint256 round,uint32 node,bytes leaves,uint64 time"
    return _typed("Assize Receipt", chain_id, rounds, "Receipt", fields, (run, round_id, node, leaves, time))


def refusal(chain_id: int, rounds: str, run: int, root: bytes, time: int) -> TypedData:
    """Returns a store's statement at ``time`` that it does not serve the artifact ``root``."""
    fields = "uint256 run,bytes32 root,uint64 time"
    return _typed("Assize Receipt", chain_id, rounds, "Refusal", fields, (run, root, time))


def request(audience: Audience, method: str, path: str, body_hash: bytes, nonce: int, deadline: int) -> TypedData:
    """Returns a request to the coordinator; ``path`` is the raw path with its query, as sent."""
    values = (audience.run, method, path, body_hash, nonce, deadline)
    return _typed("Assize Request", audience.chain_id, audience.rounds, "Request", _REQUEST_FIELDS, values)


def request_digest(audience: Audience, method: str, path: str, body_hash: bytes, nonce: int, deadline: int) -> bytes:
    """Returns the `digest` of a `request` from hashes of domain and type that are kept.

    A coordinator needs one for each request, and the general way, by typed data, takes several times as long.
    """
    fields = (
        _word(audience.run),
        keccak(method.encode()),
        keccak(path.encode()),
        body_hash,
        _word(nonce),
        _word(deadline),
    )
    return keccak(b"\x19\x01" + _separator(audience) + keccak(_REQUEST_TYPE + b"".join(fields)))


def sign_request(
    signer: Signer, audience: Audience, method: str, path: str, body: bytes, nonce: int, deadline: int
) -> dict[str, str]:
    """Returns the headers that sign a request; draw ``nonce`` at random from 256 bits."""
    body_hash = keccak(body)
    message = request(audience, method.upper(), path, body_hash, nonce, deadline)
    return {
        HEADER_ADDRESS: signer.address,
        HEADER_RUN: str(audience.run),
        HEADER_BODY: "0x" + body_hash.hex(),
        HEADER_NONCE: str(nonce),
        HEADER_DEADLINE: str(deadline),
        HEADER_SIGNATURE: "0x" + signer.sign_typed(message).hex(),
    }


def recover_request(headers: Mapping[str, str], audience: Audience, method: str, path: str, now: int) -> SignedRequest:
    """Returns the signer of a request to ``audience``, and the hash that its body must have.

    ``headers`` is looked up by the names above and, for a plain dict of an ASGI server, in lower case. ``now`` is unix
    seconds.

    Raises:
        Rejected: A header is missing or malformed, the request is for the coordinator of another run, the deadline has
            passed or lies more than `MAX_REQUEST_SECONDS` ahead, or the signature is by another key than the one named.
    """
    address, signature = _header(headers, HEADER_ADDRESS), _header(headers, HEADER_SIGNATURE)
    body_hash = bytes.fromhex(_header(headers, HEADER_BODY)[2:])
    run, nonce, deadline = (int(_header(headers, name)) for name in (HEADER_RUN, HEADER_NONCE, HEADER_DEADLINE))
    if nonce >> 256:
        raise Rejected(f"invalid {HEADER_NONCE} header: expected a number below 2^256")
    if run != audience.run:
        raise Rejected(
            f"the request is for the coordinator of run {run}, this is the one of run {audience.run}: "
            "check run and coordinator URL"
        )
    if deadline < now:
        raise Rejected(f"the request's deadline passed {now - deadline} s ago: check the clock of this machine")
    if deadline > now + MAX_REQUEST_SECONDS:
        raise Rejected(
            f"the request's deadline lies more than {MAX_REQUEST_SECONDS} s ahead: check the clock of this machine"
        )
    signed = request_digest(audience, method.upper(), path, body_hash, nonce, deadline)
    signed_by = _recover(signed, bytes.fromhex(signature[2:]))
    if signed_by.lower() != address.lower():
        raise Rejected(f"invalid signature of the request: it is not by {address[:42]}, which the request names")
    return SignedRequest(signed_by, body_hash, nonce, deadline)


def recover(message: TypedData, signature: bytes) -> str:
    """Returns the checksummed address whose key signed ``message``.

    A canonical signature is 65 bytes r ‖ s ‖ v with v 27 or 28 and s at most half the curve order, as the contracts
    require: otherwise a second valid signature could be made from a first without the key.

    Raises:
        Rejected: The signature is not canonical, or belongs to no point of the curve; or a value of the message is none
            of its field's type.
    """
    try:
        signed = digest(message)
    except Exception as error:  # the encoder raises its own errors
        raise Rejected("invalid message: a value is not of its field's type") from error
    return _recover(signed, signature)


def _recover(signed: bytes, signature: bytes) -> str:
    if len(signature) != 65 or signature[64] not in (27, 28):
        raise Rejected("invalid signature: expected 65 bytes r, s and v, with v 27 or 28")
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if not (0 < r < _CURVE_ORDER and 0 < s <= _CURVE_ORDER // 2):
        raise Rejected("invalid signature: r or s is out of range")
    try:
        key = Signature(vrs=(signature[64] - 27, r, s)).recover_public_key_from_msg_hash(signed)
    except Exception as error:  # the curve libraries raise their own errors for points that do not exist
        raise Rejected("invalid signature: it belongs to no key") from error
    return _checksummed(key.to_canonical_address())


def check(message: TypedData, signature: bytes, key: str, what: str, whose: str) -> None:
    """Raises `Rejected` unless the address ``key`` signed ``message``: ``what`` and ``whose`` name them in errors."""
    signed_by = recover(message, signature)
    if signed_by.lower() != key.lower():
        raise Rejected(f"{what} is signed by {signed_by}, not by {whose} {key}")


def digest(message: TypedData) -> bytes:
    """Returns the 32 bytes a key signs: keccak(0x1901 ‖ domain separator ‖ struct hash) (EIP-712)."""
    signable = encode_typed_data(full_message=message)
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


@lru_cache
def _separator(audience: Audience) -> bytes:
    return bytes(encode_typed_data(full_message=request(audience, "", "", bytes(32), 0, 0)).header)


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")


@lru_cache(MOST_ADDRESSES)
def _checksummed(address: bytes) -> str:
    return str(to_checksum_address(address))


def _typed(name: str, chain_id: int, contract: str, primary: str, fields: str, values: tuple[object, ...]) -> TypedData:
    """Returns the message ``primary`` with ``fields`` ("type name", as EIP-712 encodes them) and their values."""
    types = {"EIP712Domain": _fields(_DOMAIN_FIELDS), primary: _fields(fields)}
    message = {field["name"]: value for field, value in zip(types[primary], values, strict=True)}
    domain = {"name": name, "version": "1", "chainId": chain_id, "verifyingContract": contract}
    return {"types": types, "primaryType": primary, "domain": domain, "message": message}


def _fields(text: str) -> list[dict[str, str]]:
    return [dict(zip(("type", "name"), field.split(" "), strict=True)) for field in text.split(",")]


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name) or headers.get(name.lower())
    if not value:
        raise Rejected(f"the request is not signed: it has no {name} header")
    if not re.fullmatch(HEADERS[name][0], value, re.ASCII):
        raise Rejected(f"invalid {name} header: expected a match of {HEADERS[name][0]}")
    return value
