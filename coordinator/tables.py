"""SQL tables of the coordinator. Private to this package.

    mirror   rebuilt from events at any time   cursor admin runs announcements nodes members earnings
                                               rounds listings submitted seats checkpoints; undo
    own      exists only here                  uploads grants claims heartbeats nonces rules evidence standing
                                               ended_rounds holds bans clock
                                               hook_events hook_deliveries hooks hook_conditions
                                               offers work_phases

Ids are those of the contracts. Addresses are checksummed, roots and hashes 32 bytes, bitmaps and wei are ``Uint256``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel


class Uint256(TypeDecorator[int]):
    """An unsigned integer of 256 bits, stored as 32 big-endian bytes, which sort in the same order."""

    impl = LargeBinary(32)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> bytes | None:
        """Converts a value for the database."""
        return None if value is None else value.to_bytes(32, "big")

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        """Converts a value from the database."""
        return None if value is None else int.from_bytes(value, "big")


def _uint256(default: int = 0) -> Any:
    return Field(default=default, sa_type=Uint256)


def _id() -> Any:
    """Returns a column of the primary key whose values come from the chain."""
    return Field(primary_key=True, sa_type=BigInteger)


class CursorRow(SQLModel, table=True):
    """Progress of the mirror. One row, ``id`` 1.

    ``number`` is the last block whose effects are in these tables, ``position`` the cursor of the chain's tail.
    """

    __tablename__ = "cursor"
    id: int = Field(default=1, primary_key=True)
    number: int = Field(sa_type=BigInteger)
    position: str


class AdminRow(SQLModel, table=True):
    """Settings of the deployment's admin. One row, ``id`` 1."""

    __tablename__ = "admin"
    id: int = Field(default=1, primary_key=True)
    paused: bool = False


class RunRow(SQLModel, table=True):
    """A run, its terms in effect, its escrow, and totals of its rounds.

    ``jobs_void`` includes jobs never submitted.
    """

    __tablename__ = "runs"
    id: int = _id()
    requester: str
    coordinator: str
    trainer: str
    rules_hash: bytes = Field(index=True)
    price_per_unit: int = _uint256()
    juror_fee: int = _uint256()
    max_units: int = _uint256()
    committee: int
    appeal_seats: int
    reveal_seconds: int
    version: int = 0
    closed: bool = False
    escrow: int = _uint256()
    reserved: int = _uint256()
    step: int = Field(default=0, sa_type=BigInteger)
    rounds_opened: int = 0
    rounds_settled: int = 0
    rounds_void: int = 0
    jobs_accepted: int = Field(default=0, sa_type=BigInteger)
    jobs_void: int = Field(default=0, sa_type=BigInteger)
    jobs_fraud: int = Field(default=0, sa_type=BigInteger)


class AnnouncementRow(SQLModel, table=True):
    """The latest announced terms of a run, which apply from ``effective_at``; deleted once in effect.

    ``terms`` is JSON of the columns of ``RunRow`` that they set.
    """

    __tablename__ = "announcements"
    run: int = _id()
    effective_at: int = Field(sa_type=BigInteger)
    terms: str


class NodeRow(SQLModel, table=True):
    """A node and its record. ``required`` is the bond that it needs to be listed.

    Record: ``given`` jobs ever listed; ``fraudulent`` ever; ``neglect`` and ``absent`` as in ``neglect.Neglect``.
    """

    __tablename__ = "nodes"
    id: int = _id()
    owner: str
    key: str = Field(index=True)
    role: int
    slot: int
    capacity: int = Field(sa_type=BigInteger)
    in_flight: int = 0
    active_at: int = Field(sa_type=BigInteger)
    retired_at: int = Field(default=0, sa_type=BigInteger)
    bond: int = _uint256()
    required: int = _uint256()
    revoked: bool = False
    given: int = Field(default=0, sa_type=BigInteger)
    neglect: float = 0.0
    absent: bool = False
    fraudulent: int = 0
    slashed: int = _uint256()


class MemberRow(SQLModel, table=True):
    """A node that joined a run, and the hash of the rules that it joined."""

    __tablename__ = "members"
    run: int = _id()
    node: int = _id()
    rules_hash: bytes


class EarningRow(SQLModel, table=True):
    """Total credits that an owner earned in a run."""

    __tablename__ = "earnings"
    run: int = _id()
    owner: str = Field(primary_key=True)
    amount: int = _uint256()


class RoundRow(SQLModel, table=True):
    """A round, or the round that tries an appeal; the fields are those of ``round_state.RoundState``."""

    __tablename__ = "rounds"
    id: int = _id()
    run: int = Field(index=True, sa_type=BigInteger)
    parent: int = Field(default=0, sa_type=BigInteger)
    state: int = Field(index=True)
    step: int = Field(sa_type=BigInteger)
    policy_version: int = Field(sa_type=BigInteger)
    jobs: int
    slot_count: int
    attempt: int = 0
    opened_at: int = Field(sa_type=BigInteger)
    deadline: int = Field(sa_type=BigInteger)
    reveal_seconds: int
    open_block: int = Field(sa_type=BigInteger)
    beacon: bytes
    assignments: bytes
    revealing: bool = False
    holding: bool = False
    submitted: int = _uint256()
    accepted: int = _uint256()
    fraud: int = _uint256()
    consumed: int = _uint256()
    appealed: int = _uint256()
    concluded: int = _uint256()
    appeals: int = 0


class ListingRow(SQLModel, table=True):
    """``count`` jobs of a round from ``first`` on, assigned to ``node``; a node may be listed more than once."""

    __tablename__ = "listings"
    round: int = _id()
    first: int = Field(primary_key=True)
    node: int = Field(index=True, sa_type=BigInteger)
    count: int


class SubmittedRow(SQLModel, table=True):
    """One node's leaves on chain: part ``position`` of its batch."""

    __tablename__ = "submitted"
    round: int = _id()
    batch: int = Field(primary_key=True)
    position: int = Field(primary_key=True)
    node: int = Field(sa_type=BigInteger)
    leaves: bytes
    settled: bool = False


class SeatRow(SQLModel, table=True):
    """A juror's seat, and whether its vote calls the round's checkpoint unfit."""

    __tablename__ = "seats"
    round: int = _id()
    attempt: int = Field(primary_key=True)
    juror: int = _id()
    committed: bool = False
    revealed: bool = False
    unfit: bool = False


class CheckpointRow(SQLModel, table=True):
    """A published version and its manifest root."""

    __tablename__ = "checkpoints"
    run: int = _id()
    version: int = _id()
    manifest_root: bytes


MIRROR: tuple[type[SQLModel], ...] = (
    *(AdminRow, RunRow, AnnouncementRow, NodeRow, MemberRow, EarningRow, RoundRow, ListingRow, SubmittedRow, SeatRow),
    *(CheckpointRow, CursorRow),
)
"""The tables that events rebuild."""


class UndoRow(SQLModel, table=True):
    """The rows that one step of the mirror to block ``number`` replaced; ``position`` is the tail's cursor before it.

    ``rows`` is described in ``coordinator.mirror.undoing``. Steps are undone newest ``id`` first.
    """

    __tablename__ = "undo"
    id: int | None = Field(default=None, primary_key=True)
    number: int = Field(index=True, sa_type=BigInteger)
    position: str
    rows: str


class UploadRow(SQLModel, table=True):
    """An uploaded artifact, whose file has ``size`` bytes; its blob is in the store of artifacts under ``root``."""

    __tablename__ = "uploads"
    round: int = _id()
    job: int = Field(primary_key=True)
    root: bytes = Field(primary_key=True)
    node: int = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)


class GrantRow(SQLModel, table=True):
    """A node's upload to the object store, of a file with this ``size`` and keccak256, under a name only it was told.

    ``state`` is open until the node has told of its upload, checking until it was examined, then stored or refused.
    ``root`` is the artifact's once stored; ``why`` explains a refusal. ``ordered_at`` is when its examination was last
    ordered. Times are unix seconds.
    """

    __tablename__ = "grants"
    name: str = Field(primary_key=True)
    round: int = Field(index=True, sa_type=BigInteger)
    job: int
    node: int = Field(index=True, sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)
    file_hash: bytes
    expires_at: float
    state: str = "open"
    ordered_at: float = 0.0
    root: bytes = b""
    why: str = ""


class EndedRoundRow(SQLModel, table=True):
    """A round that was found settled or void, and when first (unix seconds); gone once its artifacts were deleted."""

    __tablename__ = "ended_rounds"
    round: int = _id()
    ended_at: float


class ClaimRow(SQLModel, table=True):
    """Signed leaves to relay. ``state`` is pending, relayed, refused or late; ``why`` explains the last two."""

    __tablename__ = "claims"
    round: int = _id()
    node: int = _id()
    leaves: bytes = Field(primary_key=True)
    beacon: bytes
    uri: str
    signature: bytes
    state: str = Field(default="pending", index=True)
    why: str = ""
    received_at: float


class HeartbeatRow(SQLModel, table=True):
    """A node's last heartbeat. ``version`` is the checkpoint that it has loaded; -1 for none."""

    __tablename__ = "node_heartbeats"
    node: int = _id()
    version: int = Field(sa_type=BigInteger)
    available: bool = True
    hardware: str
    heard_at: float


class NonceRow(SQLModel, table=True):
    """A used nonce in hex, kept until the ``deadline`` of its request."""

    __tablename__ = "nonces"
    address: str = Field(primary_key=True)
    nonce: str = Field(primary_key=True)
    deadline: int = Field(index=True, sa_type=BigInteger)


class RulesRow(SQLModel, table=True):
    """Canonical rules by their keccak256."""

    __tablename__ = "rules"
    hash: bytes = Field(primary_key=True)
    body: bytes


class EvidenceRow(SQLModel, table=True):
    """A juror's evidence; its bytes are in the store of evidence under ``root``."""

    __tablename__ = "evidence"
    root: bytes = Field(primary_key=True)
    round: int = Field(sa_type=BigInteger)
    attempt: int
    juror: int = Field(sa_type=BigInteger)


class OpeningStatusRow(SQLModel, table=True):
    """Reason why no round of the run is being opened at present, as a sentence; empty if none."""

    __tablename__ = "standing"
    run: int = _id()
    waiting: str = ""


class ClockRow(SQLModel, table=True):
    """The process that drives until ``ends_at`` (unix seconds), if it does not renew. One row, ``id`` 1.

    ``epoch`` counts the holders, ``holder`` names the process, ``place`` the file that it has locked.
    """

    __tablename__ = "clock"
    id: int = Field(default=1, primary_key=True)
    epoch: int = Field(sa_type=BigInteger)
    holder: str
    place: str
    ends_at: float


class HoldRow(SQLModel, table=True):
    """A hold by which the operator keeps a run from opening rounds; no row while rounds are opened.

    ``state`` is paused, draining, or drained once every round of a draining run has ended; ``since`` unix seconds.
    """

    __tablename__ = "holds"
    run: int = _id()
    state: str
    why: str = ""
    since: float


class BanRow(SQLModel, table=True):
    """A worker that the operator does not list in a run, ``until`` a time in unix seconds; null until it is lifted."""

    __tablename__ = "bans"
    run: int = _id()
    node: int = _id()
    why: str
    until: float | None = None
    since: float


class HookEventRow(SQLModel, table=True):
    """An event for webhooks, in the order of ``seq``; ``id`` names its content, ``body`` is the JSON that is sent.

    ``number`` is its block, 0 for one that is not of the chain; it is sent once ``final``. ``at`` is in unix seconds.
    """

    __tablename__ = "hook_events"
    seq: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True, index=True)
    kind: str
    number: int = Field(sa_type=BigInteger)
    final: bool = Field(index=True)
    at: int = Field(sa_type=BigInteger)
    body: str


class HookDeliveryRow(SQLModel, table=True):
    """An event that a webhook has not taken yet."""

    __tablename__ = "hook_deliveries"
    hook: str = Field(primary_key=True)
    event: int = Field(primary_key=True)


class HookRow(SQLModel, table=True):
    """A webhook, ``id`` as its settings have it, and how its deliveries go. Times are unix seconds.

    It is told events from ``since`` on, and none once ``ended``. ``failures`` are those in a row, ``said`` is the
    outcome of the last attempt. ``holder`` is the process that delivers, until ``held_until``.
    """

    __tablename__ = "hooks"
    id: str = Field(primary_key=True)
    since: float
    ended: bool = False
    failures: int = 0
    next_at: float = 0.0
    said: str = ""
    said_at: float = 0.0
    delivered: int = 0
    dropped: int = 0
    holder: str = ""
    held_until: float = 0.0


class HookConditionRow(SQLModel, table=True):
    """A condition that webhooks are told of once for as long as it ``holds``."""

    __tablename__ = "hook_conditions"
    key: str = Field(primary_key=True)
    holds: bool = False


class OfferRow(SQLModel, table=True):
    """A node's last offer, as JSON of ``protocol.wire.api.Offer``."""

    __tablename__ = "offers"
    node: int = _id()
    offer: str


class WorkPhaseRow(SQLModel, table=True):
    """Length of a run's work phases."""

    __tablename__ = "work_phases"
    run: int = _id()
    seconds: int
