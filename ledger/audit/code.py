"""The contracts' code: every other check believes what the contracts emit and answer, so it has to be known as ours.

A contract is what its creation came to, and creation code that is this repository's makes nothing but this repository's
contract: it reads only its own arguments after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from protocol.chain import abi
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.errors import Unavailable

CODE = AuditCheck("code", "the contracts were created from this repository's code, which all other checks rely on")

BLOCKS_PER_REQUEST = 20
"""Blocks with all their transactions, which are large, sent in one answer."""


@CODE.compares
def _compare_code(audit: AuditState, sources: AuditSources) -> None:
    """Finds the transactions that created the contracts, and compares their code with ``contracts/abi``.

    The contracts come right after the deployment's start block, so hardly more than those blocks are read; where one
    is missing from them, all are, up to the audited one.

    Raises:
        Unavailable: the RPC does not answer, or keeps no blocks or receipts so old.
    """
    chain, block_number, findings = sources.chain, sources.block.number, audit.findings
    missing = chain.deployment.contract_names()
    for address, code in _created(chain, block_number):
        if (name := missing.pop(address, None)) is not None:
            findings.holds(
                "code", name, address, "made from this repository's code", code.startswith(abi.bytecode(name))
            )
        if not missing:
            return
    for address, name in missing.items():
        findings.holds("code", name, address, "created by a transaction of its own since the start block", False)


def _created(chain: Chain, block_number: int) -> Iterator[tuple[str, bytes]]:
    """The address, in lower case, and the creation code of each contract that a transaction made, oldest first."""
    for first in range(chain.deployment.start_block + 1, block_number + 1, BLOCKS_PER_REQUEST):
        numbers = range(first, min(first + BLOCKS_PER_REQUEST, block_number + 1))
        blocks = _answers(chain, [RpcRequest("eth_getBlockByNumber", (hex(number), True)) for number in numbers])
        creations = [sent for block in blocks for sent in block["transactions"] if not sent["to"]]
        receipts = _answers(chain, [RpcRequest("eth_getTransactionReceipt", (sent["hash"],)) for sent in creations])
        for sent, receipt in zip(creations, receipts, strict=True):
            if int(receipt["status"], 16):
                yield receipt["contractAddress"].lower(), bytes.fromhex(sent["input"][2:])


def _answers(chain: Chain, requests: list[RpcRequest]) -> list[Any]:
    answers = chain.rpc.batch(requests) if requests else []
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, RpcFault):
            raise answer
        if not answer:
            raise Unavailable(
                f"the RPC at {chain.rpc.url} does not have {request.method} {request.params[0]}, "
                "which the audit of the contracts' code needs; ask one that keeps the whole chain"
            )
    return answers


CHECKS = (CODE,)
