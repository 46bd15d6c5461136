"""The evidence in a job's choices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from protocol.wire.rules import Sequential
from validator.judging.statistics import F32, log_likelihood_ratios

TEST = Sequential(sigma=0.01)


def choices(generator: np.random.Generator, sigma: float, tokens: int) -> tuple[F32, F32]:
    """Margins and gaps of choices between two scores a random distance apart, made with noise of ``sigma``."""
    gap_S = generator.exponential(0.5, tokens)
    flipped_S = generator.normal(0.0, sigma, tokens) > gap_S
    return np.where(flipped_S, gap_S, 0).astype(np.float32), gap_S.astype(np.float32)


def test_honest_noise_gives_evidence_of_mean_one_at_most() -> None:
    generator = np.random.default_rng(1)
    margins_S, gaps_S = choices(generator, TEST.sigma, 400_000)
    ratios_S = log_likelihood_ratios(margins_S, gaps_S, TEST)
    by_job = ratios_S.reshape(-1, 100).sum(axis=1)
    assert np.exp(by_job).mean() < 1.05
    assert by_job.mean() < 0


def test_a_noisier_engine_gathers_evidence() -> None:
    margins_S, gaps_S = choices(np.random.default_rng(2), 3 * TEST.sigma, 400_000)
    assert log_likelihood_ratios(margins_S, gaps_S, TEST).mean() > 0


def test_a_flip_far_beyond_honest_noise_weighs_as_much_as_an_outlier_can() -> None:
    (ratio,) = log_likelihood_ratios(np.array([5.0], np.float32), np.array([1.0], np.float32), TEST)
    assert np.isclose(ratio, np.log(TEST.outlier / TEST.floor))


@given(
    arrays.arrays(np.float32, 8, elements=st.floats(0, 1e6, width=32)),
    arrays.arrays(np.float32, 8, elements=st.floats(0, 1e6, width=32)),
    st.floats(1e-9, 10),
)
def test_evidence_is_finite_and_no_flip_speaks_for_an_honest_engine(margins: F32, gaps: F32, sigma: float) -> None:
    ratios = log_likelihood_ratios(margins, gaps, Sequential(sigma=sigma))
    assert np.isfinite(ratios).all()
    assert (ratios[margins > 0] >= 0).all()
    assert (ratios[margins == 0] <= 0).all()


@given(
    arrays.arrays(np.float32, 8, elements=st.floats(0, 1e6, width=32)),
    arrays.arrays(np.float32, 8, elements=st.floats(0, 1e6, width=32)),
    st.floats(0, 0.99),
)
def test_centring_leaves_out_a_share_of_the_same_choice_unflipped(margins: F32, gaps: F32, centring: float) -> None:
    centred = TEST.model_copy(update={"centring": centring})
    distances = np.where(margins > 0, margins, gaps)
    still = log_likelihood_ratios(np.zeros_like(margins), distances, TEST)
    plain = log_likelihood_ratios(margins, gaps, TEST)
    assert np.allclose(log_likelihood_ratios(margins, gaps, centred), plain - centring * still)
