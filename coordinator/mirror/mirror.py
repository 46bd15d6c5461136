"""Follows the chain and keeps the mirror's tables equal to it: cursor and effects in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlmodel import Session, col, select

from coordinator import tables
from coordinator.mirror.fold import fold
from coordinator.mirror.market import Market, identity, is_live
from coordinator.mirror.undoing import forget, keep, position_row, remove, undo
from coordinator.store import Store, upsert
from coordinator.webhooks.events import HookEvent, events_of
from coordinator.webhooks.outbox import HookOutbox
from protocol.chain.reading import cursor as cursors
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import BlockEvents, Rollback, Tail
from protocol.wire.rules import Sequential, decode_rules


class Mirror:
    """The market as the chain has it, in memory and, for the API, in SQL. One process writes it.

    What webhooks are told of the chain goes into their ``outbox`` with the effects of the events.

    ``now`` is the chain's time: that of the newest block followed.
    """

    def __init__(self, chain: Chain, store: Store, confirmations: int = 0, outbox: HookOutbox | None = None) -> None:
        self._chain, self._outbox = chain, outbox or HookOutbox(())
        self._store = store
        self._confirmations = confirmations
        self._tail: Tail | None = None
        self.market = Market()
        self.timestamp = 0

    def follow(self) -> Market:
        """Takes in all there is up to the head and returns the market.

        Raises:
            Unavailable: chain or database does not answer; what is in SQL is whole, and the next call goes on from it.
            FinalityMoved: a block older than finality is gone.
        """
        if self._tail is None:
            self._tail = self._resumed()
        with self._whole():
            before = self._tail.cursor
            while answer := self._tail.poll():
                if isinstance(answer, Rollback):
                    self._roll_back(answer)
                else:
                    self._take(answer, before)
                    if self._tail.at_head:
                        break
                before = self._tail.cursor
        return self.market

    def take_effect(self, now: int) -> None:
        """Lets announced terms count whose time has come by ``now`` (unix seconds), block or no block.

        Raises ``Unavailable`` as ``follow`` does.
        """
        if self._tail is not None and self.market.take_effect(now):
            with self._whole(), self._store.writing() as session:
                self._write(session, self._tail.cursor)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A step that fails half-way leaves memory ahead of SQL: the next begins from what was committed."""
        try:
            yield
        except BaseException:
            self._tail = None
            raise

    def _resumed(self) -> Tail:
        with self._store.reading() as session:
            cursor = session.get(tables.CursorRow, 1)
            self.market = load(session)
        start = cursors.Cursor.from_json(cursor.position) if cursor else None
        return Tail(self._chain, start, self._confirmations)

    def _take(self, blocks: list[BlockEvents], before: cursors.Cursor) -> None:
        assert self._tail is not None
        told: list[HookEvent] = []
        for block in blocks:
            for log in block.logs:
                fold(self.market, log)
                told += events_of(log, self.market.rounds, self._chain.chain_id) if self._outbox else ()
        self.timestamp = blocks[-1].block.timestamp
        with self._store.writing() as session:
            self._write(session, before)
            self._outbox.add(session, told)
            self._outbox.settle(session, self._tail.final_number)

    def _roll_back(self, back: Rollback) -> None:
        with self._store.writing() as session:
            undo(session, back.cursor)
            self._outbox.undo(session, back.to_block)
        self._tail = self._resumed()

    def _write(self, session: Session, before: cursors.Cursor) -> None:
        assert self._tail is not None
        rows, removed = self.market.take_changes()
        position = self._tail.cursor
        keep(session, before, position.number, map(identity, (*rows, *removed)))
        for row in removed:  # which need not have been written yet: made and gone between two looks
            remove(session, identity(row))
        upsert(session, [*rows, position_row(position)])
        forget(session, position.oldest)


def load(session: Session) -> Market:
    """Reads the mirrored rows back, detached from the session."""
    market = Market(
        admin=session.get(tables.AdminRow, 1) or tables.AdminRow(),
        announcements={row.run: row for row in session.exec(select(tables.AnnouncementRow))},
        runs={row.id: row for row in session.exec(select(tables.RunRow))},
        nodes={row.id: row for row in session.exec(select(tables.NodeRow))},
        members={(row.run, row.node): row for row in session.exec(select(tables.MemberRow))},
        earnings={(row.run, row.owner): row for row in session.exec(select(tables.EarningRow))},
        rounds={row.id: row for row in session.exec(select(tables.RoundRow).order_by(col(tables.RoundRow.id)))},
        budgets=_budgets(session),
    )
    market.live.update(row.id for row in market.rounds.values() if is_live(row))
    for round_ in sorted(market.live):
        market.listings[round_] = list(
            session.exec(
                select(tables.ListingRow)
                .where(tables.ListingRow.round == round_)
                .order_by(col(tables.ListingRow.first))
            )
        )
        market.submitted[round_] = list(
            session.exec(
                select(tables.SubmittedRow)
                .where(tables.SubmittedRow.round == round_)
                .order_by(col(tables.SubmittedRow.batch), col(tables.SubmittedRow.position))
            )
        )
        seats = session.exec(select(tables.SeatRow).where(tables.SeatRow.round == round_))
        market.seats[round_] = {(seat.attempt, seat.juror): seat for seat in seats}
    session.expunge_all()
    return market


def _budgets(session: Session) -> dict[bytes, Sequential]:
    """Returns the sequential test of all known rules, by their hash."""
    return {row.hash: decode_rules(row.body, row.hash).sequential for row in session.exec(select(tables.RulesRow))}
