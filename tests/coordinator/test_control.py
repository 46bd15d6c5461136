"""Run control by the operator's commands, on the database of a coordinator that runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.commands import app
from coordinator.driver.wiring import DriverProcess
from protocol.chain.structs import State
from protocol.errors import Misconfigured, Rejected
from protocol.times import second_of
from protocol.wire import api as bodies
from protocol.wire.assignments import unpack_assignments
from protocol.wire.reasons import Reason
from tests.conftest import until
from tests.coordinator.swarm import JOBS, Swarm, write_settings

Operate = Callable[..., Any]


@pytest.fixture
def operate(swarm: Swarm, tmp_path: Path) -> Operate:
    """Runs a command of the coordinator's operator; its exit code and what it said."""
    file = tmp_path / "coordinator.env"
    write_settings(file, swarm.settings())

    def command(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "--settings", str(file)])
        assert result.exit_code == code, result.output
        return result.output

    return command


def reply(swarm: Swarm, index: int = 0) -> bodies.HeartbeatReply:
    worker = swarm.workers[index]
    return swarm.client(worker).heartbeat(bodies.Heartbeat(node=worker.node, version=0))


def test_a_paused_run_opens_no_round_until_it_is_resumed_and_a_drained_one_says_so(
    swarm: Swarm, driver: DriverProcess, api: str, operate: Operate
) -> None:
    driver.tick()
    assert "invalid run 7" in operate("pause", "--run", "7", code=2)
    assert "one line" in operate("pause", "--why", "two\nlines", code=2)
    operate("pause", "--why", "moving the disk")
    swarm.beat()
    driver.tick()
    assert swarm.chain.latest().round_count() == 0
    told = "paused by the coordinator's operator: moving the disk"
    assert (reply(swarm).state, reply(swarm).reasons) == ("alive", [told])
    assert swarm.client(swarm.workers[0]).status().waiting == told

    operate("resume")
    assert "neither paused nor draining" in operate("resume", code=1)
    driver.tick()
    assert swarm.chain.latest().round_count() == 2
    assert reply(swarm).reasons == []

    said: list[str] = []
    command = threading.Thread(target=lambda: said.append(operate("drain", str(swarm.run))))
    command.start()
    until(lambda: ticked(swarm, driver).startswith("draining"), 10, "the driver to see it")
    for worker in swarm.workers:
        for assignment in swarm.client(worker).assignments(worker.node):
            swarm.work(worker, assignment)
    driver.tick()
    for number in (1, 2):
        assert swarm.chain.latest().round(number).state is State.VOTING, "rounds under way go on"
        swarm.vote(number, dict.fromkeys(range(JOBS), Reason.ACCEPTED))
    until(lambda: ticked(swarm, driver).startswith("drained"), 10, "both rounds to end")
    command.join(10)
    assert f"assize run close {swarm.run}" in said[0]
    assert swarm.chain.latest().round_count() == 2


def ticked(swarm: Swarm, driver: DriverProcess) -> str:
    """Ticks; returns the status's reason for opening no round."""
    driver.tick()
    return swarm.client(swarm.workers[0]).status().waiting


def test_a_banned_worker_keeps_its_jobs_and_its_bond_and_gets_no_more(
    swarm: Swarm, driver: DriverProcess, api: str, operate: Operate
) -> None:
    driver.tick()
    banned, other = swarm.workers
    assert "expected one in the blocks" in operate("ban", "99", "--why", "x", "--until", "2h", code=2)
    juror = str(swarm.validators[0].node)
    assert "draws the seats" in operate("ban", juror, "--why", "x", "--until", "2h", code=2)
    assert "invalid time" in operate("ban", str(banned.node), "--why", "x", "--until", "soon", code=2)
    assert "invalid reason" in operate("ban", str(banned.node), "--why", "x" * 201, "--until", "2h", code=2)
    swarm.beat()
    driver.tick()
    bond = swarm.chain.latest().node(banned.node).bond
    operate("ban", str(banned.node), "--why", "sends too much", "--until", "2h")
    assert reply(swarm).state == "unlisted"
    assert "sends too much" in reply(swarm).reasons[0]
    assert str(banned.node) in operate("bans")

    for assignment in swarm.client(banned).assignments(banned.node):  # listed on chain before the ban
        swarm.work(banned, assignment)
    swarm.work(other, swarm.client(other).assignments(other.node)[0])
    with pytest.raises(Rejected, match=r"banned by the coordinator's operator until .* UTC: sends too much"):
        swarm.client(banned).assignments(banned.node)
    driver.tick()
    swarm.vote(1, dict.fromkeys(range(JOBS), Reason.ACCEPTED))
    driver.tick()
    reader = swarm.chain.latest()
    assert reader.credits_of(banned.owner.address) > 0, "its work is paid"
    assert reader.node(banned.node).bond == bond
    swarm.publish(1, 1, (1 << JOBS) - 1)
    swarm.beat(1)
    driver.tick()
    assert swarm.client(swarm.workers[1]).assignments(other.node)[-1].round == 3
    assert banned.node not in {each.node for each in listings(swarm, 3)}

    operate("unban", str(banned.node))
    assert "not banned" in operate("unban", str(banned.node), code=1)
    assert reply(swarm).reasons == []


def listings(swarm: Swarm, round_: int) -> list[Any]:
    assignments = swarm.client(swarm.workers[1]).assignments(swarm.workers[1].node)
    (found,) = [each for each in assignments if each.round == round_]
    return list(unpack_assignments(found.assignments))


def test_a_time_is_typed_as_a_duration_or_a_date() -> None:
    assert second_of("90m", 1_000) == 6_400
    assert second_of("2h", 0) == 7_200
    assert second_of("1970-01-02T00:00Z", 0) == second_of("1970-01-02", 0) == 86_400
    assert second_of("2026-12-24T18:00+02:00", 0) == datetime(2026, 12, 24, 16, tzinfo=UTC).timestamp()
    for typed in ("", "soon", "2", "-2h", "1970-01-01", "9" * 40 + "d", "²h"):
        with pytest.raises(Misconfigured, match="invalid time"):
            second_of(typed, 1_000_000)
