"""The report of a run as one file: the run's page with its style sheet and charts, which loads nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ledger.explorer.links import Links
from ledger.explorer.rendering import render_file
from ledger.explorer.views import run_view, time_of
from ledger.queries import lookup
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected
from protocol.transport.http import is_http

if TYPE_CHECKING:
    from ledger.api.published import PublishedVersions

READ_SECONDS = 60.0
"""Longest time for reading the rewards of versions."""
ROUNDS = 1000
"""Newest rounds whose providers and refusals are summed up."""


def write_report(
    path: Path,
    connection: Connection,
    chain: Chain,
    run: int,
    published: PublishedVersions | None,
    accuracy: Mapping[int, float],
    ledger: str | None,
) -> None:
    """Writes the page of a run to a new file.

    Args:
        path: the file.
        connection: to the database, as of the block that the report is of.
        chain: names chain and market.
        run: id of the run.
        published: reads the rewards of its versions, if relays were named.
        accuracy: held-out accuracy by version, if the trainer told it.
        ledger: URL of the ledger that links lead to.

    Raises:
        Misconfigured: the file exists or cannot be written, or the URL is invalid.
        Rejected: there is no such run.
    """
    if ledger is not None and not is_http(ledger):
        raise Misconfigured(f"invalid ledger URL {ledger!r}: expected http(s)://host")
    try:
        path.open("xb").close()  # refused before anything is read
        path.unlink()
        if published is not None:
            published.read(run, READ_SECONDS)
        page = report(connection, chain, run, published, accuracy, ledger)
        with path.open("xb") as file:
            file.write(page)
    except FileExistsError:
        raise Misconfigured(f"{path} exists: give another file") from None
    except OSError as error:
        raise Misconfigured(f"cannot write {path}: {error.strerror}") from error


def report(
    connection: Connection,
    chain: Chain,
    run: int,
    published: PublishedVersions | None,
    accuracy: Mapping[int, float],
    ledger: str | None,
) -> bytes:
    """Returns the page of a run as one file; the arguments are those of ``write_report``."""
    at = lookup.at(connection)
    then = time_of(connection, at.block_number)
    view = run_view(connection, run, max(then, int(time.time())), published, ROUNDS)
    if view is None:
        raise Rejected(f"there is no run {run}")
    return render_file(
        "report.html",
        view=replace(view, accuracy=accuracy),
        to=Links(base=None if ledger is None else ledger.rstrip("/")),
        at=at,
        now=then,
        chain_id=chain.chain_id,
        market=chain.deployment.market,
    )
