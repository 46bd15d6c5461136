"""What passes between a validator's daemon and its background workers. PURE.

    order     {"run":…,"version":…,"manifest_root":…,"rules_hash":…,"chain_id":…,"market":…,"trainer":…,"claims":[…]}
              a few jobs of one policy version; bytes in hex; the worker fetches rules, weights and artifacts itself
    answer    judged:{…}   the job's part of the evidence, as in ``protocol.wire.evidence``
              silent:      where the artifact should lie nothing answers: asked again, until whoever waits gives up
              later:…      rules or weights could not be had: no fault of the job, and tried again
              failed:…     judging broke: counted, and held against nobody

An answer lies under the key of its job, whoever ordered it and in whichever company: a daemon that starts again finds
what was ordered before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eth_utils import keccak
from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.errors import Rejected
from protocol.wire.evidence import JobEvidence, decode_job, encode_job
from validator.judging.claims import Claim


class Order(BaseModel):
    """Jobs to judge, or with no claims: weights that will soon be needed."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="hex", val_json_bytes="hex")

    run: int
    version: int
    manifest_root: bytes
    rules_hash: bytes
    chain_id: int
    market: str
    trainer: str
    claims: tuple[Claim, ...] = ()

    def key(self, claim: Claim) -> str:
        """The name of one job's answer: of all that decides what the answer is."""
        return keccak((self.model_dump_json(exclude={"claims"}) + repr(claim)).encode())[:16].hex()

    @property
    def keys(self) -> list[str]:
        """The names of its jobs' answers."""
        return [self.key(claim) for claim in self.claims]


class Kind(StrEnum):
    """How an answer ends."""

    JUDGED = "judged"
    SILENT = "silent"
    LATER = "later"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one job: ``evidence`` where it was judged, else ``detail`` says why not."""

    kind: Kind
    detail: str = ""
    evidence: JobEvidence | None = None

    def encode(self) -> bytes:
        """Returns the bytes drawn above: a word of the kind, a colon, the rest."""
        rest = self.detail.encode() if self.evidence is None else encode_job(self.evidence)
        return self.kind.encode() + b":" + rest

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        """Reads an answer; raises ``Rejected`` for anything else."""
        kind, _, rest = data.partition(b":")
        if kind == Kind.JUDGED.encode():
            return cls(Kind.JUDGED, evidence=decode_job(rest))
        try:
            return cls(Kind(kind.decode()), rest.decode())
        except ValueError as error:
            raise Rejected("the queue holds an answer of no known kind") from error


def decode_order(text: str) -> Order:
    """Reads an order; raises ``Rejected`` with what is wrong."""
    try:
        return Order.model_validate_json(text)
    except ValidationError as error:
        raise Rejected(f"the queue holds an order that is none: {error.errors()[0]['msg']}") from error
