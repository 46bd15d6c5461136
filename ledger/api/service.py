"""The ledger behind the API: the database as of a block, and audits that are reused while nothing has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from sqlalchemy import Connection
from starlette.exceptions import HTTPException

from ledger.api.blobs import BlobSource
from ledger.api.bodies import LedgerHealth, Page, pack_cursor, unpack_cursor
from ledger.audit import audit
from ledger.audit.report import Report
from ledger.book import Kind
from ledger.queries import lookup
from ledger.queries.fairness import Reckoning, Share
from ledger.queries.search import locate
from ledger.queries.verdicts import NodeVerdict, node_verdicts
from ledger.store.as_of import as_of
from ledger.store.database import Database
from ledger.store.follower import Follower
from protocol.chain.block import Block
from protocol.chain.reading.client import Chain
from protocol.errors import Unavailable

if TYPE_CHECKING:
    from ledger.api.published import PublishedVersions

LOOKUPS = 8
"""Searches that ask the chain at once, so that a slow RPC leaves threads to other requests."""
AUDIT_SECONDS = 10.0
"""Least time between two audits that the API makes; in between the last one is answered."""

HEAD_SECONDS = 2.0
"""Longest time for which health waits for the chain: less than those who ask for it wait."""

Story = TypeVar("Story")


@dataclass(frozen=True, slots=True)
class MadeAudit:
    """A report, the Unix second at which it was ready, and how many seconds it took."""

    report: Report
    made_at: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The database as of one block, or the newest: what lists and stories are answered from."""

    ledger: LedgerService
    block_hash: bytes | None

    def reading(self) -> AbstractContextManager[Connection]:
        """Opens the database as of the block."""
        chain, database = self.ledger.chain, self.ledger.database
        return database.reading() if self.block_hash is None else as_of(chain, database, self.block_hash)

    def page(self, kind: type[Kind], after: str | None, limit: int, **only: Any) -> Page[Kind]:
        """One page of facts of one kind."""
        hints = get_type_hints(kind)
        place = None if after is None else unpack_cursor(after, tuple(hints[name] for name in kind.KEY))
        wanted = {name: value for name, value in only.items() if value is not None}
        with self.reading() as connection:
            items = lookup.page(connection, kind, place, limit + 1, **wanted)
            return _paged(connection, items, limit)

    def events(self, after: str | None, limit: int, name: str | None, round_: int | None) -> Page[lookup.EventRecord]:
        """One page of raw events, of one name and of one round where these are given."""
        place = None if after is None else unpack_cursor(after, (int, int))
        with self.reading() as connection:
            return _paged(connection, lookup.events(connection, place, limit + 1, name, round_), limit)

    def story(self, what: str, ask: Callable[[Connection], Story | None]) -> Story:
        """One story. Raises 404 where there is none."""
        with self.reading() as connection:
            found = ask(connection)
        if found is None:
            raise HTTPException(404, f"there is no {what}")
        return found

    def verdicts(self, node: int, since: int, after: str | None, limit: int) -> Page[NodeVerdict]:
        """One page of a node's verdicts."""
        place = None if after is None else unpack_cursor(after, (int, int))
        with self.reading() as connection:
            return _paged(connection, node_verdicts(connection, node, since, place, limit + 1), limit)

    def shares(self, after: str | None, limit: int) -> Page[Share]:
        """One page of workers' shares."""
        (place,) = (-1,) if after is None else unpack_cursor(after, (int,))
        with self.reading() as connection:
            return _paged(connection, self.ledger.reckoning.shares(connection, place, limit + 1), limit)


class LedgerService:
    """Answers the routes from the database, and reuses an audit while nothing has changed."""

    def __init__(
        self,
        chain: Chain,
        database: Database,
        follower: Follower,
        blobs: BlobSource,
        published: PublishedVersions | None = None,
        actions: bool = False,
    ) -> None:
        self.actions = actions
        self.chain = chain
        self.database = database
        self.follower = follower
        self.blobs = blobs
        self.published = published
        self.reckoning = Reckoning(database)
        self._lock = threading.Lock()
        self._lookups = threading.BoundedSemaphore(LOOKUPS)
        self._lock_of_head = threading.Lock()
        self._heads = ThreadPoolExecutor(1, "ledger-head")
        self._asked: Future[Block] | None = None
        self._made_at = 0.0
        self.last_audit: MadeAudit | None = None

    def tag(self) -> str:
        """The entity tag of every answer from the database: it changes with each block that is taken in."""
        try:
            with self.database.reading() as connection:
                return f'"{lookup.at(connection).block_hash}"'
        except Unavailable:
            return ""  # whoever answers says why

    def located(self, text: str, needed: bool = True) -> int | None:
        """Returns the block of a transaction, see ``locate``; None too if no RPC answers and it is not ``needed``."""
        try:
            if not self._lookups.acquire(blocking=False):
                raise Unavailable("too many searches are asking the chain: ask again in a moment")
            try:
                return locate(self.chain, text)
            finally:
                self._lookups.release()
        except Unavailable:
            if needed:
                raise
            return None

    def audit(self) -> Report:
        """Returns a report no older than ``AUDIT_SECONDS``, or a new one; the last one while a new one is being made.

        Raises:
            Unavailable: the first one is being made.
        """
        if not self._lock.acquire(blocking=False):  # a thread that waited would be missed by every page
            if self.last_audit is None:
                raise Unavailable("an audit is under way: ask again in a moment")
            return self.last_audit.report
        try:
            if self.last_audit is None or time.monotonic() - self._made_at > AUDIT_SECONDS:
                began = time.monotonic()
                report = audit(self.chain, self.database)
                self._made_at = time.monotonic()
                self.last_audit = MadeAudit(report, int(time.time()), self._made_at - began)
            return self.last_audit.report
        finally:
            self._lock.release()

    def health(self) -> LedgerHealth:
        """Returns the state of the ledger, within moments where the RPC hangs: a restart would not mend that."""
        with self.database.reading() as connection:
            at = lookup.at(connection)
        problem = self.follower.problem
        try:
            behind = max(0, self._head() - at.block_number)
        except Unavailable as error:
            behind, problem = None, problem or str(error)
        status = "failing" if problem else "following"
        return LedgerHealth(status=status, chain_id=self.chain.chain_id, behind=behind, problem=problem, **_at(at))

    def _head(self) -> int:
        """Returns the chain's newest block; of several who ask at once, one does, so that a slow RPC keeps one thread.

        Raises:
            Unavailable: no RPC answers, or none in time.
        """
        with self._lock_of_head:
            if self._asked is None or self._asked.done():
                self._asked = self._heads.submit(self.chain.head)
            asked = self._asked
        try:
            return asked.result(HEAD_SECONDS).number
        except TimeoutError:
            raise Unavailable(f"the RPC at {self.chain.rpc.url} does not answer within {HEAD_SECONDS:.0f} s") from None


def _paged(connection: Connection, items: tuple[Any, ...], limit: int) -> Page[Any]:
    shown = items[:limit]
    following = pack_cursor(lookup.place_of(shown[-1])) if len(items) > limit else None
    return Page(items=shown, next=following, **_at(lookup.at(connection)))


def _at(at: lookup.At) -> dict[str, Any]:
    return asdict(at)
