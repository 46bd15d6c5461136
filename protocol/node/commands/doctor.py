"""The doctor's examinations that need the chain: network, clock, node, bond and gas."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from protocol.amounts import coin, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc
from protocol.chain.structs import Role
from protocol.errors import AssizeError, Misconfigured, Unavailable
from protocol.node.doctor import Examination, Key, Result, asked_again, examine

MOST_CLOCK_SKEW_SECONDS = 30
LEAST_GAS_WEI = 10**15
LOG_RANGES = (10, 100, 1_000, 10_000)
MOST_BLOCKS_BEHIND = 50
"""Blocks that one of several RPC endpoints may be behind the one in use."""


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
        final = Examination("finality", lambda: _finality(chain), "use an endpoint that serves the finalized tag")
        logs = Examination("logs", lambda: _logs(chain), "use an endpoint that serves eth_getLogs")
        endpoints = (
            Examination(f"rpc {place}", functools.partial(_endpoint, endpoint, chain), "remove it from the RPC URLs")
            for place, endpoint in enumerate(chain.endpoints, 1)
        )
        yield from examine((head, *endpoints, clock, final, logs, *examinations(chain)))


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


def _finality(chain: Chain) -> str:
    head, final = chain.head_and_final()
    return f"block {max(final, 0)}, {head.number - final} behind the newest"


def _logs(chain: Chain) -> str:
    """Returns the widest range of blocks whose logs the endpoint gives at once; providers allow from 10 on."""
    head, widest = chain.head().number, 0
    for width in LOG_RANGES:
        where = {"fromBlock": hex(max(0, head - width + 1)), "toBlock": hex(head)}
        try:
            chain.rpc.call("eth_getLogs", where | {"address": list(chain.deployment.addresses)})
        except Unavailable as error:
            if not widest:
                raise
            return f"{widest} blocks at once, not {width}: {str(error)[:80]}"
        widest = width
    return f"{widest} blocks at once"


def _endpoint(endpoint: Rpc, chain: Chain) -> str:
    """Raises ``Misconfigured`` for an endpoint of another chain, or far behind the one in use."""
    chain_id = int(endpoint.call("eth_chainId"), 16)
    if chain_id != chain.chain_id:
        raise Misconfigured(f"{endpoint.url} serves chain {chain_id}: expected {chain.chain_id}")
    number, newest = int(endpoint.call("eth_blockNumber"), 16), chain.head().number
    if newest - number > MOST_BLOCKS_BEHIND:
        raise Misconfigured(f"{endpoint.url} is at block {number}: {newest - number} behind the endpoint in use")
    return f"{endpoint.url} at block {number}"


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
