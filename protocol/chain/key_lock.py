"""One process at a time sends for a key: two would take each other's nonces."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from protocol.errors import Misconfigured


def hold_key(journal_path: Path, address: str) -> int:
    """Locks the key for this process; the lock goes with the process, however it ends.

    Raises:
        Misconfigured: another process holds it.
    """
    path = journal_path.parent / f"{address.lower()}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misconfigured(f"cannot write the lock {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise Misconfigured(
            f"another process already sends transactions of {address} (it holds {path}); stop it, or use another key"
        ) from error
    return handle
