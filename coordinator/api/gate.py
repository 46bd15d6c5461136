"""Admission of requests: signed for this coordinator by a registered node's key, each used once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, tuple_
from sqlmodel import Session, col, delete, select

from coordinator.api.group_commit import GroupCommit
from coordinator.api.refusals import Refused, conflicting, refusing, unsigned
from coordinator.store import Store
from coordinator.tables import NodeRow, NonceRow
from protocol.chain.structs import Role
from protocol.errors import Rejected
from protocol.sql import inserting_new
from protocol.wire.auth import HEADER_ADDRESS, HEADER_RUN, Audience, SignedRequest, recover_request


@dataclass(frozen=True, slots=True)
class Caller:
    """The node whose key signed the request, its role and that key, and the run that the request is for."""

    node: int
    role: Role
    key: str
    run: int


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted request: its caller, and the keccak256 that its body must have."""

    caller: Caller
    body: bytes


FORGET_SECONDS = 5
"""Shortest time between deletions of expired nonces."""

SKEW_SECONDS = 60
"""Most by which the clocks of processes on one database may differ: a nonce is kept as long past its deadline."""

_Node = tuple[int, Role, str]
"""Number, role and key of a node."""

_BY_KEY = select(NodeRow.id, NodeRow.role, NodeRow.key).where(col(NodeRow.key).in_(bindparam("keys", expanding=True)))


class Gate:
    """Admits requests to one of the ``audiences``, the runs driven here, signed by a registered node's key, each once.

    Bodies are not needed for it. The nonce is committed before the request takes effect and kept past its deadline, so
    replays are refused across restarts too. A request whose nonce cannot be committed is refused. Nonces are committed
    in groups: a thousand nodes may come at once. Used from one event loop.
    """

    def __init__(self, store: Store, audiences: Sequence[Audience]) -> None:
        self._store = store
        self._audiences = {str(audience.run): audience for audience in audiences}
        self._known: set[str] = set()
        self._forget_at = 0
        self._nonces = GroupCommit(self._use)

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Returns whether the request names a node key seen before, so that ``check_known`` can be skipped."""
        return headers.get(HEADER_ADDRESS.lower(), "") in self._known

    def check_known(self, headers: Mapping[str, str]) -> None:
        """Refuses an unknown address by reading only. Raises ``Refused``; the signature is not checked here."""
        key = headers.get(HEADER_ADDRESS.lower(), "")
        with self._store.reading() as session:
            found = _nodes_by_key(session, [key])
        if key not in found:
            raise _unknown(key)
        self._known.add(key)

    async def admit(self, headers: Mapping[str, str], method: str, path: str, now: int) -> Admission:
        """Returns the node that signed the request, and its body's hash.

        Args:
            headers: the request's headers.
            method: its HTTP method.
            path: its raw path with the query.
            now: unix seconds.

        Raises:
            Refused: the request is unsigned, not signed by a node's key, for another run, or was made before.
            Unavailable: the database cannot store the nonce.
        """
        with refusing(unsigned):
            audience = self._audience_of(headers)
            signed = recover_request(headers, audience, method, path, now)
        node = await self._nonces.add(signed)
        if isinstance(node, Refused):
            raise node
        return Admission(Caller(*node, audience.run), signed.body)

    def _use(self, batch: Sequence[SignedRequest]) -> list[_Node | Refused]:
        """Commits the nonces, and returns for each request its node, or why it is refused; raises ``Unavailable``."""
        now = int(time.time())
        with self._store.writing() as session:
            answers = _use(session, batch)
            if now >= self._forget_at:
                forget_nonces(session, now)
                self._forget_at = now + FORGET_SECONDS
        return answers

    def _audience_of(self, headers: Mapping[str, str]) -> Audience:
        """Returns the audience that the request names; raises ``Rejected`` for one of another coordinator."""
        first, *others = self._audiences.values()
        named = headers.get(HEADER_RUN.lower(), "")
        if named and others and named not in self._audiences:
            raise Rejected(
                f"the request is for the coordinator of run {named[:78]}, this is the one of runs "
                f"{', '.join(self._audiences)}: check run and coordinator URL"
            )
        return self._audiences.get(named, first)


def _use(session: Session, batch: Sequence[SignedRequest]) -> list[_Node | Refused]:
    nodes = _nodes_by_key(session, {each.address for each in batch})
    # Sorted: two processes that insert in different orders would wait for one another's rows.
    used = sorted((each.address, f"{each.nonce:x}", each.deadline) for each in batch if each.address in nodes)
    fresh: set[tuple[str, str]] = set()
    if used:
        statement = inserting_new(session.get_bind().dialect, NonceRow.__table__)  # type: ignore[attr-defined]
        rows = [dict(zip(("address", "nonce", "deadline"), each, strict=True)) for each in used]
        returning = statement.returning(NonceRow.address, NonceRow.nonce)
        fresh = {(row.address, row.nonce) for row in session.connection().execute(returning, rows)}
    answers: list[_Node | Refused] = []
    for each in batch:
        place = (each.address, f"{each.nonce:x}")
        if each.address not in nodes:
            answers.append(_unknown(each.address))
        elif place in fresh:
            fresh.remove(place)  # the same nonce twice in one batch
            answers.append(nodes[each.address])
        else:
            answers.append(conflicting("nonce already used: sign each request with a new nonce"))
    return answers


def _nodes_by_key(session: Session, keys: Collection[str]) -> dict[str, _Node]:
    # Select columns: building row objects took half of the time of an admission.
    found = session.connection().execute(_BY_KEY, {"keys": list(keys)})
    return {node.key: (node.id, Role(node.role), node.key) for node in found}


def _unknown(key: str) -> Refused:
    return unsigned(
        f"no node is registered with the key {key[:42] or '(none)'} in the blocks that this coordinator has read"
    )


def forget_nonces(session: Session, now: int) -> None:
    """Deletes nonces whose requests are past their deadline at ``now`` (unix seconds), by any process's clock.

    Those that another process is deleting are left to it: two that wait for one another's rows would never end.
    """
    key = tuple_(col(NonceRow.address), col(NonceRow.nonce))
    over = select(NonceRow.address, NonceRow.nonce).where(col(NonceRow.deadline) < now - SKEW_SECONDS)
    session.exec(delete(NonceRow).where(key.in_(over.with_for_update(skip_locked=True))))
