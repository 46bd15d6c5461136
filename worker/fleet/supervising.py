"""A fleet at work: one process for each node, started again when it ends, drained when the fleet is told to end.

    SIGTERM, SIGINT   every node drains: hands in its jobs, takes no new ones, ends; at most ``drain_seconds``
    the second one    every node ends at once; what it had signed is handed in at its next start

The processes have sessions of their own, so that Ctrl-C reaches them by the fleet alone. If the fleet is killed they go
on; the next start of the fleet drains them first.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from protocol.errors import AssizeError, Misconfigured, accessing
from protocol.files import lock, tail, write_atomically
from protocol.node.activity import HEALTH_FILE, doing_of, read_health, runs
from protocol.node.daemon import Wake
from protocol.node.watching import Grid, View
from protocol.times import spell
from worker.fleet.bonds import BondKeeper
from worker.fleet.fleet_file import Fleet, FleetNode
from worker.fleet.restarts import LOOPING, failures_after, loop_sentence, pause_after, reason_of, worst_code

LOOK_SECONDS = 0.5
BOND_SECONDS = 60.0
"""Time between looks at the nodes' bonds."""
LOG_FILE, LONGEST_LOG_BYTES = "worker.log", 32 << 20
"""A node's output; one that is longer at a look goes on in a new file, and the last one is kept."""
TAIL_BYTES = 16 << 10
KILL_SECONDS = 10.0
"""Time after the longest drain until a node that still runs is killed."""

log = structlog.get_logger(daemon="fleet")


@dataclass(slots=True)
class Member:
    """One node and its process. ``over`` is true once it is not started again."""

    node: FleetNode
    process: subprocess.Popen[bytes] | None = None
    left: int | None = None
    started: float = 0.0
    failures: int = 0
    restarts: int = 0
    again_at: float = 0.0
    code: int = 0
    reason: str = ""
    over: bool = False

    @property
    def pid(self) -> int | None:
        """Id of the process that runs, if one does: its own, or one that an earlier fleet left."""
        return self.left if self.process is None else self.process.pid

    @property
    def log_path(self) -> Path:
        """The file of its output."""
        return self.node.settings.state_dir / LOG_FILE


class FleetSupervisor:
    """Runs the nodes of a fleet until all have ended."""

    def __init__(self, fleet: Fleet, keeper: BondKeeper) -> None:
        """Takes the fleet's folder for this process alone.

        Raises:
            Misconfigured: another fleet has the folder, or it cannot be made.
        """
        self._fleet, self._keeper = fleet, keeper
        with accessing(f"make the folder {fleet.state_dir}"):
            fleet.state_dir.mkdir(parents=True, exist_ok=True)
            for node in fleet.nodes:
                node.settings.state_dir.mkdir(parents=True, exist_ok=True)
            try:
                self._lock = lock(fleet.state_dir / "fleet.lock")
            except BlockingIOError:
                raise Misconfigured(
                    f"another fleet runs in {fleet.state_dir}: end it, or set another state_dir"
                ) from None
        self._members = [Member(node, left=_left_running(node)) for node in fleet.nodes]
        self._wake, self._told, self._obeyed = Wake(), 0, 0
        self._told_at = 0.0
        self._closed = threading.Event()

    def run(self, show: Callable[[View], None]) -> int:
        """Runs until every node has ended for good; returns the worst of their exit codes."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        bonds = threading.Thread(target=self._keep_bonds, name="bonds", daemon=True)
        bonds.start()
        for member in self._members:
            if member.left is not None:
                log.warning("draining_left", node=member.node.name, pid=member.left)
                _signal(member, signal.SIGTERM)
        try:
            while not all(member.over for member in self._members):
                self._obey(time.monotonic())
                for member in self._members:
                    self._mind(member, time.monotonic())
                self._write_health()
                show(self.view(time.time(), time.monotonic()))
                self._wake.wait(LOOK_SECONDS)
        finally:
            for member in self._members:
                if member.process is not None:  # only after an error of the fleet's own
                    _signal(member, signal.SIGTERM)
            self._closed.set()
            bonds.join(KILL_SECONDS)
            self._lock.close()
        return worst_code([member.code for member in self._members])

    def view(self, wall: float, now: float) -> View:
        """Returns the table of the nodes; ``wall`` in unix seconds, ``now`` monotonic."""
        bonds, rows, figures = self._keeper.told(), [], list[dict[str, Any]]()
        for member in self._members:
            words = self._words(member, wall, now)
            bond = bonds.get(member.node.name, "–")
            pid = "–" if member.pid is None else str(member.pid)
            rows.append((member.node.name, pid, member.node.devices, words, str(member.restarts), bond))
            figures.append(
                {
                    "node": member.node.name,
                    "pid": member.pid,
                    "devices": member.node.devices,
                    "now": words,
                    "restarts": member.restarts,
                    "code": member.code,
                    "reason": member.reason,
                    "bond": bond,
                    "over": member.over,
                }
            )
        looping = (member for member in self._members if member.failures >= LOOPING and not member.over)
        notes = (
            *(
                loop_sentence(member.node.name, member.failures, member.reason, max(0.0, member.again_at - now))
                for member in looping
            ),
            *self._keeper.problems(),
        )
        line = "  ".join(
            f"{member.node.name}: {self._words(member, wall, now, brief=True)}" for member in self._members
        )
        headings = ("node", "process", "devices", "now", "restarts", "bond")
        title = f"fleet of {len(rows)} nodes, {self._fleet.path}" + (": draining" if self._told else "")
        shown = {"draining": bool(self._told), "nodes": figures, "notes": list(notes)}
        return View(title, (), notes, line, shown, Grid(headings, tuple(rows)))

    def _words(self, member: Member, wall: float, now: float, brief: bool = False) -> str:
        if member.over:
            return "ended" if member.code == 0 else f"ended: {member.reason}"
        if member.pid is None:
            soon = "" if brief else f" in {spell(max(0.0, member.again_at - now))}"
            return f"starts again{soon}: {member.reason}" if member.reason else "starts"
        health = _health(member)
        if health is None:
            return "starting"
        doing = doing_of(health, True)
        return doing.words if brief else doing.lasting(wall)

    def _mind(self, member: Member, now: float) -> None:
        """Starts a node whose time it is, and notes the end of one that has ended."""
        if member.over:
            return
        if member.left is not None:
            member.left = _left_running(member.node)
            return
        if member.process is not None:
            self._note_end(member, now)
            _bound(member.log_path)
        elif self._told:
            member.over = True
        elif member.again_at <= now:
            self._start(member, now)

    def _start(self, member: Member, now: float) -> None:
        with member.log_path.open("ab") as output:
            member.process = subprocess.Popen(
                self._fleet.worker_words("run"),
                env=member.node.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        member.started = now
        log.info("node_started", node=member.node.name, pid=member.process.pid, devices=member.node.devices)

    def _note_end(self, member: Member, now: float) -> None:
        assert member.process is not None
        code = member.process.poll()
        if code is None:
            return
        if self._told and code == -signal.SIGTERM:
            code = 0  # it had not begun to work yet
        member.process, member.code = None, code
        if code == 0 or self._told:
            member.over, member.reason = True, "" if code == 0 else reason_of(_last_lines(member.log_path), code)
            log.info("node_ended", node=member.node.name, code=code, **({"why": member.reason} if code else {}))
            return
        member.failures = failures_after(member.failures, now - member.started)
        member.restarts += 1
        member.reason = reason_of(_last_lines(member.log_path), code)
        pause = pause_after(member.failures)
        member.again_at = now + pause
        if member.failures == LOOPING:
            log.error("node_loops", error=loop_sentence(member.node.name, member.failures, member.reason, pause))
        elif member.failures < LOOPING:
            log.warning("node_ended", node=member.node.name, code=code, why=member.reason, again_in_seconds=pause)

    def _obey(self, now: float) -> None:
        """Passes signals on: the first and what is late as a drain, the second as an end at once."""
        told = self._told
        if told > self._obeyed:
            self._told_at = self._told_at or now
            log.info("draining" if told == 1 else "ending", nodes=sum(each.pid is not None for each in self._members))
            for member in self._members:
                if told > 1:
                    _signal(member, signal.SIGKILL)
                elif member.left is None:  # one that an earlier fleet left drains already, and twice means at once
                    _signal(member, signal.SIGTERM)
            self._obeyed = told
        elif told and now > self._told_at + self._fleet.drain_seconds:
            late = now > self._told_at + self._fleet.drain_seconds + KILL_SECONDS
            for member in self._members:
                _signal(member, signal.SIGKILL if late else signal.SIGINT)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._told += 1
        self._wake.set()

    def _keep_bonds(self) -> None:
        while not self._closed.is_set():
            try:
                self._keeper.look()
            except Exception as error:  # the outermost loop of this thread: bonds must not end the nodes
                known = isinstance(error, AssizeError)
                log.warning("bonds_not_seen", error=str(error) if known else repr(error), exc_info=not known)
            self._closed.wait(BOND_SECONDS)

    def _write_health(self) -> None:
        state = {"daemon": "fleet", "pid": os.getpid(), "at": int(time.time())}
        nodes = {member.node.name: member.pid for member in self._members}
        path = self._fleet.state_dir / HEALTH_FILE
        try:
            write_atomically(path, json.dumps(state | {"nodes": nodes}).encode())
        except OSError as error:
            log.warning("health_not_written", path=str(path), error=str(error.strerror))


def _signal(member: Member, number: signal.Signals) -> None:
    """Signals a node's process, if it still runs; a kill takes what it started along."""
    if member.pid is None:
        return
    try:
        if number == signal.SIGKILL:
            os.killpg(member.pid, number)
        else:
            os.kill(member.pid, number)
    except ProcessLookupError:
        return


def _left_running(node: FleetNode) -> int | None:
    """Returns the process that an earlier fleet left running with this node's state folder; None if there is none."""
    try:
        pid = int(read_health(node.settings.state_dir, "worker")["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (AssizeError, OSError, KeyError, TypeError, ValueError):
        return None
    return pid if runs(pid) and {b"worker", b"run"} <= set(words) else None


def _health(member: Member) -> Mapping[str, Any] | None:
    """Returns the health file of the process that runs; None until it has written one."""
    try:
        health = read_health(member.node.settings.state_dir, "worker")
    except AssizeError:
        return None
    return health if health.get("pid") == member.pid else None


def _last_lines(path: Path) -> list[str]:
    try:
        return tail(path, TAIL_BYTES).splitlines()
    except OSError:
        return []


def _bound(path: Path) -> None:
    """Moves the content of a log that is too long aside; its process goes on writing to the same, emptied file."""
    try:
        if path.stat().st_size > LONGEST_LOG_BYTES:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.truncate(path, 0)
    except OSError as error:
        log.warning("log_not_bounded", path=str(path), error=str(error.strerror))
