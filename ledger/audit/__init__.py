"""The audit: everything recomputed from the chain's events, then compared with the database and the contracts' views.

    RPC ──events──> replay ──> the auditor's own book ──compared with──> derived tables, raw rows   (the database)
                      │                                └─compared with──> views pinned to that block (the contracts)
                      └─ every event tried against the protocol before it is folded
    RPC ──transactions that created the contracts──compared with──> this repository's code

The database is read only for comparison, so a wrong row cannot excuse itself. `ledger.audit.checks` lists the checks.
"""

from __future__ import annotations

from ledger.audit.audit_state import AuditSources, AuditState, read_terms
from ledger.audit.checks import CHECKS, sentences, tries
from ledger.audit.comparison import RawRows
from ledger.audit.history import history
from ledger.audit.replay import conclude, replay
from ledger.audit.report import Findings, Report
from ledger.store.database import Database, read_position
from protocol.chain.reading.client import Chain
from protocol.errors import Unavailable


def audit(chain: Chain, database: Database) -> Report:
    """Audits ``database`` and the contracts at the block the database has read up to.

    Raises:
        Unavailable: the RPC or the database does not answer, or the chain was reorganised meanwhile.
    """
    with database.reading() as connection:
        position = read_position(connection)
        if position.block_number <= chain.deployment.start_block:
            raise Unavailable("the database has read nothing of the chain yet: there is nothing to audit")
        block = chain.block(position.block_number)
        if block.hash != position.block_hash:
            raise Unavailable(
                f"the database stands at a block {block.number} that the chain no longer has; run the audit again"
            )
        sources = AuditSources(chain, block, chain.pinned(block), connection)
        state = AuditState(read_terms(sources.reader, chain.deployment), Findings(), tries())
        rows = RawRows(connection, state.findings)
        for news in history(chain, position.block_number, position.block_hash):
            for log in news.logs:
                rows.compare(log)
            replay(state, news.logs)
        rows.finish()
        conclude(state)
        for check in CHECKS.values():
            for compare in check.comparing:
                compare(state, sources)
    results = state.findings.results(sentences())
    return Report(chain.chain_id, block.number, "0x" + block.hash.hex(), state.events, results)
