"""Logs and metrics: structlog on stderr, JSON unless a person is watching; Prometheus on a port of its own.

Metrics are declared beside their use; this module only serves them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import TextIO, cast

import structlog
from prometheus_client import start_http_server

from protocol.errors import Misconfigured


def configure(daemon: str = "", level: str = "info", as_json: bool | None = None) -> None:
    """Sets logging up, once, at start.

    Args:
        daemon: bound to every line.
        level: least level logged: debug, info, warning, error.
        as_json: one JSON object a line; None: unless stderr is a terminal.

    Raises:
        Misconfigured: there is no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise Misconfigured(f"there is no log level {level!r}; choose debug, info, warning or error")
    plain = not sys.stderr.isatty() if as_json is None else as_json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(plain),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Unfailing())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    if daemon:
        structlog.contextvars.bind_contextvars(daemon=daemon)


class _Unfailing(io.TextIOBase):
    """Standard error, which may be a file on a full disk: a line that cannot be written is lost, and stops nobody."""

    def write(self, text: str) -> int:
        """Writes what can be written."""
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Likewise."""
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _renderers(as_json: bool) -> list[structlog.typing.Processor]:
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_shown)]
    return [structlog.dev.ConsoleRenderer()]


def _shown(value: object) -> str:
    """Bytes as hex, everything else as it prints."""
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def serve_metrics(port: int, host: str = "127.0.0.1") -> None:
    """Serves Prometheus metrics in a thread; port 0 serves none.

    Raises:
        Misconfigured: the port is taken.
    """
    if not port:
        return
    try:
        start_http_server(port, addr=host)
    except OSError as error:
        raise Misconfigured(f"port {port} for metrics is taken ({error.strerror}); set another metrics_port") from error
