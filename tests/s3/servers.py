"""S3 servers with a bucket. Both take the same credentials; s3rver checks signatures and expiry, moto does not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import httpx

from deploy.localnet.processes import free_port
from tests.conftest import ROOT, until

Kind = Literal["moto", "s3rver"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDER = ROOT / ".venv" / "s3"
BUCKET = "assize"
KEY, SECRET = "S3RVER", "S3RVER"
"""The one pair that s3rver knows."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server: its endpoint, and the bucket made in it."""

    endpoint: str
    bucket: str

    def url(self, prefix: str = "") -> str:
        """The store's URL, as settings name it."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which a process reaches it."""
        return environment(self.endpoint)


def environment(endpoint: str) -> Mapping[str, str]:
    """Variables by which a process reaches the S3 server at ``endpoint``."""
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    return keys | {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}


@contextmanager
def s3_server(kind: Kind, port: int = 0, host: str = "127.0.0.1", bucket: str = BUCKET) -> Iterator[S3Server]:
    """Runs a server that keeps nothing once it ends, on a free port unless one is given."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="assize-s3-") as folder:
        variables = {**os.environ, "PYTHONPATH": str(FOLDER / "moto"), "PYTHONWARNINGS": "ignore"}
        variables["S3_IGNORE_SUBDOMAIN_BUCKETNAME"] = "true"  # a host's name is none of a bucket
        words = _words(kind, host, port, folder, bucket)
        process = subprocess.Popen(
            words, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        server = S3Server(f"http://{host}:{port}", bucket)
        try:
            until(lambda: _has_bucket(server), 30, kind)
            yield server
        finally:
            process.terminate()
            process.wait(10)


def _words(kind: Kind, host: str, port: int, folder: str, bucket: str) -> list[str]:
    if kind == "moto":
        return [sys.executable, "-m", "moto.server", "--host", host, "--port", str(port)]
    program = FOLDER / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    return [
        "node",
        str(program),
        "-d",
        folder,
        "-a",
        host,
        "-p",
        str(port),
        "--no-vhost-buckets",
        "--configure-bucket",
        bucket,
    ]


def _has_bucket(server: S3Server) -> bool:
    """Makes the bucket where the server starts without one."""
    try:
        with httpx.Client(trust_env=False) as client:
            return client.put(f"{server.endpoint}/{server.bucket}").status_code in (200, 403, 409)
    except httpx.TransportError:
        return False
