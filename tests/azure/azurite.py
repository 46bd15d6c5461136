"""Azurite with a container. It checks signatures and expiry."""

from __future__ import annotations

import base64
import hmac
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate

import httpx

from deploy.localnet.processes import free_port
from tests.conftest import ROOT, until

FOLDER = ROOT / ".venv" / "azure"
ACCOUNT, KEY, CONTAINER = "assize", base64.b64encode(bytes(range(64))).decode(), "assize"
VERSION = "2021-08-06"


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running server: its endpoint, and the container made in it."""

    endpoint: str

    def url(self, prefix: str = "") -> str:
        """The store's URL, as settings name it."""
        return f"az://{CONTAINER}/{prefix}".rstrip("/")


def environment(endpoint: str) -> Mapping[str, str]:
    """Variables by which a process reaches the server at ``endpoint``."""
    return {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": endpoint,
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_ALLOW_HTTP": "true",
    }


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    """Runs a server that keeps nothing once it ends, on a free port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="assize-azure-") as folder:
        program = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        words = ["node", str(program), "--blobPort", str(port), "--location", folder, "--silent"]
        variables = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}", "AZURITE_TELEMETRY_DISABLED": "true"}
        process = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = AzureServer(f"http://127.0.0.1:{port}")
        try:
            until(lambda: _has_container(server), 60, "azurite")
            yield server
        finally:
            process.kill()  # told to end it waits for its connections
            process.wait(10)


def _has_container(server: AzureServer) -> bool:
    """Makes the container, by a request signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    signed = f"PUT{12 * chr(10)}{named}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
    headers |= {"authorization": f"SharedKey {ACCOUNT}:{digest}"}
    try:
        with httpx.Client(trust_env=False) as client:
            made = client.put(f"{server.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
    except httpx.TransportError:
        return False
    assert made.status_code in (201, 409), made.text
    return True
