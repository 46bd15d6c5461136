"""A juror's fingerprint of its prefill: the rows kept while judging, and the figures made of them after the draw.

A juror with a certain seat judges before the draw, whose seed the figures depend on. One row of each rollout is kept
until then: 2 bytes an entry, 2 KiB a rollout at a hidden size of 1,024.

Axes: N rollouts, T sampled tokens of all of them, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from protocol.wire.canonical import Bytes32, Canonical
from protocol.wire.evidence import F32, MAX_EVIDENCE_BYTES, U16, EngineName, JobFingerprint
from protocol.wire.fingerprints import Compared, compare, project, rows_of
from protocol.wire.rules import Thresholds
from validator.judging.prefill import Numerics, Prefill

SPREAD = 8.0
"""Bound of the distance over that of honest proofs' mean distance: both are relative errors of rows, and the root of
eight squares over eight others exceeds this once in half a million rows."""

LEAST = 2.0**-5
"""Least bound of the distance: a few entries that carry most of a row round to the next bf16 number."""

GAP_SPREAD = 2.0
"""Bound of a gap's noise over the bound of margins, which are what noise leaves of a gap that it has closed."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """The row and the gap of each rollout that one juror's fingerprint is of; ``rows`` are bits of bf16 numbers."""

    engine: EngineName
    canary: Bytes32
    rows: U16
    gaps_N: F32

    def fingerprint(self, job: int, draw_seed: bytes, job_seed: bytes, juror: int) -> JobFingerprint:
        """Returns the figures under the seed of the juror's draw."""
        projections_NK = project(draw_seed, job_seed, juror, self.rows.reshape(len(self.gaps_N), -1))
        return JobFingerprint(job, self.engine, self.canary, projections_NK.ravel(), self.gaps_N)


class Bounds(NamedTuple):
    """Largest distance of projections and of gaps between two honest prefills."""

    distance: float
    gap: float


def bounds(thresholds: Thresholds) -> Bounds:
    """Returns the bounds under a run's calibrated thresholds."""
    return Bounds(max(LEAST, SPREAD * thresholds.toploc_mean), GAP_SPREAD * thresholds.sampling_void)


def keep_rows(part: Prefill, numerics: Numerics, job_seed: bytes, juror: int) -> KeptRows:
    """Returns what a juror keeps of a job's prefill."""
    starts_N = np.cumsum(part.lengths_N) - part.lengths_N
    places_N = starts_N + np.array(rows_of(job_seed, juror, part.lengths_N.tolist()))
    rows_NH = part.hidden_SH[torch.from_numpy(places_N)].view(torch.int16).numpy().view(np.uint16)
    return KeptRows(numerics.engine, numerics.canary, rows_NH.ravel(), part.gaps_S[places_N])


def compare_fingerprints(said: JobFingerprint, own: JobFingerprint, thresholds: Thresholds) -> list[Compared]:
    """Compares a bundle's fingerprint with one of the same job, draw and juror, rollout by rollout."""
    most = bounds(thresholds)
    return compare(said.projections_NK, said.gaps_N, own.projections_NK, own.gaps_N, most.distance, most.gap)


ROWS_JSON = Canonical(KeptRows, "kept rows of a job", MAX_EVIDENCE_BYTES)
"""Kept rows in canonical bytes, as background workers send them."""
