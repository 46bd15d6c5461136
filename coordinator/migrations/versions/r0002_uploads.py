"""Revision 0002_uploads: uploads to an object store, and when rounds ended, after which artifacts are deleted."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, String

revision = "0002_uploads"
down_revision = "0001"


def upgrade() -> None:
    """Adds the tables."""
    op.create_table(
        "grants",
        Column("name", String(), primary_key=True),
        Column("round", BigInteger(), nullable=False, index=True),
        Column("job", Integer(), nullable=False),
        Column("node", BigInteger(), nullable=False, index=True),
        Column("size", BigInteger(), nullable=False),
        Column("file_hash", LargeBinary(), nullable=False),
        Column("expires_at", Float(), nullable=False),
        Column("state", String(), nullable=False),
        Column("ordered_at", Float(), nullable=False),
        Column("root", LargeBinary(), nullable=False),
        Column("why", String(), nullable=False),
    )
    op.create_table(
        "ended_rounds",
        Column("round", BigInteger(), primary_key=True),
        Column("ended_at", Float(), nullable=False),
    )
