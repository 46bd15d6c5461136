"""Nonces in the database: each is kept for as long as the request that used it could be sent again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlmodel import select

from coordinator.api.gate import forget_nonces
from coordinator.store import Store
from coordinator.tables import NonceRow
from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from protocol.wire.auth import Audience, recover_request, sign_request

MOMENTS = st.integers(min_value=0, max_value=2_000)
AUDIENCE = Audience(1, "0x" + "11" * 20, 1)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deadline=MOMENTS, now=MOMENTS)
def test_a_nonce_is_forgotten_only_once_its_request_is_refused_anyway(tmp_path: Path, deadline: int, now: int) -> None:
    store = Store(f"sqlite:///{tmp_path}/{deadline}-{now}.db")
    with store.writing() as session:
        session.merge(NonceRow(address="0xa", nonce="1", deadline=deadline))
    with store.writing() as session:
        forget_nonces(session, now)
    with store.reading() as session:
        kept = session.exec(select(NonceRow)).first() is not None
    store.close()
    key = Wallet("key", b"\x01" * 32)
    headers = sign_request(key, AUDIENCE, "GET", "/jobs", b"", nonce=1, deadline=deadline)
    if not kept:
        with pytest.raises(Rejected, match="deadline passed"):
            recover_request(headers, AUDIENCE, "GET", "/jobs", now)
