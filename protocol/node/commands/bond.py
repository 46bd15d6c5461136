"""``assize stake explain``: what a node's bond carries, and what slashes would leave of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.amounts import tokens
from protocol.node.commands.node import NodeId
from protocol.node.commands.transaction import view
from protocol.times import clock

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.structs import Node, RegistryTerms, RoundsTerms


@view
def explain(
    chain: Chain,
    node: NodeId,
    jobs: Annotated[int, typer.Option("--slashes", min=1, max=256, help="Slashes to compute with.")] = 1,
) -> dict[str, Any]:
    """Tell what a node's bond carries, what slashes would leave, what is in flight, and when it can be withdrawn."""
    head = chain.head()
    reader = chain.pinned(head)
    found = reader.node(node)
    required = reader.required_bond(found.role, max(found.capacity, 1))
    return explained(node, found, required, reader.registry_terms(), reader.rounds_terms(), jobs, head.timestamp)


def explained(
    number: int,
    node: Node,
    required: int,
    registry: RegistryTerms,
    rounds: RoundsTerms,
    slashes: int,
    now: int,
) -> dict[str, Any]:
    """Returns what a bond carries, by name. PURE. Amounts in wei, times in unix seconds."""
    from protocol.chain.structs import Role

    worker = node.role is Role.WORKER
    each = rounds.fraud_slash if worker else rounds.absence_penalty
    cause = "fraudulent job" if worker else "missed vote"
    left = max(0, node.bond - slashes * each)
    return {
        "node": number,
        "role": node.role.name.lower(),
        "bond_wei": node.bond,
        "required_wei": required,
        "margin_wei": node.bond - required,
        "slashes_within_margin": max(0, node.bond - required) // each if each else None,
        "carries_jobs": (node.bond // registry.bond_per_job if registry.bond_per_job else None) if worker else None,
        "capacity": node.capacity if worker else None,
        "in_flight": node.in_flight,
        "locked_wei": node.in_flight * registry.bond_per_job if worker else None,
        f"after_{slashes}_slashes_wei": left,
        "then": _then(slashes, cause, each, left, required),
        "withdrawable": _withdrawable(number, node, registry, now),
    }


def _then(slashes: int, cause: str, each: int, left: int, required: int) -> str:
    cost = f"{slashes} slash{'es' * (slashes > 1)} of {tokens(each)}, one for each {cause}, leave {tokens(left)}"
    if left >= required:
        return f"{cost}: enough to go on"
    return f"{cost}: no new jobs or seats until {tokens(required - left)} are added"


def _withdrawable(number: int, node: Node, registry: RegistryTerms, now: int) -> str:
    hours = registry.unbonding_delay / 3600
    if node.withdrawn:
        return "withdrawn"
    from protocol.chain.structs import NEVER

    if not node.retired_at:
        return f"{hours:g} hours after assize node retire {number}, once nothing is in flight"
    at = node.retired_at + (0 if node.active_at == NEVER else registry.unbonding_delay)
    waits = f"; {node.in_flight} jobs are still in flight" if node.in_flight else ""
    return f"{'since' if at <= now else 'from'} {clock(at)}{waits}: assize stake withdraw {number}"
