"""Admission of requests: signed by a registered node's key, each used once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import bindparam, insert
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, delete, select

from coordinator.api.refusals import conflicting, unsigned
from coordinator.store import Store
from coordinator.tables import NodeRow, NonceRow
from protocol.chain.deployment import Deployment
from protocol.chain.structs import Role
from protocol.errors import Rejected
from protocol.wire.auth import HEADER_ADDRESS, recover_request


@dataclass(frozen=True, slots=True)
class Caller:
    """The node whose key signed the request."""

    node: int
    role: Role
    key: str


FORGET_SECONDS = 5
"""Shortest time between deletions of expired nonces."""

_BY_KEY = select(NodeRow.id, NodeRow.role, NodeRow.key).where(NodeRow.key == bindparam("key"))


class Gate:
    """Admits requests signed by a registered node's key, each once.

    A nonce is committed before the request is acted on and kept past its deadline, so that a replay is refused whatever
    was restarted or forgotten in between; where it cannot be committed, the request is not admitted.
    """

    def __init__(self, store: Store, deployment: Deployment) -> None:
        self._store = store
        self._deployment = deployment
        self._met: set[str] = set()
        self._forget_at = 0

    def met(self, headers: Mapping[str, str]) -> bool:
        """Whether the address a request names was a node's key before; then ``expect`` has nothing to say."""
        return headers.get(HEADER_ADDRESS.lower(), "") in self._met

    def expect(self, headers: Mapping[str, str]) -> None:
        """Refuses a stranger before its body is read: the address it names must be a node's key. Proves nothing yet."""
        with self._store.reading() as session:
            self._met.add(_node_of(session, headers.get(HEADER_ADDRESS.lower(), "")).key)

    def admit(self, headers: Mapping[str, str], method: str, path: str, body_hash: bytes, now: int) -> Caller:
        """Returns who signed the request; ``path`` is the raw path with its query, ``now`` in unix seconds.

        Raises:
            Refused: not signed, signed by no node's key, or seen before.
            Unavailable: the store cannot keep the nonce.
        """
        try:
            signed = recover_request(
                headers, self._deployment.chain_id, self._deployment.rounds, method, path, body_hash, now
            )
        except Rejected as error:
            raise unsigned(str(error)) from error
        try:
            with self._store.writing() as session:
                caller = _node_of(session, signed.address)
                used = insert(NonceRow).values(
                    address=signed.address, nonce=f"{signed.nonce:x}", deadline=signed.deadline
                )
                session.connection().execute(used)
                if now >= self._forget_at:
                    forget_nonces(session, now)
                    self._forget_at = now + FORGET_SECONDS
        except IntegrityError as error:
            raise conflicting("this request was made before: its nonce is used; sign each request anew") from error
        return caller


def _node_of(session: Session, key: str) -> Caller:
    # Columns, not rows of objects: those were half of what admitting a request cost.
    node = session.connection().execute(_BY_KEY, {"key": key}).first()
    if node is None:
        raise unsigned(
            f"no node is registered with the key {key[:42] or '(none)'}, as far as this coordinator has seen"
        )
    return Caller(node.id, Role(node.role), node.key)


def forget_nonces(session: Session, now: int) -> None:
    """Deletes nonces whose requests are past their deadline at ``now`` (unix seconds)."""
    session.exec(delete(NonceRow).where(col(NonceRow.deadline) < now - 1))
