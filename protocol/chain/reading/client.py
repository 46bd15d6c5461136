"""A connection to one deployment: blocks, finality, and views pinned to a block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import Gauge

from protocol.chain.block import Block, block_of
from protocol.chain.deployment import FINALIZED, Deployment
from protocol.chain.reading.contracts import Reader
from protocol.chain.reading.endpoints import Endpoints
from protocol.chain.rpc import TIMEOUT_SECONDS, Rpc, RpcFault, RpcRequest
from protocol.errors import Unavailable

HEAD = Gauge("assize_chain_head_block", "Newest block that the RPC endpoint in use knows", ["chain"])
HEAD_TIME = Gauge(
    "assize_chain_head_timestamp_seconds", "Time of the newest block that the RPC endpoint in use knows", ["chain"]
)
FINAL = Gauge("assize_chain_final_block", "Newest final block", ["chain"])


class Chain:
    """A deployment seen through one or several RPC endpoints: comma-separated URLs, or connections.

    With several endpoints, one is used while it is available, and the others confirm its events.

    The constructor checks that the endpoint serves the chain of the address file, and that its contracts exist and
    belong together.

    Raises:
        Unavailable: no RPC answers.
        Misconfigured: another chain, missing contracts, or contracts of different deployments.
    """

    def __init__(
        self, rpc: str | Sequence[Rpc], deployment: Deployment, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._endpoints = Endpoints(connections(rpc, timeout_seconds), deployment.verify)
        self.rpc: Rpc = self._endpoints
        self.deployment = deployment
        try:
            self.rpc.call("eth_chainId")  # the first request has the endpoint checked
        except BaseException:
            self.rpc.close()
            raise

    @property
    def witnesses(self) -> tuple[Rpc, ...]:
        """The endpoints that confirm events."""
        return self._endpoints.others

    @property
    def endpoints(self) -> tuple[Rpc, ...]:
        """All endpoints, in the order in which they are asked now."""
        return self._endpoints.every

    @classmethod
    def connect(cls, rpc_url: str, addresses: Path) -> Chain:
        """Loads the address file, then connects."""
        return cls(rpc_url, Deployment.load(addresses))

    @property
    def chain_id(self) -> int:
        """EIP-155 chain id."""
        return self.deployment.chain_id

    def head(self) -> Block:
        """Returns the newest block that the endpoint knows."""
        return self._noted(self._block("latest"))

    def _noted(self, head: Block, final: int | None = None) -> Block:
        """Shows the head, and the final block where it is known, to who watches; returns the head."""
        chain = str(self.chain_id)
        HEAD.labels(chain).set(head.number)
        HEAD_TIME.labels(chain).set(head.timestamp)
        if final is not None:
            FINAL.labels(chain).set(final)
        return head

    def head_and_final(self) -> tuple[Block, int]:
        """Returns the newest block and the height of the newest final one, in one round trip."""
        depth = self.deployment.finality_depth
        if depth is not None:
            head = self._block("latest")
            return self._noted(head, head.number - depth), head.number - depth
        headers = self.rpc.batch([RpcRequest("eth_getBlockByNumber", (tag, False)) for tag in ("latest", FINALIZED)])
        if any(isinstance(header, RpcFault) or not header for header in headers):
            raise Unavailable(f"the RPC at {self.rpc.url} does not serve the {FINALIZED!r} tag")
        newest, final = (block_of(header) for header in headers)
        return self._noted(newest, final.number), final.number

    def block(self, number: int) -> Block:
        """Returns the canonical block at this height.

        Raises:
            Unavailable: the endpoint does not know it (yet).
        """
        return self._block(hex(number))

    def blocks(self, numbers: Sequence[int]) -> list[Block]:
        """Returns many blocks in one round trip, leaving out those that the endpoint does not know."""
        answers = self.rpc.results([RpcRequest("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
        return [block_of(answer) for answer in answers if answer]

    def pinned(self, block: Block) -> Reader:
        """Returns views as of this block, by hash: a reorganisation makes them fail rather than silently change."""
        return Reader(self.rpc, self.deployment, {"blockHash": "0x" + block.hash.hex(), "requireCanonical": True})

    def latest(self) -> Reader:
        """Returns views of the newest state, for display; decisions use ``pinned``."""
        return Reader(self.rpc, self.deployment, "latest")

    def close(self) -> None:
        """Closes the connection."""
        self.rpc.close()

    def __enter__(self) -> Chain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, tag: str) -> Block:
        header: dict[str, Any] | None = self.rpc.call("eth_getBlockByNumber", tag, False)
        if not header:
            raise Unavailable(f"the RPC at {self.rpc.url} does not know block {tag}")
        return block_of(header)


def connections(rpc: str | Sequence[Rpc], timeout_seconds: float = TIMEOUT_SECONDS) -> list[Rpc]:
    """Returns a connection to each of the comma-separated URLs, or those that are given."""
    if not isinstance(rpc, str):
        return list(rpc)
    return [Rpc(url.strip(), timeout_seconds) for url in rpc.split(",")]
