"""Several driving processes on one database: one drives, and a former one neither writes nor sends."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, select, update

from coordinator.driver.clock import ClockLease, ClockLost
from coordinator.driver.wiring import DriverProcess
from coordinator.settings import WebhookSettings
from coordinator.store import IDLE_SECONDS, Store, upsert
from coordinator.tables import ClockRow, CursorRow, HookEventRow, RulesRow
from protocol.errors import Unavailable
from tests.coordinator.swarm import Swarm
from tests.postgresql import new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'coordinator.db'}"
    return new_database(request.getfixturevalue("postgresql"))


@pytest.fixture
def machine(
    swarm: Swarm, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., DriverProcess]]:
    """Makes driving processes, each as if on a machine of its own."""
    made: list[DriverProcess] = []

    def make(name: str, **changes: Any) -> DriverProcess:
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        settings = swarm.settings(state_dir=tmp_path / name, database_url=database, **changes)
        made.append(DriverProcess(settings, swarm.coordinator))
        return made[-1]

    yield make
    for each in made:
        each.close()


@contextmanager
def opened(url: str) -> Iterator[Store]:
    with closing(Store(url)) as store:
        yield store


def end(url: str) -> None:
    """The time of whoever holds the clock is over, as after a pause."""
    with opened(url) as store, store.writing() as session:
        session.exec(update(ClockRow).values(ends_at=0.0))


def pause(process: DriverProcess) -> None:
    """Stops the renewals, as a stopped process does, which would tell it that it has lost the clock."""
    process._clock._released.set()
    assert process._clock._renewer is not None
    process._clock._renewer.join()


def take_over(url: str, process: DriverProcess) -> None:
    """Makes a process take the clock, between two renewals of the former holder's."""
    process._take_at = 0.0
    for _ in range(10):
        end(url)
        process.tick()
        if process.driving:
            return
        process._take_at = 0.0
    raise AssertionError("it did not take over")


def test_one_drives_and_another_takes_over_when_it_ends(
    swarm: Swarm, database: str, machine: Callable[..., DriverProcess], tmp_path: Path
) -> None:
    secret = tmp_path / "webhook.secret"
    secret.write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    webhooks = (WebhookSettings(url="http://127.0.0.1:9", secret_file=secret),)
    first, second = machine("first", webhooks=webhooks), machine("second", webhooks=webhooks)
    assert (first.driving, second.driving) == (True, False)
    first.tick()
    second.tick()
    assert not second.driving
    first.close()
    second._take_at = 0.0
    second.tick()
    assert second.driving
    with opened(database) as store, store.reading() as session:
        assert session.exec(select(HookEventRow.kind)).all() == ["clock.taken_over"]


def test_a_former_holder_neither_writes_nor_sends_and_stands_by(
    swarm: Swarm, database: str, machine: Callable[..., DriverProcess]
) -> None:
    first, second = machine("first", first_round_nodes=1), machine("second", first_round_nodes=1)
    first.tick()
    pause(first)
    take_over(database, second)
    before = swarm.anvil.mined_from(swarm.coordinator.address)
    first._leases[swarm.run].grant({swarm.workers[0].node: 2.0**40})
    with opened(database) as store, store.reading() as session:
        cursor = session.exec(select(CursorRow.position)).one()
    swarm.anvil.rpc.call("evm_mine")
    with pytest.raises(ClockLost):
        first.tick()
    with opened(database) as store, store.reading() as session:
        assert session.exec(select(CursorRow.position)).one() == cursor
    assert swarm.anvil.mined_from(swarm.coordinator.address) == before
    first.tick()
    assert (first.driving, second.driving) == (False, True)


def test_a_former_holder_signs_no_transaction(
    swarm: Swarm, database: str, machine: Callable[..., DriverProcess]
) -> None:
    first, second = machine("first"), machine("second")
    sender = first._sender
    assert sender is not None
    pause(first)
    take_over(database, second)
    with pytest.raises(ClockLost):
        sender.signer.sign_transaction({})


def test_it_waits_where_the_former_holder_is_stopped_on_the_same_machine(
    swarm: Swarm, database: str, machine: Callable[..., DriverProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine("first")
    second = machine("second")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "first"))
    with pytest.raises(Unavailable, match="another process already sends transactions"):
        take_over(database, second)
    assert not second.driving


def test_the_place_of_a_process_that_was_killed_is_taken_at_once(database: str, tmp_path: Path) -> None:
    with opened(database) as store:
        killed = ClockLease(store, tmp_path / "clock.lock")
        assert killed.take()
        killed._released.set()
        assert killed._lock is not None
        assert not ClockLease(store, tmp_path / "clock.lock").take(), "it lives, and holds the file"
        killed._lock.close()
        with closing(ClockLease(store, tmp_path / "elsewhere.lock")) as elsewhere:
            assert not elsewhere.take(), "another machine waits until the time is over"
        with closing(ClockLease(store, tmp_path / "clock.lock")) as again:
            assert again.take()
            with store.reading() as session:
                assert session.exec(select(col(ClockRow.epoch))).one() == 2


@pytest.mark.long
def test_a_holder_that_is_stopped_in_a_transaction_keeps_the_next_one_waiting_for_seconds_only(
    postgresql: str, tmp_path: Path
) -> None:
    rules = RulesRow(hash=b"\x01" * 32, body=b"{}")
    with opened(new_database(postgresql)) as store, closing(ClockLease(store, tmp_path / "clock.lock")) as clock:
        assert clock.take()
        stopped = store.checked_by(clock.check).writing()
        upsert(stopped.__enter__(), [rules])
        began = time.monotonic()
        with store.writing() as session:
            upsert(session, [rules])  # waits until the server has ended the other transaction
        assert IDLE_SECONDS - 1 < time.monotonic() - began < 2 * IDLE_SECONDS
        with pytest.raises(Unavailable, match="database does not answer"):
            stopped.__exit__(None, None, None)
