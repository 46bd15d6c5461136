"""The API's own bodies: pages, health, errors. Everything else it answers with are facts."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from typing import Any, Generic, TypeVar

from pydantic import Field

from ledger.audit.report import Report
from protocol.errors import Rejected
from protocol.wire.api import Body

Item = TypeVar("Item")
MOST_CURSOR_CHARACTERS = 400


class Page(Body, Generic[Item]):
    """Some of a list, as of one block. ``next`` is the cursor of what follows, null at the end.

    What came about up to ``final_block`` can no longer be undone by a reorganisation; the rest is provisional.
    """

    items: tuple[Item, ...]
    next: str | None
    block_number: int
    block_hash: str
    final_block: int


class DetectionRow(Body):
    """Jobs of one cheat, in the median, until its lift of the mean reward raises an alarm and until it is condemned.

    uplift          of the mean reward, which is between 0 and 1
    share           share of the owners that cheat alike; at 1 there is nobody to compare with, and jurors sample always
    alarm_jobs      null: no alarm; ``…_predicted`` by means and variances alone
    groups_sampled  groups that a juror sampled until then
    """

    uplift: float
    share: float
    alarm_jobs: float | None
    alarm_jobs_predicted: float | None
    condemned_jobs: float | None
    condemned_jobs_predicted: float | None
    groups_sampled: float


class Detection(Body):
    """Power of the tests on rewards in a simulated market (``make bench-power``); no figure of this chain.

    An honest owner is condemned within ``horizon_rounds`` with probability at most ``false_alarm``.
    """

    false_alarm: float
    horizon_rounds: int
    power: tuple[DetectionRow, ...]


DETECTION = Detection.model_validate_json(files("ledger.api").joinpath("detection.json").read_bytes())


class LedgerHealth(Body):
    """State of the ledger: block, lag and problem, if any.

    ``behind`` counts the blocks on the chain that are not in the database yet; null where no RPC answers in time.
    """

    status: str
    chain_id: int
    block_number: int
    block_hash: str
    final_block: int
    behind: int | None
    problem: str


class AuditAnswer(Body):
    """An audit: ``audit`` is "ok" or "failed"."""

    audit: str
    report: Report


class Error(Body):
    """Error as one sentence."""

    error: str = Field(examples=["there is no round 7"])


def pack_cursor(place: tuple[Any, ...]) -> str:
    """Returns the cursor of the page after ``place``."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def unpack_cursor(cursor: str, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """Reads a cursor made by ``pack_cursor``.

    Raises:
        Rejected: it is none, or of another list: its parts are not of ``kinds``.
    """
    try:
        if len(cursor) > MOST_CURSOR_CHARACTERS:
            raise ValueError
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(place, list) or [type(part) for part in place] != list(kinds):
            raise ValueError
        if any(isinstance(part, int) and not 0 <= part < 2**63 for part in place):
            raise ValueError
        if any(isinstance(part, str) and not (part.isascii() and part.isprintable()) for part in place):
            raise ValueError  # no key of ours; databases would not take some
    except ValueError as error:
        raise Rejected("the cursor is not one that this list gave") from error
    return tuple(place)
