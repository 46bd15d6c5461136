"""Planted faults in the ledger: a set with a trap that jurors found, one that nobody planted, and a decoy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ledger.audit import audit
from ledger.facts import OpenedTrap, TrapSet
from ledger.queries.lookup import every
from ledger.queries.why import why_job
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.events import DecoyOpened, Event, Transfer, TrapOpened, TrapsForfeited, TrapsSet
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.wire.traps import Trap, TrapKind, leaf_of, proof_of, root_of
from tests.conftest import TOKEN
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import WINDOW, only
from tests.ledger.test_audit import change, findings
from tests.ledger.test_replay import Change, changed, told, tried

BOUNTY = TOKEN // 4
DAY = 86_400


def plant(dispute: Dispute) -> int:
    """Sets three leaves, of which one is fraud, one a decoy, and one never opened; returns the set's number."""
    market, deployment = dispute.market, dispute.market.deployment
    careful, hasty = (worker.node for worker in dispute.workers)
    leaves = [
        Trap(hasty, 1, 3, TrapKind.OTHER_SEED, b"\1" * 32),
        Trap(careful, 1, 1, TrapKind.DECOY, b"\2" * 32),
        Trap(careful, 1, 1, TrapKind.OTHER_PROMPTS, b"\3" * 32),
    ]
    hashes = [leaf_of(deployment.chain_id, deployment.traps, leaf) for leaf in leaves]
    market.send(dispute.requester, calls.drip(deployment, dispute.requester.address, 10 * TOKEN))
    market.send(dispute.requester, calls.approve(deployment, "Traps", 10 * TOKEN))
    until = market.chain.head().timestamp + DAY
    call = calls.set_traps(deployment, market.run, root_of(hashes), 3, BOUNTY, 1, until)
    made = only(market.send(dispute.requester, call), TrapsSet)
    assert isinstance(made, TrapsSet)
    disputes.condemn(dispute)
    proofs = [proof_of(hashes, index) for index in range(3)]
    opening = (dispute.round, 6, dispute.assignments)
    market.send(dispute.rival, calls.open_trap(deployment, made.set, leaves[0], proofs[0], *opening))
    market.send(dispute.rival, calls.open_decoy(deployment, made.set, leaves[1], proofs[1]))
    market.pass_time(WINDOW + 1)
    disputes.settle(dispute)
    market.pass_time(DAY)
    market.send(dispute.rival, calls.forfeit_traps(deployment, made.set))
    return made.set


@pytest.fixture
def planted(dispute: Dispute) -> Dispute:
    plant(dispute)
    return dispute


def test_a_trap_is_stored_audited_and_told(planted: Dispute, chain: Chain, database: Database) -> None:
    sync(chain, database)
    report = audit(chain, database)
    assert [str(finding) for finding in findings(report)] == []
    with database.reading() as connection:
        (made,) = every(connection, TrapSet)
        assert (made.opened, made.balance, made.leaves) == (3, 0, 3)
        trap, decoy = every(connection, OpenedTrap)
        hasty = planted.workers[1].node
        assert (trap.kind, trap.round, trap.node, trap.job, trap.finders) == ("other_seed", planted.round, hasty, 6, 1)
        assert (decoy.kind, decoy.round) == ("decoy", 0)
        explained = why_job(connection, planted.round, 6)
    assert explained is not None
    said = (
        f"job 6 was a trap of set 1: tokens sampled with the noise of another job; validators {planted.juror} found it"
    )
    assert any(line.says.startswith(said) for line in explained.lines)


def test_stored_traps_that_are_flipped_are_named(planted: Dispute, chain: Chain, database: Database) -> None:
    sync(chain, database)
    change(database, "UPDATE trap_set SET bounty = '7'")
    change(database, "UPDATE opened_trap SET finders = '9' WHERE kind = 'other_seed'")
    named = {(finding.subject, finding.field) for finding in findings(audit(chain, database))}
    assert named == {("trap_set", "bounty"), ("opened_trap", "finders")}


LIES: list[tuple[type[Event], Change, str, Callable[[Any], bool]]] = [
    (TrapsSet, lambda event: replace(event, first=0), "traps", bool),
    (TrapsSet, lambda event: replace(event, setter="0x" + "00" * 19 + "09"), "traps", bool),
    (TrapsSet, lambda event: replace(event, leaves=event.leaves + 1), "conservation", bool),
    (TrapsSet, lambda event: replace(event, open_by=1), "traps", bool),
    (TrapOpened, lambda event: replace(event, job=5), "traps", bool),
    (TrapOpened, lambda event: replace(event, job=0, node=event.node), "traps", bool),
    (TrapOpened, lambda event: replace(event, finders=()), "traps", bool),
    (TrapOpened, lambda event: replace(event, bounty=event.bounty + 1), "traps", bool),
    (TrapOpened, lambda event: replace(event, kind=TrapKind.DECOY), "traps", bool),
    (TrapOpened, lambda event: None, "conservation", bool),
    (DecoyOpened, lambda event: replace(event, amount=event.amount + 1), "traps", bool),
    (DecoyOpened, lambda event: replace(event, setter="0x" + "00" * 19 + "09"), "traps", bool),
    (TrapsForfeited, lambda event: replace(event, amount=event.amount - 1), "traps", bool),
    (TrapsForfeited, lambda event: replace(event, treasury="0x" + "00" * 19 + "09"), "traps", bool),
    (TrapsForfeited, lambda event: None, "conservation", bool),
]


def test_every_lie_about_a_trap_is_named(planted: Dispute, chain: Chain) -> None:
    logs = told(chain)
    assert tried(chain, logs) == set()
    for kind, lie, check, where in LIES:
        assert check in tried(chain, changed(logs, kind, lie, where)), (kind.__name__, check)


def test_a_bounty_that_went_elsewhere_is_named(planted: Dispute, chain: Chain) -> None:
    here = chain.deployment.traps
    logs = changed(
        told(chain), Transfer, lambda event: replace(event, to="0x" + "00" * 19 + "09"), lambda e: e.sender == here
    )
    assert "conservation" in tried(chain, logs)
