"""The coordinators of several runs behind one client."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from protocol.errors import AssizeError, Misconfigured, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api
from protocol.wire.auth import Signer
from protocol.wire.evidence import parse_signed


class RunCoordinators:
    """The coordinators of the runs that a node serves. Threads may share it.

    A coordinator given in ``urls`` takes precedence over the one that its run names on chain. Requests are signed as by
    ``CoordinatorClient``, each for the run it is about.
    """

    def __init__(
        self, urls: Iterable[str], signer: Signer | None = None, chain_id: int = 0, rounds_address: str = ""
    ) -> None:
        self._signer, self._chain_id, self._rounds_address = signer, chain_id, rounds_address
        self._given = [self._client(url) for url in urls]
        self._runs_of: dict[CoordinatorClient, tuple[int, ...]] = {}
        self._of_run: dict[tuple[str, int], CoordinatorClient] = {}
        self._named: dict[int, CoordinatorClient] = {}
        self._lock = threading.Lock()

    def keep(self, named: Mapping[int, str]) -> None:
        """Sets the runs served, and the URL that each names on chain; one that is no URL is left out."""
        with self._lock:
            for run in [run for run, client in self._named.items() if not client.is_at(named.get(run, ""))]:
                self._named.pop(run).close()
            for run, url in named.items():
                if run in self._named:
                    continue
                try:
                    self._named[run] = self._client(url, run)
                except Misconfigured:
                    continue

    def urls(self) -> list[str]:
        """Returns the coordinators' URLs."""
        return [client.base_url for client in self._all()]

    def storing(self, artifacts_uri: str) -> CoordinatorClient | None:
        """Returns the client of the coordinator that keeps artifacts at this URI, if it is one of them."""
        return next((client for client in self._all() if client.artifacts_uri == artifacts_uri), None)

    def of(self, run: int) -> CoordinatorClient:
        """Returns the client of the run's coordinator.

        Raises:
            Unavailable: none is known, or those given do not answer.
        """
        silent: Unavailable | None = None
        for client in self._given:
            try:
                if run in self._drives(client):
                    return self._signing(client.base_url, run)
            except Unavailable as error:
                silent = error
        with self._lock:
            if run in self._named:
                return self._named[run]
        raise silent or Unavailable(f"no coordinator of run {run} is known: the run names none on chain")

    def put_evidence(self, root: bytes, evidence: bytes) -> None:
        """Publishes an evidence bundle at the coordinator of its run."""
        self.of(parse_signed(evidence, root).evidence.run).put_evidence(root, evidence)

    def heartbeat(self, heartbeat: api.Heartbeat) -> list[api.HeartbeatReply]:
        """Reports to every coordinator that a node is up; raises the last error once all were told."""
        replies: list[api.HeartbeatReply] = []
        failed: AssizeError | None = None
        for client in self._all():
            try:
                replies.append(client.heartbeat(heartbeat))
            except AssizeError as error:
                failed = error
        if failed is not None:
            raise failed
        return replies

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            for client in (*self._given, *self._named.values(), *self._of_run.values()):
                client.close()

    def _all(self) -> list[CoordinatorClient]:
        """Those given, and those named for other runs."""
        driven = {run for runs in self._runs_of.values() for run in runs}
        with self._lock:
            return self._given + [client for run, client in self._named.items() if run not in driven]

    def _drives(self, client: CoordinatorClient) -> tuple[int, ...]:
        if client not in self._runs_of:
            self._runs_of[client] = client.health().driven
        return self._runs_of[client]

    def _signing(self, url: str, run: int) -> CoordinatorClient:
        """Returns the client that signs requests to a coordinator for one of its runs."""
        with self._lock:
            if (url, run) not in self._of_run:
                self._of_run[url, run] = self._client(url, run)
            return self._of_run[url, run]

    def _client(self, url: str, run: int | None = None) -> CoordinatorClient:
        return CoordinatorClient(url, self._signer, self._chain_id, self._rounds_address, run)
