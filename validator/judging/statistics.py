"""Likelihood ratio of a job's choices: an engine noisier than an honest one, over an honest one. PURE.

An honest engine differs from the verifier by small numerical noise on every score. A choice that leads by a gap g flips
to another token with probability Phi(-g / sigma); a flipped token is behind by a margin m. The alternative has
``ratio`` times the noise, and occasional outliers of any size.

Honest engines flip less often than this law allows, so their unflipped choices would add up to a drift that a cheat
could spend on flips. ``Sequential.centring`` leaves a share of it out, for every choice by its own distance.

Axes: S sampled tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.wire.rules import Sequential

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def log_likelihood_ratios(margins_S: F32, gaps_S: F32, sequential: Sequential) -> F64:
    """Returns log p1/p0 of each token's choice, in nats; ``margins_S`` is 0 if the token is the seeded choice."""
    flipped_S = margins_S > 0
    distance_S = np.where(flipped_S, margins_S, gaps_S).astype(np.float64)
    honest_S = _carried(distance_S, sequential.sigma, sequential.floor)
    noisy_S = _carried(distance_S, sequential.sigma * sequential.ratio, sequential.outlier)
    still_S = np.log1p(-noisy_S) - np.log1p(-honest_S)
    ratios_S: F64 = np.where(flipped_S, np.log(noisy_S / honest_S), still_S) - sequential.centring * still_S
    return ratios_S


def _carried(distance_S: F64, sigma: float, least: float) -> F64:
    """Probability that noise flips a choice over ``distance_S``; at most a half, as sigma is finite."""
    normal: F64 = torch.special.ndtr(torch.from_numpy(-distance_S / sigma)).numpy()
    return np.maximum(normal, least)
