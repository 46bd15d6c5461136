"""Thresholds lie beyond honest noise, as far as they say, and not much farther."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules, Sequential
from tests.validator.conftest import RULES
from validator.calibration.fitting import ENOUGH_TOKENS, SHORT_FACTOR, SHORT_TOKENS, Fitted, fit
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import (
    LEAST_FLIPS,
    by_prompt,
    carried,
    centred,
    distinct,
    evidence_of,
    mean_upper,
    noise,
    sigma_above,
    sigma_of_carried,
)
from validator.calibration.power import power, reason_under, steering, verdicts
from validator.calibration.tails import tail
from validator.judging.numeric_checks import SWAP
from validator.judging.statistics import log_likelihood_ratios
from validator.records.record import EvidenceState, Ratios

SIGMA = 0.01
RULES_HERE = RULES.model_copy(update={"samples_per_group": 2, "groups_per_job": 4})
TOKENS = 40


def job(
    generator: np.random.Generator, sigma: float = SIGMA, rules: Rules = RULES_HERE, tokens: int = TOKENS
) -> MeasuredJob:
    """A job between two scores a random distance apart, in an engine whose scores differ by ``sigma``."""
    size = rules.rollouts_per_job
    lengths_N = np.full(size, tokens)
    count = size * tokens
    gap_S = generator.exponential(0.5, count)
    noise_S = generator.normal(0.0, sigma, count)
    flipped_S = noise_S > gap_S
    p_S = generator.uniform(0.05, 0.85, count)
    chunks_N = np.full(size, 2)
    rel_C = np.abs(generator.normal(0.01, 0.002, 2 * size))
    recomputed_S = np.log(p_S)
    return MeasuredJob(
        lengths_N,
        *(np.where(flipped_S, gap_S, 0).astype(np.float32), gap_S.astype(np.float32)),
        np.where(flipped_S & (generator.random(count) < 0.5), gap_S, 0).astype(np.float32),
        (recomputed_S + (1 - p_S) * noise_S / math.sqrt(2)).astype(np.float32),
        recomputed_S.astype(np.float32),
        *(rel_C.astype(np.float32), np.full(2 * size, 0.5, np.float32), np.ones(2 * size, np.bool_), chunks_N),
        *("transformers", "model", 8),
    )


def jobs(count: int, sigma: float = SIGMA, seed: int = 1) -> list[MeasuredJob]:
    generator = np.random.default_rng(seed)
    return [job(generator, sigma) for _ in range(count)]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(jobs(400), RULES_HERE, 0.05, 1.0)


def test_honest_jobs_that_were_not_fitted_are_void_no_more_often_than_stated(fitted: Fitted) -> None:
    others = verdicts(jobs(400, seed=2), fitted.rules)
    assert others.fraud == 0
    assert others.void_rate <= 0.05
    assert others.void_interval[0] <= others.void_rate <= others.void_interval[1]


def test_a_noisier_engine_is_void_and_gathers_evidence(fitted: Fitted) -> None:
    noisier = power("noisier", jobs(60, 12 * SIGMA, 3), fitted.rules)
    assert noisier.condemned > 0.9
    assert noisier.tokens_to_99 is not None
    assert noisier.jobs_to_99 is not None
    assert 0.3 < noisier.upwards < 0.7
    assert power("honest", jobs(60), fitted.rules).jobs_to_99 is None


def test_too_few_tokens_make_nothing_fraud_and_say_so(fitted: Fitted) -> None:
    assert fitted.rules.thresholds.sampling_fraud is None
    assert fitted.no_fraud_because is not None
    assert f"{ENOUGH_TOKENS:,}" in fitted.no_fraud_because


def test_a_short_calibration_bounds_fraud_a_hundred_times_as_far_out_and_says_so() -> None:
    honest = jobs(100)
    tokens = sum(len(each.margins_S) for each in honest)
    assert tokens >= SHORT_TOKENS
    plain, short = (fit(honest, RULES_HERE, 1e-3, 2.0, short=each) for each in (False, True))
    assert plain.rules.thresholds.sampling_fraud is None
    bounds = short.rules.thresholds
    assert bounds.sampling_fraud == pytest.approx(SHORT_FACTOR * bounds.sampling_void, rel=0.1)
    assert short.no_fraud_because is None
    assert short.wide_because is not None
    assert f"{tokens:,} honest tokens" in short.wide_because
    few = fit(honest[:10], RULES_HERE, 1e-3, 2.0, short=True)
    assert sum(len(each.margins_S) for each in honest[:10]) < SHORT_TOKENS
    assert few.rules.thresholds.sampling_fraud is None


def test_a_million_honest_tokens_give_a_bound_on_fraud_that_honest_noise_keeps() -> None:
    generator, rules = np.random.default_rng(4), RULES_HERE
    honest = [job(generator, tokens=1250) for _ in range(100)]
    found = fit(honest, rules, 0.05, 1.0).rules.thresholds
    assert found.sampling_fraud is not None
    # Beyond it a normal noise goes less than once in a million jobs; all tokens are counted as if they led by nothing.
    each_job = rules.rollouts_per_job * 1250 * math.erfc(found.sampling_fraud / SIGMA / math.sqrt(2))
    assert each_job < 1e-6
    assert found.sampling_void <= found.sampling_fraud < 100 * SIGMA


def test_headroom_widens_every_bound_and_fraud_twice() -> None:
    honest = jobs(60)
    one, two = (fit(honest, RULES_HERE, 0.05, headroom).rules for headroom in (1.0, 2.0))
    for name in ("sampling_void", "logprob_median", "logprob_tail"):
        assert getattr(two.thresholds, name) == pytest.approx(2 * getattr(one.thresholds, name), rel=0.1)
    assert two.thresholds.toploc == one.thresholds.toploc
    assert two.sequential.sigma == pytest.approx(2 * one.sequential.sigma, rel=0.1)


def test_swaps_that_are_rare_are_counted_and_get_no_more_room_than_their_rate_asks_for() -> None:
    still = [replace(each, rel_C=np.zeros_like(each.rel_C)) for each in jobs(250)]
    moved_C = np.zeros_like(still[0].rel_C)
    moved_C[0] = SWAP
    once = [replace(still[0], rel_C=moved_C), *still[1:]]
    none, one = (fit(each, RULES_HERE, 1e-3, 1.0).rules.thresholds for each in (still, once))
    assert SWAP < none.toploc <= one.toploc < 4 * SWAP
    assert one.toploc / 0.5 <= one.toploc_null_ratio < 4 * SWAP / 0.5 + 0.01
    assert none.toploc_mean < none.toploc
    often = [replace(each, rel_C=SWAP * np.random.default_rng(1).poisson(1, 16).astype(np.float32)) for each in still]
    assert fit(often, RULES_HERE, 1e-3, 1.0).rules.thresholds.toploc > one.toploc


def test_the_noise_of_scores_is_read_off_the_logprobs() -> None:
    generator = np.random.default_rng(5)
    (made,) = [job(generator, tokens=4000)]
    found_S = noise(made, 1.0)
    assert found_S.std() > 0
    assert math.isclose(math.sqrt(float((found_S**2).mean())), SIGMA, rel_tol=0.02)
    assert noise(made, 0.5) == pytest.approx(found_S / 2)


def test_sigma_is_wide_enough_for_normal_noise_and_not_thrice_as_wide() -> None:
    generator = np.random.default_rng(6)
    found = sigma_above(np.abs(generator.normal(0.0, SIGMA, 200_000)), 1e-6)
    assert SIGMA <= found < 3 * SIGMA
    heavy = sigma_above(np.abs(generator.standard_t(4, 200_000)) * SIGMA, 1e-6)
    assert heavy > 2 * found


def test_sigma_follows_from_the_choices_that_were_carried_over_where_they_are_enough() -> None:
    found = sigma_of_carried(jobs(400, seed=8), RULES_HERE.samples_per_group, 1e-6)
    assert found is not None
    assert SIGMA <= found < 3 * SIGMA
    assert sigma_of_carried(jobs(20, SIGMA / 100, seed=9), RULES_HERE.samples_per_group, 1e-6) is None


def test_noise_that_comes_in_steps_is_not_taken_for_a_heavy_tail() -> None:
    generator = np.random.default_rng(10)
    smooth_U = np.abs(generator.normal(0.0, 1.0, 2000))
    stepped_U = np.round(smooth_U) * (1 + 1e-3 * generator.random(2000))
    smooth, stepped = tail(smooth_U, 1e-6), tail(stepped_U, 1e-6, 1.0)
    assert smooth.bound < stepped.bound < 2 * smooth.bound
    assert tail(stepped_U, 1e-6).bound > 3 * stepped.bound
    assert stepped.largest == stepped_U.max()


def test_evidence_of_honest_jobs_has_a_mean_of_one_at_most(fitted: Fitted) -> None:
    assert fitted.sigma_holds
    mean, upper = mean_upper(evidence_of(jobs(300, seed=7), fitted.rules.sequential))
    assert mean <= upper <= 1.0
    rows = carried(jobs(300, seed=7), fitted.rules.sequential.sigma)
    assert sum(row["carried"] for row in rows) <= sum(row["expected"] for row in rows)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 20), st.floats(0.2, 0.5))
def test_centred_and_bounded_evidence_of_honest_jobs_has_a_mean_of_one_at_most(seed: int, share: float) -> None:
    roomy = Sequential(sigma=SIGMA)
    found = centred(jobs(200, share * SIGMA, seed), roomy, 2.0)
    assert found.clearing is not None
    assert found.centring > 0.3
    others = evidence_of(jobs(400, share * SIGMA, seed + 1), found)
    assert others.min() >= found.least
    assert np.exp(others).mean() <= 1.0
    assert others.mean() > evidence_of(jobs(400, share * SIGMA, seed + 1), roomy).mean()


def test_a_calibration_fits_centring_anew_whatever_the_rules_had_before(fitted: Fitted) -> None:
    before = RULES_HERE.sequential.model_copy(update={"centring": 0.99, "clearing": 0.01})
    again = fit(jobs(400), RULES_HERE.model_copy(update={"sequential": before}), 0.05, 1.0)
    assert again.rules == fitted.rules


def test_no_engine_and_no_version_is_centred_by_the_noise_of_a_quieter_one() -> None:
    roomy, quiet = Sequential(sigma=2 * SIGMA), jobs(200, SIGMA / 4)
    loud = [replace(each, model="later") for each in jobs(200, SIGMA, seed=3)]
    alone, both = centred(loud, roomy, 2.0), centred([*quiet, *loud], roomy, 2.0)
    assert both == alone
    assert both.centring < centred(quiet, roomy, 2.0).centring


def test_a_test_is_not_centred_by_too_few_flips_or_where_honest_jobs_have_no_drift_to_spare() -> None:
    still = jobs(100, SIGMA / 1000)
    assert sum(int((each.margins_S > 0).sum()) for each in still) < LEAST_FLIPS
    assert centred(still, Sequential(sigma=SIGMA), 1.0) == Sequential(sigma=SIGMA)
    assert centred(jobs(100), Sequential(sigma=SIGMA / 4), 1.0) == Sequential(sigma=SIGMA / 4)


def steered(generator: np.random.Generator, made: MeasuredJob, share: float, reach: float) -> MeasuredJob:
    """A job in which this share of the choices within ``reach`` went to the runner-up."""
    taken_S = (made.margins_S == 0) & (made.gaps_S <= reach) & (generator.random(len(made.gaps_S)) < share)
    return replace(made, margins_S=np.where(taken_S, np.maximum(made.gaps_S, 1e-6), made.margins_S))


def test_the_drift_of_honest_work_cannot_be_spent_on_flips() -> None:
    generator, roomy, noise_of_engine = np.random.default_rng(12), Sequential(sigma=2 * SIGMA), SIGMA / 4
    found = centred(jobs(400, noise_of_engine), roomy, 2.0)
    honest = jobs(200, noise_of_engine, seed=13)
    share = next(
        share
        for share in np.linspace(0.5, 0.01, 50)
        if evidence_of([steered(generator, each, share, 7 * SIGMA) for each in honest], roomy).mean() < -0.2
    )
    cheat = [steered(generator, each, share, 7 * SIGMA) for each in honest]
    drift = float(evidence_of(cheat, found).mean())
    assert drift > 0, "what balances the test as it was does not balance it once centred"
    waited = []
    for _ in range(200):
        state, waits = EvidenceState(), 0
        while state.choices < found.bound:
            x = float(evidence_of([cheat[generator.integers(len(cheat))]], found)[0])
            state, waits = state.after(Ratios(x, 0.0, 0.0)), waits + 1
        waited.append(waits)
    assert float(np.mean(waited)) <= 1.5 * found.bound / drift
    highest, state = 0.0, EvidenceState()
    for x in generator.choice(evidence_of(honest, found), 20_000).tolist():
        state = state.after(Ratios(x, 0.0, 0.0))
        highest = max(highest, state.choices)
    assert highest < found.bound


def test_what_rollouts_of_one_prompt_share_counts_once() -> None:
    (made,) = jobs(1)
    values_S = noise(made, 1.0)
    tokens = TOKENS * RULES_HERE.samples_per_group
    assert by_prompt(values_S, made.lengths_N, 2).tolist() == [
        values_S[start : start + tokens].max() for start in range(0, len(values_S), tokens)
    ]
    twin = replace(
        made,
        reported_S=np.concatenate([made.reported_S[:TOKENS]] * 8),
        recomputed_S=np.concatenate([made.recomputed_S[:TOKENS]] * 8),
    )
    assert len(distinct(twin, noise(twin, 1.0), 8)) == TOKENS


def test_steering_within_the_rules_costs_what_the_report_says(fitted: Fitted) -> None:
    honest = jobs(50, seed=8)
    room = steering(honest, fitted.rules)
    assert 0 < room.within_sequence <= room.within_void
    gaps_S = np.concatenate([each.gaps_S for each in honest])
    nearest = np.sort(gaps_S)[: int(room.within_sequence * len(gaps_S) / 1000)]
    kept_S = np.sort(gaps_S)[len(nearest) :]
    evidence = log_likelihood_ratios(nearest, nearest, fitted.rules.sequential).sum()
    evidence += log_likelihood_ratios(np.zeros_like(kept_S), kept_S, fitted.rules.sequential).sum()
    assert evidence <= 0


def test_reasons_are_those_of_the_checks(fitted: Fitted) -> None:
    (made,) = jobs(1)
    limits = fitted.rules.thresholds
    assert reason_under(made, fitted.rules) is Reason.ACCEPTED
    far = replace(made, margins_S=np.full_like(made.margins_S, 2 * limits.sampling_void))
    assert reason_under(far, fitted.rules) is Reason.SAMPLING_VOID
    apart = replace(made, reported_S=made.recomputed_S - 2 * limits.logprob_tail)
    assert reason_under(apart, fitted.rules) is Reason.LOGPROBS
    moved = replace(made, rel_C=np.full_like(made.rel_C, 2 * limits.toploc))
    assert reason_under(moved, fitted.rules) is Reason.ACTIVATIONS


def test_total_variation_is_read_off_reported_logprobs(fitted: Fitted) -> None:
    generator = np.random.default_rng(9)
    (made,) = jobs(1)
    count = len(made.margins_S)
    first_S = generator.random(count) < 0.7  # the maker's q = (0.7, 0.3), the policy's p = (0.6, 0.4)
    reported_S = np.log(np.where(first_S, 0.7, 0.3)).astype(np.float32)
    recomputed_S = np.log(np.where(first_S, 0.6, 0.4)).astype(np.float32)
    found = power("other", [replace(made, reported_S=reported_S, recomputed_S=recomputed_S)], fitted.rules)
    assert found.total_variation == pytest.approx(0.1, abs=0.02)
    assert found.entropy == pytest.approx(-0.7 * math.log(0.7) - 0.3 * math.log(0.3), abs=0.05)
