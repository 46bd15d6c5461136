"""Webhooks against a real receiver: signed, in order, each once by its id, whatever of the two is down meanwhile."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlmodel import select
from structlog.testing import capture_logs
from typer.testing import CliRunner

from coordinator.commands import app
from coordinator.driver.wiring import DriverProcess
from coordinator.settings import CoordinatorSettings, HookKind, WebhookSettings
from coordinator.store import Store
from coordinator.tables import HookDeliveryRow, HookEventRow, HookRow
from coordinator.webhooks.events import HookEvent
from coordinator.webhooks.outbox import HookOutbox
from coordinator.webhooks.sender import HookDelivery, HookSender, hide_hooks, show_hooks
from deploy.localnet.processes import free_port
from protocol.errors import Misconfigured
from protocol.node.profile import Profile
from protocol.wire.reasons import Reason
from tests.conftest import ROOT, until
from tests.coordinator.swarm import Swarm, write_settings
from tests.postgresql import new_database

SECRET = bytes(range(32))


class HookReceiver:
    """A server that checks each request's signature by the standard's text, and answers ``status``."""

    def __init__(self, port: int, before: Callable[[], None] = lambda: None, status: int = 204) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.status, outer = status, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                identity, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
                signed = hmac.new(SECRET, b".".join((identity.encode(), at.encode(), body)), hashlib.sha256).digest()
                assert self.headers["webhook-signature"] == "v1," + base64.b64encode(signed).decode()
                assert abs(time.time() - int(at)) < 60
                outer.got.append((identity, json.loads(body)))
                before()
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.send_header("Location", f"http://127.0.0.1:{port}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def kinds(self) -> list[str]:
        """The kinds of events, each once by its id, in the order in which they came first."""
        return [body["type"] for body in dict(self.got).values()]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "webhook.secret"
    file.write_text("whsec_" + base64.b64encode(SECRET).decode() + "\n")
    return file


def hook(port: int, secret: Path, **values: Any) -> WebhookSettings:
    url = f"http://127.0.0.1:{port}/hook/token"
    return WebhookSettings(**{"url": url, "secret_file": secret, "longest_pause_seconds": 0.1} | values)


@contextmanager
def outbox_with(tmp_path: Path, *hooks: WebhookSettings, database: str = "") -> Iterator[tuple[Store, HookOutbox]]:
    """A database of its own, with webhooks that want events since the beginning of time."""
    with closing(Store(database or f"sqlite:///{tmp_path / 'hooks.db'}")) as store:
        outbox = HookOutbox(hooks, (1,))
        with store.writing() as session:
            outbox.register(session, 0)
        yield store, outbox


def event(number: int, block: int = 0, kind: HookKind = HookKind.PAUSED, run: int = 1) -> HookEvent:
    return HookEvent(f"evt_{number}", kind, run, 1_000 + number, block, {"number": number})


def add(store: Store, outbox: HookOutbox, *events: HookEvent) -> None:
    with store.writing() as session:
        outbox.add(session, events)


def waiting(store: Store) -> list[int]:
    """The events that a webhook has not taken yet."""
    with store.reading() as session:
        return sorted(row.event for row in session.exec(select(HookDeliveryRow)))


def shown(figure: str, port: int) -> float | None:
    labels = {"number": "1", "webhook": f"127.0.0.1:{port}"}
    return REGISTRY.get_sample_value(f"assize_coordinator_webhook_{figure}", labels)


def send(store: Store, webhook: WebhookSettings, seconds: float = 10) -> None:
    """Sends until nothing waits any more."""
    with closing(HookDelivery(store, webhook)) as delivery:
        give_up = time.monotonic() + seconds
        while waiting(store):
            assert time.monotonic() < give_up
            time.sleep(min(delivery.step(), 0.05))


def test_a_round_is_told_from_opening_to_settlement_after_its_receiver_was_down(
    swarm: Swarm, api: str, secret: Path
) -> None:
    port = free_port()
    settings = swarm.settings(webhooks=(hook(port, secret),))
    with closing(DriverProcess(settings, swarm.coordinator)) as driver:
        driver.hooks.start(lambda: True)  # nobody listens at its port yet
        until(lambda: shown("waiting", port) == 0, 20, "the figures")
        swarm.first_verdict(driver.tick, {0: Reason.SAMPLING_FRAUD})
        swarm.publish(1, 1, 0b1100)
        swarm.anvil.rpc.call("anvil_mine", hex(swarm.chain.deployment.finality_depth + 1))
        driver.tick()
        with closing(HookReceiver(port)) as receiver:
            until(lambda: "checkpoint.published" in receiver.kinds, 20, "the events")
            told = [body["data"] for _, body in receiver.got]
    assert receiver.kinds == [
        *("round.opened", "round.opened", "verdict.fraud", "node.slashed", "round.settled", "checkpoint.published")
    ]
    assert told[2] == {"run": swarm.run, "block": told[2]["block"], "round": 1, "jobs": [0], "appeal": False}
    assert "was slashed for fraud in round 1" in told[3]["text"]
    assert (told[4]["accepted"], told[4]["fraud"]) == (3, 1)


KILLED = """
import sys
from coordinator.settings import WebhookSettings
from coordinator.store import Store
from coordinator.webhooks.sender import HookDelivery
delivery = HookDelivery(Store(sys.argv[1]), WebhookSettings.model_validate_json(sys.argv[2]))
while True:
    delivery.step()
"""


def test_an_event_in_flight_when_its_sender_is_killed_comes_again_under_its_id(tmp_path: Path, secret: Path) -> None:
    port, senders = free_port(), list[subprocess.Popen[bytes]]()

    def kill() -> None:
        if senders:
            senders.pop().kill()

    webhook = hook(port, secret)
    with outbox_with(tmp_path, webhook) as (store, outbox), closing(HookReceiver(port, kill)) as receiver:
        add(store, outbox, *(event(number) for number in range(1, 4)))
        words = [f"sqlite:///{tmp_path / 'hooks.db'}", webhook.model_dump_json()]
        process = subprocess.Popen([sys.executable, "-c", KILLED, *words], cwd=ROOT)
        senders.append(process)
        assert process.wait(30) < 0
        assert waiting(store) == [1, 2, 3]
        with closing(HookDelivery(store, webhook)) as other:
            other.step()
        assert len(receiver.got) == 1, "another process waits until the hold of the killed one has ended"
        with store.writing() as session:
            session.get_one(HookRow, webhook.id).held_until = time.time()
        send(store, webhook)
        assert [identity for identity, _ in receiver.got] == ["evt_1", "evt_1", "evt_2", "evt_3"]


def test_a_receiver_that_is_down_gets_the_newest_events_in_order_and_the_oldest_are_dropped(
    tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    webhook = hook(port, secret, most_kept=3, events=("run.paused",))
    with outbox_with(tmp_path, webhook) as (store, outbox):
        add(store, outbox, *(event(number) for number in range(1, 6)), event(6, kind=HookKind.RESUMED), event(7, run=2))
        assert "webhook_dropped" in "".join(capsys.readouterr())  # stderr once a test has configured logging
        with closing(HookDelivery(store, webhook)) as delivery:
            for _ in range(3):
                time.sleep(delivery.step())
        show_hooks(store, (webhook,))
        assert shown("waiting", port) == 3
        assert shown("failures", port) == 3
        assert shown("dropped", port) == 2
        hide_hooks()
        assert shown("waiting", port) is None
        with closing(HookReceiver(port, status=302)) as redirecting:
            with closing(HookDelivery(store, webhook)) as delivery:
                time.sleep(0.2)
                delivery.step()
            assert len(redirecting.got) == 1, "redirects are not followed"
            assert len(waiting(store)) == 3
            redirecting.status = 204
            redirecting.got.clear()
            send(store, webhook)
            assert [body["data"]["number"] for _, body in redirecting.got] == [3, 4, 5]
        with store.reading() as session:
            row = session.get_one(HookRow, webhook.id)
            assert (row.dropped, row.delivered, row.failures) == (2, 3, 0)


def test_an_hour_without_its_receiver_is_one_line_in_the_log_and_loses_nothing(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, now = free_port(), [time.time()]
    webhook = hook(port, secret, longest_pause_seconds=300)
    monkeypatch.setattr(time, "time", lambda: now[0])
    with outbox_with(tmp_path, webhook) as (store, outbox), closing(HookDelivery(store, webhook)) as delivery:
        with capture_logs() as told:
            for minute in range(60):
                add(store, outbox, event(minute))
                ends = now[0] + 60
                while now[0] < ends:
                    now[0] += max(delivery.step(), 5)
        (line,) = (each for each in told if each["event"] == "webhook_failed")
        assert "\n" not in line["why"]
        with closing(HookReceiver(port)) as receiver:
            while waiting(store):
                now[0] += max(delivery.step(), 5)
        assert [body["data"]["number"] for _, body in receiver.got] == list(range(60))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_only_final_events_are_told_and_none_twice(
    tmp_path: Path, secret: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    database = new_database(request.getfixturevalue(kind)) if kind == "postgresql" else ""
    port = free_port()
    webhook = hook(port, secret)
    with (
        outbox_with(tmp_path, webhook, database=database) as (store, outbox),
        closing(HookReceiver(port)) as receiver,
    ):
        add(store, outbox, event(1, block=10), event(2, block=11), event(3, block=12), event(4))
        with closing(HookDelivery(store, webhook)) as delivery:
            delivery.step()
        with store.writing() as session:
            outbox.settle(session, 10)
            outbox.undo(session, 11)  # a reorganisation goes back to block 11, and replaces block 12
            outbox.undo(session, 0)  # never behind what is final
        with store.reading() as session:
            assert sorted(row.id for row in session.exec(select(HookEventRow))) == ["evt_1", "evt_4"]
        add(store, outbox, event(1, block=10), event(2, block=11), event(5, block=12))
        with store.writing() as session:
            outbox.settle(session, 12)
        send(store, webhook)
        assert [identity for identity, _ in receiver.got] == ["evt_4", "evt_1", "evt_2", "evt_5"]


def test_a_receiver_that_answers_410_gets_nothing_until_it_takes_a_test(
    swarm: Swarm, tmp_path: Path, secret: Path
) -> None:
    port = free_port()
    webhook = hook(port, secret)
    settings = swarm.settings(webhooks=(webhook,))
    file = tmp_path / "coordinator.env"
    write_settings(file, settings)

    def operate(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, "--settings", str(file)])
        return done.exit_code, done.output

    with closing(Store(settings.database)) as store, closing(HookReceiver(port, status=410)) as receiver:
        with store.writing() as session:
            HookOutbox.of(settings).register(session, 0)
        assert operate("pause", "--why", "the disk is full")[0] == 0
        send(store, webhook)
        assert receiver.got[0][1]["data"] == {"run": swarm.run, "why": "the disk is full"}
        assert operate("resume")[0] == 0
        assert waiting(store) == []
        code, said = operate("webhooks", "--json")
        assert (code, json.loads(said)[0]["state"]) == (0, "ended")
        code, said = operate("webhooks", "--test", "--json")
        assert (code, json.loads(said)[0]["test"]) == (1, "answered 410")
        receiver.status = 200
        code, said = operate("webhooks", "--test", "--json")
        assert (code, json.loads(said)[0]["state"]) == (0, "ok")
        assert "token" not in said, "the path of a URL may be a secret"
        assert operate("pause")[0] == 0
        send(store, webhook)
        assert receiver.kinds[-1] == "run.paused"


def test_only_the_process_that_drives_forgets_webhooks_that_are_not_in_its_settings(
    swarm: Swarm, tmp_path: Path, secret: Path
) -> None:
    drives = threading.Event()
    with outbox_with(tmp_path, hook(free_port(), secret)) as (store, outbox):
        add(store, outbox, event(1))
        with closing(HookSender(swarm.settings(), store, swarm.chain)) as sender:
            sender.start(drives.is_set)
            time.sleep(0.5)
            assert waiting(store)
            drives.set()
            until(lambda: not waiting(store), 30, "the webhook to be forgotten")


def test_the_profile_names_webhooks_and_their_secrets_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "assize.toml"
    monkeypatch.setenv("ASSIZE_PROFILE", str(profile))
    base = '[coordinator]\naddresses = "a.json"\nkeystore = "k"\nstate_dir = "s"\nrun = 1\nrules = "r.json"\n'
    one = '[[coordinator.webhooks]]\nurl = "https://example.org/x"\nsecret_file = "hook.secret"\n'
    one += 'events = ["run.paused"]\n'
    profile.write_text(base + one)
    (read,) = CoordinatorSettings.read().webhooks
    assert (read.secret_file, read.events) == (tmp_path / "hook.secret", (HookKind.PAUSED,))
    for text in (one + one, one.replace("https://", "file://"), one.replace("run.paused", "run.fell"), one + "x = 1\n"):
        profile.write_text(base + text)
        with pytest.raises(Misconfigured, match=r"webhooks in \[coordinator\]"):
            CoordinatorSettings.read()
    assert Profile.current().path == profile


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all, but long enough for it", "é" * 40]
)
def test_a_secret_that_is_none_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with pytest.raises(Misconfigured, match=r"invalid secret in .*: expected 24 to 64 bytes in base64"):
        HookDelivery(Store(f"sqlite:///{tmp_path / 'hooks.db'}"), hook(9, file))
