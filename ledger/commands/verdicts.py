"""``assize ledger verdicts``: a node's verdicts with their reasons, and what jurors measured where they tell it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields

from rich.table import Table
from sqlalchemy import Connection

from ledger.api.blobs import BlobSource
from ledger.commands.screen import plain, say, screen, tell
from ledger.queries.verdicts import NodeVerdict, node_verdicts
from protocol.amounts import UNIT, digits_of
from protocol.chain.reading.client import Chain
from protocol.errors import Rejected, Unavailable
from protocol.times import clock
from protocol.wire.evidence import Finding, parse_signed

SHOWN = 50
"""Lines that a terminal shows, the newest; JSON has all."""


@dataclass(frozen=True, slots=True)
class MeasuredVerdict(NodeVerdict):
    """A verdict, and the finding of a juror's signed evidence behind it: ``detail``, ``observed`` beside ``limit``."""

    detail: str = ""
    observed: float | None = None
    limit: float | None = None


def list_verdicts(
    connection: Connection, chain: Chain, node: int, since: int, coordinators: Sequence[str], as_json: bool
) -> None:
    """Prints the verdicts on a node's jobs since a time in unix seconds."""
    found = node_verdicts(connection, node, since, None, None)
    if not coordinators:
        tell(tuple[NodeVerdict, ...], found, _show, as_json)
        return
    with closing(BlobSource(coordinators)) as blobs:
        measured = [_measured(each, blobs, chain) for each in found]
    tell(list[MeasuredVerdict], measured, _show, as_json)


def _measured(verdict: NodeVerdict, blobs: BlobSource, chain: Chain) -> MeasuredVerdict:
    """Adds the first juror's finding that can be read; evidence that is missing or broken leaves it out."""
    names = [field.name for field in fields(NodeVerdict)]
    own = {name: getattr(verdict, name) for name in names}
    if verdict.verdict == "accepted":
        return MeasuredVerdict(**own)
    for root in verdict.evidence_roots:
        try:
            finding = _finding(verdict, blobs.get("evidence", root), root, chain)
        except (Unavailable, Rejected):
            continue
        if finding is not None:
            return MeasuredVerdict(**own, detail=finding.detail, observed=finding.observed, limit=finding.limit)
    return MeasuredVerdict(**own)


def _finding(verdict: NodeVerdict, data: bytes, root: bytes, chain: Chain) -> Finding | None:
    signed = parse_signed(data, root)
    if (signed.evidence.chain_id, signed.evidence.rounds) != (chain.chain_id, chain.deployment.rounds):
        raise Rejected("the evidence is of another deployment")
    findings = (found for each in signed.evidence.jobs if each.job == verdict.job for found in each.findings)
    return next((found for found in findings if found.reason.name.lower() == verdict.reason), None)


def _show(verdicts: Sequence[NodeVerdict]) -> None:
    if not verdicts:
        say("no verdicts")
        return
    table = Table(title=f"newest {min(SHOWN, len(verdicts))} of {len(verdicts)} verdicts")
    for name in ("round", "job", "verdict", "reason", "measured", "limit", f"credited {UNIT}", "block", "time"):
        table.add_column(name, overflow="fold")
    for each in verdicts[-SHOWN:]:
        row = asdict(each)
        detail = f"{each.sentence}: {row['detail']}" if row.get("detail") else each.sentence
        numbers = ("" if row.get(name) is None else f"{row[name]:.6g}" for name in ("observed", "limit"))
        place = (str(each.block_number), clock(each.timestamp))
        cells = (str(each.round), str(each.job), each.verdict, detail, *numbers, digits_of(each.credited), *place)
        table.add_row(*map(plain, cells))
    screen().print(table)
