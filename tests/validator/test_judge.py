"""Honest jobs pass whatever the batch size; each lie gets its reason; no bytes raise."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.tensor.proofs import build_proofs
from protocol.wire.artifact_blob import head_of
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout, decode, encode, rollouts_root
from protocol.wire.toploc.codec import ENTRIES, PRIME, Proof
from protocol.wire.units import units
from tests.artifacts import signed_head
from tests.validator.conftest import CHAIN_ID, ROUNDS
from validator.judging.judge import FetchedJob, judge
from validator.judging.weights import load_policy

Tamper = Callable[[Artifact], Artifact]


def changed(n: int, change: Callable[[Rollout], Rollout]) -> Tamper:
    """Changes one rollout of an artifact."""

    def tamper(artifact: Artifact) -> Artifact:
        rollouts = list(artifact.rollouts)
        rollouts[n] = change(rollouts[n])
        return replace(artifact, rollouts=tuple(rollouts))

    return tamper


def every(change: Callable[[Rollout], Rollout]) -> Tamper:
    """Changes every rollout of an artifact."""
    return lambda artifact: replace(artifact, rollouts=tuple(map(change, artifact.rollouts)))


def stopped(court: Any) -> int:
    """A rollout that ended with end-of-text after a few tokens."""
    return number_of(court, lambda rollout: rollout.finish_reason == "stop" and len(rollout.output_tokens) > 8)


def cut_off(court: Any) -> int:
    """A rollout that ran out of tokens."""
    return number_of(court, lambda rollout: rollout.finish_reason == "length")


def number_of(court: Any, wanted: Callable[[Rollout], bool]) -> int:
    """The first honest rollout of the wanted kind."""
    return next(n for n, rollout in enumerate(decode(court.honest()[1]).rollouts) if wanted(rollout))


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_an_honest_job_is_accepted_at_any_batch_size(court: Any, batch: int) -> None:
    (judgement,) = court.judge(court.honest(batch=batch))
    assert judgement.evidence.findings == ()
    assert judgement.reason is Reason.ACCEPTED


def test_prompts_and_endings_are_those_of_the_rules(court: Any) -> None:
    plain, stops = court.honest(), (court.policy.model.stop_token, 5, 8)
    within = {"prompt_before": "answer ", "prompt_after": "=", "stop_tokens": stops}
    chat = replace(court, rules=court.rules.model_copy(update=within))
    made = chat.honest()
    assert chat.judge(made)[0].reason is Reason.ACCEPTED
    endings = {int(each.output_tokens[-1]) for each in decode(made[1]).rollouts if each.finish_reason == "stop"}
    assert endings == set(stops)
    assert court.judge(made)[0].reason is Reason.WRONG_PROMPT
    longer = replace(court, rules=court.rules.model_copy(update={"stop_tokens": stops}))
    assert longer.judge(plain)[0].reason is Reason.ENDING


def test_jobs_of_several_rounds_share_a_prefill(court: Any) -> None:
    judgements = court.judge(court.honest(0), court.honest(3), court.honest(1, round_=2))
    assert [judgement.reason for judgement in judgements] == [Reason.ACCEPTED] * 3


def test_evidence_holds_what_was_measured(court: Any) -> None:
    claim, data = court.honest()
    (judgement,) = court.judge((claim, data))
    measured = judgement.evidence.measurements
    rollouts = decode(data).rollouts
    assert measured.tokens_N.tolist() == [len(rollout.output_tokens) for rollout in rollouts]
    assert measured.chunks_N.tolist() == [len(rollout.proofs) for rollout in rollouts]
    assert judgement.evidence.units_counted == claim.units


def test_an_edited_token_is_fraud(court: Any) -> None:
    def edit(rollout: Rollout) -> Rollout:
        tokens = rollout.output_tokens.copy()
        tokens[-2] = 3 + (tokens[-2] - 2) % 15
        return replace(rollout, output_tokens=tokens)

    assert court.cheat(changed(stopped(court), edit)).reason is Reason.SAMPLING_FRAUD


def test_random_tokens_are_fraud(court: Any) -> None:
    chance = np.random.default_rng(1)

    def scramble(rollout: Rollout) -> Rollout:
        tokens = chance.integers(3, 18, len(rollout.output_tokens), dtype=np.int32)
        return replace(rollout, output_tokens=tokens, finish_reason="stop")

    assert court.cheat(every(scramble)).reason is Reason.SAMPLING_FRAUD


def test_sampling_hotter_than_agreed_is_fraud(court: Any) -> None:
    hot = replace(court, rules=court.rules.model_copy(update={"temperature": 1.4}))
    (judgement,) = court.judge(hot.honest())
    assert judgement.reason is Reason.SAMPLING_FRAUD


def test_another_model_is_caught(court: Any, tmp_path: Path) -> None:
    court.make_model(tmp_path, seed=6)
    sibling = replace(court, policy=load_policy(tmp_path, court.rules))
    (judgement,) = court.judge(sibling.honest())
    assert judgement.reason is Reason.SAMPLING_FRAUD


def test_a_small_margin_is_void_and_no_fraud(court: Any) -> None:
    thresholds = court.rules.thresholds.model_copy(update={"sampling_fraud": None})
    lenient = replace(court, rules=court.rules.model_copy(update={"thresholds": thresholds}))

    def edit(rollout: Rollout) -> Rollout:
        tokens = rollout.output_tokens.copy()
        tokens[-2] = 3 + (tokens[-2] - 2) % 15
        return replace(rollout, output_tokens=tokens)

    assert lenient.cheat(changed(stopped(court), edit)).reason is Reason.SAMPLING_VOID


def test_stopping_early_is_an_ending(court: Any) -> None:
    def shorten(rollout: Rollout) -> Rollout:
        return truncated(rollout, 6, "stop")

    assert court.cheat(changed(cut_off(court), shorten)).reason is Reason.ENDING


def test_a_forged_end_of_text_is_fraud(court: Any) -> None:
    stop = court.policy.model.stop_token

    def end(rollout: Rollout) -> Rollout:
        short = truncated(rollout, 6, "stop")
        return replace(short, output_tokens=np.append(short.output_tokens[:-1], stop))

    assert court.cheat(changed(cut_off(court), end)).reason is Reason.SAMPLING_FRAUD


def test_running_on_past_end_of_text_is_not_accepted(court: Any) -> None:
    def run_on(rollout: Rollout) -> Rollout:
        extra = 44 - len(rollout.output_tokens)
        tokens = np.append(rollout.output_tokens, np.full(extra, 5, np.int32))
        logprobs = np.append(rollout.logprobs, np.full(extra, -1, np.float32))
        return replace(rollout, output_tokens=tokens, logprobs=logprobs, finish_reason="length")

    judgement = court.cheat(changed(stopped(court), run_on))
    assert Reason.ENDING in {finding.reason for finding in judgement.evidence.findings}
    assert judgement.reason is not Reason.ACCEPTED


def test_a_wrong_finish_reason_is_an_ending(court: Any) -> None:
    judgement = court.cheat(changed(stopped(court), lambda rollout: replace(rollout, finish_reason="length")))
    assert judgement.reason is Reason.ENDING


def test_negated_activations_do_not_pass(court: Any) -> None:
    def negate(rollout: Rollout) -> Rollout:
        return replace(rollout, proofs=tuple(map(negated, rollout.proofs)))

    assert court.cheat(every(negate)).reason is Reason.ACTIVATIONS


@pytest.mark.parametrize("value", [0x3F80, 0x4000, 0x3FC0])
def test_a_constant_proof_does_not_pass(court: Any, value: int) -> None:
    constant = Proof(PRIME, (value, *[0] * (ENTRIES - 1))).encode()

    def forge(rollout: Rollout) -> Rollout:
        return replace(rollout, proofs=tuple(constant for _ in rollout.proofs))

    assert court.cheat(every(forge)).reason is Reason.ACTIVATIONS


def test_proofs_of_other_activations_do_not_pass(court: Any) -> None:
    torch.manual_seed(3)

    def invent(rollout: Rollout) -> Rollout:
        proofs = build_proofs(torch.randn(len(rollout.output_tokens), 64).bfloat16())
        return replace(rollout, proofs=tuple(proofs))

    assert court.cheat(every(invent)).reason is Reason.ACTIVATIONS


def test_a_modulus_of_the_workers_choosing_is_a_wrong_shape(court: Any) -> None:
    def choose(rollout: Rollout) -> Rollout:
        return replace(rollout, proofs=tuple(struct.pack(">H", 65479) + proof[2:] for proof in rollout.proofs))

    assert court.cheat(every(choose)).reason is Reason.SHAPE


@pytest.mark.parametrize(
    "proofs",
    [
        lambda proofs: (),
        lambda proofs: proofs[:-1],
        lambda proofs: (*proofs, proofs[-1]),
        lambda proofs: (b"", *proofs[1:]),
        lambda proofs: (bytes(258), *proofs[1:]),
        lambda proofs: (proofs[0][:-1], *proofs[1:]),
        lambda proofs: (proofs[0][:2] + b"\xff" * 256, *proofs[1:]),
    ],
)
def test_missing_extra_and_malformed_proofs_are_a_wrong_shape(court: Any, proofs: Callable[..., Any]) -> None:
    tamper = changed(cut_off(court), lambda rollout: replace(rollout, proofs=proofs(rollout.proofs)))
    assert court.cheat(tamper).reason is Reason.SHAPE


def test_malformed_proofs_do_not_hide_an_edited_token(court: Any) -> None:
    def edit(rollout: Rollout) -> Rollout:
        tokens = rollout.output_tokens.copy()
        tokens[3] = 3 + (tokens[3] - 2) % 15
        return replace(rollout, output_tokens=tokens, proofs=())

    assert court.cheat(changed(cut_off(court), edit)).reason is Reason.SAMPLING_FRAUD


def test_a_prompt_of_ones_own_is_fraud(court: Any) -> None:
    tamper = changed(2, lambda rollout: replace(rollout, prompt_tokens=rollout.prompt_tokens[::-1].copy()))
    assert court.cheat(tamper).reason is Reason.WRONG_PROMPT


def test_anothers_rollouts_under_ones_own_job_are_fraud(court: Any) -> None:
    stolen = decode(court.honest(5)[1])
    assert court.cheat(lambda artifact: replace(artifact, rollouts=stolen.rollouts)).reason is Reason.WRONG_PROMPT


def test_anothers_artifact_claimed_as_it_is(court: Any) -> None:
    claim, _ = court.honest(0)
    other, data = court.honest(5)
    stolen = replace(claim, root=other.root)
    (unseen,) = court.judge((stolen, data))
    (seen,) = court.judge((replace(stolen, claimed_before=True), data))
    assert (unseen.reason, seen.reason) == (Reason.WRONG_POLICY, Reason.DUPLICATE)


def test_whoever_claims_a_stolen_root_first_cannot_have_its_owner_condemned(court: Any) -> None:
    claim, data = court.honest(0)
    (judgement,) = court.judge((replace(claim, claimed_before=True), data))
    assert judgement.reason is Reason.ACCEPTED


def test_a_stale_beacon_is_void_whatever_else_is_wrong(court: Any) -> None:
    claim, data = court.honest()
    (judgement,) = court.judge((replace(claim, signed_beacon=bytes(32)), data[:100]))
    assert judgement.reason is Reason.STALE_BEACON
    assert not judgement.reason.fraud


def test_bytes_the_node_did_not_sign_are_not_held_against_it(court: Any) -> None:
    claim, _ = court.honest(0)
    _, other = court.honest(0, round_=9)
    (judgement,) = court.judge((claim, other))
    assert judgement.reason is Reason.WRONG_ROOT


@pytest.mark.parametrize("field", ["node", "manifest_root"])
def test_another_node_or_checkpoint_is_a_wrong_policy(court: Any, field: str) -> None:
    value = {"node": 8, "manifest_root": b"\x01" * 32}[field]
    assert court.cheat(lambda artifact: replace(artifact, **{field: value})).reason is Reason.WRONG_POLICY


def test_wrong_logprobs_are_void(court: Any) -> None:
    assert (
        court.cheat(every(lambda rollout: replace(rollout, logprobs=rollout.logprobs * 0.9))).reason is Reason.LOGPROBS
    )


def test_a_file_that_names_another_node_is_not_under_the_root(court: Any) -> None:
    claim, data = court.honest()
    own = decode(data)
    file = encode(replace(own, node=8))
    head = head_of(rollouts_root(CHAIN_ID, ROUNDS, own), file)
    (judgement,) = judge(court.policy, court.rules, [FetchedJob(replace(claim, root=head.root), head.packed + file)])
    assert judgement.reason is Reason.SHAPE


@pytest.mark.parametrize("logprob", [np.finfo(np.float32).min, -100.0])
def test_one_wrong_logprob_among_hundreds_is_void(court: Any, logprob: float) -> None:
    """Median and 99th percentile of the job are those of honest work."""

    def lower(rollout: Rollout) -> Rollout:
        return replace(rollout, logprobs=np.append(rollout.logprobs[:-1], np.float32(logprob)))

    judgement = court.cheat(changed(stopped(court), lower))
    assert judgement.reason is Reason.LOGPROBS
    (finding,) = judgement.evidence.findings
    assert (finding.rollout, finding.limit) == (stopped(court), court.rules.thresholds.sampling_void)


def test_a_logprob_is_bounded_in_logits_whatever_the_temperature(court: Any) -> None:
    cold = replace(court, rules=court.rules.model_copy(update={"temperature": 0.1}))
    void = cold.rules.thresholds.sampling_void

    def lowered(by: float) -> Tamper:
        return changed(0, lambda rollout: replace(rollout, logprobs=np.append(rollout.logprobs[:-1], np.float32(-by))))

    last = decode(cold.honest()[1]).rollouts[0].logprobs[-1]
    assert cold.cheat(lowered(8 * void - last)).reason is Reason.ACCEPTED
    assert cold.cheat(lowered(12 * void - last)).reason is Reason.LOGPROBS


def test_inflated_units_are_void(court: Any) -> None:
    claim, data = court.honest()
    (judgement,) = court.judge((replace(claim, units=claim.units + 1), data))
    assert judgement.reason is Reason.UNITS


def test_units_capped_by_the_run_are_accepted(court: Any) -> None:
    claim, data = court.honest()
    cap = units(court.policy.shape, 6, 10)
    (judgement,) = court.judge((replace(claim, units=cap, max_units=cap), data))
    assert judgement.reason is Reason.ACCEPTED


@pytest.mark.parametrize("count", [15, 17, 1])
def test_another_number_of_rollouts_is_a_wrong_shape(court: Any, count: int) -> None:
    def resize(artifact: Artifact) -> Artifact:
        return replace(artifact, rollouts=(artifact.rollouts * 2)[:count])

    assert court.cheat(resize).reason is Reason.SHAPE


def test_a_token_outside_the_vocabulary_is_a_wrong_shape(court: Any) -> None:
    def leave(rollout: Rollout) -> Rollout:
        return replace(rollout, output_tokens=np.append(rollout.output_tokens[:-1], np.int32(2**31 - 1)))

    assert court.cheat(changed(4, leave)).reason is Reason.SHAPE


def test_more_tokens_than_allowed_are_not_read(court: Any) -> None:
    def lengthen(rollout: Rollout) -> Rollout:
        tokens = np.append(rollout.output_tokens, np.full(60, 5, np.int32))
        logprobs = np.append(rollout.logprobs, np.full(60, -1, np.float32))
        return replace(rollout, output_tokens=tokens, logprobs=logprobs)

    assert court.cheat(changed(4, lengthen)).reason is Reason.SHAPE


def test_one_bad_job_does_not_touch_its_neighbours(court: Any) -> None:
    claim, data = court.honest(0)
    reasons = [judgement.reason for judgement in court.judge(court.honest(1), (claim, data[:-9]), court.honest(2))]
    assert reasons == [Reason.ACCEPTED, Reason.WRONG_ROOT, Reason.ACCEPTED]


def test_an_oversized_file_is_not_the_signed_one(court: Any) -> None:
    claim, data = court.honest()
    (judgement,) = court.judge((claim, data + bytes(1 << 20)))
    assert judgement.reason is Reason.WRONG_ROOT


def test_a_file_that_nobody_can_read_is_void_once_its_bytes_were_signed(court: Any) -> None:
    claim, data = court.honest()
    for file in (b"", b"junk", data[:-1], data + b"x"):
        signed = replace(claim, root=signed_head(CHAIN_ID, ROUNDS, file).root)
        (judgement,) = court.judge((signed, file))
        assert (judgement.reason, judgement.reason.fraud, judgement.reason.unavailable) == (Reason.SHAPE, False, False)


def test_a_head_that_names_other_rollouts_than_its_file_is_void(court: Any) -> None:
    claim, data = court.honest()
    lying = head_of(b"\x07" * 32, data)
    job = FetchedJob(replace(claim, root=lying.root), lying.packed + data)
    (judgement,) = judge(court.policy, court.rules, [job])
    assert judgement.reason is Reason.SHAPE
    assert "other rollouts" in judgement.evidence.findings[0].detail


def test_what_could_not_be_fetched_keeps_its_finding(court: Any) -> None:
    claim, _ = court.honest()
    finding = Finding(Reason.UNAVAILABLE, "no answer")
    (judgement,) = judge(court.policy, court.rules, [FetchedJob(claim, finding)])
    assert judgement.reason is Reason.UNAVAILABLE
    assert judgement.evidence.measurements is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_bytes_give_a_reason(court: Any, data: st.DataObject) -> None:
    claim, honest = court.sample
    start = data.draw(st.integers(0, len(honest) - 1))
    piece = data.draw(st.binary(max_size=40))
    cut = data.draw(st.integers(0, 60))
    (judgement,) = court.judge((claim, honest[:start] + piece + honest[start + cut :]))
    assert judgement.reason in set(Reason)
    assert not judgement.reason.fraud


def truncated(rollout: Rollout, length: int, reason: Any) -> Rollout:
    """The first tokens of a rollout, with proofs of the right number."""
    return replace(
        rollout,
        output_tokens=rollout.output_tokens[:length],
        logprobs=rollout.logprobs[:length],
        proofs=rollout.proofs[:1],
        finish_reason=reason,
    )


def negated(proof: bytes) -> bytes:
    """A proof of the negated activations: its polynomial through the same positions with the sign bit flipped."""
    decoded = Proof.decode(proof)
    first = (decoded.coefficients[0] + 0x8000) % PRIME
    return Proof(decoded.modulus, (first, *decoded.coefficients[1:])).encode()
