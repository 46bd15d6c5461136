"""Files and folders of two hosts that one of them can write, as the kernel tells."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR
PSEUDO = "proc,sysfs,devtmpfs,devpts,mqueue,cgroup,cgroup2,securityfs,debugfs,tracefs"
"""File systems that hold no files of anyone's."""
KEPT = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISFIFO)
"""Kinds of files that can be shared; a device or a socket is no file of anyone's."""


@dataclass(frozen=True, slots=True)
class Use:
    """A file that a process has open, as its working folder, or mapped into its memory."""

    host: str
    file: tuple[int, int]
    path: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder ``root`` of a file system, mounted at ``point``."""

    device: str
    root: str
    point: str
    kind: str
    writable: bool

    def meets(self, other: Mount) -> bool:
        """Returns whether one is, or holds, the other's folder."""
        ours, theirs = (each.root.rstrip("/") + "/" for each in (self, other))
        return self.device == other.device and (ours.startswith(theirs) or theirs.startswith(ours))


def shared_mounts(mounts: Mapping[str, Sequence[Mount]]) -> set[str]:
    """Returns where hosts have mounted folders of files that another host has mounted too, and one can write. PURE."""
    found = set()
    for one, other in combinations(mounts, 2):
        for ours, theirs in product(mounts[one], mounts[other]):
            if ours.meets(theirs) and ours.writable and theirs.writable and ours.kind not in PSEUDO.split(","):
                found |= {ours.point, theirs.point}
    return found


def shared(uses: Iterable[Use]) -> set[str]:
    """Returns the paths of files that several hosts use and at least one writes. PURE."""
    hosts, writers, paths = defaultdict[tuple[int, int], set[str]](set), set(), dict[tuple[int, int], str]()
    for use in uses:
        hosts[use.file].add(use.host)
        paths[use.file] = use.path
        if use.writes:
            writers.add(use.file)
    return {paths[file] for file in writers if len(hosts[file]) > 1}


@dataclass
class Sharing:
    """All uses that were seen, look by look, and the mounts of hosts with a mount namespace of their own."""

    uses: set[Use] = field(default_factory=set)
    mounts: dict[str, list[Mount]] = field(default_factory=dict)

    def look(self, pids: Mapping[str, Collection[int]]) -> None:
        """Notes what the processes of each host use now; one that ends meanwhile is left out."""
        ours = os.readlink("/proc/self/ns/mnt")
        for host, running in pids.items():
            for pid in running:
                process = Path("/proc") / str(pid)
                with suppress(OSError):
                    self.uses.update(uses_of(host, process))
                    if os.readlink(process / "ns" / "mnt") != ours:
                        self.mounts[host] = mounts_of(process)

    def paths(self) -> list[str]:
        """Returns the paths that were shared."""
        return sorted(shared(self.uses) | shared_mounts(self.mounts))


def uses_of(host: str, process: Path) -> Iterator[Use]:
    """Yields what a process uses: open files, its working folder, and files mapped for several to write."""
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):
            found, path = descriptor.stat(), os.readlink(descriptor)
            if any(kind(found.st_mode) for kind in KEPT) and not path.startswith("pipe:"):
                flags = _flags((process / "fdinfo" / descriptor.name).read_text())
                yield Use(host, (found.st_dev, found.st_ino), path, bool(flags & WRITING))
    place = process / "cwd"
    with suppress(OSError):
        found, path = place.stat(), os.readlink(place)
        yield Use(host, (found.st_dev, found.st_ino), path, mount_at(mounts_of(process), path).writable)
    for line in (process / "maps").read_text().splitlines():
        if mapped := parse_map(line):
            yield Use(host, mapped[0], mapped[1], mapped[2])


def parse_map(line: str) -> tuple[tuple[int, int], str, bool] | None:
    """Returns (device and inode, path, whether others see what is written) of a line of /proc/PID/maps; else None."""
    words = line.split(maxsplit=5)
    if len(words) < 6 or words[4] == "0" or not words[5].startswith("/"):
        return None
    major, minor = (int(part, 16) for part in words[3].split(":"))
    return (os.makedev(major, minor), int(words[4])), words[5], "w" in words[1] and "s" in words[1]


def _flags(text: str) -> int:
    return int(next(line for line in text.splitlines() if line.startswith("flags:")).split()[1], 8)


def mounts_of(process: Path) -> list[Mount]:
    """Returns what a process has mounted, without what another mount at the same place hides."""
    return uppermost([parse_mount(line) for line in (process / "mountinfo").read_text().splitlines()])


def uppermost(mounts: Sequence[Mount]) -> list[Mount]:
    """Returns the last mount at each place. PURE."""
    return list({each.point: each for each in mounts}.values())


def parse_mount(line: str) -> Mount:
    """Returns the mount of a line of /proc/PID/mountinfo."""
    own, _, system = line.partition(" - ")
    words, (kind, _, options) = own.split(), system.split(maxsplit=2)
    writable = "ro" not in words[5].split(",") and "ro" not in options.split(",")
    return Mount(words[2], words[3], words[4], kind, writable)


def mount_at(mounts: Sequence[Mount], path: str) -> Mount:
    """Returns the mount that a path is on: of those that hold it the deepest, and of several there the last."""
    holding = [each for each in mounts if (path + "/").startswith(each.point.rstrip("/") + "/")]
    return max(enumerate(holding), key=lambda each: (len(each[1].point), each[0]))[1]
