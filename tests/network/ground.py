"""The ground that the hosts stand on: namespaces of the kernel, or plain processes where those are forbidden.

A host has a network, mount, process and host name space of its own. Its home folder is the only one in which it can
write: everything else is mounted for reading, and the other hosts' folders are hidden. The namespaces have no names:
the kernel takes them down, with every process, interface and mount in them, once this process closes the pipes that
hold them, or ends in any way.

    host ──eth0 (tbf)──▶ bridge in a namespace of its own ◀── the other hosts
                         the public addresses of all hosts, from where ``link`` passes connections on

Plain processes have addresses of their own on the loopback interface instead, with the same ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from protocol.errors import Misconfigured
from tests.network.plan import Plan
from tests.network.sharing import PSEUDO

ROOT = Path(__file__).resolve().parents[2]
LOST = 0.01
"""Share of connections that are lost."""
RATE = "100mbit"
SHAPED = ("root", "tbf", "rate", RATE, "burst", "128kb", "latency", "100ms")
NEEDED = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "findmnt": "util-linux"}
"""Programs, and Debian's package of each."""
SEPARATE = ("--net", "--mount", "--uts", "--ipc", "--pid")
HOST_VARIABLE = "NETWORK_HOST"
GRACE_SECONDS = 20.0

OWN_FILES = """
set -e
ip link set lo up
mount --bind "$1/hosts/$2" "$1/home"
mount --bind "$1/home/names" /etc/hosts
for place in $(findmnt --raw --noheadings --output TARGET --types "no{pseudo}"); do
    [ "$place" = "$1/home" ] || mount -o remount,bind,ro "$place"
done
mount -t tmpfs -o size=1m,ro none "$1/hosts"
mount -t tmpfs none /dev/shm
hostname "$2"
"""
"""What a host does first: ROOT and its name are the arguments."""


@dataclass(frozen=True, slots=True)
class Site:
    """A host on the ground.

    Args:
        name: as in the plan.
        folder: its home, as this process sees it.
        home: its home, as it sees it.
        entering: words before a command that is to run there.
        space: identity of its network namespace; empty where it has none.
        holders: processes that hold its namespaces.
    """

    name: str
    folder: Path
    home: Path
    entering: tuple[str, ...] = ()
    space: str = ""
    holders: tuple[int, ...] = ()

    def environment(self, **more: str) -> dict[str, str]:
        """Returns the environment of whoever has just sat down at this host."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASSIZE_", "ETH_"))}
        own = {"HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), HOST_VARIABLE: self.mark}
        found = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
        return kept | found | own | more

    @property
    def mark(self) -> str:
        """Tells this host's processes from all others."""
        return f"{os.getpid()}-{self.name}"

    def pids(self) -> set[int]:
        """Returns the processes that run on it."""
        return {each.pid for each in psutil.process_iter() if each.pid not in self.holders and self._runs(each)}

    def _runs(self, process: psutil.Process) -> bool:
        with contextlib.suppress(OSError, psutil.Error):
            if self.space:
                return os.readlink(f"/proc/{process.pid}/ns/net") == self.space
            return process.environ().get(HOST_VARIABLE) == self.mark
        return False


@dataclass
class Ground:
    """Hosts that can be entered, and what lies between them."""

    plan: Plan
    root: Path
    separate: bool
    sites: dict[str, Site] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, name: str, label: str, words: Sequence[object], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program on a host; its output goes to ``LABEL.log`` in the host's home."""
        site = self.sites[name]
        with (site.folder / f"{label}.log").open("ab") as log:
            process = subprocess.Popen(
                [*site.entering, *map(str, words)],
                env=site.environment(**environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/" if self.separate else site.folder,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def counts(self) -> dict[str, int]:
        """Returns the figures of all connections between hosts so far."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.root / "counts.json").read_text()))
        return {}

    def end(self) -> None:
        """Ends every process that is still there at once, as when a machine is switched off."""
        found = [process for site in self.sites.values() for process in _processes(site)]
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, GRACE_SECONDS)
        for started in self.started:
            started.wait()


def _processes(site: Site) -> Iterator[psutil.Process]:
    for pid in site.pids():
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(pid)


def missing_programs() -> list[str]:
    """Returns Debian's packages of the programs that namespaces take and this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return sorted({package for program, package in NEEDED.items() if shutil.which(program, path=path) is None})


def forbidden() -> str:
    """Returns why this machine gives no namespaces; empty if it does."""
    if os.geteuid() != 0:
        return "they take root"
    done = subprocess.run(["unshare", *SEPARATE, "--fork", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


@contextmanager
def ground(plan_of: Callable[[str], Plan], separate: bool, seed: int = 1) -> Iterator[Ground]:
    """Lays the ground: hosts, links and what lies between; takes all of it down on leaving.

    Args:
        plan_of: the plan for a prefix of addresses.
        separate: whether each host has namespaces of its own.
        seed: of the connections that are lost.
    """
    from tests.network.plan import PRIVATE_PREFIX

    root = Path(tempfile.mkdtemp(prefix=f"assize-network-{os.getpid()}-"))
    root.chmod(0o755)
    plan = plan_of(PRIVATE_PREFIX if separate else f"127.{64 + os.getpid() % 128}")
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, root, ignore_errors=True)
        made = Ground(plan, root, separate)
        for folder in ("home", "hosts", *(f"hosts/{host.name}/tmp" for host in plan.hosts)):
            (root / folder).mkdir(parents=True, exist_ok=True)
        between = opened.enter_context(_namespaces(made)) if separate else ()
        if not separate:
            for host in plan.hosts:
                folder = root / "hosts" / host.name
                made.sites[host.name] = Site(host.name, folder, folder)
        opened.callback(made.end)
        opened.enter_context(_linked(made, between, seed))
        yield made


@contextmanager
def _linked(made: Ground, between: Sequence[str], seed: int) -> Iterator[None]:
    """Runs the link in the namespace between the hosts."""
    forwards = [(each.public, each.own, each.port, each.behind) for each in made.plan.forwards()]
    told = {"forwards": forwards, "shares": made.plan.shares(), "lost": LOST, "seed": seed}
    (made.root / "link.json").write_text(json.dumps(told))
    words = (sys.executable, "-m", "tests.network.link", made.root / "link.json", made.root / "counts.json")
    process = subprocess.Popen([*between, *map(str, words)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise Misconfigured("the link between the hosts did not start: see above")
        yield
    finally:
        process.terminate()
        process.wait(GRACE_SECONDS)


@contextmanager
def _namespaces(made: Ground) -> Iterator[tuple[str, ...]]:
    """Makes the hosts' namespaces and the one between them; yields the words that enter the latter."""
    plan, names = made.plan, "".join(f"{address} {name}\n" for name, address in made.plan.names().items())
    with ExitStack() as held:
        hub = held.enter_context(_space())
        between = ("nsenter", "--target", str(hub), "--net", "--")
        _run(*between, "ip", "link", "add", "bridge", "type", "bridge")
        _run(*between, "ip", "link", "set", "lo", "up")
        _run(*between, "ip", "link", "set", "bridge", "up")
        for number, host in enumerate(plan.hosts):
            pid = held.enter_context(_space())
            folder, outer = made.root / "hosts" / host.name, f"host{number}"
            (folder / "names").write_text(f"127.0.0.1 localhost {host.name}\n{names}")
            _run(*between, "ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            for words in (("set", outer, "master", "bridge"), ("set", outer, "type", "bridge_slave", "isolated", "on")):
                _run(*between, "ip", "link", *words)
            _run(*between, "ip", "link", "set", outer, "up")
            _run(*between, "tc", "qdisc", "add", "dev", outer, *SHAPED)
            _run(*between, "ip", "address", "add", f"{plan.public(host.name)}/16", "dev", "bridge")
            inside = ("nsenter", "--target", str(pid), *SEPARATE, "--")
            _run(*inside, "ip", "address", "add", f"{plan.own(host.name)}/16", "dev", "eth0")
            _run(*inside, "ip", "link", "set", "eth0", "up")
            _run(*inside, "tc", "qdisc", "add", "dev", "eth0", *SHAPED)
            own_files = OWN_FILES.replace("{pseudo}", PSEUDO)
            _run(*inside, "bash", "-c", own_files, "bash", str(made.root), host.name)
            space = os.readlink(f"/proc/{pid}/ns/net")
            holders = (pid, *(each.pid for each in psutil.Process(pid).parents()))
            made.sites[host.name] = Site(host.name, folder, made.root / "home", inside, space, holders)
        yield between


@contextmanager
def _space() -> Iterator[int]:
    """Makes new namespaces and holds them; yields their first process, which takes in orphans."""
    first = subprocess.Popen(
        ["unshare", *SEPARATE, "--fork", "--kill-child", "--mount-proc", "bash", "-c", "echo; read"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert first.stdin
        assert first.stdout
        first.stdout.readline()
        (child,) = psutil.Process(first.pid).children()
        yield child.pid
    finally:
        assert first.stdin
        assert first.stdout
        first.stdin.close()
        first.stdout.close()
        first.wait(GRACE_SECONDS)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Misconfigured(f"cannot lay the network: {' '.join(words[:12])}: {done.stderr.strip()[-300:]}")
