"""A few of the faults of ``make chaos``: the running market, struck where it hurts, goes on and has lost nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import bear_all
from tests.chaos.fault import FAULTS

pytestmark = pytest.mark.e2e

SHORT = (3, 4, 14, 18, 20)
"""Those that are over in seconds; that the others are on the list is checked below."""


def test_the_market_bears_kills_between_writes_a_reorganisation_a_flush_and_a_lock(
    small_model: Path, tmp_path: Path
) -> None:
    borne = list(bear_all(tmp_path / "net", small_model, [FAULTS[number] for number in SHORT]))
    assert {one.fault.number: one.broken for one in borne} == dict.fromkeys(SHORT, ())


def test_every_fault_is_on_the_list() -> None:
    assert sorted(FAULTS) == list(range(1, 26))
