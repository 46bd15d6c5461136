"""The database against the events: raw rows against the chain's logs, derived rows against the auditor's own book."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, select

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from ledger.audit.report import Findings
from ledger.facts import KINDS, Fact, key_of
from ledger.store.index import EVENT, event_row
from ledger.store.rows import row_of
from ledger.store.tables import TABLES, snake
from protocol.chain.events import Log

RAW_EVENTS = AuditCheck("raw events", "the database's raw events are the chain's")
DERIVED = AuditCheck("tables", "the database's derived rows are what the events say, field by field")

ABSENT = "no row"


class RawRows:
    """Walks the stored raw events beside the chain's, in the same order."""

    def __init__(self, connection: Connection, findings: Findings) -> None:
        ordered = select(EVENT).order_by(EVENT.c.block_number, EVENT.c.log_index)
        self._rows: Iterator[Row[Any]] = iter(connection.execute(ordered.execution_options(yield_per=1_000)))
        self._findings = findings
        self._next = next(self._rows, None)

    def compare(self, log: Log) -> None:
        """Compares the row of one log; names rows that stand before it and are of no log."""
        place = (log.block_number, log.log_index)
        while self._next is not None and (self._next.block_number, self._next.log_index) < place:
            self._extra()
        if self._next is None or (self._next.block_number, self._next.log_index) != place:
            self._findings.equal("raw events", "event", place, "row", ABSENT, type(log.event).__name__)
            return
        for name, value in event_row(log).items():
            self._findings.equal("raw events", "event", place, name, getattr(self._next, name), value)
        self._next = next(self._rows, None)

    def finish(self) -> None:
        """Names the rows left over."""
        while self._next is not None:
            self._extra()

    def _extra(self) -> None:
        assert self._next is not None
        place = (self._next.block_number, self._next.log_index)
        self._findings.equal("raw events", "event", place, "row", self._next.name, ABSENT)
        self._next = next(self._rows, None)


def _compare_row(findings: Findings, kind: type[Fact], key: tuple[Any, ...], row: Row[Any], fact: Fact | None) -> None:
    if fact is None:
        findings.equal("tables", snake(kind), key, "row", "one", ABSENT)
        return
    expected = row_of(fact)
    for field in dataclasses.fields(kind):
        findings.equal("tables", snake(kind), key, field.name, row._mapping[field.name], expected[field.name])


@DERIVED.compares
def _compare_tables(audit: AuditState, sources: AuditSources) -> None:
    """Compares every derived row, field by field, with the fact of the same key in the auditor's book."""
    for kind in KINDS:
        facts = {key_of(fact): fact for fact in audit.book.all(kind)}
        for row in sources.connection.execute(select(TABLES[kind])):
            key = tuple(row._mapping[name] for name in kind.KEY)
            _compare_row(audit.findings, kind, key, row, facts.pop(key, None))
        for key in facts:
            audit.findings.equal("tables", snake(kind), key, "row", ABSENT, "one")


CHECKS = (RAW_EVENTS, DERIVED)
