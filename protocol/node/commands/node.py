"""``assize node``: register, list, rotate and revoke keys, retire, withdraw."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from protocol.node.commands.connection import (
    DEFAULT_RPC,
    Addresses,
    AsJson,
    DryRun,
    KeystoreName,
    PasswordFile,
    RpcUrl,
    address_of,
    carry_out,
    connected,
    new_intent,
    opened,
    preview,
    report,
    sending,
)
from protocol.node.console import guard, show

app = typer.Typer(no_args_is_help=True, help="Register, list, retire nodes; rotate and revoke their keys.")

NodeId = Annotated[int, typer.Argument(help="Id of the node.")]


class RoleName(StrEnum):
    """Roles as typed."""

    WORKER = "worker"
    VALIDATOR = "validator"


@app.command("register")
@guard
def register(
    addresses: Addresses,
    owner_keystore: Annotated[str, typer.Option(help="Key of the owner, who posts the bond and earns.")],
    node_keystore: Annotated[str, typer.Option(help="Session key of the node.")],
    role: Annotated[RoleName, typer.Option(help="What the node does.")],
    capacity: Annotated[int, typer.Option(min=1, help="Worker: most jobs in flight; validator: 1.")] = 1,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    node_password_file: Annotated[
        Path | None, typer.Option(help="Opens the node's keystore; else as the owner's.")
    ] = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Register a node: both keys sign, the owner posts the bond."""
    from protocol.chain.structs import Role
    from protocol.chain.writing import actions

    kind = Role[role.name]
    with sending(rpc, addresses, owner_keystore, password_file) as sender:
        key = opened(node_keystore, node_password_file or password_file)
        if dry_run:
            bond = actions.check_bond(sender.chain.latest(), sender.address, kind, capacity)
            preview(sender, actions.binding_call(sender, key, kind, capacity), as_json, ("Registry", bond))
            return
        show(_registered(actions.register_node(sender, key, kind, capacity, new_intent("register"))), as_json)


def _registered(event: object) -> dict[str, object]:
    """The event as shown: the bond named with its unit."""
    from protocol.node.console import jsonable

    shown = dict(jsonable(event))
    return {("bond_wei" if name == "bond" else name): value for name, value in shown.items()}


@app.command("list")
@guard
def list_nodes(
    addresses: Addresses,
    owner: Annotated[str | None, typer.Option(help="Only nodes of this owner.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """List the registered nodes."""
    only = address_of(owner) if owner else None
    with connected(rpc, addresses) as chain:
        reader = chain.pinned(chain.head())
        ids = range(1, reader.node_count() + 1)
        rows = [
            {
                "node": number,
                "role": node.role,
                "owner": node.owner,
                "key": None if node.revoked or node.withdrawn else node.key,
                "capacity": node.capacity,
                "in_flight": node.in_flight,
                "bond_wei": node.bond,
                "retired_at": node.retired_at or None,
            }
            for number, node in zip(ids, reader.nodes(ids), strict=True)
            if only in (None, node.owner)
        ]
    show(rows, as_json)


@app.command("rotate")
@guard
def rotate(
    node: NodeId,
    addresses: Addresses,
    keystore: KeystoreName,
    node_keystore: Annotated[str, typer.Option(help="The new session key; one that was never bound.")],
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    node_password_file: Annotated[
        Path | None, typer.Option(help="Opens the node's keystore; else as the owner's.")
    ] = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Give a node a new session key; the old one never counts again."""
    from protocol.chain.writing import actions

    with sending(rpc, addresses, keystore, password_file) as sender:
        key = opened(node_keystore, node_password_file or password_file)
        if dry_run:
            preview(sender, actions.rotation_call(sender, key, node), as_json)
            return
        event = actions.rotate_key(sender, node, key, new_intent("rotate"))
        show({"node": event.node, "owner": event.owner, "key": event.key}, as_json)


@app.command("revoke-key")
@guard
def revoke_key(
    node: NodeId,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """End a node's session key at once; the node is left out until it has a new one (rotate)."""
    from protocol.chain.writing import calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        call = calls.revoke_key(sender.chain.deployment, node)
        carry_out(sender, call, "revoke-key", as_json, dry_run, node=node)


@app.command("retire")
@guard
def retire(
    node: NodeId,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Take a node out of service; its bond can be withdrawn after the unbonding delay."""
    from protocol.chain.events import NodeRetired
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        call = calls.retire(sender.chain.deployment, node)
        if dry_run:
            preview(sender, call, as_json)
            return
        receipt = sender.send(new_intent("retire"), call)
        retired = actions.event_in(receipt, NodeRetired)
        report(receipt, as_json, node=node, withdrawable_at=retired.withdrawable_at)


@app.command("withdraw")
@guard
def withdraw(
    node: NodeId,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Take back what is left of a retired node's bond."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.withdraw(sender.chain.deployment, node), as_json)
            return
        event = actions.withdraw(sender, node, new_intent("withdraw"))
        show({"node": node, "amount_wei": event.amount, "owner": event.owner}, as_json)
