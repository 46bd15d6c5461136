"""The transactions that created the contracts, and how their code differs from this repository's.

Creation code that is this repository's makes nothing but this repository's contract: it reads only the arguments after
it. So it is all that has to be compared, and it shows the arguments as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol.chain import abi
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.errors import Unavailable

BLOCKS_PER_REQUEST = 20
"""Blocks with all their transactions, which are large, sent in one answer."""

PUSH1, PUSH32 = 0x60, 0x7F
"""Instructions that carry their operand, of 1 to 32 bytes, after them."""

METADATA = b"\x64solc\x43"
"""Key of the compiler's version in the metadata that it appends to code, before three bytes; ours is built without."""


@dataclass(frozen=True, slots=True)
class Creation:
    """A contract's creation: where it is, and the code and arguments it was made of."""

    address: str
    data: bytes


def creations(chain: Chain, up_to: int) -> Iterator[Creation]:
    """Yields each contract that a transaction made from the deployment's start block to ``up_to``, oldest first.

    Addresses are in lower case. The deployment's own come soon after its start block, which was final.

    Raises:
        Unavailable: the RPC does not answer, or keeps no blocks or receipts so old.
    """
    for first in range(chain.deployment.start_block + 1, up_to + 1, BLOCKS_PER_REQUEST):
        numbers = range(first, min(first + BLOCKS_PER_REQUEST, up_to + 1))
        blocks = _answers(chain, [RpcRequest("eth_getBlockByNumber", (hex(number), True)) for number in numbers])
        made = [sent for block in blocks for sent in block["transactions"] if not sent["to"]]
        receipts = _answers(chain, [RpcRequest("eth_getTransactionReceipt", (sent["hash"],)) for sent in made])
        for sent, receipt in zip(made, receipts, strict=True):
            if int(receipt["status"], 16):
                yield Creation(receipt["contractAddress"].lower(), bytes.fromhex(sent["input"][2:]))


def deployment_creations(chain: Chain, up_to: int) -> Iterator[tuple[str, Creation]]:
    """Yields the name and creation of each of the deployment's contracts that is found up to a block.

    Raises:
        Unavailable: see ``creations``.
    """
    missing = chain.deployment.contract_names()
    for made in creations(chain, up_to):
        if (name := missing.pop(made.address, None)) is not None:
            yield name, made
        if not missing:
            return


def _answers(chain: Chain, requests: list[RpcRequest]) -> list[Any]:
    answers = chain.rpc.batch(requests) if requests else []
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, RpcFault):
            raise answer
        if not answer:
            raise Unavailable(
                f"the RPC at {chain.rpc.url} does not have {request.method} {request.params[0]}, "
                "which the check of the contracts' code needs; ask one that keeps the whole chain"
            )
    return answers


def difference(name: str, data: bytes) -> str:
    """Returns how creation data differs from a contract of this repository, in words; empty if it does not. PURE."""
    ours = abi.bytecode(name)
    if data.startswith(ours):
        return ""
    if (place := data.find(METADATA)) >= 0:
        version = ".".join(map(str, data[place + len(METADATA) :][:3]))
        return f"it has another compiler's metadata, of solc {version}, at byte {place:,}; this repository's has none"
    theirs = data[: len(ours)]
    differing = [place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other]
    if not differing:
        return f"it ends after {len(data):,} of {len(ours):,} bytes"
    constants = [found for place in differing[:1] for found in _operands(ours, theirs, place)]
    if constants and len(differing) <= PUSH32 - PUSH1 + 1:
        (at, wanted, found), *_ = constants
        return f"a constant at byte {at:,} is {found:,} instead of {wanted:,}"
    return f"{len(differing):,} of {len(ours):,} bytes differ, the first at byte {differing[0]:,}"


def _operands(ours: bytes, theirs: bytes, place: int) -> Iterator[tuple[int, int, int]]:
    """Yields the instruction at whose operand a byte lies, if one does: place, our operand, and theirs."""
    at = 0
    while at <= place:
        width = ours[at] - PUSH1 + 1 if PUSH1 <= ours[at] <= PUSH32 else 0
        if at < place <= at + width and ours[at] == theirs[at]:
            operand = slice(at + 1, at + 1 + width)
            yield at + 1, int.from_bytes(ours[operand], "big"), int.from_bytes(theirs[operand], "big")
        at += 1 + width


def constructor_arguments(name: str, data: bytes) -> dict[str, Any]:
    """Returns the arguments behind a contract's creation code, by the constructor's names.

    Raises:
        ValueError: they are not the encoding of what the constructor takes.
    """
    inputs: list[Any] = next(
        (each["inputs"] for each in abi.artifact(name)["abi"] if each["type"] == "constructor"), []
    )
    try:
        values = abi.Values.of(inputs).decode(data[len(abi.bytecode(name)) :])
    except Exception as error:
        raise ValueError(f"invalid constructor arguments of {name}: {error}") from error
    return dict(zip((each["name"] for each in inputs), values, strict=True))
