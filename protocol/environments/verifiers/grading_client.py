"""A pool of grading servers: started when first asked, replaced when one fails, ended with this process."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from protocol.environments.verifiers.grade import Grade, wrong
from protocol.environments.verifiers.grading_server import LIMIT_S
from protocol.environments.verifiers.sandbox import PYTHON, end, sandboxed
from protocol.errors import Misconfigured, Unavailable

GRACE_S = 0.4
START_S = 120
_PACKAGE = Path(__file__).parents[3]
_OURS = ("protocol/__init__.py", "protocol/errors.py", "protocol/environments/__init__.py")
_SHOWN = Path("/grading")


class GradingServers:
    """Grades by the judge of ``module``, in ``size`` processes; in a sandbox where ``confined`` says so."""

    def __init__(self, module: str, confined: Callable[[], bool], size: int = 2) -> None:
        self._module = module
        self._confined = confined
        self._size = size
        self._of_parent: list[object] = []
        self._begin()
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forget)

    def end(self) -> None:
        """Ends the servers that are idle; the next request starts one anew."""
        for _ in range(self._idle.qsize()):
            if server := self._idle.get():
                server.end()
        for _ in range(self._size):
            self._idle.put(None)

    def _begin(self) -> None:
        # A server ends with the thread that started it, so one that lasts as long as the process starts them all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="grading-servers")
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(self._size):
            self._idle.put(None)

    def _forget(self) -> None:
        """Leaves the servers to the process that this one is a copy of."""
        self._of_parent += [self._starter, self._idle]
        self._begin()

    def ask(self, expected: Any, given: str) -> Grade:
        """Has a server compare ``given`` with ``expected``; waits for a free one.

        Raises:
            Unavailable: a server cannot be started, or ends twice without an answer.
        """
        server = self._idle.get()
        try:
            for _ in range(2):
                server = server or self._starter.submit(_Process, self._module, self._confined()).result()
                try:
                    return server.ask({"expected": expected, "given": given})
                except TimeoutError:
                    server.end()
                    server = None
                    return wrong("the answer takes too long to judge")
                except (OSError, ValueError):
                    server.end()
                    server = None
            raise Unavailable("cannot grade: the grading server ends without an answer")
        finally:
            self._idle.put(server)


class _Process:
    """One running server."""

    def __init__(self, module: str, confined: bool) -> None:
        before = sandboxed(_shown()) if confined else []
        paths = [str(_SHOWN), *(str(_SHOWN / str(at)) for at in range(len(_site())))] if confined else _plain_paths()
        start = (
            f"import sys; sys.path += {paths!r}; "
            f"from protocol.environments.verifiers.grading_server import main; main({module!r})"
        )
        try:
            self._process = subprocess.Popen(
                [*before, *PYTHON, "-c", start],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise Unavailable(f"cannot start a grading server: {error.strerror}") from error
        self._left = b""
        try:
            self._line(time.monotonic() + START_S)
        except (OSError, TimeoutError) as error:
            self.end()
            raise Unavailable("cannot start a grading server: it does not answer") from error

    def ask(self, request: dict[str, Any]) -> Grade:
        """Sends a request, and waits for its answer as long as one may take."""
        assert self._process.stdin is not None
        until = time.monotonic() + LIMIT_S + GRACE_S
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._line(until))
        return Grade(min(max(float(answer["reward"]), 0.0), 1.0), str(answer["why"])[:200])

    def end(self) -> None:
        """Ends the server, whatever it does."""
        end(self._process)

    def _line(self, until: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._left:
            if not poll.poll(max(0, until - time.monotonic()) * 1000):
                raise TimeoutError
            part = os.read(descriptor, 2**16)
            if not part:
                raise OSError("the grading server has ended")
            self._left += part
        line, _, self._left = self._left.partition(b"\n")
        return line


def check_installed(*modules: str) -> None:
    """Checks that packages are there, without importing them.

    Raises:
        Misconfigured: one is missing.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Misconfigured(f"no {module.replace('_', '-')}: pip install {module.replace('_', '-')}")


def _site() -> list[Path]:
    """Returns the folders where packages are installed."""
    return [Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def _plain_paths() -> list[str]:
    return [str(_PACKAGE), *map(str, _site())]


def _shown() -> list[tuple[Path, Path]]:
    """Returns what a server may read: its own modules, and installed packages."""
    own = [(_PACKAGE / name, _SHOWN / name) for name in _OURS]
    verifiers = Path(__file__).parent
    return [
        *own,
        (verifiers, _SHOWN / verifiers.relative_to(_PACKAGE)),
        *((site, _SHOWN / str(at)) for at, site in enumerate(_site())),
    ]
