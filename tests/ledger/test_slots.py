"""A full house of validators: the audit passes on contests that went by the rules, and names those that did not."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit.audit_state import AuditState, read_terms
from ledger.audit.checks import sentences, tries
from ledger.audit.replay import replay
from ledger.audit.report import Findings
from ledger.audit.views import Views
from ledger.facts import Slot
from protocol.chain.events import Event, NodeRegistered, NodeRetired, SlotContested, SlotKept, SlotPassed
from protocol.chain.reading.client import Chain
from protocol.chain.structs import NEVER
from protocol.chain.writing.actions import contest_slot, drip
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from tests.ledger.test_replay import changed, told, tried
from tests.model import parties
from tests.model.house import contested, fill_house
from tests.model.network import open_network
from tests.model.twins import Twins

Change = Callable[[Any], Event | None]

LIES: list[tuple[type[Event], Change, str]] = [
    (SlotContested, lambda event: replace(event, slot=200), "slots"),
    (SlotContested, lambda event: replace(event, bond=event.bond - 1), "slots"),
    (SlotContested, lambda event: replace(event, until=event.until - 1), "slots"),
    (SlotContested, lambda event: replace(event, holder=event.holder + 1), "slots"),
    (SlotKept, lambda event: replace(event, holder=event.holder + 1), "slots"),
    (SlotKept, lambda event: None, "slots"),
    (NodeRetired, lambda event: None, "slots"),
    (SlotPassed, lambda event: replace(event, displaced=event.displaced + 1), "slots"),
    (SlotPassed, lambda event: replace(event, active_at=event.active_at - 1), "slots"),
    (NodeRegistered, lambda event: replace(event, slot=event.slot + 1), "slots"),
]

WHERE: dict[type[Event], Callable[[Any], bool]] = {
    NodeRegistered: lambda event: event.slot == 100,
    NodeRetired: lambda event: event.withdrawable_at > event.retired_at,
}
"""Which event of a kind is changed, where it is not the first."""


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with open_network(tmp_path_factory.mktemp("house")) as twins:
        fill_house(twins)
        yield twins


def test_contests_pass_the_audit_and_every_lie_about_them_is_named(twins: Twins) -> None:
    judge, delay = parties.JUDGES[1], parties.TERMS.registry.activation_delay
    first, second, third = (contested(twins, number) for number in range(3))
    holder = twins.model.registry.slots[twins.model.registry.nodes[second].slot]
    twins.must(judge, "Registry", "topUp", holder, 250)
    twins.must(judge, "Registry", "withdraw", second)
    twins.wait(twins.now + delay)
    twins.must(judge, "Registry", "displace", first)
    chain = Chain(twins.contracts.rpc.url, twins.contracts.deployment)
    fourth = contested(twins, 3)
    logs = told(chain)
    assert tried(chain, logs) == set()
    for kind, change, check in LIES:
        assert check in tried(chain, changed(logs, kind, change, WHERE.get(kind, bool))), (kind.__name__, check)
    state = AuditState(read_terms(chain.latest(), chain.deployment), Findings(), tries())
    replay(state, logs)
    nodes = twins.model.registry.nodes
    assert state.book.find(Slot, nodes[first].slot) == Slot(nodes[first].slot, first, before=4)
    waits = state.book.find(Slot, nodes[fourth].slot)
    assert waits is not None
    assert (waits.newcomer, nodes[third].active_at) == (fourth, NEVER)
    Views(chain.latest(), chain.head().timestamp, state.book, state.findings).compare()
    assert [check.name for check in state.findings.results(sentences()) if check.wrong] == []
    chain.close()


def test_who_registers_in_a_full_house_sees_what_it_has_to_post(twins: Twins, tmp_path: Path) -> None:
    rpc = twins.contracts.rpc
    owner, key = Wallet("owner", secrets.token_bytes(32)), Wallet("key", secrets.token_bytes(32))
    rpc.call("anvil_setBalance", owner.address, hex(10**24))
    chain = Chain(rpc.url, twins.contracts.deployment)
    with closing(chain), closing(Sender(chain, owner, tmp_path / "sender.sqlite")) as sender:
        with pytest.raises(Rejected, match="get tokens"):
            contest_slot(sender, key)
        drip(sender, 10_000).carry_out("drip")
        seen, plan = chain.latest().next_contest(), contest_slot(sender, key)
        assert plan is not None
        contested = plan.carry_out("contest")
        assert (contested.slot, contested.bond) == seen
        assert chain.latest().contest(contested.slot) == (contested.newcomer, contested.until)
        assert chain.latest().holder(contested.slot) == contested.holder
        with pytest.raises(Rejected, match="already the key"):
            contest_slot(sender, key)
