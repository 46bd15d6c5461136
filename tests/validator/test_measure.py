"""The measurement finds honest noise small, and proposes thresholds above it."""

from __future__ import annotations

import json
from pathlib import Path

from protocol.environments.arithmetic import Arithmetic
from validator.measure import FACTOR, FLOORS, HIGHEST_NULL_RATIO, SWAP, Band, measure, propose


def test_honest_rollouts_lie_within_the_proposed_thresholds(model_directory: Path) -> None:
    measured = measure(model_directory, Arithmetic(2), 16, [1, 16], 1.0, 40, "float32", "command")
    for band in measured.bands:
        assert band.rollouts == 16
        assert band.margin_max <= measured.thresholds.sampling_void
        assert band.logprob_p99 <= measured.thresholds.logprob_tail
        assert band.rel_max <= measured.thresholds.toploc
        assert band.rel_max < measured.thresholds.toploc_null_ratio * band.null_min
    assert json.loads(json.dumps(measured.to_json()))["command"] == "command"


def test_a_noisier_machine_gets_wider_thresholds() -> None:
    band = Band(1, 8, 100, 3, 0.2, 0.01, 0.05, 0.1, 0.03, 0.02, 0.5)
    proposed = propose([band])
    assert proposed.sampling_void == FACTOR * 0.2
    assert proposed.sampling_fraud == FACTOR**2 * 0.2
    assert proposed.toploc == 0.03 + 2 * SWAP
    assert proposed.toploc_null_ratio == FLOORS.toploc_null_ratio
    assert propose([Band(1, 8, 100, 0, 0, 0, 0, 0, 0, 0, 0.5)]) == FLOORS


def test_entries_swapped_by_rounding_get_room_where_a_constant_comes_near() -> None:
    near = Band(512, 512, 27_000, 0, 0.0, 0.0, 0.0, 0.0, SWAP, 0.0, 0.0266)
    assert 0.3 < propose([near]).toploc_null_ratio <= HIGHEST_NULL_RATIO
