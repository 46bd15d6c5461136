"""Shares of the work, against counting every node in every round."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.fold.rounds import listed_jobs
from ledger.queries import fairness as fairness_queries
from ledger.queries.fairness import Count, Reckoning, fairness
from ledger.queries.roster import ANNOUNCING
from ledger.store.database import Database
from ledger.store.index import EVENT, sync
from protocol.chain import events as on_chain
from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.events import Event, Log
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing import calls
from protocol.wire import auth
from protocol.wire.assignments import Listing, pack_assignments
from tests.conftest import TERMS, until
from tests.ledger.disputes import NEW_RULES, Dispute, one_job, renewed, serve
from tests.ledger.scenario import FOREVER

NODES, RUNS = range(1, 6), (1, 2)
BOND, NOTICE = 10, 3


def event(kind: type[Event], **told: Any) -> Event:
    """An event that says this, and nothing else of weight."""
    return kind(**dict.fromkeys(kind.__slots__, 0) | told)


def registered(node: int, capacity: int, active_at: int) -> Event:
    return event(
        on_chain.NodeRegistered, node=node, role=Role.WORKER, capacity=capacity, active_at=active_at, bond=BOND
    )


def terms(rules_hash: bytes) -> RunTerms:
    """Terms that say this of the rules."""
    return RunTerms(**dict.fromkeys(RunTerms.__slots__, 0) | {"rules_hash": rules_hash})


def opened(run: int) -> Event:
    return event(on_chain.RunOpened, run=run, terms=terms(b"the first"))


nodes, runs = st.sampled_from(NODES), st.sampled_from(RUNS)
bonds = st.sampled_from((BOND - 1, BOND, BOND + 1))
listings = st.lists(st.builds(Listing, nodes, st.integers(1, 9)), min_size=1, max_size=4).map(pack_assignments)
happenings = st.one_of(
    st.builds(lambda run, listed: event(on_chain.RoundOpened, run=run, assignments=listed), runs, listings),
    st.builds(lambda run, node: event(on_chain.NodeJoined, run=run, node=node), runs, nodes),
    st.builds(lambda run: event(on_chain.TermsAnnounced, run=run), runs),
    st.builds(lambda run, node: event(on_chain.NodeLeft, run=run, node=node), runs, nodes),
    st.builds(lambda node, bond: event(on_chain.NodeSlashed, node=node, bond=bond), nodes, bonds),
    st.builds(lambda node, bond: event(on_chain.BondToppedUp, node=node, bond=bond), nodes, bonds),
    st.builds(lambda node: event(on_chain.KeyRevoked, node=node), nodes),
    st.builds(lambda node: event(on_chain.KeyRotated, node=node), nodes),
    st.builds(lambda node: event(on_chain.NodeRetired, node=node), nodes),
)
capacities = st.lists(st.integers(1, 20), min_size=len(NODES), max_size=len(NODES))
activations = st.lists(st.integers(0, 30), min_size=len(NODES), max_size=len(NODES))


@given(capacities, activations, st.lists(happenings, max_size=60), st.integers(0, 60))
def test_shares_are_those_of_counting_every_node_in_every_round(
    capacity: list[int], active_at: list[int], happened: list[Event], pause: int
) -> None:
    began = [registered(*told) for told in zip(NODES, capacity, active_at, strict=True)]
    logs = mined([*map(opened, RUNS), *began, *happened])
    count = Count()
    count.take(logs[:pause])
    going_on = Count.from_json(json.loads(json.dumps(count.to_json())))  # as another process does
    going_on.take(logs[pause:])
    expected = counted_one_by_one(logs)
    found = going_on.tallies()
    assert {node: (tally.rounds, tally.jobs) for node, tally in found.items()} == {
        node: (rounds, jobs) for node, (rounds, jobs, _, _) in expected.items()
    }
    for node, tally in found.items():
        assert (tally.expected, tally.variance) == pytest.approx(expected[node][2:], abs=1e-9)


def mined(happened: list[Event]) -> list[Log]:
    """Two to a block; nodes join at the rules in effect, and those announced are new and take effect after notice."""
    logs: list[Log] = []
    for place, each in enumerate(happened):
        time, told = place // 2, each
        if isinstance(each, on_chain.NodeJoined):
            told = replace(each, rules_hash=rules_at(logs, each.run, time))
        elif isinstance(each, on_chain.TermsAnnounced):
            told = replace(each, terms=terms(bytes([place])), effective_at=time + NOTICE)
        logs.append(Log(time, b"", b"", place, time, told))
    return logs


def rules_at(before: list[Log], run: int, timestamp: int) -> bytes:
    """Those in effect: the last announced that came to it before others were announced, or until now."""
    told = [log for log in before if isinstance(log.event, ANNOUNCING) and log.event.run == run]
    until = [*(log.timestamp for log in told[1:]), timestamp]
    held = [log.event.terms.rules_hash for log, end in zip(told, until, strict=True) if takes_effect(log.event) <= end]
    return held[-1]


def takes_effect(event: Any) -> int:
    return event.effective_at if isinstance(event, on_chain.TermsAnnounced) else 0


def test_a_retired_node_is_due_nothing_though_its_key_is_rotated(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    market, (careful, hasty) = dispute.market, dispute.workers
    market.send(hasty.owner, calls.retire(market.deployment, hasty.node))
    key, place = market.make_wallet("fresh"), (chain.chain_id, chain.deployment.registry, hasty.owner.address)
    signature = key.sign_typed(auth.node_binding(*place, key.address, Role.WORKER, 8, FOREVER))
    market.send(hasty.owner, calls.rotate_key(market.deployment, hasty.node, key.address, FOREVER, signature))
    market.open_round(dispute.coordinator, one_job(dispute))
    assert dues(chain, database) == {careful.node: 1.0}


def test_a_node_that_has_not_joined_at_new_rules_is_due_nothing_once_they_are_in_effect(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    market, (careful, hasty) = dispute.market, dispute.workers
    market.send(dispute.requester, calls.announce(market.deployment, market.run, renewed(dispute.terms, NEW_RULES)))
    market.open_round(dispute.coordinator, one_job(dispute))
    assert dues(chain, database) == {careful.node: 0.5, hasty.node: 0.5}
    serve(dispute, NEW_RULES)
    market.pass_time(TERMS.market.notice_seconds)
    market.send(careful.owner, calls.join(market.deployment, market.run, careful.node, NEW_RULES))
    market.open_round(dispute.coordinator, one_job(dispute))
    assert dues(chain, database) == {careful.node: 1.5, hasty.node: 0.5}
    market.send(hasty.owner, calls.join(market.deployment, market.run, hasty.node, NEW_RULES))
    market.open_round(dispute.coordinator, one_job(dispute))
    assert dues(chain, database) == {careful.node: 2.0, hasty.node: 1.0}


def test_another_process_goes_on_from_the_shares_that_one_has_counted(
    dispute: Dispute, chain: Chain, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairness_queries, "WORTH_KEEPING", 1)
    dispute.market.open_round(dispute.coordinator, one_job(dispute))
    chain.rpc.call("anvil_mine", hex(2 * FINALITY_DEPTH))
    expected = dues(chain, database)
    with database.reading() as connection:
        Reckoning(database).shares(connection)
    until(lambda: _kept_to(database) > 0, 10, "the count to be kept")
    with database.writing() as connection:
        connection.execute(EVENT.delete())
    with database.reading() as connection:
        assert {share.node: share.expected for share in Reckoning(database).shares(connection)} == expected
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM reckoned")
        assert not fairness(connection)


def _kept_to(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.exec_driver_sql("SELECT max(block_number) FROM reckoned").scalar_one() or 0)


def dues(chain: Chain, database: Database) -> dict[int, float]:
    """What each worker could expect, as of the head."""
    sync(chain, database)
    with database.reading() as connection:
        return {share.node: share.expected for share in fairness(connection)}


def counted_one_by_one(logs: list[Log]) -> dict[int, tuple[int, int, float, float]]:
    """Rounds, jobs, expectation and variance of each node, as the definition has them."""
    told: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for place, log in enumerate(logs):
        if not isinstance(log.event, on_chain.RoundOpened):
            continue
        able = {node: able_in(logs[:place], node, log.event.run, log.timestamp) for node in NODES}
        listed, whole = listed_jobs(log.event.assignments), sum(able.values())
        for node in NODES:
            if able[node] or listed[node]:
                due, jobs = able[node] / whole if whole else 0.0, sum(listed.values())
                part = (1, listed[node], jobs * due, jobs * due * (1 - due))
                told[node] = [one + other for one, other in zip(told[node], part, strict=True)]
    return {node: (int(rounds), int(jobs), *rest) for node, (rounds, jobs, *rest) in told.items()}  # type: ignore[misc]


def able_in(before: list[Log], node: int, run: int, timestamp: int) -> int:
    """The capacity that a node could have worked with, 0 where it could not."""
    own: list[Any] = [log.event for log in before if getattr(log.event, "node", 0) == node]
    first = own[0]
    bond = [each.bond for each in own if hasattr(each, "bond")][-1]
    keys = [each for each in own if isinstance(each, on_chain.KeyRevoked | on_chain.KeyRotated)]
    revoked = bool(keys) and isinstance(keys[-1], on_chain.KeyRevoked)
    gone = revoked or any(isinstance(each, on_chain.NodeRetired) for each in own)
    places = [each for each in own if isinstance(each, on_chain.NodeJoined | on_chain.NodeLeft) and each.run == run]
    joined = bool(places) and getattr(places[-1], "rules_hash", None) == rules_at(before, run, timestamp)
    return int(first.capacity) if joined and not gone and bond >= BOND and first.active_at <= timestamp else 0
