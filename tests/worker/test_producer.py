"""An honest producer's jobs are those of its parts; whoever overrides one step changes that step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Unavailable
from protocol.tensor.decode import decode
from protocol.wire.api import Hardware, Offer
from protocol.wire.rollout import Artifact, Rollout
from protocol.wire.rollout import decode as decode_artifact
from tests.coordinator.swarm import RULES
from tests.worker.finishing import finish
from trainer.builtin import Warmup, make_builtin
from worker.engines.transformers_engine import TransformersEngine
from worker.offering import MEASURED_SECONDS, offer_of
from worker.producer import Producer
from worker.prover import Deployed, Work, tasks_of
from worker.settings import WorkerSettings

DEPLOYED = Deployed(31337, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
RULES_HERE = RULES.model_copy(update={"groups_per_job": 2, "samples_per_group": 3, "max_tokens": 40})
WORK = Work(5, 7, (2, 9), b"\x0b" * 32, 1, b"\x3a" * 32, max_units=1 << 60)


def producer(directory: Path, kind: type[Producer] = Producer) -> Producer:
    torch.set_num_threads(1)
    made = kind(TransformersEngine(), RULES_HERE, Arithmetic(3), DEPLOYED)
    made.load(0, directory)
    return made


def test_jobs_are_made_of_tasks_completions_and_proofs(small_model: Path) -> None:
    honest = producer(small_model)
    model = honest.engine.model
    tasks = tasks_of(WORK, DEPLOYED, RULES_HERE, Arithmetic(3), model)
    completions = decode(model.network, [task.request for task in tasks])
    assert honest.make(WORK) == finish(WORK, DEPLOYED, honest.shape, tasks, completions)


def test_an_offer_has_the_pace_of_the_last_work_for_an_hour(small_model: Path, tmp_path: Path) -> None:
    stated = {"addresses": tmp_path, "keystore": "k", "state_dir": tmp_path, "run": 1, "least_price": "5wei"}
    settings, hardware = WorkerSettings(**stated), Hardware(cpu_cores=4, memory_bytes=8 << 30)
    honest = producer(small_model)
    before = offer_of(settings, hardware, honest)
    assert before == Offer(device="4 processor cores", memory_bytes=8 << 30, engine="transformers", least_price_wei="5")
    jobs = honest.make(WORK)
    tokens = sum(len(each.output_tokens) for job in jobs for each in decode_artifact(job.file).rollouts)
    offer = offer_of(settings, hardware, honest)
    assert offer.tokens_per_job == tokens / len(jobs)
    assert offer.tokens_per_second is not None
    assert honest.tokens_per_second is not None
    assert 0 < offer.tokens_per_second < honest.tokens_per_second, "proofs take time too"
    assert honest.pace is not None
    honest.pace = replace(honest.pace, ended=honest.pace.ended - MEASURED_SECONDS)
    assert offer_of(settings, hardware, honest) == before


def test_a_version_that_is_loaded_is_not_loaded_again_and_another_is_swapped_in(
    small_model: Path, tmp_path: Path
) -> None:
    honest = producer(small_model)
    before = honest.make(WORK)
    honest.load(0, tmp_path / "nowhere")
    assert honest.make(WORK) == before
    make_builtin(tmp_path, 4, Arithmetic(3), Warmup(hidden=32, intermediate=32, steps=0))
    honest.load(1, tmp_path)
    assert honest.loaded == 1
    assert honest.make(WORK) != before


def test_a_cancelled_producer_stops(small_model: Path) -> None:
    cancel = Event()
    cancel.set()
    with pytest.raises(Unavailable, match="cancelled"):
        producer(small_model).make(WORK, cancel)


def test_a_step_that_is_overridden_shows_in_the_file_and_in_the_claim(small_model: Path) -> None:
    class Silent(Producer):
        def artifact(self, work: Work, job: int, rollouts: Sequence[Rollout]) -> Artifact:  # type: ignore[override]
            return super().artifact(work, job, tuple(replace(rollout, proofs=()) for rollout in rollouts))

    honest, cheat = producer(small_model).make(WORK), producer(small_model, Silent).make(WORK)
    assert [job.units for job in cheat] == [job.units for job in honest]
    assert {job.root for job in cheat}.isdisjoint(job.root for job in honest)
    assert all(rollout.proofs == () for job in cheat for rollout in decode_artifact(job.file).rollouts)
