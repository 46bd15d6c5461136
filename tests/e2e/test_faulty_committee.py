"""One faulty validator, as its victims see it: condemned, restored, and somebody else pays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import assize

pytestmark = pytest.mark.e2e


def test_an_honest_worker_that_was_condemned_appeals_and_is_restored_and_the_faulty_validator_pays(
    small_model: Path, tmp_path: Path
) -> None:
    words = ("localnet", "run", "--faulty-committee", "--root", str(tmp_path / "net"), "--model", str(small_model))
    done = assize(*words, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["overturned"] == outcome["appeals"] > 0
    assert outcome["audit"] == "ok"
    assert int(outcome["honest_slashed_wei"]) == 0
    assert int(outcome["faulty_slashed_wei"]) > 0
    assert int(outcome["paid_wei"]) > 0
    assert int(outcome["awarded_wei"]) > 0
