"""Logs and metrics: structlog on stderr, as JSON unless it is a terminal; Prometheus on its own port.

Metrics are declared beside their use; this module serves them, with those of any process: its version and its disk.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from prometheus_client import Gauge, Info, start_http_server

from protocol.errors import Misconfigured

DISK_FREE = Gauge("assize_disk_free_bytes", "Free bytes on the disk of the state folder")
BUILD = Info("assize_build", "Version of the software")

METRICS_HOST = "127.0.0.1"
"""Address at which metrics are served by default: they are not for strangers."""

LineOf = Callable[[Mapping[str, Any]], str]
"""Returns an event as one line for people."""


def configure(
    daemon: str = "", level: str = "info", as_json: bool | None = None, lines: Mapping[str, LineOf] | None = None
) -> None:
    """Configures logging; called once at start.

    Args:
        daemon: name bound to every line.
        level: lowest level that is logged: debug, info, warning or error.
        as_json: one JSON object per line; None decides by whether stderr is a terminal.
        lines: events that a terminal shows as a line of their own making.

    Raises:
        Misconfigured: the level is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise Misconfigured(f"invalid log level {level!r}: expected debug, info, warning or error")
    plain = not sys.stderr.isatty() if as_json is None else as_json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(plain, lines or {}),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Unfailing())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    if daemon:
        structlog.contextvars.bind_contextvars(daemon=daemon)


class _Unfailing(io.TextIOBase):
    """Standard error that drops lines it cannot write, for example to a file on a full disk."""

    def write(self, text: str) -> int:
        """Writes the text, unless writing fails."""
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes, unless that fails."""
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _renderers(as_json: bool, lines: Mapping[str, LineOf]) -> list[structlog.typing.Processor]:
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_shown)]
    usual = structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)

    def render(logger: Any, method: str, event: structlog.typing.EventDict) -> Any:
        line_of = lines.get(str(event.get("event")))
        return usual(logger, method, event) if line_of is None else line_of(event)

    return [render]


def _shown(value: object) -> str:
    """Returns bytes as hex, other values as text."""
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def serve_metrics(
    port: int, host: str = METRICS_HOST, state_dir: Path | None = None, setting: str = "metrics_port"
) -> None:
    """Serves Prometheus metrics in a thread; port 0 disables them.

    Args:
        port: port to listen on.
        host: address to listen on.
        state_dir: folder whose disk is watched, if any.
        setting: name of the setting that gives the port, for the error.

    Raises:
        Misconfigured: the port is not available.
    """
    if not port:
        return
    BUILD.info({"version": version("assize")})
    if state_dir is not None:
        DISK_FREE.set_function(lambda: _free_bytes(state_dir))
    try:
        start_http_server(port, addr=host)
    except OSError as error:
        raise Misconfigured(f"cannot serve metrics on port {port} ({error.strerror}); set another {setting}") from error


def _free_bytes(folder: Path) -> float:
    """Returns the free bytes where a folder is, or will be made; NaN where that cannot be read."""
    try:
        place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        return float(shutil.disk_usage(place).free)
    except OSError:
        return float("nan")
