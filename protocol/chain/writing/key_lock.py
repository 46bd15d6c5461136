"""One process at a time sends transactions for a key: two would take each other's nonces.

The lock file is where every process of this user looks for it, independent of the state directory.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TextIO

from protocol.errors import Misconfigured
from protocol.files import lock


def lock_key(identity: str) -> TextIO:
    """Locks a key on a chain for this process until the returned file is closed or the process ends.

    Args:
        identity: names the key and the chain in words.

    Raises:
        Misconfigured: another process holds the lock, or the lock file cannot be written.
    """
    path = Path(tempfile.gettempdir()) / f"assize-{os.getuid()}" / f"{sha256(identity.encode()).hexdigest()[:40]}.lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.parent.stat().st_uid != os.getuid():
            raise Misconfigured(f"{path.parent} belongs to another user; remove it, or set TMPDIR")
        return lock(path)
    except BlockingIOError as error:
        raise Misconfigured(
            f"another process already sends transactions of {identity} (it holds {path}); stop it, or use another key"
        ) from error
    except OSError as error:
        raise Misconfigured(f"cannot write the lock file {path}: {error.strerror}") from error
