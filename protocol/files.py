"""Files shared by processes: locks, files that appear complete or not at all, and parts of open ones.

A lock ends with its process, however the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import TextIO

POLL_SECONDS = 0.05


def lock(path: Path, seconds: float = 0.0) -> TextIO:
    """Locks a file for this process and returns it; closing the file releases the lock.

    Args:
        path: the file; created with mode 0600 if missing, never followed as a symbolic link.
        seconds: longest wait for another holder to release it.

    Raises:
        BlockingIOError: another holder still has the lock.
        OSError: the file cannot be created.
    """
    file = open(path, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))  # noqa: SIM115
    deadline = time.monotonic() + seconds
    try:
        while not _locked(file, last=time.monotonic() >= deadline):
            time.sleep(POLL_SECONDS)
    except OSError:
        file.close()
        raise
    return file


def _locked(file: TextIO, last: bool) -> bool:
    """Tries to lock ``file``; raises ``BlockingIOError`` if another holds it at the ``last`` try."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if last:
            raise
        return False
    return True


def read_at(descriptor: int, memory: memoryview, offset: int) -> int:
    """Fills ``memory`` from an open file at ``offset``; returns the bytes read, fewer where the file ends before."""
    filled = 0
    while filled < len(memory) and (read := os.preadv(descriptor, [memory[filled:]], offset + filled)):
        filled += read
    return filled


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes a file under a temporary name, flushes it to disk, and renames it to ``path``; its folder must exist.

    Args:
        path: the file, replaced if it exists.
        data: all that it holds then.
        mode: permissions of the file; None takes those that the process gives to new ones.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    incoming = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with incoming.open("wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(incoming, path)
    except OSError:
        with contextlib.suppress(OSError):
            incoming.unlink()
        raise


def tail(path: Path, most: int) -> str:
    """Returns the whole lines within the last ``most`` bytes of a file, and all of one that is no longer."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        data = file.read(most)
    return (data if size <= most else data.partition(b"\n")[2]).decode(errors="replace")


def linked(path: Path, other: Path) -> None:
    """Gives the content of ``path`` another name too: by a hard link, or a copy where that is on another disk."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)
