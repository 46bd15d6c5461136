"""Holds, bans and webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "run_control"
down_revision = "0001"


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "holds",
        sa.Column("run", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
    op.create_table(
        "bans",
        sa.Column("run", sa.BigInteger, primary_key=True),
        sa.Column("node", sa.BigInteger, primary_key=True),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("until", sa.Float),
        sa.Column("since", sa.Float, nullable=False),
    )
    op.create_table(
        "hook_events",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.String, nullable=False, unique=True, index=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False, index=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.String, nullable=False),
    )
    op.create_table(
        "hook_deliveries",
        sa.Column("hook", sa.String, primary_key=True),
        sa.Column("event", sa.Integer, primary_key=True),
    )
    op.create_table(
        "hooks",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("said", sa.String, nullable=False),
        sa.Column("said_at", sa.Float, nullable=False),
        sa.Column("delivered", sa.Integer, nullable=False),
        sa.Column("dropped", sa.Integer, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("held_until", sa.Float, nullable=False),
    )
    op.create_table(
        "hook_conditions",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("holds", sa.Boolean, nullable=False),
    )
