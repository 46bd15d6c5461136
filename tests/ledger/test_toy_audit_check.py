"""An audit check that is registered by nothing but its own definition runs, passes and fails under its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ledger.audit import audit
from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from ledger.audit.checks import CHECKS
from ledger.store.database import Database
from protocol.chain.events import Log, RoundOpened
from protocol.chain.reading.client import Chain
from tests.ledger.scenario import Story


@contextmanager
def registered(most_jobs: int) -> Iterator[AuditCheck]:
    """Registers a check that rounds open with at most ``most_jobs`` jobs, and that the database counts them all."""
    opened, check = [], AuditCheck("toy", "rounds are small")

    @check.tries(RoundOpened)
    def small(state: AuditState, log: Log, event: RoundOpened) -> None:
        opened.append(event.round)
        state.findings.holds("toy", "round", event.round, f"at most {most_jobs} jobs", event.jobs <= most_jobs)

    @check.concludes
    def some(state: AuditState) -> None:
        state.findings.holds("toy", "chain", "", "opened rounds", bool(opened))

    @check.compares
    def counted(state: AuditState, sources: AuditSources) -> None:
        (stored,) = sources.connection.exec_driver_sql("SELECT count(*) FROM round WHERE parent = 0").one()
        state.findings.equal("toy", "database", "round", "rows", stored, len(opened))

    CHECKS[check.name] = check
    try:
        yield check
    finally:
        del CHECKS[check.name]


def test_a_registered_check_is_reported_where_it_holds(story: Story, synced: Database, chain: Chain) -> None:
    with registered(most_jobs=256) as check:
        report = audit(chain, synced)
    result = next(result for result in report.checks if result.name == "toy")
    assert report.ok
    assert result.shows == check.shows
    assert result.compared == len(story.rounds) + 2


def test_a_registered_check_that_fails_names_what_contradicts_it(story: Story, synced: Database, chain: Chain) -> None:
    with registered(most_jobs=0):
        report = audit(chain, synced)
    failed = {result.name: result for result in report.checks if result.wrong}
    assert failed.keys() == {"toy"}
    assert failed["toy"].wrong == len(story.rounds)
    assert str(failed["toy"].findings[0]).startswith(f"round {story.rounds[0]}: at most 0 jobs is False")


def test_a_comparison_under_an_unknown_name_ends_the_audit(synced: Database, chain: Chain) -> None:
    check = AuditCheck("toy", "nothing")

    @check.concludes
    def unknown(state: AuditState) -> None:
        state.findings.holds("unheard of", "chain", "", "anything", True)

    CHECKS["toy"] = check
    try:
        with pytest.raises(LookupError, match="unknown audit check 'unheard of'"):
            audit(chain, synced)
    finally:
        del CHECKS["toy"]
