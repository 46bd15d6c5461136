"""What a coordinator may have a worker send, and where to."""

from __future__ import annotations

from contextlib import closing

import pytest
from pydantic import ValidationError

from protocol.errors import Misconfigured, Rejected
from protocol.transport.blobs import BlobStores
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.uploading import Uploader
from protocol.wire.api import UploadTicket

COORDINATOR = "http://10.1.1.1:8000"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/api/token",
        "http://127.0.0.1/admin",
        "http://10.1.1.1:9000/bucket/key",
        "https://10.1.1.1:8000/bucket/key",
        "http://[::1]/key",
        "http://user:word@example.org/key",
        "http://example.org:25/key",
        "file:///etc/passwd",
        "s3://bucket/key",
        "http://",
    ],
)
def test_files_go_to_no_address_within_a_worker_s_network(url):
    with closing(BlobStores(trusted=lambda: [COORDINATOR])) as hosts, pytest.raises(Rejected, match=r"^(refused|inv)"):
        hosts.client_for(url)


def test_files_go_to_public_addresses_the_coordinator_and_what_the_operator_named():
    with closing(BlobStores(trusted=lambda: [COORDINATOR, "http://10.0.0.5:9000"])) as hosts:
        plain = hosts.client_for("http://10.0.0.5:9000/bucket/key?signature=1")
        assert hosts.client_for(f"{COORDINATOR}/bucket/key") is plain
        assert hosts.client_for("https://bucket.example.org/key") is not plain, (
            "its name is resolved once, to be public"
        )


def test_an_invalid_setting_is_one_sentence():
    with (
        closing(CoordinatorClient(COORDINATOR)) as client,
        pytest.raises(Misconfigured, match="invalid URL of an object"),
    ):
        Uploader(client, ["10.0.0.5:9000"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", "x"),
        ("transfer-encoding", "chunked"),
        ("authorization", "x"),
        ("x-amz-a", "b\r\nhost: c"),
        ("X-Amz-A", "b"),
    ],
)
def test_a_ticket_names_no_headers_but_a_provider_s(name, value):
    with pytest.raises(ValidationError):
        UploadTicket(name="0" * 64, state="open", headers={name: value})
    assert UploadTicket(name="0" * 64, state="open", headers={"x-ms-blob-type": "BlockBlob"}).headers
