"""Nonces in the database: each is kept for as long as the request that used it could be sent again."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlmodel import select

from coordinator.api.gate import Admission, Gate, forget_nonces
from coordinator.api.group_commit import MOST_AT_ONCE
from coordinator.store import Store
from coordinator.tables import NodeRow, NonceRow
from protocol.chain.structs import Role
from protocol.errors import Rejected, Unavailable
from protocol.node.wallet import Wallet
from protocol.wire.auth import Audience, recover_request, sign_request

KEY, STRANGER = Wallet("key", b"\x01" * 32), Wallet("stranger", b"\x02" * 32)
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
    headers = sign_request(KEY, AUDIENCE, "GET", "/jobs", b"", nonce=1, deadline=deadline)
    if not kept:
        with pytest.raises(Rejected, match="deadline passed"):
            recover_request(headers, AUDIENCE, "GET", "/jobs", now)


def test_requests_that_come_at_once_are_each_admitted_or_refused_for_themselves(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/coordinator.db")
    with store.writing() as session:
        session.add(a_worker(7))
    gate, now = Gate(store, [AUDIENCE]), int(time.time())
    asked = [signed_at(now, KEY, nonce) for nonce in (*range(3 * MOST_AT_ONCE), 5)] + [signed_at(now, STRANGER, 1)]

    async def admitted() -> list[Admission | BaseException]:
        return await asyncio.gather(*(gate.admit(each, "GET", "/jobs", now) for each in asked), return_exceptions=True)

    *fresh, again, strange = asyncio.run(admitted())
    store.close()
    assert {each.caller.node for each in fresh if isinstance(each, Admission)} == {7}
    assert all(isinstance(each, Admission) for each in fresh)
    assert "nonce already used" in str(again)
    assert "no node is registered" in str(strange)


def test_where_the_database_does_not_answer_all_that_wait_are_told_and_later_ones_are_admitted(tmp_path: Path) -> None:
    file = tmp_path / "coordinator.db"
    store = Store(f"sqlite:///{file}")
    with store.writing() as session:
        session.add(a_worker(7))
    gate, now = Gate(store, [AUDIENCE]), int(time.time())

    async def admitted(nonces: range) -> list[Admission | BaseException]:
        asked = (gate.admit(signed_at(now, KEY, nonce), "GET", "/jobs", now) for nonce in nonces)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def told() -> tuple[list[Admission | BaseException], list[Admission | BaseException]]:
        with sqlite3.connect(file) as other:
            other.execute("BEGIN IMMEDIATE")  # and keeps the lock for longer than a write waits
            refused = await admitted(range(3))
            other.rollback()
        return refused, await admitted(range(3))

    refused, later = asyncio.run(told())
    store.close()
    assert {type(each) for each in refused} == {Unavailable}
    assert {type(each) for each in later} == {Admission}


def signed_at(now: int, key: Wallet, nonce: int) -> dict[str, str]:
    return sign_request(key, AUDIENCE, "GET", "/jobs", b"", nonce=nonce, deadline=now + 60)


def a_worker(node: int) -> NodeRow:
    place = {"owner": STRANGER.address, "role": Role.WORKER, "slot": 0, "capacity": 1, "active_at": 0}
    return NodeRow(id=node, key=KEY.address, bond=1, required=1, **place)
