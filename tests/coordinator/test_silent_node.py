"""A node whose heartbeats a real coordinator no longer hears."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from coordinator.driver.wiring import DriverProcess
from protocol.chain.reading.client import Chain
from protocol.node.notices.fold import Followed
from protocol.node.notices.journal import NoticeJournal
from protocol.node.notices.notice import NoticeFigures
from protocol.node.notices.targets import Target
from protocol.node.notices.watch import NoticeSender
from protocol.transport.coordinator import CoordinatorClient
from tests.conftest import until
from tests.coordinator.swarm import Swarm
from tests.webhook import Webhook, listening

pytestmark = pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # in Apprise

SILENT = "Assize: node silent"
FIGURES = NoticeFigures(silent_seconds=8)
"""Four times as long as a coordinator may take to note a heartbeat that says nothing new."""
FINAL_BLOCKS = 100
"""More than until a block is final."""


def test_a_node_that_falls_silent_is_told_of_each_time_and_once(
    swarm: Swarm, driver: DriverProcess, api: str, tmp_path: Path
) -> None:
    silent = swarm.workers[0]

    def watching(hook: Webhook) -> NoticeSender:
        chain, target = Chain(swarm.anvil.url, swarm.chain.deployment), Target("target 1 (json)", "t1", hook.url)
        followed, journal = Followed(nodes={silent.node: silent.owner.address}), NoticeJournal(tmp_path, ["t1"])
        return NoticeSender(chain, journal, followed, [target], FIGURES, coordinators=[CoordinatorClient(api)])

    driver.tick()
    with listening() as hook:
        sender = watching(hook)
        assert told(sender, hook) == 0, "a node that was never heard of may not have begun"
        for times in (1, 2):
            swarm.beat()
            assert told(sender, hook) == times - 1
            swarm.anvil.rpc.call("anvil_mine", hex(FINAL_BLOCKS))
            assert told(sender, hook) == times - 1, "it was heard of in a block that is final"
            until(partial(_is_told, sender, hook, times), 40, "a notice")
            sender.close()
            sender = watching(hook)
            assert told(sender, hook) == times, "told again after a restart"
        sender.close()
        first, _ = (each["message"] for each in hook.received if each["title"] == SILENT)
    assert f"Node {silent.node} sent its last heartbeat" in first


def told(sender: NoticeSender, hook: Webhook) -> int:
    """Sends all notices that are due; returns how many were about silence."""
    while sender.tick():
        pass
    return hook.titles()[SILENT]


def _is_told(sender: NoticeSender, hook: Webhook, times: int) -> bool:
    return told(sender, hook) == times
