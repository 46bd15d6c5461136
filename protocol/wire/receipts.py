"""Receipts: stores' signed promises to serve what a node submits, and the URI of a submission, which carries them.

    URI        places separated by spaces; with receipts, "#" and these
    place      base URL of a holder: an artifact's blob is at the place followed by 0x and its root
    receipts   base64url without padding of 70 bytes each: uint8 store ‖ uint32 time ‖ 65 bytes signature

A store is named by its index among those of the run's rules. It signs, EIP-712 in the domain ("Assize Receipt", "1",
chain id, Rounds), ``Receipt(uint256 run,uint256 round,uint32 node,bytes leaves,uint64 time)``: at ``time`` it held the
artifact of every one of these packed leaves, and it serves them for `HELD_SECONDS` from then on. The leaves' roots
commit to the files' bytes. In the same domain it signs ``Refusal(uint256 run,bytes32 root,uint64 time)`` when it is
asked for an artifact that it does not serve. PURE.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.rules import ArtifactStore, Availability

HELD_SECONDS = 7 * 86400
"""Time from a receipt for which its store serves the artifacts."""

CLOCK_SECONDS = 600
"""Most by which a receipt's time may differ from another party's clock."""

MAX_PLACES, MAX_RECEIPTS = 4, 8

PUBLIC_PORTS = frozenset({80, 443})
"""Ports of the holders that a submission may name, besides those of the run's stores."""

_RECEIPT_BYTES = 70


@dataclass(frozen=True, slots=True)
class CarriedReceipt:
    """A receipt in a URI: the ``store`` is an index into those of the rules, ``time`` unix seconds."""

    store: int
    time: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One node's submission for a round of a run: its packed leaves, its URI, and its block's time."""

    chain_id: int
    rounds: str
    run: int
    round: int
    node: int
    leaves: bytes
    uri: str
    time: int

    def signed(self, time: int) -> auth.TypedData:
        """Returns the message that a store signs at ``time``."""
        return auth.receipt(self.chain_id, self.rounds, self.run, self.round, self.node, self.leaves, time)


def write_uri(places: Sequence[str], receipts: Sequence[CarriedReceipt] = ()) -> str:
    """Returns the URI of a submission whose artifacts are at ``places``."""
    packed = b"".join(
        bytes([receipt.store]) + receipt.time.to_bytes(4, "big") + receipt.signature for receipt in receipts
    )
    fragment = "#" + base64.urlsafe_b64encode(packed).rstrip(b"=").decode() if receipts else ""
    return " ".join(places) + fragment


def places_of(uri: str) -> tuple[str, ...]:
    """Returns the places that a URI names, the first `MAX_PLACES` of them; any text is read."""
    return tuple(place for place in uri.partition("#")[0].split(" ") if place)[:MAX_PLACES]


def receipts_of(uri: str) -> tuple[CarriedReceipt, ...]:
    """Returns the receipts that a URI carries; none if they are written in any other way than `write_uri` does."""
    text = uri.partition("#")[2]
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) > 4 * -(-_RECEIPT_BYTES * MAX_RECEIPTS // 3):
        return ()
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return ()
    parts = [packed[start : start + _RECEIPT_BYTES] for start in range(0, len(packed), _RECEIPT_BYTES)]
    if not all(len(part) == _RECEIPT_BYTES for part in parts):
        return ()
    found = tuple(CarriedReceipt(part[0], int.from_bytes(part[1:5], "big"), part[5:]) for part in parts)
    return found if write_uri((), found) == "#" + text else ()


def holders_of(uri: str, stores: Sequence[ArtifactStore]) -> tuple[str, ...]:
    """Returns the places to fetch an artifact from, in the order to try them: the run's stores, then the URI's."""
    return tuple(dict.fromkeys((*(store.place for store in stores), *places_of(uri))))


def ports_of(stores: Iterable[str]) -> frozenset[int]:
    """Returns the ports that holders may be on: `PUBLIC_PORTS`, and those of the run's ``stores``."""
    return PUBLIC_PORTS | {port for store in stores if (port := _port(store)) is not None}


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def missing_receipts(availability: Availability | None, part: Part) -> str | None:
    """Returns a sentence on the receipts that ``part`` lacks under the run's rules; None if it lacks none."""
    if availability is None:
        return None
    given = {receipt.store for receipt in receipts_of(part.uri) if _holds(receipt, availability, part)}
    if len(given) >= availability.receipts:
        return None
    return (
        f"the submission carries receipts of {len(given)} of the run's stores: expected {availability.receipts}, since "
        "nothing else shows that its artifacts were there to be read"
    )


def check_receipt(receipt: CarriedReceipt, stores: Sequence[ArtifactStore], part: Part) -> None:
    """Raises ``Rejected`` unless the store that ``receipt`` names signed it for ``part``, about the part's time."""
    if receipt.store >= len(stores):
        raise Rejected(f"the receipt is of store {receipt.store}: expected one of {len(stores)}")
    if receipt.time > part.time + CLOCK_SECONDS:
        raise Rejected(f"the receipt is of {receipt.time - part.time} s after the submission")
    store = stores[receipt.store]
    auth.check(part.signed(receipt.time), receipt.signature, store.key, "the receipt", f"the store {store.url}'s key")


def _holds(receipt: CarriedReceipt, availability: Availability, part: Part) -> bool:
    try:
        check_receipt(receipt, availability.stores, part)
    except Rejected:
        return False
    return True
