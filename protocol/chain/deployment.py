"""The address file of one set of contracts, and its checks against a chain.

    {"chainId": 31337, "startBlock": 2, "startHash": "0x...", "contracts": {"Token": "0x...", ...}}

``startBlock`` is a final block before the contracts were created: reading starts after it, and its hash tells chains of
the same id apart. The optional ``"finality"`` defines when a block is final on this chain: after this many blocks
(64 by default), or by the node's own ``"finalized"`` tag.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.chain.abi import CONTRACTS, checksummed, functions
from protocol.chain.reverts import reverted
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.errors import Misconfigured
from protocol.files import write_atomically

FINALITY_DEPTH = 64
"""Blocks after which a block counts as final by default: two epochs of the beacon chain."""

FINALIZED = "finalized"

REFERENCES = (
    ("Registry", "rounds", "Rounds"),
    ("Registry", "admin", "Admin"),
    ("Registry", "credits", "Credits"),
    ("Registry", "token", "Token"),
    ("Market", "rounds", "Rounds"),
    ("Market", "registry", "Registry"),
    ("Market", "credits", "Credits"),
    ("Rounds", "registry", "Registry"),
    ("Rounds", "market", "Market"),
    ("Rounds", "admin", "Admin"),
    ("Credits", "market", "Market"),
    ("Credits", "token", "Token"),
    ("Credits", "registry", "Registry"),
    ("Traps", "rounds", "Rounds"),
    ("Traps", "market", "Market"),
    ("Traps", "registry", "Registry"),
    ("Traps", "token", "Token"),
)
"""(contract, getter, contract that it must return): checked for each getter that exists."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses of the contracts on one chain; ``start_hash`` is the hash of block ``start_block``.

    ``finality_depth`` is None if the node's ``finalized`` tag defines finality.
    """

    chain_id: int
    start_block: int
    start_hash: bytes
    token: str
    admin: str
    registry: str
    market: str
    rounds: str
    credits: str
    traps: str
    finality_depth: int | None = FINALITY_DEPTH

    def address_of(self, contract: str) -> str:
        """Returns the address of the contract of this name."""
        return str(getattr(self, contract.lower()))

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order of ``CONTRACTS``."""
        return tuple(self.address_of(contract) for contract in CONTRACTS)

    @property
    def label(self) -> str:
        """Name for files and folders of this deployment alone; a restarted local chain has the same addresses."""
        return f"{self.rounds[2:10].lower()}-{self.start_hash.hex()[:8]}"

    def contract_names(self) -> dict[str, str]:
        """Returns contract names by lower-case address, as RPCs write addresses."""
        return {self.address_of(contract).lower(): contract for contract in CONTRACTS}

    @classmethod
    def load(cls, path: Path) -> Deployment:
        """Reads an address file.

        Raises:
            Misconfigured: the file is missing, is not JSON, or lacks a field.
        """
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except OSError as error:
            raise Misconfigured(f"cannot read the address file {path}: {error.strerror}; give --addresses") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Misconfigured(f"invalid address file {path}: {error!r}") from error

    @classmethod
    def from_json(cls, loaded: dict[str, Any]) -> Deployment:
        """Returns the deployment that an address file's JSON describes."""
        contracts = {name.lower(): checksummed(loaded["contracts"][name]) for name in CONTRACTS}
        start_hash = bytes.fromhex(loaded["startHash"].removeprefix("0x"))
        depth = _finality(loaded.get("finality", FINALITY_DEPTH))
        return cls(int(loaded["chainId"]), int(loaded["startBlock"]), start_hash, **contracts, finality_depth=depth)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the address file."""
        finality = FINALIZED if self.finality_depth is None else self.finality_depth
        return self.identity() | ({} if finality == FINALITY_DEPTH else {"finality": finality})

    def identity(self) -> dict[str, Any]:
        """Returns the fields that tell this deployment from every other."""
        return {
            "chainId": self.chain_id,
            "startBlock": self.start_block,
            "startHash": "0x" + self.start_hash.hex(),
            "contracts": {name: self.address_of(name) for name in CONTRACTS},
        }

    def save(self, path: Path) -> None:
        """Writes the address file atomically."""
        write_atomically(path, (json.dumps(self.to_json(), indent=2) + "\n").encode())

    def verify(self, rpc: Rpc) -> None:
        """Checks that this RPC's chain holds these contracts.

        Raises:
            Unavailable: no RPC answers.
            Misconfigured: another chain (by id or by history), missing code, or contracts that do not belong together.
        """
        chain_id = int(rpc.call("eth_chainId"), 16)
        if chain_id != self.chain_id:
            raise Misconfigured(
                f"wrong chain: the address file is for chain {self.chain_id}, "
                f"the RPC at {rpc.url} serves chain {chain_id}"
            )
        self._verify_code(rpc)
        self._verify_start(rpc)
        self._verify_references(rpc)

    def _verify_code(self, rpc: Rpc) -> None:
        codes = rpc.results([RpcRequest("eth_getCode", (address, "latest")) for address in self.addresses])
        for name, address, code in zip(CONTRACTS, self.addresses, codes, strict=True):
            if code in ("0x", None):
                raise Misconfigured(
                    f"no contract at {address}, where the address file puts {name}: "
                    f"it belongs to another deployment, or the chain at {rpc.url} was restarted"
                )

    def _verify_start(self, rpc: Rpc) -> None:
        header = rpc.call("eth_getBlockByNumber", hex(self.start_block), False)
        if not header or bytes.fromhex(header["hash"][2:]) != self.start_hash:
            raise Misconfigured(
                f"the address file is of another chain: its block {self.start_block} is 0x{self.start_hash.hex()}, "
                f"that of the RPC at {rpc.url} is {header['hash'] if header else 'missing'}"
            )

    def _verify_references(self, rpc: Rpc) -> None:
        checks = [check for check in REFERENCES if check[1] in functions(check[0])]
        calls = [
            {"to": self.address_of(name), "data": "0x" + functions(name)[getter].selector.hex()}
            for name, getter, _ in checks
        ]
        answers = rpc.batch([RpcRequest("eth_call", (call, "latest")) for call in calls])
        for (name, getter, other), answer in zip(checks, answers, strict=True):
            if isinstance(answer, RpcFault) and reverted(answer) is None:
                raise answer
            named = None if isinstance(answer, RpcFault) or len(answer) < 42 else checksummed("0x" + answer[-40:])
            if named != self.address_of(other):
                raise Misconfigured(
                    f"the address file mixes deployments: {name}.{getter}() at {self.address_of(name)} is {named}, "
                    f"not {self.address_of(other)}"
                )


def _finality(said: Any) -> int | None:
    if said == FINALIZED:
        return None
    if not isinstance(said, int) or isinstance(said, bool) or said < 0:
        raise ValueError(f'invalid finality {said!r}: expected a number of blocks or "{FINALIZED}"')
    return said
