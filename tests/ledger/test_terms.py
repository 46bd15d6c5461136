"""What changes while a run goes on: terms, keys, the admin's word; and rounds that nobody moves on."""

from __future__ import annotations

import pytest

from ledger.facts import Admin, Job, Membership, Node, Round, RunTerms
from ledger.store.database import Database
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.writing import calls
from protocol.wire import auth
from tests.conftest import TERMS
from tests.ledger import disputes
from tests.ledger.disputes import NEW_PRICE, NEW_RULES, Dispute, as_admin, one_job, submit_one
from tests.ledger.scenario import FOREVER, MAX_UNITS, PRICE, WINDOW
from tests.ledger.test_appeals import all_of, audited, one_of


def test_announced_terms_take_effect_after_notice_and_open_rounds_keep_theirs(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    market = dispute.market
    never = disputes.renewed(dispute.terms, b"\x33" * 32)
    market.send(dispute.requester, calls.announce(market.deployment, market.run, never))
    fresh = disputes.renewed(dispute.terms, NEW_RULES)
    market.send(dispute.requester, calls.announce(market.deployment, market.run, fresh))
    market.pass_time(TERMS.market.notice_seconds - 100)
    old = market.open_round(dispute.coordinator, one_job(dispute))
    assert audited(chain, database) == []
    disputes.serve(dispute, NEW_RULES)
    market.pass_time(200)
    assert audited(chain, database) == []
    with pytest.raises(Reverted, match="NotJoined"):
        market.open_round(dispute.coordinator, one_job(dispute))
    disputes.accept(dispute, old)
    worker = dispute.workers[0]
    market.send(worker.owner, calls.join(market.deployment, market.run, worker.node, NEW_RULES))
    new = market.open_round(dispute.coordinator, one_job(dispute))
    disputes.accept(dispute, new)
    assert audited(chain, database) == []
    first, replaced, present = all_of(database, RunTerms)
    assert [terms.replaced for terms in (first, replaced, present)] == [False, True, False]
    assert present.effective_at == present.announced_at + TERMS.market.notice_seconds
    assert one_of(database, Membership, market.run, worker.node).rules_hash == NEW_RULES
    rounds = one_of(database, Round, old), one_of(database, Round, new)
    assert [(round_.price_per_unit, round_.appeal_seats) for round_ in rounds] == [(PRICE, 3), (NEW_PRICE, 0)]
    credited = [one_of(database, Job, round_.round, 0).credited for round_ in rounds]
    assert credited == [MAX_UNITS * PRICE, MAX_UNITS // 2 * NEW_PRICE]


def test_a_node_without_its_key_is_neither_drawn_nor_listed_until_it_has_a_new_one(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    market, (worker, idle) = dispute.market, dispute.workers
    judge = market.register("fifth", disputes.Role.VALIDATOR, 1)
    market.send(judge.owner, calls.join(market.deployment, market.run, judge.node, dispute.terms.rules_hash))
    market.send(judge.owner, calls.revoke_key(market.deployment, judge.node))
    market.send(idle.owner, calls.revoke_key(market.deployment, idle.node))
    round_ = market.open_round(dispute.coordinator, one_job(dispute))
    assert audited(chain, database) == []
    nodes = [one_of(database, Node, party.node) for party in (judge, idle)]
    assert [(node.revoked, int(node.key, 16)) for node in nodes] == [(True, 0)] * 2
    assert one_of(database, Round, round_).eligible == 0b01111
    key = market.make_wallet("fresh")
    binding = auth.node_binding(
        chain.chain_id, chain.deployment.registry, judge.owner.address, key.address, disputes.Role.VALIDATOR, 1, FOREVER
    )
    signature = key.sign_typed(binding)
    rotated = calls.rotate_key(market.deployment, judge.node, key.address, FOREVER, signature)
    market.send(judge.owner, rotated)
    round_ = market.open_round(dispute.coordinator, one_job(dispute))
    assert audited(chain, database) == []
    assert one_of(database, Round, round_).eligible == 0b11111
    assert (one_of(database, Node, judge.node).revoked, one_of(database, Node, judge.node).key) == (False, key.address)
    assert worker.node == 1


def test_a_retired_node_gets_its_bond_back_and_is_gone(dispute: Dispute, chain: Chain, database: Database) -> None:
    market, (_, idle) = dispute.market, dispute.workers
    market.send(idle.owner, calls.retire(market.deployment, idle.node))
    assert audited(chain, database) == []
    market.pass_time(TERMS.registry.unbonding_delay)
    market.send(idle.owner, calls.withdraw(market.deployment, idle.node))
    assert audited(chain, database) == []
    node = one_of(database, Node, idle.node)
    assert (node.withdrawn, node.bond, node.returned) == (True, 0, node.posted + node.topped_up)


def test_a_pause_stops_rounds_and_nothing_else(dispute: Dispute, chain: Chain, database: Database) -> None:
    market = dispute.market
    round_ = market.open_round(dispute.coordinator, one_job(dispute))
    as_admin(market, calls.call(market.deployment, "Admin", "pause"))
    with pytest.raises(Reverted, match="NewRoundsPaused"):
        market.open_round(dispute.coordinator, one_job(dispute))
    disputes.accept(dispute, round_)
    assert audited(chain, database) == []
    assert one_of(database, Admin, 1).paused
    as_admin(market, calls.call(market.deployment, "Admin", "unpause"))
    market.open_round(dispute.coordinator, one_job(dispute))
    assert audited(chain, database) == []
    assert not one_of(database, Admin, 1).paused


def test_rounds_that_nobody_moves_on_are_ended_by_force(dispute: Dispute, chain: Chain, database: Database) -> None:
    market = dispute.market
    idle, voting = (market.open_round(dispute.coordinator, one_job(dispute)) for _ in range(2))
    submit_one(dispute, voting)
    dispute.tick("draw", voting)
    market.pass_time(TERMS.market.max_round_seconds + 2 * WINDOW)
    for round_ in (idle, voting):
        dispute.tick("expire", round_)
        dispute.tick("free", round_, one_job(dispute))
    assert audited(chain, database) == []
    assert [one_of(database, Round, round_).state for round_ in (idle, voting)] == ["void", "void"]
    assert one_of(database, Node, dispute.workers[0].node).in_flight == 0
