"""Bonds of a fleet's nodes beside what their capacity requires, and what is added to those that have fallen below.

A bond falls by slashes alone, so adding to it without a look at their cause could go on for ever: the file caps what is
added in a UTC day, and a node in trouble is a warning either way. Tokens go to nodes of the owner's own only, since
whoever adds to another's bond has given the tokens away.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from protocol.amounts import rounded, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.writing import actions, calls
from protocol.chain.writing.sender import key_of
from protocol.errors import AssizeError, Misconfigured, Rejected, accessing
from protocol.files import write_atomically
from protocol.node.commands.connection import sending
from protocol.node.wallet import Keystores
from worker.fleet.fleet_file import BondFollowing, Fleet, FleetNode

SPENT_FILE = "bond.json"

log = structlog.get_logger(daemon="fleet")


@dataclass(frozen=True, slots=True)
class BondLook:
    """A node's bond beside what is required, in token wei; ``node`` is 0 while its key is not registered."""

    node: int
    owner: str
    bond: int
    required: int
    serves: bool

    @property
    def missing(self) -> int:
        """The wei that the bond lacks; 0 of a node that has retired."""
        return max(0, self.required - self.bond) if self.serves else 0


def to_add(missing: int, spent: int, most_a_day: int) -> int:
    """Returns the wei to add to a bond that lacks ``missing``: all of it, or nothing once the day's rest is less. PURE.

    A part would not have the node listed again.
    """
    return missing if missing <= most_a_day - spent else 0


@dataclass(frozen=True, slots=True)
class PendingDeposit:
    """A deposit that was begun and is not known to have succeeded or failed: its intent, wei, and UTC day."""

    intent: str
    wei: int
    day: str


class Spending:
    """The wei added in the present UTC day, and the deposits that pend, in a file.

    Both are written before anything is sent: no crash forgets them, and no deposit is sent under two intents.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now

    def today(self) -> int:
        """Returns what was added today.

        Raises:
            Misconfigured: the file cannot be read; nothing is added until somebody has looked at it.
        """
        return self._read()[0]

    def pending(self, node: int) -> PendingDeposit | None:
        """Returns the deposit that pends for a node, if one does; raises as ``today`` does."""
        return self._read()[1].get(node)

    def begin(self, node: int, wei: int) -> PendingDeposit:
        """Counts ``wei`` for a node, and names the intent under which they are sent until ``end``.

        Raises:
            Misconfigured: the file cannot be read or written.
        """
        spent, pending = self._read()
        begun = PendingDeposit(f"fleet-bond/{node}/{secrets.token_hex(8)}", wei, self._day())
        self._write(spent + wei, {**pending, node: begun})
        return begun

    def end(self, node: int, moved: bool) -> None:
        """Forgets a node's deposit, and counts it no more if nothing was moved; raises as ``begin`` does."""
        spent, pending = self._read()
        ended = pending.pop(node)
        self._write(spent if moved or ended.day != self._day() else spent - ended.wei, pending)

    def _read(self) -> tuple[int, dict[int, PendingDeposit]]:
        if not self._path.exists():
            return 0, {}
        try:
            with accessing(f"read {self._path}"):
                written = json.loads(self._path.read_bytes())
            spent = int(written["spent_wei"]) if written["day"] == self._day() else 0
            pending = {
                int(node): PendingDeposit(str(each["intent"]), int(each["wei"]), str(each["day"]))
                for node, each in written.get("pending", {}).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Misconfigured(f"{self._path} does not say what was added today: mend or remove it") from error
        return spent, pending

    def _write(self, spent: int, pending: dict[int, PendingDeposit]) -> None:
        told = {str(node): {**asdict(each), "wei": str(each.wei)} for node, each in pending.items()}
        state = {"day": self._day(), "spent_wei": str(spent), "pending": told}
        with accessing(f"write {self._path}"):
            write_atomically(self._path, json.dumps(state).encode())

    def _day(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%d")


class BondKeeper:
    """Looks at the bonds of a fleet's nodes. One thread calls ``look``; others ask what it found."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._guard = fleet, threading.Lock()
        self._spending = Spending(fleet.state_dir / SPENT_FILE)
        self._addresses: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    def told(self) -> dict[str, str]:
        """Returns each node's bond in words."""
        with self._guard:
            return dict(self._words)

    def problems(self) -> tuple[str, ...]:
        """Returns a sentence on each node whose bond is too small."""
        with self._guard:
            return tuple(self._problems.values())

    def look(self) -> None:
        """Looks at every bond, and adds to those that lack something if the file says so.

        Raises:
            Unavailable: a chain does not answer; the other nodes are looked at first.
        """
        failed: AssizeError | None = None
        for node in self._fleet.nodes:
            try:
                self._mind(node, self._seen(node))
            except AssizeError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _seen(self, node: FleetNode) -> BondLook:
        with closing(Chain.connect(node.settings.rpc_url, node.settings.addresses)) as chain:
            reader = chain.latest()
            number = reader.node_by_key(self._address(node))
            if not number:
                return BondLook(0, "", 0, 0, serves=False)
            known = reader.node(number)
            required = reader.required_bond(known.role, known.capacity)
            serves = not (known.retired_at or known.withdrawn)
            return BondLook(number, known.owner, known.bond, required, serves)

    def _address(self, node: FleetNode) -> str:
        """Returns the address of a node's key, which is opened once if its keystore does not state it."""
        if node.name not in self._addresses:
            stated = Keystores(node.settings.keystore_directory).stated_address(node.settings.keystore)
            self._addresses[node.name] = stated or node.settings.wallet().address
        return self._addresses[node.name]

    def _mind(self, node: FleetNode, look: BondLook) -> None:
        words = f"{rounded(look.bond)} of {rounded(look.required)}" if look.node else "not registered"
        problem = self._mended(node, look) if look.missing else ""
        with self._guard:
            self._words[node.name] = words
            news = problem and problem != self._problems.get(node.name)
            if problem:
                self._problems[node.name] = problem
            else:
                self._problems.pop(node.name, None)
        if news:
            log.warning("bond_low", node=look.node, error=problem)

    def _mended(self, node: FleetNode, look: BondLook) -> str:
        """Adds what a bond lacks, if it may; returns what remains wrong, or an empty text."""
        following = self._fleet.bond
        low = (
            f"node {node.name} (id {look.node}) has a bond of {tokens(look.bond)}, {tokens(look.required)} are required"
        )
        by_hand = f"{low}: assize stake deposit {look.node} '{tokens(look.missing)}'"
        if following is None:
            return by_hand
        spent, pending = self._spending.today(), self._spending.pending(look.node)
        wei = pending.wei if pending else to_add(look.missing, spent, following.most_wei_a_day)
        if not wei:
            cap = f"{tokens(spent)} of today's {tokens(following.most_wei_a_day)} are added"
            return f"{by_hand} by hand, as {cap}; see why it was slashed: assize ledger slashes"
        try:
            self._add(node, look, following, wei)
        except AssizeError as error:
            return f"{low}, and could not be added to: {error}"
        log.info("bond_added_to", node=look.node, amount=tokens(wei), today=tokens(self._spending.today()))
        return ""

    def _add(self, node: FleetNode, look: BondLook, following: BondFollowing, wei: int) -> None:
        settings = node.settings
        place = (settings.rpc_url, settings.addresses, following.keystore, following.password_file, None)
        with sending(*place) as sender:
            if sender.address != look.owner:
                raise Misconfigured(f"its owner is {look.owner}, and [bond] names the key of {sender.address}")
            begun = self._spending.pending(look.node) or self._spending.begin(look.node, wei)
            call = calls.top_up(sender.chain.deployment, look.node, wei)
            try:
                if sender.progress(key := key_of(begun.intent, call)) is not None:  # signed at an earlier look
                    sender.send_once(key, call)
                else:
                    actions.deposit(sender, look.node, wei).carry_out(begun.intent)
            except Rejected:  # a contract refused it, or the owner has too little: nothing was moved
                self._spending.end(look.node, moved=False)
                raise
            self._spending.end(look.node, moved=True)
