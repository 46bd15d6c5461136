"""HTTPS servers whose certificate is signed by an authority that the machine does not know, unless it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from protocol.broadcast.ranges import RangeBuffer
from protocol.broadcast.sources import Sources
from protocol.certificates import certificate_authorities
from protocol.errors import Misconfigured, Unavailable

CHUNK = bytes(range(256)) * 4096


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *told: object) -> None:
        pass


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a server, and the file of the authority that signed its certificate."""
    authority = trustme.CA()
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "chunk").write_bytes(CHUNK)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(tmp_path / "served")))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    certificate_authorities.cache_clear()
    yield f"https://127.0.0.1:{server.server_address[1]}", tmp_path / "authority.pem"
    certificate_authorities.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


def test_small_answers_and_chunks_come_once_the_authority_is_named(
    secure: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, authority = secure
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    chunk = RangeBuffer(memoryview(bytearray(len(CHUNK))))
    with closing(Sources([url])) as sources:
        answered = sources.get(url, "/chunk", len(CHUNK))
        sources.download(url, "/chunk", chunk)
    assert answered is not None
    assert answered[0] == bytes(chunk.received) == CHUNK


def test_a_server_of_an_unknown_authority_is_not_read(secure: tuple[str, Path]) -> None:
    url, _ = secure
    with closing(Sources([url])) as sources:
        with pytest.raises(Unavailable, match=f"{url} does not answer: .*"):
            sources.get(url, "/chunk", len(CHUNK))
        with pytest.raises(Unavailable, match=f"{url} does not answer: .*"):
            sources.download(url, "/chunk", RangeBuffer(memoryview(bytearray(len(CHUNK)))))


@pytest.mark.parametrize("contents", [None, b"", b"no certificate"])
def test_a_file_without_authorities_is_refused_in_a_sentence(
    contents: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "authorities.pem"
    if contents is not None:
        path.write_bytes(contents)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    certificate_authorities.cache_clear()
    with pytest.raises(Misconfigured, match="invalid SSL_CERT_FILE"):
        certificate_authorities()
