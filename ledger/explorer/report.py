"""The report of a run as one file: the run's page with its style sheet and charts, which loads nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ledger.explorer.contents import Contents
from ledger.explorer.links import Links
from ledger.explorer.rendering import render_file
from ledger.explorer.samples import Samples
from ledger.explorer.views import run_view, time_of
from ledger.queries import lookup
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected, accessing
from protocol.transport.http import is_http

if TYPE_CHECKING:
    from ledger.api.blobs import BlobSource
    from ledger.api.published import PublishedVersions

READ_SECONDS = 60.0
"""Longest time for reading the rewards of versions, and for each sample."""
ROUNDS = 1000
"""Newest rounds whose providers and refusals are summed up."""


@dataclass(frozen=True, slots=True)
class ReportSources:
    """Places from which a report has what is not on the chain.

    Args:
        blobs: has artifacts and rules, if coordinators were named.
        published: has the rewards of versions, if relays were named.
        accuracy: held-out accuracy by version, if the trainer told it.
        ledger: URL of the ledger that links lead to; without it they are but text.
    """

    blobs: BlobSource
    published: PublishedVersions | None
    accuracy: Mapping[int, float]
    ledger: str | None


def write_run_report(path: Path, connection: Connection, chain: Chain, run: int, sources: ReportSources) -> None:
    """Writes the page of a run to a new file, as of the block of the database.

    Raises:
        Misconfigured: the file exists or cannot be written, or the ledger's URL is invalid.
        Rejected: there is no such run.
    """
    if sources.ledger is not None and not is_http(sources.ledger):
        raise Misconfigured(f"invalid ledger URL {sources.ledger!r}: expected http(s)://host")
    with accessing(f"write {path}"):
        try:
            path.open("xb").close()  # refused before anything is read
        except FileExistsError:
            raise Misconfigured(f"{path} exists: give another file") from None
        path.unlink()
        page = run_report(connection, chain, run, sources)
        with path.open("xb") as file:
            file.write(page)


def run_report(connection: Connection, chain: Chain, run: int, sources: ReportSources) -> bytes:
    """Returns the page of a run as one file; raises ``Rejected`` if there is no such run."""
    if sources.published is not None:
        sources.published.read(run, READ_SECONDS)
    at = lookup.at(connection)
    then = time_of(connection, at.block_number)
    view = run_view(connection, run, max(then, int(time.time())), sources.published, ROUNDS)
    if view is None:
        raise Rejected(f"there is no run {run}")
    contents = Contents(sources.blobs, chain.deployment)
    return render_file(
        "report.html",
        view=replace(view, accuracy=sources.accuracy),
        contents=Samples(contents, READ_SECONDS).of(view.samples),
        to=Links(base=None if sources.ledger is None else sources.ledger.rstrip("/")),
        at=at,
        now=then,
        chain_id=chain.chain_id,
        market=chain.deployment.market,
    )
