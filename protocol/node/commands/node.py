"""``assize node``: register, list, rotate and revoke keys, retire, displace, withdraw."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.node.commands.connection import NodePasswordFile, PasswordFile, address_of, opened
from protocol.node.commands.transaction import Planned, Row, mined, transaction, view
from protocol.node.console import jsonable, picked

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.receipts import Receipt
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Register, list and retire nodes; rotate and revoke their keys.")

NodeId = Annotated[int, typer.Argument(help="Id of the node.")]
OwnerKeystore = Annotated[
    str, typer.Option("--owner-keystore", help="Keystore of the owner, who posts the bond and earns the credits.")
]


class RoleName(StrEnum):
    """Roles as typed."""

    WORKER = "worker"
    VALIDATOR = "validator"


@app.command("register")
@transaction("register", OwnerKeystore)
def register(
    sender: Sender,
    node_keystore: Annotated[str, typer.Option(help="Keystore of the node's session key.")],
    role: Annotated[RoleName, typer.Option(help="Role of the node.")],
    capacity: Annotated[int, typer.Option(min=1, max=2**32 - 1, help="Worker: most jobs in flight; validator: 1.")] = 1,
    password_file: PasswordFile = None,
    node_password_file: NodePasswordFile = None,
) -> Planned:
    """Register a node: both keys sign, and the owner posts the bond.

    Once all 256 validator slots are taken, a validator contests the slot with the least bond and posts a quarter more.
    Unless the holder matches that by the time shown, the slot passes with: assize node displace NODE.
    """
    from protocol.chain.structs import Role
    from protocol.chain.writing import actions

    key = opened(node_keystore, node_password_file or password_file)
    contest = actions.contest_slot(sender, key) if role is RoleName.VALIDATOR else None
    if contest is not None:
        return contest, _registered_row
    return actions.register_node(sender, key, Role[role.name], capacity), _registered_row


def _registered_row(event: object) -> dict[str, object]:
    """The event as shown: the bond with its unit."""
    return {("bond_wei" if name == "bond" else name): value for name, value in dict(jsonable(event)).items()}


@app.command("list")
@view
def list_nodes(
    chain: Chain, owner: Annotated[str | None, typer.Option(help="Only nodes of this owner.")] = None
) -> list[dict[str, object]]:
    """List the registered nodes."""
    only, reader = address_of(owner) if owner else None, chain.pinned(chain.head())
    ids = range(1, reader.node_count() + 1)
    return [
        {"node": number, **picked(node, "role", "owner"), "key": None if node.revoked or node.withdrawn else node.key}
        | picked(node, "capacity", "in_flight", bond_wei="bond")
        | {"retired_at": node.retired_at or None}
        for number, node in zip(ids, reader.nodes(ids), strict=True)
        if only in (None, node.owner)
    ]


@app.command("rotate")
@transaction("rotate")
def rotate(
    sender: Sender,
    node: NodeId,
    node_keystore: Annotated[str, typer.Option(help="Keystore of the new session key, which was never bound before.")],
    password_file: PasswordFile = None,
    node_password_file: NodePasswordFile = None,
) -> Planned:
    """Replace a node's session key. The old key is never valid again."""
    from protocol.chain.writing import actions

    key = opened(node_keystore, node_password_file or password_file)
    plan = actions.rotate_key(sender, node, key)
    return plan, lambda event: {"node": event.node, "owner": event.owner, "key": event.key}


@app.command("revoke-key")
@transaction("revoke-key")
def revoke_key(sender: Sender, node: NodeId) -> Planned:
    """Revoke a node's session key at once. The node gets no jobs until it has a new key (rotate)."""
    from protocol.chain.writing import calls, plans

    return plans.plan_of(sender, calls.revoke_key(sender.chain.deployment, node)), mined(node=node)


@app.command("retire")
@transaction("retire")
def retire(sender: Sender, node: NodeId) -> Planned:
    """Take a node out of service. Its bond can be withdrawn after the unbonding delay."""
    from protocol.chain.events import NodeRetired
    from protocol.chain.writing import calls, plans

    def row(receipt: Receipt) -> Row:
        return mined(node=node, **picked(plans.event_in(receipt, NodeRetired), "withdrawable_at"))(receipt)

    return plans.plan_of(sender, calls.retire(sender.chain.deployment, node)), row


@app.command("displace")
@transaction("displace")
def displace(sender: Sender, node: NodeId) -> Planned:
    """Give a newcomer the slot that it contested, once its holder can no longer match its bond."""
    from protocol.chain.events import SlotPassed
    from protocol.chain.writing import calls, plans

    def row(receipt: Receipt) -> Row:
        return mined(node=node, **picked(plans.event_in(receipt, SlotPassed), "slot", "displaced", "active_at"))(
            receipt
        )

    return plans.plan_of(sender, calls.displace(sender.chain.deployment, node)), row


@app.command("withdraw")
@transaction("withdraw")
def withdraw(sender: Sender, node: NodeId) -> Planned:
    """Withdraw what is left of a retired node's bond."""
    from protocol.chain.writing import actions

    plan = actions.withdraw(sender, node)
    return plan, lambda event: {"node": node, "amount_wei": event.amount, "owner": event.owner}
