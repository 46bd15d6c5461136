"""URLs of other parties lead to public addresses on allowed ports, or nowhere."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import httpcore
import pytest

from protocol.errors import Rejected, Unavailable
from protocol.transport.addresses import PublicBackend, admit, is_public
from protocol.transport.artifacts import NoHolder, fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.wire.artifact_blob import head_of
from protocol.wire.receipts import PUBLIC_PORTS, ports_of

HEAD = head_of(bytes(32), b"file")
BLOB = HEAD.packed + b"file"
NEAR = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
    *("::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1"),
    *("64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::1", "2001::1"),
]
FAR = ["1.1.1.1", "93.184.216.34", "::ffff:1.1.1.1", "2606:4700:4700::1111", "64:ff9b::1.1.1.1"]


class Store:
    """A store on this machine: the blob, or a redirect to it, for whoever asks; counts who connects."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.heard = int(self._listener.getsockname()[1]), 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.heard += 1
                with connection, suppress(OSError):
                    asked = connection.recv(65536).decode()
                    if "/moved/" in asked:
                        line, body = f"302 Found\r\nLocation: http://127.0.0.1:{self.port}/0x{HEAD.root.hex()}", b""
                    else:
                        line, body = "200 OK", BLOB
                    # Each connection takes one request, and says so, lest the client send its next one on it.
                    ends = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    connection.sendall(f"HTTP/1.1 {line}\r\n{ends}".encode() + body)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store()) as made:
        yield made


@pytest.mark.parametrize("address", NEAR)
def test_addresses_that_are_near_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address.partition('%')[0]}]" if ":" in address else address
    with pytest.raises(Rejected, match="expected a public address"):
        admit(f"http://{host}/", PUBLIC_PORTS)


@pytest.mark.parametrize("address", FAR)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    admit(f"https://{f'[{address}]' if ':' in address else address}/", PUBLIC_PORTS)


@pytest.mark.parametrize(
    "url", ["http://store.example:8080/", "http://store.example:443443/", "http://a:b@store.example/"]
)
def test_other_ports_and_names_of_users_are_refused(url: str) -> None:
    with pytest.raises(Rejected):
        admit(url, PUBLIC_PORTS)


def test_a_runs_rules_allow_the_ports_of_its_stores() -> None:
    admit("https://elsewhere.example:8443/", ports_of(["https://store.example:8443/artifacts/"]))
    with pytest.raises(Rejected, match="80, 443, 8443"):
        admit("https://elsewhere.example:22/", ports_of(["https://store.example:8443/artifacts/"]))
    assert ports_of(["https://store.example/", "http://store.example:99999/"]) == PUBLIC_PORTS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
def test_however_a_url_names_this_machine_nothing_on_it_is_asked(store: Store, host: str) -> None:
    with closing(BlobStores(timeout_seconds=2.0)) as stores, pytest.raises((NoHolder, Unavailable)):
        fetch_artifact(stores, [f"http://{host}:{store.port}/"], HEAD.root, 1000, {store.port})
    assert store.heard == 0


def test_what_this_node_is_configured_to_use_may_be_named_and_may_not_redirect(store: Store) -> None:
    url = f"http://127.0.0.1:{store.port}"
    with closing(BlobStores(timeout_seconds=2.0, trusted=lambda: [f"{url}/base"])) as stores:
        assert fetch_artifact(stores, [f"{url}/artifacts/"], HEAD.root, 1000) == BLOB
        with pytest.raises(Unavailable, match="answered 302"):
            fetch_artifact(stores, [f"{url}/moved/"], HEAD.root, 1000)
    assert store.heard == 2


class _Recorded(httpcore.NetworkBackend):
    """Connects to nothing; notes to what."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def connect_tcp(self, host: str, port: int, *_: object, **__: object) -> httpcore.NetworkStream:
        self.asked.append(host)
        raise httpcore.ConnectError("not here")


def test_a_name_is_resolved_once_and_only_its_public_addresses_are_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["127.0.0.1", "93.184.216.34", "10.0.0.1", "2606:4700::1"], ["127.0.0.1"]]
    resolved: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        resolved.append(host)
        return [(2, 1, 6, "", (address, port)) for address in answers[len(resolved) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    recorded = _Recorded()
    for connected in (["93.184.216.34", "2606:4700::1"], []):
        recorded.asked.clear()
        with pytest.raises(httpcore.ConnectError):
            PublicBackend(recorded).connect_tcp("rebinding.example", 80)
        assert recorded.asked == connected, "an address, never the name: nobody resolves it a second time"
    assert len(resolved) == 2


def test_a_name_that_leads_here_is_not_followed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", store.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
    with closing(BlobStores(timeout_seconds=2.0)) as stores, pytest.raises(Unavailable):
        stores.fetch("http://harmless.example/", HEAD.root, 1000)
    assert store.heard == 0
