"""Revision 0002_clock: which process drives."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Integer, String

revision = "0002_clock"
down_revision = "0001"


def upgrade() -> None:
    """Adds the table of the clock's lease."""
    op.create_table(
        "clock",
        Column("id", Integer, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("holder", String, nullable=False),
        Column("place", String, nullable=False),
        Column("ends_at", Float, nullable=False),
    )
