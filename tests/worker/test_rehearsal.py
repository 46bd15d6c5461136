"""A rehearsal, and an estimate without enough rounds, at a real coordinator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import rehearsal
from deploy.rehearsal import CLAIMS, judged_apart, make
from protocol.errors import Rejected, Unavailable
from tests.worker.farm import Farm
from worker.estimate import Electricity
from worker.measuring import BATCHES, make_estimate, measure, prepare
from worker.prover import Finished, Work
from worker.settings import EstimateSettings


def settings(farm: Farm) -> EstimateSettings:
    values: dict[str, Any] = farm.worker_settings("rehearsal").model_dump() | {"keystore": ""}
    return EstimateSettings(**values)


def test_own_jobs_are_judged_by_a_validator_before_anything_is_staked(farm: Farm, tmp_path: Path) -> None:
    read = settings(farm)
    make(read, tmp_path, jobs=2, seed=5)
    rows = judged_apart(tmp_path, "cpu")
    assert [(row["job"], row["verdict"]) for row in rows] == [(0, "accepted"), (1, "accepted")]
    blob = bytearray((tmp_path / "1.blob").read_bytes())
    blob[-40] ^= 1
    (tmp_path / "1.blob").write_bytes(blob)
    assert [row["verdict"] for row in judged_apart(tmp_path, "cpu")] == ["accepted", "void"]
    assert (tmp_path / CLAIMS).exists()


def test_judging_that_does_not_end_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "JUDGE_SECONDS", 0.01)
    with pytest.raises(Unavailable, match="judging took longer"):
        judged_apart(tmp_path, "cpu")


def test_a_machine_is_measured_and_too_few_rounds_are_named(farm: Farm) -> None:
    read, done = settings(farm), list[tuple[int, int]]()
    ready = prepare(read, farm.swarm.chain)
    speed = measure(ready.producer, 2, ready.root, ready.terms.max_units, 2, lambda *at: done.append(at))
    assert speed.tokens_per_second > 0 < speed.units_per_job
    assert done == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(Rejected, match="has 0 rounds with a verdict"):
        make_estimate(read, 0, 4, 40, Electricity(), lambda *_: None)
    with pytest.raises(Rejected, match="there is no worker 999"):
        make_estimate(read, 999, 4, 40, Electricity(), lambda *_: None)


def test_a_node_of_many_jobs_is_measured(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepare(settings(farm), farm.swarm.chain)
    make_all = ready.producer.make

    def make_last(work: Work) -> list[Finished]:
        return make_all(replace(work, jobs=work.jobs[-1:]))

    monkeypatch.setattr(ready.producer, "make", make_last)
    speed = measure(ready.producer, 60, ready.root, ready.terms.max_units, BATCHES, lambda *_: None)
    assert speed.tokens_per_second > 0
