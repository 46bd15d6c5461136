"""Revision 0001: the tables as they were before their versions were counted.

A database that was made then has them already, and no revision: it is taken over if its columns are these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, MetaData, String, Table

from coordinator.migrations import check

revision = "0001"
down_revision = None

TABLES = MetaData()
BIG, INT, REAL, FLAG, TEXT, BYTES, WEI = (
    BigInteger(),
    Integer(),
    Float(),
    Boolean(),
    String(),
    LargeBinary(),
    LargeBinary(32),
)


def upgrade() -> None:
    """Makes the tables that are not there; raises ``Misconfigured`` if one that is there has other columns."""
    TABLES.create_all(op.get_bind())
    check(op.get_bind(), TABLES, exactly=True)


def _table(name: str, keys: Mapping[str, Any], values: Mapping[str, Any], indexed: Sequence[str] = ()) -> None:
    primary = [Column(column, kind, primary_key=True) for column, kind in keys.items()]
    others = [Column(column, kind, nullable=False, index=column in indexed or None) for column, kind in values.items()]
    Table(name, TABLES, *primary, *others)


_table("cursor", {"id": INT}, {"number": BIG, "position": TEXT})
_table("admin", {"id": INT}, {"paused": FLAG})
_table(
    "runs",
    {"id": BIG},
    {
        "requester": TEXT,
        "coordinator": TEXT,
        "trainer": TEXT,
        "rules_hash": BYTES,
        "price_per_unit": WEI,
        "juror_fee": WEI,
        "max_units": WEI,
        "committee": INT,
        "appeal_seats": INT,
        "reveal_seconds": INT,
        "version": INT,
        "closed": FLAG,
        "escrow": WEI,
        "reserved": WEI,
        "step": BIG,
        "rounds_opened": INT,
        "rounds_settled": INT,
        "rounds_void": INT,
        "jobs_accepted": BIG,
        "jobs_void": BIG,
        "jobs_fraud": BIG,
    },
    indexed=("rules_hash",),
)
_table("announcements", {"run": BIG}, {"effective_at": BIG, "terms": TEXT})
_table(
    "nodes",
    {"id": BIG},
    {
        "owner": TEXT,
        "key": TEXT,
        "role": INT,
        "slot": INT,
        "capacity": BIG,
        "in_flight": INT,
        "active_at": BIG,
        "retired_at": BIG,
        "bond": WEI,
        "required": WEI,
        "revoked": FLAG,
        "given": BIG,
        "neglect": REAL,
        "absent": FLAG,
        "fraudulent": INT,
        "slashed": WEI,
    },
    indexed=("key",),
)
_table("members", {"run": BIG, "node": BIG}, {"rules_hash": BYTES})
_table("earnings", {"run": BIG, "owner": TEXT}, {"amount": WEI})
_table(
    "rounds",
    {"id": BIG},
    {
        "run": BIG,
        "parent": BIG,
        "state": INT,
        "step": BIG,
        "policy_version": BIG,
        "jobs": INT,
        "slot_count": INT,
        "attempt": INT,
        "opened_at": BIG,
        "deadline": BIG,
        "reveal_seconds": INT,
        "open_block": BIG,
        "beacon": BYTES,
        "assignments": BYTES,
        "revealing": FLAG,
        "holding": FLAG,
        "submitted": WEI,
        "accepted": WEI,
        "fraud": WEI,
        "consumed": WEI,
        "appealed": WEI,
        "concluded": WEI,
        "appeals": INT,
    },
    indexed=(
        "run",
        "state",
    ),
)
_table("listings", {"round": BIG, "first": INT}, {"node": BIG, "count": INT}, indexed=("node",))
_table("submitted", {"round": BIG, "batch": INT, "position": INT}, {"node": BIG, "leaves": BYTES, "settled": FLAG})
_table("seats", {"round": BIG, "attempt": INT, "juror": BIG}, {"committed": FLAG, "revealed": FLAG, "unfit": FLAG})
_table("checkpoints", {"run": BIG, "version": BIG}, {"manifest_root": BYTES})
_table("undo", {"id": INT}, {"number": BIG, "position": TEXT, "rows": TEXT}, indexed=("number",))
_table("uploads", {"round": BIG, "job": INT, "root": BYTES}, {"node": BIG, "size": BIG})
_table(
    "claims",
    {"round": BIG, "node": BIG, "leaves": BYTES},
    {"beacon": BYTES, "uri": TEXT, "signature": BYTES, "state": TEXT, "why": TEXT, "received_at": REAL},
    indexed=("state",),
)
_table("node_heartbeats", {"node": BIG}, {"version": BIG, "available": FLAG, "hardware": TEXT, "heard_at": REAL})
_table("nonces", {"address": TEXT, "nonce": TEXT}, {"deadline": BIG}, indexed=("deadline",))
_table("rules", {"hash": BYTES}, {"body": BYTES})
_table("evidence", {"root": BYTES}, {"round": BIG, "attempt": INT, "juror": BIG})
_table("standing", {"run": BIG}, {"waiting": TEXT})
