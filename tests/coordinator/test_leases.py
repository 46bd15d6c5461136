"""Leases and the bell on a real Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import redis

from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Bell
from protocol.errors import Misconfigured, Unavailable


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    """The leases of run 3."""
    made = Leases(redis_url, 3)
    yield made
    made.close()


def test_a_lease_holds_until_it_ends_and_a_longer_one_replaces_it(leases: Leases) -> None:
    leases.grant(1, until=10)
    leases.grant(2, until=20)
    assert leases.held(5) == {1, 2}
    assert leases.held(10) == {2}
    leases.grant(1, until=30)
    assert leases.held(25) == {1}


def test_expiring_tells_whose_lease_ended_once(leases: Leases) -> None:
    leases.grant(1, until=10)
    leases.grant(2, until=20)
    assert leases.expire(15) == (1,)
    assert leases.expire(15) == ()


def test_leases_of_runs_are_apart_and_may_be_forgotten(leases: Leases, redis_url: str) -> None:
    other = Leases(redis_url, 4)
    other.grant(9, until=10)
    leases.grant(1, until=10)
    assert leases.held(5) == {1}
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    client.close()
    assert leases.held(5) == frozenset()
    leases.grant(1, until=10)
    assert leases.held(5) == {1}
    other.close()


def test_without_redis_leases_are_unavailable_and_the_bell_is_silent() -> None:
    nowhere, bell = Leases("redis://127.0.0.1:1/0", 3), Bell("redis://127.0.0.1:1/0", 3)
    with pytest.raises(Unavailable, match="Redis does not answer"):
        nowhere.held(0)
    bell.ring()
    bell.wait(0.01)
    with pytest.raises(Misconfigured, match="redis_url"):
        Leases("http://127.0.0.1", 3)


def test_the_bell_cuts_a_pause_short(redis_url: str) -> None:
    heard, rung = Bell(redis_url, 3), Bell(redis_url, 3)
    ringer = threading.Timer(0.2, rung.ring)
    ringer.start()
    started = time.monotonic()
    heard.wait(4.0)
    assert time.monotonic() - started < 3
    ringer.join()
    started = time.monotonic()
    heard.wait(0.2)
    assert time.monotonic() - started >= 0.15, "it was rung once"
    heard.close()
    rung.close()
