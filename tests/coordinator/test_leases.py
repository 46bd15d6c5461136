"""Leases and the notifier on a real Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import redis

from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Notifier
from protocol.errors import Misconfigured, Unavailable


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    """The leases of run 3."""
    made = Leases(redis_url, 3)
    yield made
    made.close()


def test_a_lease_holds_until_it_ends_and_a_longer_one_replaces_it(leases: Leases) -> None:
    leases.grant({1: 10, 2: 20})
    assert leases.held(5) == {1, 2}
    assert leases.held(10) == {2}
    leases.grant({1: 30})
    assert leases.held(25) == {1}


def test_expiring_tells_whose_lease_ended_once(leases: Leases) -> None:
    leases.grant({1: 10, 2: 20})
    assert leases.expire(15) == (1,)
    assert leases.expire(15) == ()


def test_leases_of_runs_are_apart_and_may_be_forgotten(leases: Leases, redis_url: str) -> None:
    other = Leases(redis_url, 4)
    other.grant({9: 10})
    leases.grant({1: 10})
    assert leases.held(5) == {1}
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    client.close()
    assert leases.held(5) == frozenset()
    leases.grant({1: 10})
    assert leases.held(5) == {1}
    other.close()


def test_without_redis_leases_are_unavailable_and_notifications_are_lost() -> None:
    nowhere, notifier, woken = (
        Leases("redis://127.0.0.1:1/0", 3),
        Notifier("redis://127.0.0.1:1/0", 3),
        threading.Event(),
    )
    with pytest.raises(Unavailable, match="Redis does not answer"):
        nowhere.held(0)
    notifier.listen(woken.set)
    notifier.notify()
    assert not woken.wait(0.1)
    notifier.close()
    with pytest.raises(Misconfigured, match="redis_url"):
        Leases("http://127.0.0.1", 3)


def test_a_notification_wakes_its_listener_once(redis_url: str) -> None:
    receiver, sender, woken = Notifier(redis_url, 3), Notifier(redis_url, 3), threading.Event()
    receiver.listen(woken.set)
    assert not woken.wait(0.2), "nothing was sent yet"
    sender.notify()
    assert woken.wait(3)
    woken.clear()
    assert not woken.wait(0.2), "one notification was sent"
    receiver.close()
    sender.close()
