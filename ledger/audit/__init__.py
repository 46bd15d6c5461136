"""The audit: everything recomputed from the chain's events, then compared with the database and the contracts' views.

    RPC ──events──> replay ──> the auditor's own book ──compared with──> derived tables, raw rows   (the database)
                      │                                └─compared with──> views pinned to that block (the contracts)
                      └─ every event tried against the protocol before it is folded
    RPC ──transactions that created the contracts──compared with──> this repository's code

Nothing is read from the database but what is compared: a wrong row cannot excuse itself.
"""

from __future__ import annotations

from ledger.audit.code import compare_code
from ledger.audit.comparison import RawRows, compare_tables
from ledger.audit.conservation import conserve
from ledger.audit.history import history
from ledger.audit.replay import conclude, replay
from ledger.audit.report import Findings, Report
from ledger.audit.trial import Trial, read_terms
from ledger.audit.views import Views
from ledger.store.database import Database, read_position
from protocol.chain.reading.client import Chain
from protocol.errors import Unavailable


def audit(chain: Chain, database: Database) -> Report:
    """Audits ``database`` and the contracts at the block the database has read up to.

    Raises:
        Unavailable: the RPC or the database does not answer, or the chain was reorganised meanwhile.
    """
    findings = Findings()
    with database.reading() as connection:
        position = read_position(connection)
        if position.block_number <= chain.deployment.start_block:
            raise Unavailable("the database has read nothing of the chain yet: there is nothing to audit")
        block = chain.block(position.block_number)
        if block.hash != position.block_hash:
            raise Unavailable(
                f"the database stands at a block {block.number} that the chain no longer has; run the audit again"
            )
        reader = chain.pinned(block)
        terms = read_terms(reader, chain.deployment)
        trial = Trial(terms, findings)
        rows = RawRows(connection, findings)
        for news in history(chain, position.block_number, position.block_hash):
            for log in news.logs:
                rows.compare(log)
            replay(trial, news.logs)
        rows.finish()
        compare_tables(connection, trial.book, findings)
    conclude(trial)
    conserve(trial)
    _compare_seeds(chain, trial)
    compare_code(chain, block.number, findings)
    Views(reader, block.timestamp, trial.book, findings).compare()
    return Report(chain.chain_id, block.number, "0x" + block.hash.hex(), trial.events, findings.checks())


def _compare_seeds(chain: Chain, trial: Trial) -> None:
    for round_, number, seed in trial.seeds:
        trial.findings.equal("seeds", "round/block", (round_, number), "seed", seed, chain.block(number).hash)
