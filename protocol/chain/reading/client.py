"""One connection to one deployment: blocks, what of them is final, and views pinned to a block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.chain.block import Block, block_of
from protocol.chain.deployment import FINALIZED, Deployment
from protocol.chain.reading.contracts import Reader
from protocol.chain.reading.endpoints import Endpoints
from protocol.chain.rpc import TIMEOUT_SECONDS, Rpc, RpcFault, RpcRequest
from protocol.errors import Unavailable


class Chain:
    """A deployment seen through an RPC endpoint, or several: URLs with commas between them, or connections.

    Where there are several, one is asked until it is out of reach, and the others confirm what events it tells of.

    Building one checks that the endpoint serves the chain that the address file names, and that these contracts are
    there and belong together: everything after it may trust the addresses.

    Raises:
        Unavailable: no RPC answers.
        Misconfigured: another chain, no contracts there, or contracts of different deployments.
    """

    def __init__(
        self, rpc: str | Sequence[Rpc], deployment: Deployment, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._endpoints = Endpoints(_connections(rpc, timeout_seconds), deployment.verify)
        self.rpc: Rpc = self._endpoints
        self.deployment = deployment
        try:
            self.rpc.call("eth_chainId")  # whatever is asked first has the endpoint checked
        except BaseException:
            self.rpc.close()
            raise

    @property
    def witnesses(self) -> tuple[Rpc, ...]:
        """Endpoints that can be asked for a second opinion."""
        return self._endpoints.others

    @classmethod
    def connect(cls, rpc_url: str, addresses: Path) -> Chain:
        """Loads the address file, then connects."""
        return cls(rpc_url, Deployment.load(addresses))

    @property
    def chain_id(self) -> int:
        """EIP-155 chain id."""
        return self.deployment.chain_id

    def head(self) -> Block:
        """The newest block the endpoint knows."""
        return self._block("latest")

    def head_and_final(self) -> tuple[Block, int]:
        """The newest block, and the height up to which blocks are final, in one round trip."""
        depth = self.deployment.finality_depth
        if depth is not None:
            head = self.head()
            return head, head.number - depth
        headers = self.rpc.batch([RpcRequest("eth_getBlockByNumber", (tag, False)) for tag in ("latest", FINALIZED)])
        if any(isinstance(header, RpcFault) or not header for header in headers):
            raise Unavailable(f"the RPC at {self.rpc.url} does not say which block is {FINALIZED}")
        newest, final = (block_of(header) for header in headers)
        return newest, final.number

    def block(self, number: int) -> Block:
        """The canonical block at this height.

        Raises:
            Unavailable: the endpoint does not know it (yet).
        """
        return self._block(hex(number))

    def blocks(self, numbers: Sequence[int]) -> list[Block]:
        """Many headers in one round trip; shorter than asked where the endpoint does not know the last ones."""
        answers = self.rpc.batch([RpcRequest("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
        for answer in answers:
            if isinstance(answer, RpcFault):
                raise answer
        return [block_of(answer) for answer in answers if answer]

    def pinned(self, block: Block) -> Reader:
        """Views as of this block, by hash: a reorg makes them fail rather than silently change."""
        return Reader(self.rpc, self.deployment, {"blockHash": "0x" + block.hash.hex(), "requireCanonical": True})

    def latest(self) -> Reader:
        """Views of the newest state, for showing to people; a decision takes ``pinned``."""
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


def _connections(rpc: str | Sequence[Rpc], timeout_seconds: float) -> list[Rpc]:
    if not isinstance(rpc, str):
        return list(rpc)
    return [Rpc(url.strip(), timeout_seconds) for url in rpc.split(",")]
