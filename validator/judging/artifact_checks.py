"""Checks of an artifact by itself: provenance, shape and proofs, prompts, endings, work units.

``read_artifact`` stops at the first fault, because an artifact that is not the signed one proves nothing else.

PURE. Axes: S sampled tokens, C chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.errors import Rejected
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rollout import DEFAULT_LIMITS, Artifact, Limits, Rollout, decode, rollouts_root
from protocol.wire.rules import Rules, Thresholds
from protocol.wire.toploc.codec import CHUNK_ROWS, HASH_BYTES, PROOF_BYTES, chunk_spans, decode_fields
from protocol.wire.units import ModelShape, capped, units
from validator.judging.check import Check, ReadJob, TokenMeasurements
from validator.judging.claims import Claim


def artifact_limits(rules: Rules, longest_prompt: int) -> Limits:
    """Returns the size limits of an artifact under ``rules``, enforced before anything large is allocated.

    ``longest_prompt`` bounds the tokens of a prompt. The limits leave room beyond, so that a foreign prompt is reported
    as a wrong prompt and not as a wrong size.
    """
    tokens = rules.rollouts_per_job * (4 * longest_prompt + 64 + rules.max_tokens)
    proofs = 2 * -(-rules.max_tokens // CHUNK_ROWS) + 2
    proof_bytes = rules.rollouts_per_job * proofs * (DEFAULT_LIMITS.proof_bytes + 4)
    return Limits(
        file_bytes=tokens * 16 + proof_bytes + (64 << 10),
        rollouts=2 * rules.rollouts_per_job,
        prompt_tokens=4 * longest_prompt + 64,
        output_tokens=rules.max_tokens,
        proofs=proofs,
    )


def proof_size(rules: Rules) -> int:
    """Returns the bytes of a chunk's proof."""
    return PROOF_BYTES * rules.chunks_interpolated + HASH_BYTES * rules.chunks_hashed


def polynomials(artifact: Artifact, rules: Rules) -> list[list[bytes]]:
    """Returns the TOPLOC polynomials of each rollout's chunks, none in a run that asks for hashes alone."""
    if not rules.chunks_interpolated:
        return [[] for _ in artifact.rollouts]
    return [[proof[:PROOF_BYTES] for proof in rollout.proofs] for rollout in artifact.rollouts]


def hashes(rollout: Rollout) -> list[bytes]:
    """Returns the hashes at the end of the proofs of a rollout's chunks."""
    return [proof[-HASH_BYTES:] for proof in rollout.proofs]


def read_artifact(claim: Claim, data: bytes, limits: Limits) -> Artifact:
    """Returns the artifact in the blob ``data`` if it is the one that was signed for this job.

    A signed beacon that is not canonical voids the job whatever the artifact contains: a reorganisation may cost honest
    work, never a bond. Bytes that do not hash to the signed root were not signed by the node and prove nothing against
    it: what it signed is unavailable. Bytes that do were, readable or not.

    Raises:
        Rejected: the bytes are not that artifact; carries the reason.
    """
    if claim.signed_beacon != claim.beacon:
        raise Rejected("the signed beacon is not the hash of the round's opening block", Reason.STALE_BEACON)
    try:
        head, file = parse_blob(data, claim.root)
    except Rejected as error:
        raise Rejected(str(error), Reason.WRONG_ROOT) from error
    artifact = decode(file, limits)
    if rollouts_root(claim.chain_id, claim.rounds, artifact) != head.rollouts_root:
        raise Rejected("the signed root names other rollouts than the file's", Reason.SHAPE)
    if (artifact.round, artifact.job, artifact.node) != (claim.round, claim.job, claim.node):
        reason = Reason.DUPLICATE if claim.claimed_before else Reason.WRONG_POLICY
        owner = f"job {artifact.job} of round {artifact.round}, done by node {artifact.node}"
        raise Rejected(f"the artifact belongs to {owner}", reason)
    if artifact.manifest_root != claim.manifest_root:
        raise Rejected("the artifact names another checkpoint than the round's policy", Reason.WRONG_POLICY)
    return artifact


def check_shape(job: ReadJob) -> list[Finding]:
    """Checks the number of rollouts, token ids and lengths, which every later check relies on."""
    artifact, rules, found = job.artifact, job.rules, []
    if len(artifact.rollouts) != rules.rollouts_per_job:
        detail = f"{len(artifact.rollouts)} rollouts, a job has {rules.rollouts_per_job}"
        found.append(Finding(Reason.SHAPE, detail, None, len(artifact.rollouts), rules.rollouts_per_job))
    for n, rollout in enumerate(artifact.rollouts):
        for detail, seen, limit in (
            ("a token outside the vocabulary", int(rollout.output_tokens.max()), job.vocabulary - 1),
            ("more tokens than the rules allow", len(rollout.output_tokens), rules.max_tokens),
        ):
            if seen > limit:
                found.append(Finding(Reason.SHAPE, detail, n, seen, limit))
    return found


def check_class(job: ReadJob) -> list[Finding]:
    """Checks that the artifact was made in the run's determinism class; equal claims have equal words."""
    claimed, exact = job.artifact.canary, job.rules.model.exact
    if claimed == job.rules.canary:
        return []
    named = f"the determinism class 0x{claimed.hex()[:16]}…" if any(claimed) else "no determinism class"
    asked = "names none" if exact is None else f"is of 0x{job.rules.canary.hex()[:16]}…"
    made_by = f" ({exact.made_by})" if exact is not None and exact.made_by else ""
    return [Finding(Reason.INEXACT, f"the artifact claims {named}, the run {asked}{made_by}")]


def check_prompts(job: ReadJob) -> list[Finding]:
    """Compares each group's prompt with the one derived from the beacon; any mismatch is fraud."""
    per_group = len(job.artifact.rollouts) // len(job.prompts)
    expected = [np.asarray(prompt, dtype=np.int32).tobytes() for prompt in job.prompts]
    return [
        Finding(Reason.WRONG_PROMPT, "the prompt does not follow from the beacon", n)
        for n, rollout in enumerate(job.artifact.rollouts)
        if rollout.prompt_tokens.tobytes() != expected[n // per_group]
    ]


def check_proofs(artifact: Artifact, rules: Rules) -> list[Finding]:
    """Checks that each rollout has exactly one well-formed proof per chunk."""
    if _all_formed(artifact, rules):
        return []
    return [finding for n, rollout in enumerate(artifact.rollouts) for finding in _proof_findings(n, rollout, rules)]


def _all_formed(artifact: Artifact, rules: Rules) -> bool:
    """Fast path: true if every rollout has the right number of well-formed proofs."""
    size = proof_size(rules)
    for rollout in artifact.rollouts:
        wanted = len(chunk_spans(len(rollout.output_tokens)))
        if len(rollout.proofs) != wanted or any(len(proof) != size for proof in rollout.proofs):
            return False
    try:
        decode_fields([proof for given in polynomials(artifact, rules) for proof in given])
    except Rejected:
        return False
    return True


def _proof_findings(n: int, rollout: Rollout, rules: Rules) -> Iterator[Finding]:
    wanted, size = len(chunk_spans(len(rollout.output_tokens))), proof_size(rules)
    if len(rollout.proofs) != wanted:
        yield Finding(Reason.SHAPE, "a wrong number of proofs", n, len(rollout.proofs), wanted)
    for proof in rollout.proofs:
        if len(proof) != size:
            yield Finding(Reason.SHAPE, f"invalid proof of {len(proof)} bytes: expected {size}", n)
            continue
        try:
            decode_fields([proof[:PROOF_BYTES]] if rules.chunks_interpolated else [])
        except Rejected as error:
            yield Finding(Reason.SHAPE, str(error), n)


def check_endings(job: ReadJob) -> list[Finding]:
    """Checks that each completion ends at its first stop token, or at exactly ``max_tokens`` without one."""
    max_tokens, found = job.rules.max_tokens, []
    for n, rollout in enumerate(job.artifact.rollouts):
        stops = np.flatnonzero(np.isin(rollout.output_tokens, job.stop_tokens))
        last = len(rollout.output_tokens) - 1
        if len(stops) and stops[0] != last:
            found.append(Finding(Reason.ENDING, "continues after a stop token", n, int(stops[0]), last))
        elif rollout.finish_reason == "stop" and not len(stops):
            found.append(Finding(Reason.ENDING, "finish reason is stop, without a stop token", n))
        elif rollout.finish_reason == "length" and (len(stops) or last + 1 != max_tokens):
            found.append(
                Finding(Reason.ENDING, "finish reason is length, before the token limit", n, last + 1, max_tokens)
            )
    return found


def check_units(job: ReadJob) -> list[Finding]:
    """Compares the claimed units with those of the verified tokens; a claim capped at the run's maximum passes too."""
    claim, counted = job.claim, job_units(job.artifact, job.shape)
    if claim.units in (counted, capped(counted, claim.max_units)):
        return []
    return [Finding(Reason.UNITS, "units claimed and counted differ", None, claim.units, counted)]


def job_units(artifact: Artifact, shape: ModelShape) -> int:
    """Returns the work units of all rollouts together."""
    lengths = [(len(rollout.prompt_tokens), len(rollout.output_tokens)) for rollout in artifact.rollouts]
    return sum(units(shape, prompt, output) for prompt, output in lengths)


def check_moduli(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    """Checks that each proof's modulus is one that an honest worker can arrive at."""
    detail = "the proof's modulus was chosen by the worker"
    return [Finding(Reason.SHAPE, detail, int(n)) for n in measured.rollouts_C[~measured.canonical_C]]


def _describe_shape(job: ReadJob) -> str:
    tokens = sum(len(rollout.output_tokens) for rollout in job.artifact.rollouts)
    return f"{len(job.artifact.rollouts)} rollouts, {tokens} tokens"


def _describe_endings(job: ReadJob) -> str:
    finishes = [rollout.finish_reason for rollout in job.artifact.rollouts]
    return f"{finishes.count('stop')} at a stop token, {finishes.count('length')} at the token limit"


PROVENANCE = Check(
    name="provenance",
    sentence="the artifact is the one that was signed for this job, under the round's beacon and checkpoint",
    reasons=(
        *(Reason.UNFIT_CHECKPOINT, Reason.UNAVAILABLE, Reason.STALE_BEACON),
        *(Reason.WRONG_ROOT, Reason.WRONG_POLICY, Reason.DUPLICATE),
    ),
    describe=lambda job: "beacon, root, round, job, node and checkpoint match the claim",
)
"""Made by ``read_artifact`` and, for artifacts that could not be fetched or belong to no checkpoint, by the caller."""

SHAPE = Check(
    name="shape and proofs",
    sentence="the artifact has the schema, sizes and proofs that the rules ask for",
    reasons=(Reason.SHAPE,),
    requires=check_shape,
    inspects=lambda job: list(job.proof_findings),
    compares=check_moduli,
    describe=_describe_shape,
    limits=lambda rules: f"{rules.rollouts_per_job} rollouts of at most {rules.max_tokens} tokens",
)

PROMPTS = Check(
    name="prompts",
    sentence="every prompt is the one derived from the beacon",
    reasons=(Reason.WRONG_PROMPT,),
    requires=check_prompts,
    describe=lambda job: None if check_prompts(job) else "derived from the beacon",
)

ENDINGS = Check(
    name="endings",
    sentence="every completion ends as its finish reason says",
    reasons=(Reason.ENDING,),
    inspects=check_endings,
    describe=_describe_endings,
)

UNITS = Check(
    name="work units",
    sentence="the claimed work units are those of the verified tokens",
    reasons=(Reason.UNITS,),
    inspects=check_units,
    describe=lambda job: f"{job.claim.units} claimed, {job_units(job.artifact, job.shape)} counted",
)
