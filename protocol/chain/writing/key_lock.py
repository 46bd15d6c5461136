"""One process at a time sends for a key: two would take each other's nonces.

The lock lies where every process of this user finds it, whatever state directory each was given.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from hashlib import sha256
from pathlib import Path

from protocol.errors import Misconfigured


def hold_key(identity: str) -> int:
    """Locks a key on a chain for this process; the lock goes with the process, however it ends.

    ``identity`` is a sentence that names both.

    Raises:
        Misconfigured: another process holds it.
    """
    path = Path(tempfile.gettempdir()) / f"assize-{os.getuid()}" / f"{sha256(identity.encode()).hexdigest()[:40]}.lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.parent.stat().st_uid != os.getuid():
            raise Misconfigured(f"{path.parent} belongs to another user; remove it, or set TMPDIR")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Misconfigured(f"cannot write the lock {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise Misconfigured(
            f"another process already sends transactions of {identity} (it holds {path}); stop it, or use another key"
        ) from error
    return handle
