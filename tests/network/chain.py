"""The chain's RPC as a provider offers it: the methods of every EVM network, and none by which anvil gives things away.

python -m tests.network.chain PORT HOST ANVIL_PORT
"""

from __future__ import annotations

import sys
import threading

from pydantic_core import to_json

from tests.chaos.between import Answer, Asked, Between, Forward, error_answer

PREFIXES = ("eth_", "net_")
VERSION = "web3_clientVersion"
NOT_FOUND = -32601


def as_provided(asked: Asked, forward: Forward) -> Answer | None:
    """Answers a request as a provider does."""
    if all(method.startswith(PREFIXES) for method in asked.methods):
        return forward(asked)
    if asked.methods == (VERSION,):
        answer = {"jsonrpc": "2.0", "id": asked.calls[0]["id"], "result": "provider/1"}
        return Answer(200, {"content-type": "application/json"}, to_json(answer))
    return error_answer(asked, NOT_FOUND, "method not found")


if __name__ == "__main__":
    port, host, upstream = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with Between(upstream, listen_on=port, host=host).interfering(as_provided):
        threading.Event().wait()
