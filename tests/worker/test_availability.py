"""A worker that takes no new jobs: in its quiet hours, and while it drains."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time as clock
from datetime import time
from pathlib import Path

import pytest

from coordinator.api.service import NOT_AVAILABLE
from coordinator.driver.control import ban
from coordinator.store import Store
from protocol.errors import Misconfigured, Rejected
from protocol.node.daemon import Daemon, DrainPlan
from protocol.wire.api import Heartbeat
from tests.worker.farm import Farm
from worker import daemon
from worker.availability import RECENT_BLOCKS, Drain, QuietHours, recent_block_seconds


def test_quiet_hours_may_span_midnight_and_end_before_their_end() -> None:
    night, noon = QuietHours.parse("22:00-06:00"), QuietHours.parse("12:00-13:30")
    assert night is not None
    assert noon is not None
    assert [night.include(time(hour)) for hour in (21, 22, 0, 5, 6)] == [False, True, True, True, False]
    assert [noon.include(time(*at)) for at in ((11, 59), (12, 0), (13, 29), (13, 30))] == [False, True, True, False]
    assert QuietHours.parse("") is None


@pytest.mark.parametrize("text", ["22-6", "25:00-06:00", "06:00-06:00", "22:00–06:00", "evening"])
def test_other_forms_of_quiet_hours_are_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="such as 22:00-06:00"):
        QuietHours.parse(text)


def test_a_node_that_is_not_available_is_not_listed_until_it_is(farm: Farm) -> None:
    worker = farm.worker()
    worker.checkpoints.directory(0, farm.root)
    client = farm.swarm.client(farm.party)
    reply = client.heartbeat(Heartbeat(node=worker.node, version=0, available=False))
    assert (reply.state, reply.reasons) == ("unlisted", [NOT_AVAILABLE])
    farm.driver.tick()
    assert {each.node: each.state for each in client.status().nodes}[worker.node] == "unlisted"
    for _ in range(3):
        farm.driver.tick()
    assert farm.swarm.chain.latest().round_count() == 0
    assert farm.open_round(worker).round == 1


def test_a_draining_worker_hands_in_its_jobs_and_is_done(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(daemon, "DRAIN_BLOCKS", 0)
    worker = farm.worker()
    farm.open_round(worker)
    health = worker.settings.state_dir / "health.json"
    health.write_text(json.dumps({"daemon": "worker", "pid": os.getpid()}))
    assert worker.available
    assert Drain(worker.settings.state_dir).ask() == os.getpid()
    assert not worker.available
    assert not worker.drained()  # the coordinator does not know yet
    worker._note_listing(worker.available)
    assert not worker.drained()  # the jobs are not done
    assert worker.tick()
    farm.driver.tick()  # relays them
    worker.tick()
    assert worker.drained()
    worker.drain.end()
    assert worker.available


def test_a_worker_that_is_banned_drains_and_ends(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(daemon, "DRAIN_BLOCKS", 0)
    worker = farm.worker()
    store = Store(farm.settings.database)
    with store.writing() as session:
        ban(session, farm.swarm.run, worker.node, "sends too much", None, clock.time())
    store.close()
    with pytest.raises(Rejected, match="banned by the coordinator's operator"):
        worker.tick()
    worker._note_listing(False)
    worker.drain.begin()
    codes: list[int] = []
    loop = Daemon("worker", worker.tick, 0.01, drain=DrainPlan(worker.drain.begin, worker.drained, 60.0))
    thread = threading.Thread(target=lambda: codes.append(loop.run()))
    thread.start()
    thread.join(30)
    ended = not thread.is_alive()
    loop.stop()
    thread.join()
    assert ended, "the loop went on"
    assert codes == [0]


def test_a_drain_needs_a_running_worker(tmp_path: Path) -> None:
    for health in ("", '{"daemon": "worker"}', json.dumps({"daemon": "worker", "pid": _ended()})):
        (tmp_path / "health.json").write_text(health)
        with pytest.raises(Rejected, match="nothing to drain"):
            Drain(tmp_path).ask()
    (tmp_path / "health.json").write_text(json.dumps({"daemon": "validator", "pid": os.getpid()}))
    with pytest.raises(Misconfigured, match="not the state folder of a worker"):
        Drain(tmp_path).ask()
    assert not Drain(tmp_path).asked


def test_the_time_between_blocks_is_that_of_the_newest(farm: Farm) -> None:
    rpc = farm.swarm.anvil.rpc
    rpc.call("anvil_mine", hex(RECENT_BLOCKS), hex(12))
    head = farm.swarm.chain.head()
    assert recent_block_seconds(farm.swarm.chain) == pytest.approx(12, abs=2), head


def _ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid
