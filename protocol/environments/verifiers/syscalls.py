"""A filter of system calls for programs that nobody has read, as the kernel's seccomp takes it.

Processes cannot be started, only threads; sockets, other processes, mounts, keys, tracing and shared memory segments,
which no limit of a process counts, are refused. What a refused call returns is an ordinary error.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_NEW = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 440, 442, 447)
"""Numbers that both have: pidfd_*, io_uring_*, open_tree to fspick, process_madvise, mount_setattr, memfd_secret."""
_REFUSED = {
    # fork, vfork, ptrace, process_vm_*, kcmp; socket; shmget, semget, msgget; unshare, setns; mount, umount2,
    # pivot_root, chroot; bpf, perf_event_open, userfaultfd, seccomp; keys; open_by_handle_at; modules, kexec, reboot,
    # swapon, acct, syslog, quotactl, iopl, ioperm, modify_ldt
    "x86_64": (
        *(57, 58, 101, 310, 311, 312, 41, 29, 64, 68, 272, 308, 165, 166, 155, 161, 321, 298, 323, 317),
        *(248, 249, 250, 304, 175, 176, 313, 246, 320, 169, 167, 163, 103, 179, 172, 173, 154),
    ),
    "aarch64": (
        *(117, 270, 271, 272, 198, 194, 190, 186, 97, 268, 40, 39, 41, 51, 280, 241, 282, 277),
        *(217, 218, 219, 265, 105, 106, 273, 104, 294, 142, 224, 89, 116, 60),
    ),
}


def threads_only(machine: str = platform.machine()) -> bytes | None:
    """Assembles the filter for an architecture; None for one whose numbers are not known here."""
    if machine not in _AUDIT:
        return None
    refused = (*_REFUSED[machine], *_NEW)
    denied = 9 + len(refused)
    unknown, allowed = denied + 1, denied + 2
    steps: list[bytes] = []

    def step(code: int, value: int, then: int | None = None, otherwise: int | None = None) -> None:
        """Appends a step; jumps go to the places named, else to the next step."""
        after = len(steps) + 1
        jumps = [0 if place is None else place - after for place in (then, otherwise)]
        steps.append(struct.pack("=HBBI", code, *jumps, value))

    step(_LOAD, _ARCHITECTURE)
    step(_EQUAL, _AUDIT[machine], then=3)
    step(_RETURN, _KILL)
    step(_LOAD, _NUMBER)
    step(_AT_LEAST, _X32, then=denied)
    for number in refused:
        step(_EQUAL, number, then=denied)
    step(_EQUAL, _CLONE3, then=unknown)
    step(_EQUAL, _CLONE[machine], otherwise=allowed)
    step(_LOAD, _FIRST_ARGUMENT)
    step(_ANY_BIT, _CLONE_THREAD, then=allowed)
    step(_RETURN, _ERROR | errno.EPERM)
    step(_RETURN, _ERROR | errno.ENOSYS)
    step(_RETURN, _ALLOW)
    return b"".join(steps)
