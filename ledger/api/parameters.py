"""Parameters of requests, as the API and the explorer's pages take them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from ledger.api.blobs import NoBytes
from ledger.api.service import LedgerService, Snapshot
from ledger.store.as_of import NotCanonical, NotKnown, TooOld
from protocol.errors import AssizeError, Rejected

CODES = {NotKnown: 404, NoBytes: 404, NotCanonical: 409, TooOld: 410, Rejected: 400}
"""HTTP status of each refusal, the most specific class first; any other error is a 503."""

Limit = Annotated[int, Query(ge=1, le=500, description="Most items of the page.")]
After = Annotated[str | None, Query(description="The cursor `next` of the page before.")]
Id = Annotated[int, Path(ge=0, lt=2**63)]
Filter = Annotated[int | None, Query(ge=0, lt=2**63)]
Since = Annotated[int, Query(ge=0, lt=2**63, description="Unix second: only verdicts reached from then on.")]
Owner = Annotated[str, Path(pattern="^0x[0-9a-fA-F]{40}$", description="Address of an owner.")]
EventName = Annotated[str | None, Query(max_length=64, pattern="^[A-Za-z]+$", description="Only events of this name.")]
TxHash = Annotated[str, Path(pattern="^0x[0-9a-fA-F]{64}$", description="Hash of a transaction.")]
Root = Annotated[str, Path(pattern="^0x[0-9a-fA-F]{64}$", description="Root of an artifact or of evidence.")]
InBlock = Annotated[int | None, Query(ge=0, lt=2**63, description="Its block, which saves asking the RPC for it.")]
Sought = Annotated[str, Query(max_length=200, description="Number, ROUND/JOB, address or hash.")]
AsOf = Annotated[
    str | None,
    Query(
        pattern="^0x[0-9a-fA-F]{64}$",
        description="Hash of the block as of which to answer, no older than `final_block`; by default the newest.",
    ),
]


def code_of(error: AssizeError) -> int:
    """Returns the HTTP status of an error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), 503)


def _view(request: Request, as_of: AsOf = None) -> Snapshot:
    service: LedgerService = request.app.state.service
    return Snapshot(service, None if as_of is None else bytes.fromhex(as_of[2:]))


Asked = Annotated[Snapshot, Depends(_view)]
