"""Leaving out jobs, or spoiling them, is noticed in its time; an honest node's share of trouble is not held against it.

The last test plays it out on a real chain.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.driver.wiring import DriverProcess
from coordinator.mirror.neglect import Neglect, NodeOutcome, neglect_after, spoilt_rate
from coordinator.store import Store
from coordinator.tables import NodeRow
from protocol.wire.api import Heartbeat
from protocol.wire.reasons import Reason
from protocol.wire.rules import Sequential
from tests.coordinator.swarm import JOBS, RULES, Swarm

BUDGETS = Sequential(sigma=0.01)
SHARES = st.integers(1, 256)


def share(jobs: int, spoilt: bool) -> NodeOutcome:
    """One job of the share void, or none."""
    return NodeOutcome(jobs, jobs, int(spoilt))


def rounds_until(shares: list[NodeOutcome], bound: float) -> int | None:
    neglect = Neglect()
    for number, each in enumerate(shares, 1):
        neglect = neglect_after(neglect, each, BUDGETS)
        if neglect.evidence >= bound:
            return number
    return None


@given(SHARES)
def test_an_honest_round_is_no_evidence_on_average(jobs: int) -> None:
    honest, start = spoilt_rate(jobs, BUDGETS), Neglect(1_000.0)
    after = [neglect_after(start, share(jobs, spoilt), BUDGETS).evidence for spoilt in (True, False)]
    spoilt, fine = (math.exp(each - start.evidence) for each in after)
    assert honest * spoilt + (1 - honest) * fine == pytest.approx(1.0)
    assert spoilt > 1 > fine


@given(SHARES, st.floats(0, 100), st.booleans())
def test_evidence_never_falls_below_nothing_and_is_finite(jobs: int, evidence: float, absent: bool) -> None:
    for became in (share(jobs, True), share(jobs, False), NodeOutcome(jobs, 0, jobs)):
        assert 0 <= neglect_after(Neglect(evidence, absent), became, BUDGETS).evidence < math.inf


@pytest.mark.parametrize(("jobs", "most"), [(1, 13), (4, 14), (8, 16), (16, 19)])
def test_a_node_that_spoils_every_round_is_soon_left_out(jobs: int, most: int) -> None:
    found = rounds_until([share(jobs, True)] * 40, BUDGETS.neglect_bound)
    assert found is not None
    assert found <= most


@pytest.mark.parametrize("jobs", [1, 4, 16])
def test_at_the_budgets_an_honest_node_stays_listed_for_long(jobs: int) -> None:
    rng = np.random.default_rng(jobs)
    spoilt = rng.random(20_000) < spoilt_rate(jobs, BUDGETS)
    assert rounds_until([share(jobs, bool(each)) for each in spoilt], BUDGETS.neglect_bound) is None


def test_false_alarms_stay_within_a_budget_large_enough_to_be_measured() -> None:
    bound, rate, alarms = math.log(200 / 0.2), spoilt_rate(4, BUDGETS), 0
    rng = np.random.default_rng(1)
    for _ in range(200):
        alarms += rounds_until([share(4, bool(each)) for each in rng.random(200) < rate], bound) is not None
    assert alarms <= 0.2 * 200


def test_leaving_out_one_disliked_job_in_every_third_round_is_noticed() -> None:
    left_out = [NodeOutcome(4, 3, 1) if number % 3 == 0 else share(4, False) for number in range(300)]
    assert rounds_until(left_out, BUDGETS.neglect_bound) is not None


def test_picking_whole_rounds_is_noticed_though_an_outage_counts_once() -> None:
    down, up = NodeOutcome(4, 0, 4), share(4, False)
    assert rounds_until([down] * 1_000, BUDGETS.neglect_bound) is None
    assert rounds_until([down, up] * 60, BUDGETS.neglect_bound) is not None
    assert rounds_until([down, down, up] * 60, BUDGETS.neglect_bound) is not None
    assert neglect_after(Neglect(5.0, True), share(4, True), BUDGETS).evidence > 5.0, "back, and void"


@pytest.mark.parametrize("lost", [1, 6, 20])
def test_a_killed_machine_stays_listed_also_where_it_is_slow(lost: int) -> None:
    """What the local network's tests do to a worker, on top of one round in ten missed for slowness."""
    down, up = NodeOutcome(5, 0, 5), share(5, False)
    shares = [down if number % 10 == 0 or number % 50 < lost else up for number in range(400)]
    assert rounds_until(shares, BUDGETS.neglect_bound) is None


def play(swarm: Swarm, driver: DriverProcess, number: int) -> list[int]:
    """A round from its opening to the version made from it; the first worker's jobs are void. Returns those."""
    swarm.beat(number - 1)
    driver.tick()
    spoilt: list[int] = []
    for worker in swarm.workers:
        for assignment in swarm.client(worker).assignments(worker.node):
            if assignment.round == number:
                swarm.work(worker, assignment)
                spoilt += assignment.jobs if worker is swarm.workers[0] else []
    driver.tick()
    swarm.vote(number, {job: Reason.SHAPE if job in spoilt else Reason.ACCEPTED for job in range(JOBS)})
    driver.tick()
    swarm.publish(number, number, sum(1 << job for job in range(JOBS) if job not in spoilt))
    driver.tick()
    return spoilt


def test_a_node_that_spoils_its_jobs_is_left_out_and_told_why(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    rounds = next(number for number in range(1, 30) if not play(swarm, driver, number))
    spoiler, honest = swarm.workers
    reply = swarm.client(spoiler).heartbeat(Heartbeat(node=spoiler.node, version=rounds))
    assert reply.state == "unlisted"
    assert "void or never handed in than the run's rules allow" in reply.reasons[0]
    assert swarm.client(honest).heartbeat(Heartbeat(node=honest.node, version=rounds)).state == "alive"
    assert {seen.node: seen.state for seen in swarm.client(honest).status().nodes}[spoiler.node] == "unlisted"
    assert rounds <= 20
    with Store(swarm.settings().database).reading() as session:
        assert session.get(NodeRow, honest.node).neglect == 0.0
        assert session.get(NodeRow, spoiler.node).neglect >= RULES.sequential.neglect_bound


@pytest.mark.parametrize(("reason", "counts"), [(Reason.SHAPE, True), (Reason.UNFIT_CHECKPOINT, False)])
def test_void_jobs_count_against_a_node_unless_the_checkpoint_was_unfit(
    swarm: Swarm, driver: DriverProcess, api: str, reason: Reason, counts: bool
) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    for worker in swarm.workers:
        for assignment in swarm.client(worker).assignments(worker.node):
            swarm.work(worker, assignment)
    driver.tick()
    swarm.vote(1, dict.fromkeys(range(JOBS), reason))
    driver.tick()
    driver.tick()
    with Store(swarm.settings().database).reading() as session:
        rows = [session.get(NodeRow, worker.node) for worker in swarm.workers]
    assert [row is not None and row.neglect > 0.0 for row in rows] == [counts] * 2
