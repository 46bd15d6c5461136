"""The doctor's examinations that need the chain: network, clock, node, bond and gas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from protocol.amounts import coin, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.errors import AssizeError, Misconfigured
from protocol.node.doctor import Examination, Key, Result, asked_again, examine

MOST_CLOCK_SKEW_SECONDS = 30
LEAST_GAS_WEI = 10**15


def examine_on_chain(
    rpc_url: str, addresses: Path, examinations: Callable[[Chain], Iterable[Examination]]
) -> Iterator[Result]:
    """Connects, then examines chain and clock, and what a role adds; only the connection if that fails."""
    try:
        chain = asked_again(lambda: Chain.connect(rpc_url, addresses))
    except AssizeError as error:
        yield Result("chain", False, str(error), "check the RPC URL and the address file in the settings")
        return
    with closing(chain):
        head = Examination("chain", lambda: f"chain {chain.chain_id}, block {chain.head().number}")
        clock = Examination("clock", lambda: _clock(chain), "set this machine's clock, by NTP for instance")
        yield from examine((head, clock, *examinations(chain)))


def node_examinations(chain: Chain, key: Key, role: Role) -> tuple[Examination, ...]:
    """Examines whether ``key`` is that of a registered node of ``role``, its bond and its gas."""
    add = "add to it with `assize stake deposit`"
    return (
        Examination("node", lambda: _node(chain, key, role)),
        Examination("bond", lambda: _bond(chain, key), add),
        gas(chain, key),
    )


def gas(chain: Chain, key: Key) -> Examination:
    """Examines whether ``key`` can pay for transactions."""

    def look() -> str:
        held = chain.latest().native_balance(key.address)
        if held < LEAST_GAS_WEI:
            raise Misconfigured(f"{key.address} holds {coin(held)} for gas: expected at least {coin(LEAST_GAS_WEI)}")
        return coin(held)

    return Examination("gas", look, "send the chain's native coin to this address")


def node_of(chain: Chain, address: str, role: Role | None = None) -> int:
    """Returns the node whose session key has this address.

    Raises:
        Misconfigured: the key belongs to no node, or to one of another role than ``role``.
    """
    reader = chain.latest()
    node = reader.node_by_key(address)
    if node == 0:
        raise Misconfigured(f"key {address} belongs to no node: register one with `assize node register`")
    if role is not None and (found := reader.node(node).role) is not role:
        wanted = role.name.lower()
        raise Misconfigured(f"node {node} is a {found.name.lower()}: expected a {wanted}; use a {wanted}'s key")
    return node


def _clock(chain: Chain) -> str:
    skew = time.time() - chain.head().timestamp
    # An idle chain's newest block may be old: only a block from the future proves that the clock is wrong.
    if skew < -MOST_CLOCK_SKEW_SECONDS:
        raise Misconfigured(f"the newest block is {-skew:.0f} s ahead of this machine's clock")
    return f"newest block is {skew:.0f} s old"


def _node(chain: Chain, key: Key, role: Role) -> str:
    node = node_of(chain, key.address, role)
    return f"node {node}, {role.name.lower()}, owner {chain.latest().node(node).owner}"


def _bond(chain: Chain, key: Key) -> str:
    reader = chain.latest()
    held = reader.node(node_of(chain, key.address))
    needed = reader.required_bond(held.role, held.capacity)
    if held.bond < needed:
        raise Misconfigured(f"bond of {tokens(held.bond)}: expected at least {tokens(needed)}")
    return f"{tokens(held.bond)}, {tokens(needed)} needed"
