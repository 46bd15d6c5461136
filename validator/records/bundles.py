"""Bundles named by revealed votes: fetched in the background and verified; their ratios are kept on disk.

Ratios are keyed by round, beacon, juror and root: a reorganised round is another round, and after a restart nothing is
fetched again. An invalid bundle is treated as a missing one: asked for repeatedly, then given up. Ratios of jobs that
this juror has replayed are kept in the same table, under an empty root.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import structlog

from protocol.errors import AssizeError, Misconfigured, Rejected, Unavailable
from protocol.transport.node_pools import NodeFetch, NodePools
from protocol.wire.evidence import parse_signed
from protocol.write_ahead import use_write_ahead_log
from validator.records.record import Bundle, NamedBundle, Ratios, SettledRound, ratios_of
from validator.retrying import RetriedFetch

FETCHES_PER_JUROR = 2
LONGEST_PAUSE_SECONDS = 10.0

WAIT_SECONDS = 30.0
"""Longest that a vote waits for a bundle, from the first attempt. Jurors publish before they are paid."""

GIVE_UP_SECONDS = 600.0
"""Time after which a bundle is given up. One that arrives after a vote counts from the next vote on."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS bundles (
    round TEXT NOT NULL, beacon BLOB NOT NULL, juror INTEGER NOT NULL, root BLOB NOT NULL, jobs TEXT NOT NULL,
    PRIMARY KEY (round, beacon, juror, root)
) STRICT
"""

_REPLAYED = b""
"""Root of replayed ratios; no vote can name it."""

log = structlog.get_logger()

Key = tuple[str, bytes, int, bytes]
"""Round, beacon, juror and root, as in the table. Another juror's bundle does not count for the juror naming it."""


@dataclass(slots=True)
class _BundleFetch(RetriedFetch[Bundle]):
    """One bundle on its way; ``given_up`` ends the attempts."""

    given_up: bool = False


class Bundles:
    """Ratios of bundles. Used from one thread; fetches run in threads of their own.

    Args:
        fetch: returns the unverified envelope of a root in a run; raises ``AssizeError`` if it cannot be fetched.
        directory: holds the database of ratios.
    """

    def __init__(
        self,
        fetch: Callable[[int, bytes], bytes],
        chain_id: int,
        rounds_address: str,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._chain_id, self._rounds, self._clock = fetch, chain_id, rounds_address, clock
        self._pools = NodePools("bundles", FETCHES_PER_JUROR)
        self._fetches: dict[Key, _BundleFetch] = {}
        self._had: dict[Key, Bundle] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "history.sqlite", isolation_level=None)
            use_write_ahead_log(self._db)
            self._db.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"cannot write the evidence of settled rounds to {directory}: {error}") from error

    def look(self, settled: SettledRound, named: NamedBundle) -> Bundle | None:
        """Returns the bundle's ratios, or None while they are not there; starts the fetch if needed."""
        key = _key(settled, named)
        if key not in self._had and key not in self._fetches and (kept := self._kept(key)) is not None:
            self._had[key] = kept
        if key not in self._had:
            self._advance(key, settled, named)
        return self._had.get(key)

    def awaited(self, settled: SettledRound, named: NamedBundle) -> bool:
        """Returns whether a vote should still wait for this bundle."""
        fetch = self._fetches.get(_key(settled, named))
        return fetch is None or self._clock() - fetch.since < WAIT_SECONDS

    def given_up(self, settled: SettledRound, named: NamedBundle) -> bool:
        """Returns whether the bundle was given up."""
        fetch = self._fetches.get(_key(settled, named))
        return fetch is not None and fetch.given_up

    def forget(self, settled: SettledRound) -> None:
        """Drops a round's ratios from memory; they stay on disk."""
        for named in settled.bundles:
            self._had.pop(_key(settled, named), None)

    def replayed(self, settled: SettledRound, juror: int) -> Bundle:
        """Returns the ratios of the jobs that ``juror`` has replayed in a settled round."""
        return self._kept((str(settled.round), settled.beacon, juror, _REPLAYED)) or {}

    def keep_replayed(self, settled: SettledRound, juror: int, derived: Bundle) -> None:
        """Adds replayed jobs to those of ``replayed``."""
        key = (str(settled.round), settled.beacon, juror, _REPLAYED)
        self._keep(key, {**self.replayed(settled, juror), **derived})

    def close(self) -> None:
        """Ends the fetches and closes the database."""
        for fetch in self._fetches.values():
            fetch.attempt.cancel()
        self._pools.close()
        self._db.close()

    def _advance(self, key: Key, settled: SettledRound, named: NamedBundle) -> None:
        fetch, now = self._fetches.get(key), self._clock()
        if fetch is None:
            self._fetches[key] = _BundleFetch(self._start(settled, named), now)
        elif fetch.given_up or not fetch.future.done():
            return
        elif (error := fetch.future.exception()) is None:
            self._had[key] = fetch.future.result()
            self._keep(key, self._had[key])
            del self._fetches[key]
            self._pools.keep({juror for _, _, juror, _ in self._fetches})
        elif now - fetch.since > GIVE_UP_SECONDS:
            fetch.given_up = True
            log.warning("evidence_lost", round=settled.round, juror=named.juror, error=str(error))
        else:
            fetch.retry(now, LONGEST_PAUSE_SECONDS, lambda: self._start(settled, named))

    def _start(self, settled: SettledRound, named: NamedBundle) -> NodeFetch[Bundle]:
        """Every juror's bundles have threads of their own: none delays another's."""
        return self._pools.submit(named.juror, functools.partial(self._learn, settled, named))

    def _learn(self, settled: SettledRound, named: NamedBundle) -> Bundle:
        """Fetches one bundle; raises ``Rejected`` if it is not the named one, or of another round."""
        try:
            signed = parse_signed(self._fetch(settled.run, named.root), named.root)
            signed.verify(named.key)
        except AssizeError:
            raise
        except Exception as error:  # untrusted bytes may break a parser, but must not end the daemon
            raise Unavailable(f"the bundle cannot be read: {error!r}") from error
        of = signed.evidence
        stated = (of.chain_id, of.rounds.lower(), of.run, of.round, of.attempt, of.juror, of.rules_hash)
        place = (self._chain_id, self._rounds.lower(), settled.run, settled.round, settled.attempt)
        if stated != (*place, named.juror, settled.rules_hash):
            raise Rejected(f"the bundle names round {of.round}, attempt {of.attempt}, juror {of.juror}")
        return {
            job.job: ratios_of(job.measurements)
            for job in of.jobs
            if job.measurements is not None and settled.nodes.get(job.job) == job.node
        }

    def _kept(self, key: Key) -> Bundle | None:
        query = "SELECT jobs FROM bundles WHERE round = ? AND beacon = ? AND juror = ? AND root = ?"
        try:
            row = self._db.execute(query, key).fetchone()
        except sqlite3.Error as error:  # the bundle is fetched again instead
            log.warning("history_not_read", error=str(error))
            return None
        return None if row is None else {int(job): Ratios(*ratios) for job, ratios in json.loads(row[0]).items()}

    def _keep(self, key: Key, bundle: Bundle) -> None:
        jobs = json.dumps({job: astuple(ratios) for job, ratios in bundle.items()})
        try:
            self._db.execute("INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?)", (*key, jobs))
        except sqlite3.Error as error:  # the ratios stay in memory, and are fetched again after a restart
            log.warning("history_not_kept", error=str(error))


def _key(settled: SettledRound, named: NamedBundle) -> Key:
    return str(settled.round), settled.beacon, named.juror, named.root
