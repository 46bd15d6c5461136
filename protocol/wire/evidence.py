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
from typing import Any

import numpy as np
from eth_utils import keccak
from numpy.typing import NDArray

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

    tokens_N: U32
    rewards_N: F32
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


COUNTS = ("tokens_N", "flips_N", "up_N", "chunks_N")


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """One job: claim, verdict, findings, and measurements (None if the artifact could not be read)."""

    job: int
    node: int
    root: bytes
    reason: Reason
    units_claimed: int
    units_counted: int | None
    findings: tuple[Finding, ...]
    measurements: Measurements | None


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
    manifest_root: bytes
    rules_hash: bytes
    thresholds: tuple[tuple[str, float | None], ...]
    jobs: tuple[JobEvidence, ...]

    @property
    def canonical(self) -> bytes:
        """Canonical JSON bytes; their keccak is the root."""
        return _dump(_evidence_json(self))

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
        return _dump({"bundle": _evidence_json(self.evidence), "signature": "0x" + self.signature.hex()})

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
    return _dump(_job_json(job))


def decode_job(data: bytes) -> JobEvidence:
    """Returns one job's part of a bundle from its canonical bytes; raises ``Rejected`` for any other bytes."""
    try:
        job = _job(_load(data))
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


def _evidence_json(evidence: Evidence) -> dict[str, Any]:
    return {
        "attempt": evidence.attempt,
        "chain_id": evidence.chain_id,
        "format": FORMAT,
        "jobs": [_job_json(job) for job in evidence.jobs],
        "juror": evidence.juror,
        "manifest_root": _hex(evidence.manifest_root),
        "policy_version": evidence.policy_version,
        "round": evidence.round,
        "rounds": evidence.rounds,
        "rules_hash": _hex(evidence.rules_hash),
        "run": evidence.run,
        "thresholds": dict(evidence.thresholds),
    }


def _job_json(job: JobEvidence) -> dict[str, Any]:
    return {
        "job": job.job,
        "measurements": None if job.measurements is None else _columns_json(job.measurements),
        "node": job.node,
        "findings": [
            [int(found.reason), found.detail, found.rollout, found.observed, found.limit] for found in job.findings
        ],
        "reason": int(job.reason),
        "root": _hex(job.root),
        "units_claimed": job.units_claimed,
        "units_counted": job.units_counted,
    }


def _columns_json(measurements: Measurements) -> dict[str, str]:
    return {
        name: base64.b64encode(getattr(measurements, name).astype(_dtype(name)).tobytes()).decode()
        for name in Measurements.__slots__
    }


def _signed(value: dict[str, Any]) -> SignedEvidence:
    if set(value) != {"bundle", "signature"} or not _SIGNATURE.fullmatch(value["signature"]):
        raise Rejected("invalid signed evidence: expected a bundle and a signature of 0x and 130 hex digits")
    bundle = value["bundle"]
    if bundle["format"] != FORMAT:
        raise Rejected(f"the evidence is not of format {FORMAT}")
    evidence = Evidence(
        chain_id=int(bundle["chain_id"]),
        rounds=str(bundle["rounds"]),
        run=int(bundle["run"]),
        round=int(bundle["round"]),
        attempt=int(bundle["attempt"]),
        juror=int(bundle["juror"]),
        policy_version=int(bundle["policy_version"]),
        manifest_root=_root(bundle["manifest_root"]),
        rules_hash=_root(bundle["rules_hash"]),
        thresholds=tuple(sorted(bundle["thresholds"].items())),
        jobs=tuple(_job(job) for job in bundle["jobs"]),
    )
    return SignedEvidence(evidence, bytes.fromhex(value["signature"][2:]))


def _job(value: dict[str, Any]) -> JobEvidence:
    columns, counted = value["measurements"], value["units_counted"]
    return JobEvidence(
        job=int(value["job"]),
        node=int(value["node"]),
        root=_root(value["root"]),
        reason=Reason(value["reason"]),
        units_claimed=int(value["units_claimed"]),
        units_counted=None if counted is None else int(counted),
        findings=tuple(
            Finding(Reason(code), str(detail), None if rollout is None else int(rollout), float(observed), float(limit))
            for code, detail, rollout, observed, limit in value["findings"]
        ),
        measurements=None if columns is None else _columns(columns),
    )


def _columns(value: dict[str, str]) -> Measurements:
    if set(value) != set(Measurements.__slots__):
        raise Rejected("the evidence has missing or unknown columns")
    try:
        measurements = Measurements(
            **{
                name: np.frombuffer(base64.b64decode(text, validate=True), dtype=_dtype(name))
                for name, text in value.items()
            }
        )
    except binascii.Error as error:
        raise Rejected("a column of the evidence is not base64") from error
    _check_columns(measurements)
    return measurements


def _check_columns(measurements: Measurements) -> None:
    """Checks that columns of one axis have one length and finite values, so that readers may compute with them."""
    chunks = int(measurements.chunks_N.sum(dtype=np.uint64))
    for name in Measurements.__slots__:
        column, wanted = getattr(measurements, name), len(measurements.tokens_N) if name.endswith("_N") else chunks
        if len(column) != wanted:
            raise Rejected(f"column {name} of the evidence has {len(column)} values, not {wanted}")
        if not np.isfinite(column).all():
            raise Rejected(f"column {name} of the evidence is not finite")


def _dtype(name: str) -> str:
    return "<u4" if name in COUNTS else "<f4"


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _root(text: str) -> bytes:
    if not _ROOT.fullmatch(text):
        raise Rejected(f"invalid root {text!r} in the evidence: expected 0x and 64 hex digits")
    return bytes.fromhex(text[2:])
