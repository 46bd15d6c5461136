"""Gas and tokens on a local test chain, which gives them to anyone."""

from __future__ import annotations

from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc, RpcFault
from protocol.errors import AssizeError

GAS_WEI = 10**18
"""Balance that is enough for thousands of transactions."""

GIVERS = {"anvil": "anvil_setBalance", "HardhatNetwork": "hardhat_setBalance"}
"""Local test chains, as their versions begin, and the request that fills a balance."""


def gives_gas(rpc: Rpc) -> bool:
    """Returns whether the chain is a local test chain, which gives its coin to anyone.

    Raises:
        Unavailable: the RPC does not answer.
    """
    return _giver(rpc) is not None


def _giver(rpc: Rpc) -> str | None:
    """Returns the request by which the chain fills a balance; None if it is no local test chain."""
    try:
        version = str(rpc.call("web3_clientVersion"))
    except RpcFault:  # a node without this method is none of a test chain
        return None
    return next((request for name, request in GIVERS.items() if version.startswith(name)), None)


def give_gas(rpc: Rpc, address: str, wei: int = GAS_WEI) -> bool:
    """Fills an address's balance of the chain's coin up to ``wei``; returns whether the chain is one that allows it.

    Raises:
        Unavailable: the RPC does not answer.
    """
    giver = _giver(rpc)
    if giver is None:
        return False
    if int(rpc.call("eth_getBalance", address, "latest"), 16) < wei:
        rpc.call(giver, address, hex(wei))
    return True


def gives_tokens(chain: Chain) -> bool:
    """Returns whether the deployment's token has a faucet."""
    try:
        return int(chain.latest().view("Token", "FAUCET_CAP")) > 0
    except AssizeError:  # a token of another kind
        return False
