"""Messages between a validator's daemon and its background workers. PURE.

    order     {"run":…,"version":…,"manifest_root":…,"rules_hash":…,"chain_id":…,"market":…,"trainer":…,"juror":…,
              "coordinator":…,"claims":[…]}: a few jobs of one policy version; bytes in hex; the worker fetches rules,
              weights and artifacts itself, and keeps rows for the fingerprint of the juror
    answer    judged:{…}   the job's part of the evidence, as in ``protocol.wire.evidence``; if the model ran, a line
                           end and the rows kept
              sampled:[…]  own and sampled rewards of each group, where the order has a secret
              silent:      the artifact's store does not answer: asked again, until the daemon stops waiting
              denied:      as silent, but a holder answered without the artifact
              later:…      rules or weights could not be fetched: tried again
              failed:…     judging failed: counted, and never blamed on the node

An answer is stored under its job's key, independent of the order: a restarted daemon finds the answers to earlier
orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eth_utils import keccak
from pydantic import BaseModel, ConfigDict

from protocol.errors import Rejected
from protocol.wire.canonical import Canonical, validating
from protocol.wire.evidence import JOB_JSON, JobEvidence
from validator.judging.claims import Claim
from validator.judging.fingerprinting import ROWS_JSON, KeptRows
from validator.records.rewards import SampledGroup

_GROUPS_JSON = Canonical(tuple[SampledGroup, ...], "sampled groups", 1 << 20)


class Order(BaseModel):
    """Jobs to judge, or to sample with the juror's ``secret`` if there is one.

    An order without claims announces weights that will be needed soon.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="hex", val_json_bytes="hex")

    run: int
    version: int
    manifest_root: bytes
    rules_hash: bytes
    chain_id: int
    market: str
    trainer: str
    juror: int
    coordinator: str
    secret: bytes = b""
    claims: tuple[Claim, ...] = ()

    def key(self, claim: Claim) -> str:
        """Returns the key of one job's answer, a hash of everything that determines it."""
        return keccak((self.model_dump_json(exclude={"claims", "coordinator"}) + repr(claim)).encode())[:16].hex()

    @property
    def keys(self) -> list[str]:
        """Keys of the answers to its jobs."""
        return [self.key(claim) for claim in self.claims]


class Kind(StrEnum):
    """Outcome of one ordered job."""

    JUDGED = "judged"
    SAMPLED = "sampled"
    SILENT = "silent"
    DENIED = "denied"
    LATER = "later"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer for one job: ``evidence`` and ``rows`` if it was judged, ``groups`` if it was sampled.

    Otherwise ``detail`` says why not.
    """

    kind: Kind
    detail: str = ""
    evidence: JobEvidence | None = None
    rows: KeptRows | None = None
    groups: tuple[SampledGroup, ...] = ()

    def encode(self) -> bytes:
        """Returns the bytes drawn above: kind, colon, rest."""
        if self.kind is Kind.SAMPLED:
            return self.kind.encode() + b":" + _GROUPS_JSON.encode(self.groups)
        rest = self.detail.encode() if self.evidence is None else JOB_JSON.encode(self.evidence)
        rows = b"" if self.rows is None else b"\n" + ROWS_JSON.encode(self.rows)
        return self.kind.encode() + b":" + rest + rows

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        """Reads an answer; raises ``Rejected`` for invalid bytes."""
        kind, _, rest = data.partition(b":")
        if kind == Kind.JUDGED.encode():
            evidence, line_end, rows = rest.partition(b"\n")
            return cls(Kind.JUDGED, "", JOB_JSON.decode(evidence), _rows(rows) if line_end else None)
        if kind == Kind.SAMPLED.encode():
            return cls(Kind.SAMPLED, groups=_GROUPS_JSON.decode(rest))
        try:
            known = Kind(kind.decode())
        except ValueError as error:
            raise Rejected(f"invalid answer in the queue: unknown kind {kind[:16]!r}") from error
        return cls(known, rest.decode(errors="replace"))


def _rows(data: bytes) -> KeptRows:
    kept = ROWS_JSON.decode(data)
    if not len(kept.gaps_N) or len(kept.rows) % len(kept.gaps_N):
        raise Rejected(f"invalid answer in the queue: {len(kept.rows)} entries of {len(kept.gaps_N)} rows")
    return kept


def decode_order(text: str) -> Order:
    """Reads an order; raises ``Rejected`` for an invalid one."""
    with validating("invalid order in the queue"):
        return Order.model_validate_json(text)
