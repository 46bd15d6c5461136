"""The audit passes on what happened, and names whatever was changed."""

from __future__ import annotations

from ledger.audit import audit
from ledger.database import Database
from protocol.chain.client import Chain
from tests.ledger.scenario import Story


def test_a_whole_life_of_a_round_passes_every_check(story: Story, synced: Database, chain: Chain) -> None:
    report = audit(chain, synced)
    assert [str(finding) for check in report.checks for finding in check.findings] == []
    assert [check.name for check in report.checks if not check.compared] == []
    assert report.ok
