"""``assize version``: the version, the hash of the explorer's check as a file, and the version that a run asks for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Misconfigured
from protocol.node.commands.connection import DEFAULT_RPC, RpcUrl, connected
from protocol.node.commands.weights import CoordinatorUrl
from protocol.node.console import EXIT_REFUSED, guard, note, show
from protocol.node.release import own_version


@guard
def version(
    check: Annotated[
        int | None, typer.Option("--check", min=1, metavar="RUN", help="Exit 1 if this run asks for a newer version.")
    ] = None,
    coordinator: CoordinatorUrl = None,
    addresses: Annotated[
        Path | None,
        typer.Option("--addresses", envvar="ASSIZE_ADDRESSES", help="Address file of the run's deployment."),
    ] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the version, and the SHA-256 of check.html, the explorer's check as one file; or what a run asks for."""
    if check is None:
        _print_version(as_json)
        return
    if addresses is None:
        raise Misconfigured("no address file: give --addresses, or name a network in the profile")
    from protocol.node.commands.releases import look_at_release

    with connected(rpc, addresses) as chain:
        row, problems = look_at_release(chain, check, coordinator or "")
    show(row, as_json, "version")
    for problem in problems:
        note(problem)
    if problems:
        raise SystemExit(EXIT_REFUSED)


def _print_version(as_json: bool) -> None:
    import json

    try:
        from ledger.explorer.rendering import asset

        found = asset("check.html")
    except ImportError:  # installed for another role, without the explorer's packages
        found = None
    digest = hashlib.sha256(found.data).hexdigest() if found else None
    if as_json:
        print(json.dumps({"version": own_version(), "check_sha256": digest}))
    else:
        print(f"assize {own_version()}")
        print(f"check.html SHA-256 {digest}" if digest else "check.html not built")
