"""Every kind of trap is fraud beyond doubt to an honest juror, and the jobs beside it stay honest work."""

from __future__ import annotations

import pytest

from protocol.wire.reasons import Reason
from protocol.wire.traps import Trap, TrapKind
from tests.zoo.stage import CHEAT, DEPLOYED, Stage, passed
from worker.planting import Planting

ROUNDS, JOBS = 4, 4
FOUND = {
    TrapKind.OTHER_SEED: Reason.SAMPLING_FRAUD,
    TrapKind.ONE_ANSWER: Reason.SAMPLING_FRAUD,
    TrapKind.OTHER_PROMPTS: Reason.WRONG_PROMPT,
}


def test_every_kind_but_a_decoy_is_a_fault() -> None:
    assert set(FOUND) == set(TrapKind) - {TrapKind.DECOY}
    assert all(reason.fraud for reason in FOUND.values())


@pytest.mark.parametrize("kind", FOUND)
def test_a_planted_fault_is_fraud_and_nothing_else_is(stage: Stage, kind: TrapKind) -> None:
    trapped = {round_: round_ % JOBS for round_ in range(ROUNDS)}
    trap = Trap(CHEAT, 0, ROUNDS, kind, bytes(32))
    producer = Planting(
        stage.engine(), stage.rules, stage.environment, DEPLOYED, planted=lambda round_: {trapped[round_]: trap}
    )
    producer.load(1, stage.directory)
    for round_ in range(ROUNDS):
        work = stage.work(round_, range(JOBS))
        judged = stage.judge(work, producer.make(work))
        assert judged[trapped[round_]].judgement.reason is FOUND[kind]
        assert all(passed(one) for job, one in enumerate(judged) if job != trapped[round_])


def test_another_nodes_traps_are_not_planted(stage: Stage) -> None:
    trap = Trap(CHEAT + 1, 0, 9, TrapKind.OTHER_SEED, bytes(32))
    producer = Planting(stage.engine(), stage.rules, stage.environment, DEPLOYED, planted=lambda round_: {0: trap})
    producer.load(1, stage.directory)
    work = stage.work(1, range(1))
    assert [passed(one) for one in stage.judge(work, producer.make(work))] == [True]
