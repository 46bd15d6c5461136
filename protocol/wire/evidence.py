"""Evidence: a signed bundle of one juror's measurements in one round, named by its hash.

The vote names the bundle's root before the bundle can be read; it is published once committing has ended. A verdict can
be checked by measuring again from the artifacts, the weights and the rules, and comparing with the bundle.

    bundle   = canonical JSON (sorted keys, no spaces, ASCII), roots and hashes in lower-case 0x-hex
    column   = base64 of little-endian numbers: "<f4" measurements, "<u4" counts, "<u2" bits of bf16 numbers
    root     = keccak(bundle)
    envelope = {"bundle":…,"signature":"0x…"}
               EIP-712 `Evidence(uint256 round,uint8 attempt,uint32 juror,bytes32 root)` in the domain
               ("Assize Evidence", "1", chain id, Rounds), by the juror's node key

Numbers in columns are float32 as measured; thresholds are decimal. PURE.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from eth_utils import keccak
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.auth import Signer, TypedData
from protocol.wire.canonical import Bytes32, Canonical, Signature
from protocol.wire.fingerprints import PROJECTIONS
from protocol.wire.reasons import Reason

MAX_EVIDENCE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _InBase64:
    """Marks an array that is base64 of little-endian numbers in JSON."""

    dtype: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda text: np.frombuffer(base64.b64decode(text, validate=True), self.dtype),
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda column: base64.b64encode(column.astype(self.dtype).tobytes()).decode()
            ),
        )


F32 = Annotated[NDArray[np.float32], _InBase64("<f4")]
U32 = Annotated[NDArray[np.uint32], _InBase64("<u4")]
U16 = Annotated[NDArray[np.uint16], _InBase64("<u2")]
EngineName = Annotated[str, Field(pattern=r"^[ -~]{1,160}$")]
"""The name of a juror's engine, fit to be shown at a terminal."""


class Finding(NamedTuple):
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

    tokens_N: U32
    flips_N: U32
    up_N: U32
    margin_max_N: F32
    margin_sum_N: F32
    gap_min_N: F32
    llr_N: F32
    logprob_median_N: F32
    logprob_max_N: F32
    chunks_N: U32
    rel_C: F32
    null_C: F32


def _check_columns(measurements: Measurements) -> Measurements:
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
    root: Bytes32
    reason: Reason
    units_claimed: int
    units_counted: int | None
    findings: tuple[Finding, ...]
    measurements: Annotated[Measurements, AfterValidator(_check_columns)] | None


@dataclass(frozen=True, slots=True, eq=False)
class JobFingerprint:
    """Figures of N rollouts of one measured job that show a prefill; see ``protocol.wire.fingerprints``.

    engine       software, device and number format of the juror's prefill
    canary       keccak of what that engine makes of a fixed sequence under the policy, bit by bit
    projections  eight for each rollout, one rollout after the other
    gaps_N       gap at each rollout's row, in logits
    """

    job: int
    engine: EngineName
    canary: Bytes32
    projections: F32
    gaps_N: F32

    @property
    def projections_NK(self) -> NDArray[np.float32]:
        """The projections by rollout."""
        return self.projections.reshape(-1, PROJECTIONS)


def _check_figures(fingerprint: JobFingerprint) -> JobFingerprint:
    """Checks that every rollout has its figures, and that they are finite."""
    if len(fingerprint.projections) != PROJECTIONS * len(fingerprint.gaps_N):
        raise Rejected(
            f"the fingerprint of job {fingerprint.job} has {len(fingerprint.projections)} projections for "
            f"{len(fingerprint.gaps_N)} rollouts, not {PROJECTIONS} each"
        )
    if not (np.isfinite(fingerprint.projections).all() and np.isfinite(fingerprint.gaps_N).all()):
        raise Rejected(f"the fingerprint of job {fingerprint.job} is not finite")
    return fingerprint


@dataclass(frozen=True, slots=True)
class Evidence:
    """A juror's bundle for one attempt at one round; ``thresholds`` are the bounds of the run's rules, by name.

    ``fingerprints`` has one for each measured job, ascending; readers take bundles without, and say so.
    """

    chain_id: int
    rounds: str
    run: int
    round: int
    attempt: int
    juror: int
    policy_version: int
    manifest_root: Bytes32
    rules_hash: Bytes32
    thresholds: Mapping[str, float | None]
    jobs: tuple[JobEvidence, ...]
    fingerprints: tuple[Annotated[JobFingerprint, AfterValidator(_check_figures)], ...] = ()
    format: Literal["assize/evidence/3"] = "assize/evidence/3"

    @property
    def canonical(self) -> bytes:
        """Canonical JSON bytes; their keccak is the root."""
        return _BUNDLE.encode(self)

    @property
    def root(self) -> bytes:
        """The 32-byte root that the vote names."""
        return keccak(self.canonical)


@dataclass(frozen=True, slots=True)
class SignedEvidence:
    """A bundle and the juror's 65-byte signature over it."""

    evidence: Annotated[Evidence, Field(alias="bundle")]
    signature: Signature

    @property
    def canonical(self) -> bytes:
        """Canonical bytes of the published envelope."""
        return _SIGNED.encode(self)

    def verify(self, key: str) -> None:
        """Raises ``Rejected`` unless the node key ``key`` signed exactly this bundle."""
        auth.check(typed_data(self.evidence), self.signature, key, "the evidence", f"juror {self.evidence.juror}'s key")


def sign(evidence: Evidence, signer: Signer) -> SignedEvidence:
    """Returns ``evidence`` signed by the juror's node key."""
    return SignedEvidence(evidence, signer.sign_typed(typed_data(evidence)))


def typed_data(evidence: Evidence) -> TypedData:
    """Returns the EIP-712 message that the juror signs."""
    return auth.evidence(
        evidence.chain_id, evidence.rounds, evidence.round, evidence.attempt, evidence.juror, evidence.root
    )


def parse_signed(data: bytes, root: bytes | None = None) -> SignedEvidence:
    """Returns the envelope in ``data`` without verifying its signature.

    Raises:
        Rejected: the bytes are not canonical, or the bundle does not hash to ``root``.
    """
    signed = _SIGNED.decode(data)
    if root is not None and signed.evidence.root != root:
        raise Rejected(f"the evidence hashes to 0x{signed.evidence.root.hex()}, not to 0x{root.hex()}")
    return signed


JOB_JSON = Canonical(JobEvidence, "evidence of a job", MAX_EVIDENCE_BYTES)
"""One job's part of a bundle, in canonical bytes."""
_BUNDLE = Canonical(Evidence, "evidence", MAX_EVIDENCE_BYTES)
_SIGNED = Canonical(SignedEvidence, "evidence", MAX_EVIDENCE_BYTES)
