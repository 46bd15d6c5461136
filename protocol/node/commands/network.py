"""``assize network``: add, list, use, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Misconfigured
from protocol.masking import masked
from protocol.node.commands.connection import AsJson
from protocol.node.console import guard, show
from protocol.node.profile import Profile, writable

app = typer.Typer(no_args_is_help=True, help="Name networks in the profile, and choose the default one.")

NetworkName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the network.")]


@app.command("add")
@guard
def add(
    name: NetworkName,
    addresses: Annotated[Path, typer.Option("--addresses", help="Address file of the deployment.")],
    rpc: Annotated[str, typer.Option("--rpc", help="RPC endpoint; comma-separated ones are cross-checked.")],
    use: Annotated[bool, typer.Option("--use", help="Make it the default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Name a network in the profile, after a look whether the RPC serves it."""
    from protocol.chain.reading.client import Chain
    from protocol.node.profile_edit import set_network

    path = writable()
    if name in (known := Profile.read(path).networks):
        there = known[name]
        raise Misconfigured(
            f"{path} has a network {name} already, with {there.rpc} and {there.addresses}: "
            f"give another name, or remove it first with: assize network remove {name}"
        )
    with Chain.connect(rpc, addresses):
        pass
    _show(set_network(path, name, rpc, addresses, default=use), name, as_json)


@app.command("list")
@guard
def list_networks(as_json: AsJson = False) -> None:
    """List the profile's networks."""
    profile = Profile.current()
    show([_row(profile, name) for name in profile.networks], as_json, f"networks of {profile.path}")


@app.command("use")
@guard
def use(name: NetworkName, as_json: AsJson = False) -> None:
    """Make a network the default."""
    from protocol.node.profile_edit import use_network

    profile = Profile.read(writable())
    profile.network(name)
    _show(use_network(profile.path, name), name, as_json)


@app.command("remove")
@guard
def remove(name: NetworkName, as_json: AsJson = False) -> None:
    """Remove a network from the profile.

    If it was the default, choose another with `assize network use`; a single one that remains is the default.
    """
    from protocol.node.profile_edit import remove_network

    profile = Profile.read(writable())
    profile.network(name)
    changed = remove_network(profile.path, name)
    show({"removed": name, "default": changed.default, "profile": str(changed.path)}, as_json)


def _show(profile: Profile, name: str, as_json: bool) -> None:
    show(_row(profile, name) | {"profile": str(profile.path)}, as_json)


def _row(profile: Profile, name: str) -> dict[str, object]:
    network = profile.networks[name]
    return {
        "name": name,
        "default": name == profile.default,
        "rpc": masked(network.rpc),
        "addresses": str(network.addresses),
    }
