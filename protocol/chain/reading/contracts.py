"""Typed views of the contracts at one block.

A pinned ``Reader`` answers for one block, by hash, so that a decision never mixes two states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from eth_abi.exceptions import DecodingError

from protocol.chain import abi, structs
from protocol.chain.reverts import Reverted, reverted
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.errors import Unavailable

if TYPE_CHECKING:
    from protocol.chain.deployment import Deployment

BlockTag = str | dict[str, Any]
"""``"latest"``, ``"pending"``, or EIP-1898's ``{"blockHash": ..., "requireCanonical": true}``."""


class Reader:
    """Views of one deployment at one block.

    Every method raises ``Unavailable`` if the RPC does not answer (or no longer knows the block) and ``Reverted`` if
    the contract refuses (``UnknownRun``, ``UnknownNode``).
    """

    def __init__(self, rpc: Rpc, deployment: Deployment, block: BlockTag = "latest") -> None:
        self._rpc = rpc
        self._deployment = deployment
        self._block = block

    def view(self, contract: str, function: str, *arguments: Any) -> Any:
        """Calls any view function of any of the contracts."""
        return self.views(contract, function, [arguments])[0]

    def views(self, contract: str, function: str, arguments: Iterable[Sequence[Any]]) -> list[Any]:
        """Calls the same view for many arguments in one round trip."""
        shape = abi.functions(contract)[function]
        to = self._deployment.address_of(contract)
        calls = [
            RpcRequest("eth_call", ({"to": to, "data": "0x" + shape.encode(*given).hex()}, self._block))
            for given in arguments
        ]
        return [self._decoded(shape, answer) for answer in self._rpc.batch(calls)]

    def _decoded(self, shape: abi.Entry, answer: Any) -> Any:
        if isinstance(answer, RpcFault):
            raise reverted(answer) or answer
        try:
            return shape.decode_output(bytes.fromhex(answer[2:]))
        except (TypeError, ValueError, DecodingError) as error:
            raise Unavailable(
                f"invalid answer to {shape.contract}.{shape.name} from {self._rpc.url}: {str(answer)[:40]!r}; "
                "the endpoint does not have the contract at that block, or another one has its address"
            ) from error

    # Token

    def balance_of(self, address: str) -> int:
        """Token wei."""
        return cast(int, self.view("Token", "balanceOf", address))

    def allowance(self, owner: str, spender: str) -> int:
        """Token wei that ``spender`` can take from ``owner``."""
        return cast(int, self.view("Token", "allowance", owner, spender))

    def native_balance(self, address: str) -> int:
        """Wei of the chain's own coin, which pays for gas."""
        return int(self._rpc.call("eth_getBalance", address, self._block), 16)

    # Registry

    def node_count(self) -> int:
        """Nodes ever registered; ids run from 1 to this."""
        return cast(int, self.view("Registry", "nodeCount"))

    def node(self, node: int) -> structs.Node:
        """One node."""
        return cast(structs.Node, self.view("Registry", "nodeOf", node))

    def nodes(self, nodes: Sequence[int]) -> list[structs.Node]:
        """Many nodes in one round trip."""
        return self.views("Registry", "nodeOf", [(node,) for node in nodes])

    def node_by_key(self, key: str) -> int:
        """The node bound to this key; 0 if there is none."""
        return cast(int, self.view("Registry", "nodeByKey", key))

    def required_bond(self, role: structs.Role, capacity: int) -> int:
        """Token wei a node must hold to be listable."""
        return cast(int, self.view("Registry", "requiredBond", role, capacity))

    def is_listable(self, node: int) -> bool:
        """True if the node is in service, active, and holds its bond."""
        return cast(bool, self.view("Registry", "isListable", node))

    def next_contest(self) -> tuple[int, int] | None:
        """The slot that a new validator would contest, and the bond in token wei; None while slots are free."""
        try:
            return cast(tuple[int, int], self.view("Registry", "nextContest"))
        except Reverted as error:
            if error.name == "SlotsFree":
                return None
            raise

    def holder(self, slot: int) -> int:
        """The validator that holds a slot, active or not yet; 0 if it is free."""
        return cast(int, self.view("Registry", "holderOf", slot))

    def contest(self, slot: int) -> tuple[int, int]:
        """The newcomer that waits for a slot, and the unix second from which it is not matched; 0, 0 if none does."""
        return cast(tuple[int, int], self.view("Registry", "contestOf", slot))

    def registry_terms(self) -> structs.RegistryTerms:
        """Bonds and delays."""
        return cast(structs.RegistryTerms, self.view("Registry", "terms"))

    # Market

    def run_count(self) -> int:
        """Runs ever opened; ids run from 1 to this."""
        return cast(int, self.view("Market", "runCount"))

    def run(self, run: int) -> structs.Run:
        """One run."""
        return cast(structs.Run, self.view("Market", "runOf", run))

    def runs(self, runs: Sequence[int]) -> list[structs.Run]:
        """Many runs in one round trip."""
        return self.views("Market", "runOf", [(run,) for run in runs])

    def announced(self, run: int) -> tuple[structs.RunTerms, int]:
        """The terms announced last, and the unix second from which they are in effect; 0 if none were announced."""
        return cast(tuple[structs.RunTerms, int], self.view("Market", "announcedOf", run))

    def market_terms(self) -> structs.MarketTerms:
        """Notice period, and the longest duration of a round."""
        return cast(structs.MarketTerms, self.view("Market", "terms"))

    def joined_at(self, run: int, node: int) -> bytes:
        """The rules hash at which the node joined; 32 zero bytes if it has not."""
        return cast(bytes, self.view("Market", "joinedAt", run, node))

    def strikes(self, run: int, node: int) -> tuple[int, int]:
        """A validator's strikes in a run, and the unix second from which they no longer count; 0, 0 if it has none."""
        return cast(tuple[int, int], self.view("Market", "strikesOf", run, node))

    def juror_slots(self, run: int, rules_hash: bytes) -> tuple[int, int]:
        """The bitmap of slots that a round of the run may draw now, and how many of them it needs at least."""
        return cast(tuple[int, int], self.view("Market", "jurorSlots", run, rules_hash))

    def manifest_root(self, run: int, version: int) -> bytes:
        """The root of a checkpoint's manifest; 32 zero bytes if it was never published."""
        return cast(bytes, self.view("Market", "manifestRootOf", run, version))

    # Rounds

    def round_count(self) -> int:
        """Rounds ever opened; ids run from 1 to this."""
        return cast(int, self.view("Rounds", "roundCount"))

    def round(self, round: int) -> structs.Round:
        """One round."""
        return cast(structs.Round, self.view("Rounds", "roundOf", round))

    def rounds(self, rounds: Sequence[int]) -> list[structs.Round]:
        """Many rounds in one round trip."""
        return self.views("Rounds", "roundOf", [(round,) for round in rounds])

    def seats(self, round: int) -> tuple[structs.Seat, ...]:
        """The seats of a round's committee, in the order drawn."""
        return cast(tuple[structs.Seat, ...], self.view("Rounds", "seatsOf", round))

    def appeal_of(self, round: int, job: int) -> int:
        """The number of a job's appeal; 0 if it was not appealed."""
        return cast(int, self.view("Rounds", "appealOf", round, job))

    def appeal(self, appealed: int) -> structs.Appeal:
        """The appeal of this number."""
        return cast(structs.Appeal, self.view("Rounds", "appealAt", appealed))

    def rounds_terms(self) -> structs.RoundsTerms:
        """Penalties and the cost of an appeal."""
        return cast(structs.RoundsTerms, self.view("Rounds", "terms"))

    # Traps

    def trap_set(self, number: int) -> structs.TrapSet:
        """One set of traps."""
        return cast(structs.TrapSet, self.view("Traps", "setOf", number))

    def leaf_opened(self, number: int, leaf: bytes) -> bool:
        """True if this leaf of a set was opened."""
        return cast(bool, self.view("Traps", "isOpened", number, leaf))

    # Credits

    def credits_of(self, owner: str) -> int:
        """Free credits of an owner."""
        return cast(int, self.view("Credits", "balanceOf", owner))
