"""Honest workers before the judge, by engine, dtype and batch size: nothing of theirs may be fraud, hardly any void."""

from __future__ import annotations

from dataclasses import dataclass

from tests.zoo.rows import ratios_of_job
from tests.zoo.stage import JOBS_AT_ONCE, Stage, passed
from validator.records.record import EvidenceState
from worker.engines.engine import Engine
from worker.specimens import InBatches

FIRST_ROUND = 1 << 20
"""Honest work is of other rounds than the cheats'."""


@dataclass(frozen=True, slots=True)
class Honest:
    """Jobs of one honest worker. ``highest`` is where its record stood at most, in nats."""

    engine: str
    dtype: str
    batch: int
    jobs: int
    rollouts: int
    fraud: int
    void: int
    flips: int
    tokens: int
    highest: float
    bound: float


def honest(stage: Stage, name: str, engine: Engine, batch: int, rollouts: int) -> Honest:
    """Judges so many rollouts of an honest worker that decodes ``batch`` at a time."""
    producer = stage.honest(InBatches(engine, batch))
    jobs = -(-rollouts // stage.rules.rollouts_per_job)
    judged, state, highest = [], EvidenceState(), 0.0
    for start in range(0, jobs, JOBS_AT_ONCE):
        work = stage.work(FIRST_ROUND * (batch + 1) + start, range(min(JOBS_AT_ONCE, jobs - start)))
        for one in stage.judge(work, producer.make(work)):
            judged.append(one)
            state = state.after(ratios_of_job(one, stage))
            highest = max(highest, state.foremost[1])
    bound = stage.rules.sequential.bound
    fraud = sum(one.judgement.reason.fraud for one in judged) + (highest >= bound)
    return Honest(
        engine=name,
        dtype=stage.label,
        batch=batch,
        jobs=len(judged),
        rollouts=len(judged) * stage.rules.rollouts_per_job,
        fraud=fraud,
        void=sum(not passed(one) and not one.judgement.reason.fraud for one in judged),
        flips=sum(one.flips[1] for one in judged),
        tokens=sum(one.flips[0] for one in judged),
        highest=highest,
        bound=bound,
    )
