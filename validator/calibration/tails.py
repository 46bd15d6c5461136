"""How far an honest tail reaches: a generalised Pareto law through the largest values, and the bound of it. PURE.

What exceeds a high threshold u is nearly generalised Pareto (Balkema & de Haan 1974, Pickands 1975):
P(X - u > y | X > u) = (1 + shape * y / scale)^(-1/shape). The shape is kept at 0 or above: an honest tail is never
taken to end. The bound is the largest quantile of any (shape, scale) that the likelihood does not rule out; units must
be independent of one another, so they are rollouts or jobs, never tokens.

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
MOST_EXCEEDANCES, LEAST_EXCEEDANCES, LEAST_LEFT = 500, 20, 4
DEVIANCE = 5.02
TOO_HEAVY = 0.8


@dataclass(frozen=True, slots=True)
class TailFit:
    """A law through the largest of ``units`` values, and where it is exceeded at ``rate``.

    threshold, exceedances  above it lie so many
    shape, scale            of the likeliest law
    estimate, bound         value exceeded at ``rate``: of the likeliest law, and the 95% upper bound
    largest                 value seen
    reliable                whether there were enough values, and the tail is not too heavy to say anything
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
    """Fits the law to ``values_U`` (not negative) and bounds what a unit exceeds with probability ``rate``.

    Values that come in steps of about ``step`` are spread over one, upwards: many that are almost equal and the next a
    step away would pass for a heavy tail.
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
    """Returns values that lie evenly over ``step`` above what they were, those above 0 at least; the same each time."""
    ranks_U = np.argsort(np.argsort(values_U, kind="stable"), kind="stable")
    spread_U: F64 = values_U + step * np.where(values_U > 0, ranks_U * GOLDEN % 1.0, 0.0)
    return spread_U


def _threshold(ordered_U: F64) -> float:
    """The highest value (of falling ones) with as many above it as fix a law, where so many differ from it; else 0."""
    count = min(MOST_EXCEEDANCES, len(ordered_U) // LEAST_LEFT)
    for value in np.unique(ordered_U[count:])[::-1]:
        if np.count_nonzero(ordered_U > value) >= LEAST_EXCEEDANCES:
            return float(value)
    return 0.0


def _likelihood(excess_E: F64) -> tuple[F64, F64]:
    """Log-likelihood (G, L) and the scales it was taken at (L,)."""
    scales_L = SCALES * excess_E.mean()
    likelihood_GL = np.empty((len(SHAPES), len(scales_L)))
    for g, shape in enumerate(SHAPES):
        logs_L = np.log1p(shape * excess_E / scales_L[:, None]).sum(axis=1)
        likelihood_GL[g] = -len(excess_E) * np.log(scales_L) - (1 + 1 / shape) * logs_L
    return likelihood_GL, scales_L


def _quantile(shape: F64, scale: F64, share: float, rate: float) -> F64:
    """Excess over the threshold that ``rate`` of all units go beyond, where ``share`` of them exceed the threshold."""
    reach: F64 = scale * np.expm1(shape * max(0.0, np.log(share / rate))) / shape
    return reach


# SCALES: in means of the excess; the scale of a law is its mean times (1 - shape), and shapes above 0.85 have none.
# MOST_EXCEEDANCES, LEAST_LEFT: 500 fix the law well; more than a quarter of all values are no tail.
# DEVIANCE: 97.5% of a chi-squared of one degree, two-sided; with as much doubt about the share of exceedances, the
# bound holds at 95%. TOO_HEAVY: beyond it the mean itself hardly exists.
