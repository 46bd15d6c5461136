"""``assize version``: prints the version, and the hash of the explorer's check that people keep as a file."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version as installed
from typing import Annotated

import typer

from ledger.explorer.rendering import asset
from protocol.node.console import guard


@guard
def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the version, and the SHA-256 of check.html, the explorer's check as one file."""
    found = asset("check.html")
    digest = hashlib.sha256(found.data).hexdigest() if found else None
    if as_json:
        print(json.dumps({"version": installed("assize"), "check_sha256": digest}))
    else:
        print(f"assize {installed('assize')}")
        print(f"check.html SHA-256 {digest}" if digest else "check.html not built")
