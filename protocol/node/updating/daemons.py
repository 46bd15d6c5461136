"""Daemons of this machine that run from one environment: found, drained, and started again as they were.

A daemon is found by its systemd unit, by the health file in its state folder, or, where it writes none, by its command
line. That, its folder and its environment are read from the system, so that it is started again exactly as a person or
a script had started it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured, Rejected, Unavailable, accessing
from protocol.node.activity import HEALTH_FILE, runs
from protocol.node.profile import SERVICES, Profile

DOCTOR_SECONDS = 600
POLL_SECONDS = 0.1
STEADY_SECONDS = 3.0
"""Time for which a daemon without a health file must run until it counts as started."""

DOCTORS = {
    ("worker", "run"): ("worker", "doctor"),
    ("validator", "run"): ("validator", "doctor"),
    ("trainer", "run"): ("trainer", "doctor"),
    ("recheck", "run"): ("recheck", "doctor"),
    ("coordinator", "serve"): ("coordinator", "doctor"),
    ("coordinator", "drive"): ("coordinator", "doctor"),
}
"""Doctors that take their daemon's options. A fleet's is its ``--check``; of the others, the version must run."""

SERVERS = frozenset(
    {
        ("coordinator", "serve"),
        ("coordinator", "precheck"),
        ("validator", "background"),
        ("relay", "serve"),
        ("ledger", "serve"),
    }
)
"""Daemons without a health file."""


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon as it runs.

    Args:
        pid: its process.
        words: what was typed after ``assize``.
        folder: its working directory.
        environment: its variables.
        uid, gid, groups: its user and group, and the groups that it is in besides, such as that of the graphics cards.
        output: the file that it writes to; empty if that is a terminal, a pipe or a journal.
        health: its health file; empty if it has none.
        unit: its systemd unit; empty if it has none.
    """

    pid: int
    words: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    uid: int
    gid: int
    output: str = ""
    health: str = ""
    unit: str = ""
    groups: tuple[int, ...] = ()

    @property
    def named(self) -> str:
        """The daemon in words."""
        return f"{self.unit or 'assize ' + ' '.join(self.words)} (process {self.pid})"

    def kept(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> RunningDaemon:
        """Returns what ``kept`` was returned of."""
        return cls(**{**kept, "words": tuple(kept["words"]), "groups": tuple(kept.get("groups", ()))})


def find_daemons(link: Path, folders: Iterable[Path]) -> list[RunningDaemon]:
    """Returns the daemons that run from ``link``: of units, with a health file in one of ``folders``, and servers.

    Raises:
        Rejected: one of them cannot be started again, or runs from elsewhere; the message says which and why.
    """
    found: dict[int, RunningDaemon] = {}
    for unit, pid in _units():
        found[pid] = _running(link, pid, unit=unit)
    for folder in folders:
        health = str(folder / HEALTH_FILE)
        pid = _pid_in(health)
        if pid and runs(pid) and pid not in found and (daemon := _running(link, pid, health=health)).words:
            found[pid] = daemon
    for pid in _servers(link):
        if pid not in found:
            try:
                found[pid] = _running(link, pid)
            except Misconfigured:
                if _lives(pid):
                    raise
    return list(found.values())


def profile_folders() -> list[Path]:
    """Returns the state folders that the profile names."""
    profile = Profile.current()
    told = (profile.table(service).get("state_dir") for service in SERVICES)
    return [Path(folder) for folder in told if folder]


def _servers(link: Path) -> list[int]:
    """Returns the processes of servers that run from ``link``, without those that one of them forked.

    The local network's are left to its supervisor.
    """
    home, found = link.resolve(), dict[int, int]()
    for pid in _processes():
        with suppress(OSError):  # it has ended meanwhile
            line = _command_line(pid)
            local = any(os.path.basename(word) == "assize.py" for word in line[:3])
            if not local and typed_words(line)[:2] in SERVERS and Path(line[0]).parent.parent.resolve() == home:
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent not in found]


def _processes() -> list[int]:
    return sorted(int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit())


def _units() -> list[tuple[str, int]]:
    """Returns the active units of the name and their main processes; none where there is no systemd."""
    if shutil.which("systemctl") is None:
        return []
    shown = _systemctl("list-units", "--type=service", "--state=active", "--plain", "--no-legend", "assize*")
    names = [line.split()[0] for line in shown.splitlines() if line.strip()]
    pids = ((name, _systemctl("show", "--property=MainPID", "--value", name).strip()) for name in names)
    return [(name, int(pid)) for name, pid in pids if pid.isdigit() and int(pid)]


def _systemctl(*words: str) -> str:
    done = subprocess.run(["systemctl", "--no-pager", *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _running(link: Path, pid: int, unit: str = "", health: str = "") -> RunningDaemon:
    place = Path(f"/proc/{pid}")
    with accessing(f"look at process {pid}"):
        line = _command_line(pid)
        settings = (place / "environ").read_bytes().split(b"\0")
        folder, owner = os.readlink(place / "cwd"), place.stat()
        output = os.readlink(place / "fd" / "1")
        status = (place / "status").read_text(errors="replace")
    pairs = (pair.decode(errors="surrogateescape").partition("=") for pair in settings if pair)
    environment = {name: value for name, _, value in pairs}
    words = typed_words(line)
    daemon = RunningDaemon(
        *(pid, words, folder, environment, owner.st_uid, owner.st_gid),
        *(output if os.path.isfile(output) else "", health, unit),
        groups=tuple(int(group) for group in status.partition("\nGroups:")[2].partition("\n")[0].split()),
    )
    if not words:
        if unit:
            raise Rejected(f"{unit} does not run assize: its process {pid} is {' '.join(line)[:100]}")
        return daemon  # an old health file, and another process that has the number now
    home = Path(line[0]).parent.parent
    if home.resolve() != link.resolve():
        raise Rejected(f"{daemon.named} runs from {home}, not from {link}: update it from there, or end it first")
    piped = next((name for name, value in environment.items() if value.startswith("/dev/fd/")), None)
    if piped:
        raise Rejected(
            f"{daemon.named} was given its password by hand ({piped}), and could not be started again: name a "
            "password_file in its settings, and start it anew"
        )
    return daemon


def typed_words(line: Sequence[str]) -> tuple[str, ...]:
    """Returns what was typed after ``assize`` in a process's command line; nothing if it is another program. PURE."""
    for at, word in enumerate(line[:3]):
        if os.path.basename(word) in ("assize", "assize.py"):
            return tuple(line[at + 1 :])
    return ()


def doctor_words(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the command that examines what a daemon needs. PURE."""
    verb, options = tuple(words[:2]), tuple(word for word in words[2:] if word != "--dry-run")
    if verb == ("worker", "fleet"):
        return (*verb, *(word for word in options if word != "--json"), "--check")
    return (*DOCTORS[verb], *options) if verb in DOCTORS else ("version",)


def examine_daemon(daemon: RunningDaemon, environment: Path) -> None:
    """Has the doctor of an environment examine what a daemon needs, as the daemon's user and with its view of files.

    Raises:
        Rejected: a check fails; the message has its output.
    """
    words = [str(environment / "bin" / "assize"), *doctor_words(daemon.words)]
    try:
        done = subprocess.run(
            **_beside(daemon, words),
            env=dict(daemon.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOCTOR_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Rejected(f"the doctor of {daemon.named} did not end in {DOCTOR_SECONDS} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise Rejected(f"the new version fails its doctor for {daemon.named}: {said or f'exit code {done.returncode}'}")


def drain_daemons(daemons: Sequence[RunningDaemon], most_seconds: float) -> None:
    """Has daemons end by SIGTERM, which drains them, and waits until they have.

    All are told even if a person interrupts: one that was not could be waited for in vain, and one that is told twice
    ends without its jobs.

    Raises:
        Unavailable: one has not ended in time.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for daemon in daemons:
            if daemon.unit:
                _systemctl("stop", "--no-block", daemon.unit)
            else:
                with suppress(ProcessLookupError):
                    os.kill(daemon.pid, signal.SIGTERM)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    await_ends(daemons, most_seconds)


def await_ends(daemons: Sequence[RunningDaemon], most_seconds: float) -> None:
    """Waits until daemons that were told to end have ended; raises ``Unavailable`` if one has not in time."""
    give_up = time.monotonic() + most_seconds
    while left := [daemon for daemon in daemons if _lives(daemon.pid)]:
        if time.monotonic() > give_up:
            names = ", ".join(daemon.named for daemon in left)
            raise Unavailable(f"still draining after {most_seconds:.0f} s: {names}")
        time.sleep(POLL_SECONDS)


def start_daemon(daemon: RunningDaemon, link: Path) -> RunningDaemon:
    """Starts a daemon from ``link`` as it was started before; returns it under its new process.

    Raises:
        Misconfigured: the file that it writes to cannot be written.
    """
    if daemon.unit:
        _systemctl("start", daemon.unit)
        shown = _systemctl("show", "--property=MainPID", "--value", daemon.unit).strip()
        return replace(daemon, pid=int(shown) if shown.isdigit() else 0)
    output = daemon.output or str((Path(daemon.health).parent if daemon.health else Path(daemon.folder)) / "assize.log")
    with accessing(f"write {output}"), open(output, "ab") as log:
        process = subprocess.Popen(
            [str(link / "bin" / "assize"), *daemon.words],
            cwd=daemon.folder,
            env=dict(daemon.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **_as_user(daemon),
        )
    return replace(daemon, pid=process.pid, output=output)


def await_start(daemon: RunningDaemon, most_seconds: float) -> None:
    """Waits until a daemon has written its health file, or has run for a while if it has none.

    Raises:
        Rejected: it ended again, or did not begin to work in time.
    """
    began, log = time.monotonic(), daemon.output or "its journal"
    while time.monotonic() < began + most_seconds:
        if not _lives(daemon.pid):
            raise Rejected(f"{daemon.named} ended as soon as it was started: see {log}")
        if _pid_in(daemon.health) == daemon.pid if daemon.health else time.monotonic() > began + STEADY_SECONDS:
            return
        time.sleep(POLL_SECONDS)
    raise Rejected(f"{daemon.named} did not begin to work in {most_seconds:.0f} s: see {log}")


def runs_already(daemon: RunningDaemon) -> bool:
    """Returns whether a daemon that was drained runs again; a unit is left to systemd, which starts it but once."""
    if not daemon.unit and not daemon.health:
        return any(pid != daemon.pid and _is_process_of(daemon, pid) and _is_in(daemon, pid) for pid in _processes())
    pid = _pid_in(daemon.health)
    return pid != daemon.pid and _is_process_of(daemon, pid)


def still_ends(daemon: RunningDaemon) -> bool:
    """Returns whether the process of a daemon that was told to end still runs; systemd itself waits for a unit's."""
    return not daemon.unit and _is_process_of(daemon, daemon.pid)


def _is_process_of(daemon: RunningDaemon, pid: int) -> bool:
    try:
        line = _command_line(pid)
    except OSError:
        return False
    return _lives(pid) and typed_words(line) == daemon.words


def _is_in(daemon: RunningDaemon, pid: int) -> bool:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd") == daemon.folder
    return False


def _command_line(pid: int) -> list[str]:
    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return [word.decode(errors="surrogateescape") for word in line]


def _pid_in(health: str) -> int:
    """Returns the process that last wrote a health file; 0 if there is none."""
    try:
        return int(json.loads(Path(health).read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _lives(pid: int) -> bool:
    """Returns whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _as_user(daemon: RunningDaemon) -> dict[str, Any]:
    """Returns how a process is started as the daemon's user, where this one may."""
    if os.geteuid() != 0 or daemon.uid == 0:
        return {}
    return {"user": daemon.uid, "group": daemon.gid, "extra_groups": list(daemon.groups)}


def _beside(daemon: RunningDaemon, words: Sequence[str]) -> dict[str, Any]:
    """Returns how a program is started where a daemon runs, as its user.

    State and credentials of a unit with a dynamic user are only reached from the unit's own mount namespace.
    """
    user, enter, become = _as_user(daemon), shutil.which("nsenter"), shutil.which("setpriv")
    if not (daemon.unit and user and enter and become):
        return {"args": [*words], "cwd": daemon.folder, **user}
    groups = ",".join(map(str, user["extra_groups"]))
    entering = [enter, f"--target={daemon.pid}", "--mount", "--wd"]
    becoming = [become, f"--reuid={daemon.uid}", f"--regid={daemon.gid}"]
    return {"args": [*entering, *becoming, f"--groups={groups}" if groups else "--clear-groups", *words], "cwd": "/"}


def read_kept(path: Path) -> list[RunningDaemon]:
    """Returns the daemons that an update had ended when it was itself ended; raises ``Misconfigured`` if unreadable."""
    if not path.exists():
        return []
    try:
        with accessing(f"read {path}"):
            return [RunningDaemon.of(each) for each in json.loads(path.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise Misconfigured(
            f"{path} does not list the daemons that an update ended: start them, and remove it"
        ) from error
