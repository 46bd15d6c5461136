"""The outbox of the webhooks: events to send, in the coordinator's database.

Each function is a part of the caller's transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import structlog
from sqlmodel import Session, SQLModel, col, delete, func, select, update

from coordinator.settings import CoordinatorSettings, HookKind, WebhookSettings
from coordinator.tables import HookConditionRow, HookDeliveryRow, HookEventRow, HookRow
from coordinator.webhooks.events import HookEvent, event_id
from protocol.sql import inserting, inserting_new

log = structlog.get_logger()

REMEMBERED = 20_000
"""Events that are remembered once all webhooks have taken them: the mirror may read a block that it had read."""


class HookOutbox:
    """Takes in the events that are for ``webhooks``, of ``runs`` alone. Is false without webhooks."""

    def __init__(self, webhooks: Sequence[WebhookSettings], runs: Collection[int] = ()) -> None:
        self._webhooks, self._runs = tuple(webhooks), frozenset((0, *runs))

    @classmethod
    def of(cls, settings: CoordinatorSettings) -> HookOutbox:
        """Returns the outbox of a coordinator's webhooks."""
        return cls(settings.webhooks, settings.runs)

    def __bool__(self) -> bool:
        return bool(self._webhooks)

    def register(self, session: Session, now: float) -> None:
        """Notes the webhooks, told events from ``now`` (unix seconds) on."""
        for each in self._webhooks:
            row = inserting_new(session.get_bind().dialect, _table(HookRow))
            session.connection().execute(row, dict(HookRow(id=each.id, since=now)))

    def forget_others(self, session: Session) -> None:
        """Forgets webhooks that are not any more, and what waits for them."""
        ids = [each.id for each in self._webhooks]
        session.exec(delete(HookRow).where(col(HookRow.id).not_in(ids)))
        session.exec(delete(HookDeliveryRow).where(col(HookDeliveryRow.hook).not_in(ids)))

    def add(self, session: Session, events: Iterable[HookEvent]) -> None:
        """Adds events that are not known by their id; those of a block wait until ``settle``."""
        if not self._webhooks:
            return
        hooks: Sequence[HookRow] = ()
        for event in events:
            if event.run in self._runs and (seq := _insert(session, event)) is not None:
                hooks = hooks or session.exec(select(HookRow)).all()
                self._address(session, event, seq, hooks)
        if hooks:
            self._drop_oldest(session)

    def announce(self, session: Session, kind: HookKind, run: int, now: float, **facts: Any) -> None:
        """Adds an event that is not of the chain, such as a pause; it is sent at once."""
        self.add(session, [HookEvent(event_id(uuid.uuid4()), kind, run, int(now), 0, facts)])

    def condition(self, session: Session, key: str, event: HookEvent, holds: bool) -> None:
        """Adds the ``event`` of a condition if it has begun to hold since the last look."""
        known = session.get(HookConditionRow, key) or HookConditionRow(key=key)
        if known.holds != holds:
            known.holds = holds
            session.add(known)
            self.add(session, [event] if holds else [])

    def settle(self, session: Session, final: int) -> None:
        """Lets events of blocks up to ``final`` be sent."""
        if self._webhooks:
            waiting = col(HookEventRow.final).is_(False), col(HookEventRow.number) <= final
            session.exec(update(HookEventRow).where(*waiting).values(final=True))

    def undo(self, session: Session, to_block: int) -> None:
        """Forgets the events of blocks after ``to_block`` that a reorganisation replaced; none was sent."""
        undone = select(HookEventRow.seq).where(col(HookEventRow.final).is_(False), HookEventRow.number > to_block)
        session.exec(delete(HookDeliveryRow).where(col(HookDeliveryRow.event).in_(undone)))
        session.exec(delete(HookEventRow).where(col(HookEventRow.seq).in_(undone)))

    def _address(self, session: Session, event: HookEvent, seq: int, hooks: Sequence[HookRow]) -> None:
        wanted = {each.id for each in self._webhooks if event.kind in each.events}
        for hook in hooks:
            if hook.id in wanted and not hook.ended and event.at >= int(hook.since):
                session.add(HookDeliveryRow(hook=hook.id, event=seq))

    def _drop_oldest(self, session: Session) -> None:
        """Drops what is more than a webhook's ``most_kept``, and events that are not remembered any more."""
        session.flush()
        for each in self._webhooks:
            own = select(HookDeliveryRow.event).where(HookDeliveryRow.hook == each.id)
            newest = own.order_by(col(HookDeliveryRow.event).desc()).offset(each.most_kept - 1).limit(1)
            if (oldest_kept := session.exec(newest).first()) is None:
                continue
            older = col(HookDeliveryRow.hook) == each.id, col(HookDeliveryRow.event) < oldest_kept
            if dropped := session.exec(delete(HookDeliveryRow).where(*older)).rowcount:
                log.warning("webhook_dropped", webhook=each.shown, events=dropped, most_kept=each.most_kept)
                counted = col(HookRow.dropped) + dropped
                session.exec(update(HookRow).where(col(HookRow.id) == each.id).values(dropped=counted))
        newest_seq = session.exec(select(func.max(HookEventRow.seq))).one() or 0
        waited_for = select(HookDeliveryRow.event)
        session.exec(
            delete(HookEventRow).where(
                col(HookEventRow.seq) <= newest_seq - REMEMBERED, col(HookEventRow.seq).not_in(waited_for)
            )
        )


def _insert(session: Session, event: HookEvent) -> int | None:
    """Inserts an event; returns its place, or None if it is known."""
    statement = inserting(session.get_bind().dialect, _table(HookEventRow)).values(
        id=event.id, kind=event.kind, number=event.number, final=event.number == 0, at=event.at, body=event.body
    )
    inserted = statement.on_conflict_do_nothing(index_elements=["id"]).returning(_table(HookEventRow).c.seq)
    found: int | None = session.connection().execute(inserted).scalar()
    return found


def _table(model: type[SQLModel]) -> Any:
    return model.__table__  # type: ignore[attr-defined]  # SQLModel makes it
