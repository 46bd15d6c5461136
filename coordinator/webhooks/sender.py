"""Sending of webhooks: a thread for each, so that a slow receiver delays neither the clock nor another receiver.

The signature is that of Standard Webhooks 1.0: HMAC-SHA256 over id, time of sending and body, joined by dots, in the
headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``. Redirects are not followed, and nothing of an
answer but its status is read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

import httpx
import structlog
from prometheus_client import Gauge
from sqlmodel import Session, col, delete, func, select, update

from coordinator.settings import CoordinatorSettings, HookKind, WebhookSettings
from coordinator.store import Store
from coordinator.tables import HookDeliveryRow, HookEventRow, HookRow
from coordinator.webhooks.events import HookEvent, body_of, event_id
from coordinator.webhooks.outbox import HookOutbox
from protocol.certificates import certificate_authorities
from protocol.chain.block import Block
from protocol.chain.reading.client import Chain
from protocol.chain.structs import most_reserved
from protocol.deadlines import bounded, within
from protocol.errors import AssizeError, Misconfigured, Unavailable, accessing
from protocol.node.daemon import backoff_seconds
from protocol.node.notices.conditions import Seen, conditions
from protocol.node.notices.fold import Followed
from protocol.node.notices.notice import NoticeFigures
from protocol.transport.http import reaching

log = structlog.get_logger()

WAITING = Gauge("assize_coordinator_webhook_waiting", "Events that a webhook has not taken yet", ["number", "webhook"])
FAILURES = Gauge("assize_coordinator_webhook_failures", "Failures of a webhook in a row", ["number", "webhook"])
DROPPED = Gauge(
    "assize_coordinator_webhook_dropped", "Events dropped as more than most_kept waited", ["number", "webhook"]
)

IDLE_SECONDS = 1.0
"""Pause of a webhook that has nothing to send."""

FIRST_PAUSE_SECONDS = 1.0
"""Pause after the first failure; it doubles with each further one."""

ANSWER_SECONDS = 10.0
"""Longest that a receiver may take to answer."""

HELD_SECONDS = 60.0
"""Time for which a process delivers to a webhook alone; another takes over once it has ended."""

CONDITION_SECONDS = 15.0
"""Time between looks at the escrow."""

TEST = "test"
"""Kind of the event that only tries a webhook."""


class Receiver:
    """Signs events for one webhook and posts them."""

    def __init__(self, webhook: WebhookSettings) -> None:
        """Reads the secret. Raises ``Misconfigured`` if there is none."""
        self.webhook = webhook
        self._secret = read_secret(webhook.secret_file)
        self._client = bounded(httpx.Client(follow_redirects=False, verify=certificate_authorities()))

    def post(self, identity: str, body: str) -> int:
        """Posts an event; returns the status of the answer. Raises ``Unavailable`` if there is none in time."""
        headers = {"Content-Type": "application/json"} | signature(self._secret, identity, int(time.time()), body)
        request = self._client.stream("POST", self.webhook.url, content=body.encode(), headers=headers)
        with within(ANSWER_SECONDS), reaching(self.webhook.shown), request as response:
            return response.status_code

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def read_secret(file: Path) -> bytes:
    """Reads the secret of a webhook's signatures; raises ``Misconfigured`` if the file does not hold one."""
    with accessing(f"read the webhook's secret {file}"):
        text = file.read_bytes().strip()
    try:
        secret = base64.b64decode(text.removeprefix(b"whsec_"), validate=True)
    except binascii.Error:
        secret = b""
    if not 24 <= len(secret) <= 64:
        raise Misconfigured(
            f"invalid secret in {file}: expected 24 to 64 bytes in base64, such as: openssl rand -base64 32"
        )
    return secret


def signature(secret: bytes, identity: str, at: int, body: str) -> dict[str, str]:
    """Returns the headers that sign an event sent at ``at`` (unix seconds)."""
    digest = hmac.digest(secret, f"{identity}.{at}.{body}".encode(), "sha256")
    named = {"webhook-id": identity, "webhook-timestamp": str(at)}
    return named | {"webhook-signature": "v1," + base64.b64encode(digest).decode()}


class HookDelivery:
    """Sends one webhook its events, oldest first. One thread calls ``step``."""

    def __init__(self, store: Store, webhook: WebhookSettings) -> None:
        """Raises ``Misconfigured`` if the webhook has no secret."""
        self._store, self._receiver, self._id = store, Receiver(webhook), webhook.id
        self._holder, self._held_until = uuid.uuid4().hex, 0.0
        self._longest = webhook.longest_pause_seconds

    def step(self) -> float:
        """Sends the next event if it is due and this process holds the webhook; returns the pause until the next step.

        Raises:
            Unavailable: the database does not answer.
        """
        now = time.time()
        with self._store.reading() as session:
            found = self._next(session)
            hook = session.get(HookRow, self._id)
        if hook is None or hook.ended or found is None:
            return IDLE_SECONDS
        if hook.next_at > now:
            return min(IDLE_SECONDS, hook.next_at - now)
        if not self._hold(now):
            return IDLE_SECONDS
        return self._send(*found, hook.failures)

    def close(self) -> None:
        """Lets another process deliver at once, and closes the connections."""
        self._receiver.close()
        mine = update(HookRow).where(col(HookRow.id) == self._id, col(HookRow.holder) == self._holder)
        with contextlib.suppress(Unavailable), self._store.writing() as session:  # the hold ends by itself
            session.exec(mine.values(held_until=0.0))

    def _next(self, session: Session) -> tuple[int, str, str] | None:
        """Returns place, id and body of the oldest event that may be sent."""
        columns = select(HookEventRow.seq, HookEventRow.id, HookEventRow.body)
        waiting = columns.join(HookDeliveryRow, col(HookDeliveryRow.event) == col(HookEventRow.seq))
        mine = waiting.where(HookDeliveryRow.hook == self._id, col(HookEventRow.final))
        row = session.exec(mine.order_by(col(HookEventRow.seq)).limit(1)).first()
        return None if row is None or row[0] is None else (row[0], row[1], row[2])

    def _hold(self, now: float) -> bool:
        """Takes or keeps the webhook for this process; returns whether it has it."""
        if now + HELD_SECONDS / 2 < self._held_until:
            return True
        free = (col(HookRow.holder) == self._holder) | (col(HookRow.held_until) < now)
        taken = update(HookRow).where(col(HookRow.id) == self._id, free)
        with self._store.writing() as session:
            held = session.exec(taken.values(holder=self._holder, held_until=now + HELD_SECONDS)).rowcount == 1
        self._held_until = now + HELD_SECONDS if held else 0.0
        return held

    def _send(self, seq: int, identity: str, body: str, failures: int) -> float:
        try:
            status = self._receiver.post(identity, body)
            said = f"answered {status}"
        except Unavailable as error:
            status, said = 0, str(error)
        name, now = self._receiver.webhook.shown, time.time()
        if 200 <= status < 300:
            self._note(seq, failures=0, next_at=0.0, said=said, said_at=now, delivered=col(HookRow.delivered) + 1)
            if failures:
                log.info("webhook_answers", webhook=name)
            return 0.0
        if status == HTTPStatus.GONE:
            self._note(None, ended=True, said="answered 410: it wants no more events", said_at=now)
            log.warning("webhook_ended", webhook=name, why="it answered 410")
            return IDLE_SECONDS
        pause = backoff_seconds(failures + 1, FIRST_PAUSE_SECONDS, self._longest, random.random())
        self._note(-1, failures=failures + 1, next_at=now + pause, said=said, said_at=now)
        if not failures:
            log.warning("webhook_failed", webhook=name, why=said, again_in=round(pause, 1))
        return min(IDLE_SECONDS, pause)

    def _note(self, taken: int | None, **values: object) -> None:
        """Writes how an attempt went, and deletes the delivery of the event ``taken``; None deletes all."""
        with self._store.writing() as session:
            session.exec(update(HookRow).where(col(HookRow.id) == self._id).values(**values))
            gone = delete(HookDeliveryRow).where(col(HookDeliveryRow.hook) == self._id)
            session.exec(gone if taken is None else gone.where(col(HookDeliveryRow.event) == taken))


class HookSender:
    """The threads that send a coordinator's webhooks, and one that looks at the escrow."""

    def __init__(self, settings: CoordinatorSettings, store: Store, chain: Chain) -> None:
        """Notes the webhooks in the database. Raises ``Misconfigured`` if one has no secret."""
        self._settings, self._store, self._chain = settings, store, chain
        self._deliveries = [HookDelivery(store, each) for each in settings.webhooks]
        self._outbox, self._stopped = HookOutbox.of(settings), threading.Event()
        self._driving: Callable[[], bool] = lambda: False
        self._drove = False
        with store.writing() as session:
            self._outbox.register(session, time.time())
        tasks = [self._look_if_driving, *(each.step for each in self._deliveries)]
        self._threads = [threading.Thread(target=self._repeat, args=(task,), daemon=True) for task in tasks]

    def start(self, driving: Callable[[], bool]) -> None:
        """Starts the threads; of several processes, the one that is ``driving`` looks at the escrow."""
        self._driving = driving
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads, within the time of one request."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(ANSWER_SECONDS)
        for each in self._deliveries:
            each.close()

    def _repeat(self, task: Callable[[], float]) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            try:
                pause = task()
            except Exception as error:  # the outermost loop of this thread: any failure is retried
                log.warning("webhooks_wait", error=str(error) if isinstance(error, AssizeError) else repr(error))
                pause = IDLE_SECONDS * 5

    def _look_if_driving(self) -> float:
        if not self._driving():
            self._drove = False
            hide_hooks()
            return IDLE_SECONDS
        if not self._drove:  # not before: a process that stands by may have other webhooks in its settings
            with self._store.writing() as session:
                self._outbox.register(session, time.time())
                self._outbox.forget_others(session)
            self._drove = True
        if not self._outbox:
            return IDLE_SECONDS
        show_hooks(self._store, self._settings.webhooks)
        return self.look()

    def look(self) -> float:
        """Notes whether an escrow is low in the newest final block; returns the pause until the next look."""
        _, final = self._chain.head_and_final()
        for number in self._settings.runs:
            self._look_at(number, self._chain.block(final))
        return CONDITION_SECONDS

    def _look_at(self, number: int, block: Block) -> None:
        run = self._chain.pinned(block).run(number)
        terms = run.terms
        reserved = most_reserved(
            self._settings.jobs_per_round, terms.max_units, terms.price_per_unit, terms.committee, terms.juror_fee
        )
        followed = Followed(named={number}, last_reserved={number: reserved})
        seen = Seen(block.timestamp, {}, {}, {number: run}, {}, {})
        with self._store.writing() as session:
            for key, notice in conditions(followed, seen, NoticeFigures()).items():
                facts = {"escrow_wei": str(run.escrow), "round_wei": str(reserved), "block": block.number}
                told = facts | {"text": "" if notice is None else notice.text}
                event = HookEvent(event_id(uuid.uuid4()), HookKind.ESCROW, number, int(time.time()), 0, told)
                self._outbox.condition(session, key, event, notice is not None)


def show_hooks(store: Store, webhooks: Sequence[WebhookSettings]) -> None:
    """Shows how deliveries go, to those who watch this process. Raises ``Unavailable``."""
    with store.reading() as session:
        for number, each in enumerate(webhooks, 1):
            hook, labels = session.get(HookRow, each.id), (str(number), each.shown)
            WAITING.labels(*labels).set(_waiting(session, each))
            FAILURES.labels(*labels).set(hook.failures if hook else 0)
            DROPPED.labels(*labels).set(hook.dropped if hook else 0)


def hide_hooks() -> None:
    """Shows no webhook any more: another process drives, and what was shown here grows old."""
    for gauge in (WAITING, FAILURES, DROPPED):
        gauge.clear()


def hook_rows(session: Session, settings: CoordinatorSettings) -> list[dict[str, object]]:
    """Returns the state of each webhook, for a table or JSON."""
    return [_hook_row(session, each) for each in settings.webhooks]


def _hook_row(session: Session, webhook: WebhookSettings) -> dict[str, object]:
    hook = session.get(HookRow, webhook.id)
    waiting = _waiting(session, webhook)
    if hook is None:
        return {"webhook": webhook.shown, "state": "new: the driver has not been started with it", "waiting": waiting}
    state = "ended" if hook.ended else f"failing, {hook.failures} times in a row" if hook.failures else "ok"
    row: dict[str, object] = {"webhook": webhook.shown, "state": state, "waiting": waiting}
    return row | {"delivered": hook.delivered, "dropped": hook.dropped, "last": hook.said}


def _waiting(session: Session, webhook: WebhookSettings) -> int:
    return session.exec(select(func.count()).where(HookDeliveryRow.hook == webhook.id)).one()


def try_webhook(store: Store, webhook: WebhookSettings) -> str:
    """Sends a webhook an event of the kind ``TEST``; one that had ended and takes it goes on. Returns the outcome."""
    receiver, now = Receiver(webhook), int(time.time())
    try:
        status = receiver.post(event_id(uuid.uuid4()), body_of(TEST, now, {}))
    except Unavailable as error:
        return str(error)
    finally:
        receiver.close()
    if not 200 <= status < 300:
        return f"answered {status}"
    with store.writing() as session:
        revived = update(HookRow).where(col(HookRow.id) == webhook.id)
        session.exec(revived.values(ended=False, failures=0, next_at=0.0))
    return ""
