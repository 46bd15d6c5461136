"""Offers of nodes, and the length of work phases to match them by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_offers"
down_revision = "0001"


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "offers",
        sa.Column("node", sa.BigInteger, primary_key=True),
        sa.Column("offer", sa.String, nullable=False),
    )
    op.create_table(
        "work_phases",
        sa.Column("run", sa.BigInteger, primary_key=True),
        sa.Column("seconds", sa.Integer, nullable=False),
    )
