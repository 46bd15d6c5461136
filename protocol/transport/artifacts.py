"""Artifacts from holders that nobody has to trust: each one's bytes are checked before they count as found."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import BlobStores, TooLarge
from protocol.wire.artifact_blob import HEAD_BYTES, parse_blob, parse_head
from protocol.wire.receipts import PUBLIC_PORTS

SLOW_SECONDS = 5.0
"""A holder that takes longer and fails is asked after the others for a while: one that drips must not delay them."""


class NoHolder(Rejected):
    """Nobody is named who could be asked."""


class Denied(Unavailable):
    """No holder sent the signed bytes, and one of them answered, so that the fault is not on this side."""


def fetch_artifact(
    stores: BlobStores,
    holders: Iterable[str],
    root: bytes,
    limit: int,
    ports: Collection[int] = PUBLIC_PORTS,
    lacks: Callable[[str], object] = lambda holder: None,
) -> bytes:
    """Returns the blob of the artifact ``root``, whose file has at most ``limit`` bytes, from the first that has it.

    Args:
        stores: opens the holders' URLs.
        holders: base URLs named by other parties, in the order to try them; those that were slow come last.
        root: the artifact's root.
        limit: most bytes of its file.
        ports: ports that holders may be on.
        lacks: called with each holder that answers without it.

    Raises:
        Rejected: the signed file has more than ``limit`` bytes, as a holder has shown.
        NoHolder: no holder's URL is one of a public store.
        Denied: no holder sent the artifact's bytes, but one answered without them. Other bytes count as none.
        Unavailable: no holder answered.
    """
    problems: list[str] = []
    asked = denied = False
    for holder in sorted(holders, key=stores.resting):
        try:
            store = stores.open_public(holder, ports)
        except Rejected as error:
            problems.append(str(error))
            continue
        asked, started = True, time.monotonic()
        try:
            data = store.get(root, HEAD_BYTES + limit)
            if data is None:
                raise Rejected(f"{holder[:160]} does not have the artifact 0x{root.hex()}")
            parse_blob(data, root)
        except TooLarge as error:
            _check_signed_size(error.start, root, limit, problems)
            denied = True
            lacks(holder)
        except (Unavailable, Rejected) as error:
            problems.append(str(error))
            if isinstance(error, Rejected):
                denied = True
                lacks(holder)
            if time.monotonic() - started > SLOW_SECONDS:
                stores.rest(holder)
        else:
            return data
    if not asked:
        raise NoHolder(problems[0] if problems else "no holder of the artifact is named")
    raise (Denied if denied else Unavailable)("; ".join(problems))


def _check_signed_size(start: bytes, root: bytes, limit: int, problems: list[str]) -> None:
    """Raises ``Rejected`` if the signed file is too large; a holder that only sends too much proves nothing."""
    try:
        size = parse_head(start, root).size
    except Rejected as error:
        problems.append(str(error))
        return
    if size > limit:
        raise Rejected(f"the signed file has {size} bytes: expected at most {limit}")
    problems.append(f"the bytes are not those of the artifact 0x{root.hex()}: more than its {size}")
