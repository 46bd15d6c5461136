"""Uploads of artifacts: to the object store that a coordinator offers, else to the coordinator itself.

The coordinator chooses the object store's address, so that is a stranger's: a public one, or one that this node's
operator named. Whatever fails on that way, the coordinator itself is tried, whose answer then counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import structlog
from eth_hash.auto import keccak

from protocol.deadlines import within
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.transport.blobs import GRACE_SECONDS, BlobStores
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.http import is_http, reaching
from protocol.wire.api import UploadRequest, UploadTicket

log = structlog.get_logger()

DIRECT_SECONDS = 60.0
"""Time for which files are sent to the coordinator itself after another way failed, or was not offered."""

EXAMINED_SECONDS = 45.0
"""Longest wait for an uploaded file's examination."""

WAIT_SECONDS = 10
"""Longest wait of one request for that."""


class Uploader:
    """Uploads one node's artifacts to one coordinator. Used by one thread."""

    def __init__(self, client: CoordinatorClient, allowed: Collection[str] = ()) -> None:
        """``allowed`` are URLs on hosts to which files may be sent besides public ones and the coordinator's.

        Raises ``Misconfigured`` for one that is no URL.
        """
        if invalid := [url for url in allowed if not is_http(url)]:
            raise Misconfigured(f"invalid URL of an object store {invalid[0]!r}: expected http(s)://host")
        self.client = client
        self._hosts = BlobStores(trusted=lambda: (client.base_url, *allowed))
        self._direct_until, self._told = 0.0, ""

    def close(self) -> None:
        """Closes the connections to object stores."""
        self._hosts.close()

    def upload(self, round_id: int, job: int, node: int, file: bytes) -> bytes:
        """Uploads the Parquet bytes of a job; once this returns they are durable. Returns the root they were given.

        Raises:
            Rejected, Unavailable: as ``CoordinatorClient.upload``.
        """
        if time.monotonic() >= self._direct_until:
            try:
                return self._through_objects(round_id, job, node, file)
            except (Rejected, Unavailable) as error:
                self._direct_until = time.monotonic() + DIRECT_SECONDS
                if str(error) != self._told:
                    self._told = str(error)
                    log.info("uploading_directly", coordinator=self.client.base_url, why=self._told)
        return self.client.upload(round_id, job, file)

    def _through_objects(self, round_id: int, job: int, node: int, file: bytes) -> bytes:
        asked = UploadRequest(node=node, size=len(file), file_hash=keccak(file))
        ticket, give_up = self.client.ask_upload(round_id, job, asked), time.monotonic() + EXAMINED_SECONDS
        if ticket.state == "open":
            self._send(ticket, file)
            ticket = self.client.uploaded(ticket.name, WAIT_SECONDS)
        while ticket.state == "checking" and time.monotonic() < give_up:
            ticket = self.client.uploaded(ticket.name, WAIT_SECONDS)
        if ticket.state == "stored" and ticket.root is not None:
            return ticket.root
        if ticket.state == "refused":
            raise Rejected(ticket.why)
        raise Unavailable(f"the file was uploaded, but not taken: its upload is {ticket.state}")

    def _send(self, ticket: UploadTicket, file: bytes) -> None:
        client, place = self._hosts.client_for(ticket.url), ticket.url.partition("?")[0][:160]
        with (
            within(GRACE_SECONDS, len(file)),
            reaching(place),
            client.stream(ticket.method, ticket.url, content=file, headers=ticket.headers) as response,
        ):
            if not response.is_success:
                problem = f"{place} answered {response.status_code}"
                raise Unavailable(problem) if response.status_code >= 500 else Rejected(problem)
