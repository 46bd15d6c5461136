"""Every check of an artifact, each from numbers to findings.

A check returns what it found wrong, with the number it saw and the bound it broke; no finding means it passed. Reading
an artifact (`read_artifact`) stops at the first thing wrong, because nothing behind it means anything; all other checks
are independent of one another. Numbers of the verifier's own that are not finite never reach this module: it abstains.

PURE. Axes: N rollouts of a job, S sampled tokens of all of them one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Rejected
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Limits, Rollout, artifact_root, decode
from protocol.wire.rules import Rules, Thresholds
from protocol.wire.toploc.codec import CHUNK_ROWS, PROOF_BYTES, Distance, chunk_spans, decode_fields
from protocol.wire.units import ModelShape, capped, units
from validator.judging.claims import Claim

F32 = NDArray[np.float32]

TAIL = 99.0
"""Percentile of the logprob differences that ``Thresholds.logprob_tail`` bounds."""


def artifact_limits(rules: Rules, prompts: Sequence[str]) -> Limits:
    """Returns the bounds an artifact under ``rules`` must keep; all hold before anything large is allocated.

    A text has at most as many tokens as bytes. Prompts get room beyond what the seed gives, so that a foreign prompt is
    judged as one and not as a wrong size.
    """
    longest_prompt = max(len(prompt.encode()) for prompt in prompts)
    tokens = rules.rollouts_per_job * (4 * longest_prompt + 64 + rules.max_tokens)
    proofs = 2 * -(-rules.max_tokens // CHUNK_ROWS) + 2
    proof_bytes = rules.rollouts_per_job * proofs * (PROOF_BYTES + 4)
    return Limits(
        file_bytes=tokens * 16 + proof_bytes + (64 << 10),
        uncompressed_bytes=2 * (tokens * 16 + proof_bytes) + (64 << 10),
        rollouts=2 * rules.rollouts_per_job,
        prompt_tokens=4 * longest_prompt + 64,
        output_tokens=rules.max_tokens,
        proofs=proofs,
        proof_bytes=2 * PROOF_BYTES,
    )


def read_artifact(claim: Claim, data: bytes, limits: Limits) -> Artifact:
    """Returns the artifact in ``data`` if it is the one that was signed for this job, else raises ``Rejected``.

    A beacon that is not canonical voids the job whatever it holds: a reorg may cost honest work, never a bond. Bytes
    that do not hash to the signed root were not signed by the node, so nothing in them can be held against it.
    """
    if claim.signed_beacon != claim.beacon:
        raise Rejected("the signed beacon is not the hash of the round's opening block", Reason.STALE_BEACON)
    artifact = decode(data, limits)
    if artifact_root(claim.chain_id, claim.rounds, artifact) != claim.root:
        raise Rejected("the artifact does not hash to the signed root", Reason.WRONG_ROOT)
    if (artifact.round, artifact.job) != (claim.round, claim.job):
        reason = Reason.DUPLICATE if claim.claimed_before else Reason.WRONG_POLICY
        raise Rejected(f"the artifact belongs to job {artifact.job} of round {artifact.round}", reason)
    if artifact.node != claim.node:
        raise Rejected(f"the artifact names node {artifact.node}, the job is node {claim.node}'s", Reason.WRONG_POLICY)
    if artifact.manifest_root != claim.manifest_root:
        raise Rejected("the artifact names another checkpoint than the round's policy", Reason.WRONG_POLICY)
    return artifact


def check_shape(artifact: Artifact, rules: Rules, vocabulary: int) -> list[Finding]:
    """Number of rollouts, token ids and lengths: without these no other check can be made."""
    found = []
    if len(artifact.rollouts) != rules.rollouts_per_job:
        detail = f"{len(artifact.rollouts)} rollouts, a job has {rules.rollouts_per_job}"
        found.append(Finding(Reason.SHAPE, detail, None, len(artifact.rollouts), rules.rollouts_per_job))
    for n, rollout in enumerate(artifact.rollouts):
        highest = int(rollout.output_tokens.max())
        if highest >= vocabulary:
            found.append(Finding(Reason.SHAPE, "a token outside the vocabulary", n, highest, vocabulary - 1))
        if len(rollout.output_tokens) > rules.max_tokens:
            length = len(rollout.output_tokens)
            found.append(Finding(Reason.SHAPE, "more tokens than the rules allow", n, length, rules.max_tokens))
    return found


def check_prompts(artifact: Artifact, prompts: Sequence[Sequence[int]]) -> list[Finding]:
    """Prompts against those that follow from the beacon, one for each group: an exact mismatch is fraud."""
    per_group = len(artifact.rollouts) // len(prompts)
    expected = [np.asarray(prompt, dtype=np.int32).tobytes() for prompt in prompts]
    return [
        Finding(Reason.WRONG_PROMPT, "the prompt does not follow from the beacon", n)
        for n, rollout in enumerate(artifact.rollouts)
        if rollout.prompt_tokens.tobytes() != expected[n // per_group]
    ]


def check_proofs(artifact: Artifact) -> list[Finding]:
    """One well-formed proof for each chunk of each rollout, no more and no fewer."""
    if _all_formed(artifact):
        return []
    return [finding for n, rollout in enumerate(artifact.rollouts) for finding in _proof_findings(n, rollout)]


def _all_formed(artifact: Artifact) -> bool:
    """What is nearly always so, seen in one go."""
    if any(len(rollout.proofs) != len(chunk_spans(len(rollout.output_tokens))) for rollout in artifact.rollouts):
        return False
    try:
        decode_fields([proof for rollout in artifact.rollouts for proof in rollout.proofs])
    except Rejected:
        return False
    return True


def _proof_findings(n: int, rollout: Rollout) -> Iterator[Finding]:
    wanted = len(chunk_spans(len(rollout.output_tokens)))
    if len(rollout.proofs) != wanted:
        yield Finding(Reason.SHAPE, "a wrong number of proofs", n, len(rollout.proofs), wanted)
    for proof in rollout.proofs:
        try:
            decode_fields([proof])
        except Rejected as error:
            yield Finding(Reason.SHAPE, str(error), n)


def check_endings(artifact: Artifact, stop_token: int, max_tokens: int) -> list[Finding]:
    """End-of-text is a token like any other: a completion ends there and nowhere else, or at exactly ``max_tokens``."""
    found = []
    for n, rollout in enumerate(artifact.rollouts):
        stops = np.flatnonzero(rollout.output_tokens == stop_token)
        last = len(rollout.output_tokens) - 1
        if len(stops) and stops[0] != last:
            found.append(Finding(Reason.ENDING, "goes on after end-of-text", n, int(stops[0]), last))
        elif rollout.finish_reason == "stop" and not len(stops):
            found.append(Finding(Reason.ENDING, "says it stopped without end-of-text", n))
        elif rollout.finish_reason == "length" and (len(stops) or last + 1 != max_tokens):
            found.append(Finding(Reason.ENDING, "says it ran out of tokens, and did not", n, last + 1, max_tokens))
    return found


def check_sampling(margins_S: F32, lengths_N: NDArray[np.int64], thresholds: Thresholds) -> list[Finding]:
    """The largest margin of each rollout against the hard bounds; beyond ``sampling_fraud`` no honest engine goes."""
    found = []
    fraud = thresholds.sampling_fraud
    for n, margin in enumerate(segment_max(margins_S, lengths_N).tolist()):
        if fraud is not None and margin > fraud:
            found.append(Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", n, margin, fraud))
        elif margin > thresholds.sampling_void:
            limit = thresholds.sampling_void
            found.append(Finding(Reason.SAMPLING_VOID, "a token is not the seeded choice", n, margin, limit))
    return found


def check_logprobs(reported_S: F32, recomputed_S: F32, thresholds: Thresholds) -> list[Finding]:
    """Median and tail over the job of |reported − recomputed|, in nats."""
    difference_S = np.abs(reported_S.astype(np.float64) - recomputed_S)
    median, tail = (float(value) for value in np.percentile(difference_S, [50.0, TAIL]))
    found = []
    if not median <= thresholds.logprob_median:
        limit = thresholds.logprob_median
        found.append(Finding(Reason.LOGPROBS, "median difference of logprobs", None, median, limit))
    if not tail <= thresholds.logprob_tail:
        found.append(Finding(Reason.LOGPROBS, f"{TAIL:g}th percentile", None, tail, thresholds.logprob_tail))
    return found


def check_activations(distances: Sequence[Sequence[Distance]], thresholds: Thresholds) -> list[Finding]:
    """Each chunk's distance against the bound and against the best forgery's; the job's mean; the modulus."""
    found = [
        finding
        for n, chunks in enumerate(distances)
        for distance in chunks
        for finding in _distance_findings(n, distance, thresholds)
    ]
    mean = float(np.mean([distance.rel for chunks in distances for distance in chunks]))
    if not mean <= thresholds.toploc_mean:
        found.append(Finding(Reason.ACTIVATIONS, "mean distance of the job", None, mean, thresholds.toploc_mean))
    return found


def _distance_findings(n: int, distance: Distance, thresholds: Thresholds) -> Iterator[Finding]:
    if not distance.modulus_canonical:
        yield Finding(Reason.SHAPE, "the proof's modulus is of the worker's choosing", n)
    if not distance.rel <= thresholds.toploc:
        yield Finding(Reason.ACTIVATIONS, "distance of a chunk", n, distance.rel, thresholds.toploc)
    guard = thresholds.toploc_null_ratio * distance.null
    if not distance.rel <= guard:
        yield Finding(Reason.ACTIVATIONS, "no nearer than a forgery could be", n, distance.rel, guard)


def check_units(claim: Claim, artifact: Artifact, shape: ModelShape) -> list[Finding]:
    """The claim against the operations of the verified tokens; the most that is paid may be claimed in its place."""
    counted = job_units(artifact, shape)
    if claim.units in (counted, capped(counted, claim.max_units)):
        return []
    return [Finding(Reason.UNITS, "units claimed and counted differ", None, claim.units, counted)]


def job_units(artifact: Artifact, shape: ModelShape) -> int:
    """Returns the units of all rollouts together."""
    lengths = [(len(rollout.prompt_tokens), len(rollout.output_tokens)) for rollout in artifact.rollouts]
    return sum(units(shape, prompt, output) for prompt, output in lengths)


def segment_max(values_S: F32, lengths_N: NDArray[np.int64]) -> F32:
    """Returns the largest value of each rollout (N,); every rollout has at least one token."""
    starts_N = np.cumsum(lengths_N) - lengths_N
    return np.maximum.reduceat(values_S, starts_N)
