"""Upper bounds on extreme values: a generalised Pareto law fitted to the largest values. PURE.

Excesses over a high threshold u are nearly generalised Pareto (Balkema & de Haan 1974, Pickands 1975):
P(X - u > y | X > u) = (1 + shape * y / scale)^(-1/shape). The shape is kept at 0 or above, so that a tail is never
assumed to end. The bound is the largest quantile of any (shape, scale) that the likelihood does not rule out. Units
must be independent of each other, so they are prompts or jobs, never tokens.

Axes: U units, E exceedances, G shapes, L scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validator.calibration.intervals import CONFIDENCE, most

F64 = NDArray[np.float64]

SHAPES: F64 = np.concatenate([[1e-6], np.arange(0.02, 1.001, 0.02)])
GOLDEN = (5**0.5 - 1) / 2
SCALES: F64 = np.exp(np.linspace(np.log(0.15), np.log(2.5), 240))
"""In means of the excess. A law's scale is its mean times (1 - shape); shapes above 0.85 have no scale here."""

MOST_EXCEEDANCES, LEAST_EXCEEDANCES, LEAST_LEFT = 500, 20, 4
"""500 exceedances determine the law well; more than a quarter of all values is not a tail."""

DEVIANCE = 5.02
"""97.5% quantile of chi-squared with one degree of freedom.

With the same doubt about the share of exceedances, the bound holds at 95%.
"""

TOO_HEAVY = 0.8
"""Shape beyond which the mean itself hardly exists."""


@dataclass(frozen=True, slots=True)
class TailFit:
    """A law fitted to the largest of ``units`` values, and its quantile at ``rate``.

    threshold, exceedances  start of the tail, and the number of values above it
    shape, scale            parameters of the likeliest law
    estimate, bound         value exceeded at ``rate``: by the likeliest law, and its 95% upper bound
    largest                 largest observed value
    reliable                whether there are enough values, and the tail is not too heavy
    """

    rate: float
    units: int
    threshold: float
    exceedances: int
    shape: float
    scale: float
    estimate: float
    bound: float
    largest: float
    reliable: bool


def tail(values_U: F64, rate: float, step: float = 0.0) -> TailFit:
    """Fits the law to ``values_U`` (not negative) and bounds the value that a unit exceeds with probability ``rate``.

    Values in steps of about ``step`` are spread upwards over one step: many nearly equal values with a gap before the
    next would look like a heavy tail.
    """
    ordered_U = np.sort(spread(np.asarray(values_U, dtype=np.float64), step))[::-1]
    threshold = _threshold(ordered_U)
    excess_E = ordered_U[ordered_U > threshold] - threshold
    largest = float(np.max(values_U, initial=0.0))
    if len(excess_E) < LEAST_EXCEEDANCES:
        return TailFit(rate, len(ordered_U), threshold, len(excess_E), 0.0, 0.0, largest, largest, largest, False)
    share = len(excess_E) / len(ordered_U)
    most_share = most(len(excess_E), len(ordered_U), (1 - CONFIDENCE) / 2)
    likelihood_GL, scales_L = _likelihood(excess_E)
    shapes_G1, mean = SHAPES[:, None], float(excess_E.mean())
    g, best = np.unravel_index(int(likelihood_GL.argmax()), likelihood_GL.shape)
    allowed_GL = 2 * (likelihood_GL.max() - likelihood_GL) <= DEVIANCE
    reach_GL = _quantile(shapes_G1, scales_L, most_share, rate)
    estimate = threshold + float(_quantile(SHAPES[g], scales_L[best], share, rate))
    bound = threshold + float(reach_GL[allowed_GL].max())
    shape, scale = float(SHAPES[g]), float(scales_L[best])
    reliable = shape < TOO_HEAVY and mean > 0
    return TailFit(rate, len(ordered_U), threshold, len(excess_E), shape, scale, estimate, bound, largest, reliable)


def spread(values_U: F64, step: float) -> F64:
    """Returns values with those above 0 spread evenly over one ``step`` upwards, deterministically."""
    ranks_U = np.argsort(np.argsort(values_U, kind="stable"), kind="stable")
    spread_U: F64 = values_U + step * np.where(values_U > 0, ranks_U * GOLDEN % 1.0, 0.0)
    return spread_U


def _threshold(ordered_U: F64) -> float:
    """The highest of descending values with enough different values above it to fit a law; else 0."""
    count = min(MOST_EXCEEDANCES, len(ordered_U) // LEAST_LEFT)
    for value in np.unique(ordered_U[count:])[::-1]:
        if np.count_nonzero(ordered_U > value) >= LEAST_EXCEEDANCES:
            return float(value)
    return 0.0


def _likelihood(excess_E: F64) -> tuple[F64, F64]:
    """Log-likelihood (G, L) and its scales (L,)."""
    scales_L = SCALES * excess_E.mean()
    likelihood_GL = np.empty((len(SHAPES), len(scales_L)))
    for g, shape in enumerate(SHAPES):
        logs_L = np.log1p(shape * excess_E / scales_L[:, None]).sum(axis=1)
        likelihood_GL[g] = -len(excess_E) * np.log(scales_L) - (1 + 1 / shape) * logs_L
    return likelihood_GL, scales_L


def _quantile(shape: F64, scale: F64, share: float, rate: float) -> F64:
    """Excess over the threshold that ``rate`` of all units exceed, if ``share`` of them exceed the threshold."""
    reach: F64 = scale * np.expm1(shape * max(0.0, np.log(share / rate))) / shape
    return reach
