"""Evidence: a signed bundle of one juror's measurements in one round, named by its hash.

The vote names the bundle's root before the bundle can be read; it is published once committing has ended. A verdict can
be checked by measuring again from the artifacts, the weights and the rules, and comparing with the bundle.

    bundle   = canonical JSON (sorted keys, no spaces, ASCII), roots and hashes in lower-case 0x-hex
    column   = base64 of little-endian numbers: "<f4" measurements, "<u4" counts
    root     = keccak(bundle)
    envelope = {"bundle":…,"signature":"0x…"}
               EIP-712 `Evidence(uint256 round,uint8 attempt,uint32 juror,bytes32 root)` in the domain
               ("Assize Evidence", "1", chain id, Rounds), by the juror's node key

Numbers in columns are float32 as measured; thresholds are decimal. PURE.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from eth_utils import keccak
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, TypeAdapter

from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.auth import Signer, TypedData
from protocol.wire.reasons import Reason

FORMAT = "assize/evidence/1"
MAX_EVIDENCE_BYTES = 32 << 20
_SIGNATURE = re.compile(r"0x[0-9a-f]{130}", re.ASCII)
_ROOT = re.compile(r"0x[0-9a-f]{64}", re.ASCII)

F32 = NDArray[np.float32]
U32 = NDArray[np.uint32]


def _hash(text: str) -> bytes:
    if not _ROOT.fullmatch(text):
        raise Rejected(f"invalid root {text!r} in the evidence: expected 0x and 64 hex digits")
    return bytes.fromhex(text[2:])


def _column(kind: str) -> tuple[PlainValidator, PlainSerializer]:
    """Returns how a column of numbers of this type is read and written."""

    def read(text: str) -> NDArray[Any]:
        try:
            return np.frombuffer(base64.b64decode(text, validate=True), kind)
        except binascii.Error as error:
            raise Rejected("a column of the evidence is not base64") from error

    return PlainValidator(read), PlainSerializer(lambda column: base64.b64encode(column.astype(kind)).decode())


Hash = Annotated[bytes, PlainValidator(_hash), PlainSerializer(lambda value: "0x" + value.hex())]
Counts = Annotated[U32, *_column("<u4")]
Numbers = Annotated[F32, *_column("<f4")]
Code = Annotated[Reason, PlainValidator(Reason), PlainSerializer(int)]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: ``observed`` breaks ``limit`` in ``rollout``, or in the job as a whole if that is None."""

    reason: Reason
    detail: str
    rollout: int | None = None
    observed: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """Measurements of N rollouts with C chunks in all.

    tokens_N          sampled tokens
    rewards_N         recomputed rewards
    flips_N           tokens that differ from the seeded choice
    up_N              flips that are likelier than the seeded choice
    margin_max_N      largest margin, in logits
    margin_sum_N      sum of the margins
    gap_min_N         smallest gap between a seeded choice and its runner-up
    llr_N             log-likelihood ratio of the choices: a noisier engine over an honest one, in nats
    logprob_median_N  median of |reported − recomputed|, in nats
    logprob_max_N     largest |reported − recomputed|, in nats
    chunks_N          chunks
    rel_C, null_C     activation distances, and the least that a forgery reaches
    """

    tokens_N: Counts
    rewards_N: Numbers
    flips_N: Counts
    up_N: Counts
    margin_max_N: Numbers
    margin_sum_N: Numbers
    gap_min_N: Numbers
    llr_N: Numbers
    logprob_median_N: Numbers
    logprob_max_N: Numbers
    chunks_N: Counts
    rel_C: Numbers
    null_C: Numbers


COUNTS = ("tokens_N", "flips_N", "up_N", "chunks_N")
"""The columns of counts; the others are measurements."""


def _finding(value: Any) -> Finding:
    code, detail, rollout, observed, limit = value
    return Finding(Reason(code), str(detail), None if rollout is None else int(rollout), float(observed), float(limit))


FindingList = tuple[
    Annotated[
        Finding,
        PlainValidator(_finding),
        PlainSerializer(lambda found: [int(found.reason), found.detail, found.rollout, found.observed, found.limit]),
    ],
    ...,
]


def _all_columns(value: Any) -> Any:
    if isinstance(value, dict) and set(value) != set(Measurements.__slots__):
        raise Rejected("the evidence has missing or unknown columns")
    return value


def _even(measurements: Measurements) -> Measurements:
    """Checks that columns of one axis have one length and finite values, so that readers may compute with them."""
    chunks = int(measurements.chunks_N.sum(dtype=np.uint64))
    for name in Measurements.__slots__:
        column, wanted = getattr(measurements, name), len(measurements.tokens_N) if name.endswith("_N") else chunks
        if len(column) != wanted:
            raise Rejected(f"column {name} of the evidence has {len(column)} values, not {wanted}")
        if not np.isfinite(column).all():
            raise Rejected(f"column {name} of the evidence is not finite")
    return measurements


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """One job: claim, verdict, findings, and measurements (None if the artifact could not be read)."""

    job: int
    node: int
    root: Hash
    reason: Code
    units_claimed: int
    units_counted: int | None
    findings: FindingList
    measurements: Annotated[Measurements, BeforeValidator(_all_columns), AfterValidator(_even)] | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A juror's bundle for one attempt at one round; ``thresholds`` are the bounds of the run's rules, by name."""

    chain_id: int
    rounds: str
    run: int
    round: int
    attempt: int
    juror: int
    policy_version: int
    manifest_root: Hash
    rules_hash: Hash
    thresholds: Annotated[
        tuple[tuple[str, float | None], ...],
        PlainValidator(lambda bounds: tuple(sorted(bounds.items()))),
        PlainSerializer(dict),
    ]
    jobs: tuple[JobEvidence, ...]

    @property
    def canonical(self) -> bytes:
        """Canonical JSON bytes; their keccak is the root."""
        return _dump(_json(self))

    @property
    def root(self) -> bytes:
        """The 32-byte root that the vote names."""
        return keccak(self.canonical)


@dataclass(frozen=True, slots=True)
class SignedEvidence:
    """A bundle and the juror's 65-byte signature over it."""

    evidence: Evidence
    signature: bytes

    @property
    def canonical(self) -> bytes:
        """Canonical bytes of the published envelope."""
        return _dump({"bundle": _json(self.evidence), "signature": "0x" + self.signature.hex()})

    def verify(self, key: str) -> None:
        """Raises ``Rejected`` unless the node key ``key`` signed exactly this bundle."""
        signed_by = auth.recover(typed_data(self.evidence), self.signature)
        if signed_by.lower() != key.lower():
            raise Rejected(f"the evidence is signed by {signed_by}, not by juror {self.evidence.juror}'s key {key}")


def sign(evidence: Evidence, signer: Signer) -> SignedEvidence:
    """Returns ``evidence`` signed by the juror's node key."""
    return SignedEvidence(evidence, signer.sign_typed(typed_data(evidence)))


def typed_data(evidence: Evidence) -> TypedData:
    """Returns the EIP-712 message that the juror signs."""
    fields = (("round", "uint256"), ("attempt", "uint8"), ("juror", "uint32"), ("root", "bytes32"))
    domain = (("name", "string"), ("version", "string"), ("chainId", "uint256"), ("verifyingContract", "address"))
    values = ("Assize Evidence", "1", evidence.chain_id, evidence.rounds)
    return {
        "types": {
            "EIP712Domain": [{"name": name, "type": kind} for name, kind in domain],
            "Evidence": [{"name": name, "type": kind} for name, kind in fields],
        },
        "primaryType": "Evidence",
        "domain": dict(zip((name for name, _ in domain), values, strict=True)),
        "message": {name: getattr(evidence, name) for name, _ in fields},
    }


def parse_signed(data: bytes, root: bytes | None = None) -> SignedEvidence:
    """Returns the envelope in ``data`` without verifying its signature.

    Raises:
        Rejected: the bytes are not canonical, or the bundle does not hash to ``root``.
    """
    try:
        signed = _signed(_load(data))
        canonical = signed.canonical
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Rejected("the evidence does not have the fields of its format") from error
    if canonical != data:
        raise Rejected("the evidence is not in its canonical form")
    if root is not None and signed.evidence.root != root:
        raise Rejected(f"the evidence hashes to 0x{signed.evidence.root.hex()}, not to 0x{root.hex()}")
    return signed


def encode_job(job: JobEvidence) -> bytes:
    """Returns the canonical bytes of one job's part of a bundle."""
    return _dump(_JOB.dump_python(job))


def decode_job(data: bytes) -> JobEvidence:
    """Returns one job's part of a bundle from its canonical bytes; raises ``Rejected`` for any other bytes."""
    try:
        job = _JOB.validate_python(_load(data))
        canonical = encode_job(job)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Rejected("the evidence of a job does not have the fields of its format") from error
    if canonical != data:
        raise Rejected("the evidence of a job is not in its canonical form")
    return job


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _load(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_EVIDENCE_BYTES:
        raise Rejected(f"evidence of {len(data)} bytes exceeds the limit of {MAX_EVIDENCE_BYTES} bytes")
    try:
        value = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise Rejected("the evidence is not JSON") from error
    if not isinstance(value, dict):
        raise Rejected("the evidence is not a JSON object")
    return value


def _signed(value: dict[str, Any]) -> SignedEvidence:
    if set(value) != {"bundle", "signature"} or not _SIGNATURE.fullmatch(value["signature"]):
        raise Rejected("invalid signed evidence: expected a bundle and a signature of 0x and 130 hex digits")
    bundle = value["bundle"]
    if bundle["format"] != FORMAT:
        raise Rejected(f"the evidence is not of format {FORMAT}")
    evidence = _EVIDENCE.validate_python(bundle)
    return SignedEvidence(evidence, bytes.fromhex(value["signature"][2:]))


def _json(evidence: Evidence) -> dict[str, Any]:
    """Returns the bundle as JSON values."""
    return {"format": FORMAT, **_EVIDENCE.dump_python(evidence)}


_EVIDENCE = TypeAdapter(Evidence)
_JOB = TypeAdapter(JobEvidence)
