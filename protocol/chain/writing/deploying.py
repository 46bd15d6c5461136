"""Deploys a new set of contracts. They refer to each other, so their addresses are computed in advance.

This uses web3's contract factory, since it runs once per network. Everything else uses JSON-RPC directly (``rpc``),
which takes half the time per call and a tenth of the import time.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import requests
from web3 import HTTPProvider, Web3
from web3.exceptions import ContractLogicError, Web3Exception
from web3.utils.address import get_create_address

from protocol.chain import abi
from protocol.chain.abi import checksummed
from protocol.chain.deployment import Deployment
from protocol.chain.rpc import Rpc
from protocol.chain.structs import ProtocolTerms
from protocol.chain.writing.fees import GWEI
from protocol.chain.writing.pending import TransactionSigner
from protocol.errors import Rejected, Unavailable

ORDER = ("Token", "Admin", "Credits", "Registry", "Market", "Rounds", "Traps")
"""Order of deployment: Rounds checks that the contracts before it refer to it, and Traps reads Rounds."""

WAIT_SECONDS = 120.0
"""Longest wait for each contract to be mined."""


def deploy(
    rpc_url: str, account: TransactionSigner, terms: ProtocolTerms, treasury: str, admin: str | None = None
) -> Deployment:
    """Deploys the contracts from ``account``, using its next nonces.

    Args:
        rpc_url: RPC endpoint of the chain.
        account: signs and pays for the deployment.
        terms: terms that are fixed at deployment.
        treasury: receiver of slashed bonds.
        admin: the first admin and pauser; None for ``account``.

    Raises:
        Unavailable: no RPC answers, or a contract is not mined in time.
        Rejected: the chain refuses a contract.
        Misconfigured: the contracts are not built.
    """
    try:
        deployment = _deploy(Web3(HTTPProvider(rpc_url)), account, terms, treasury, admin or account.address)
    except ContractLogicError as error:
        raise Rejected(f"the chain refused a contract: {error}") from error
    except (requests.RequestException, Web3Exception) as error:
        raise Unavailable(f"deploying through the RPC at {rpc_url} failed: {error}") from error
    with closing(Rpc(rpc_url)) as rpc:
        deployment.verify(rpc)
    return deployment


def _deploy(w3: Web3, account: TransactionSigner, terms: ProtocolTerms, treasury: str, admin: str) -> Deployment:
    start, nonce = w3.eth.get_block("latest"), w3.eth.get_transaction_count(account.address)  # type: ignore[arg-type]
    planned: dict[str, str] = {
        name: checksummed(get_create_address(account.address, nonce + index))  # type: ignore[arg-type]
        for index, name in enumerate(ORDER)
    }
    arguments = _arguments(planned, terms, treasury, admin)
    for index, name in enumerate(ORDER):
        _create(w3, account, nonce + index, name, [abi.plain(argument) for argument in arguments[name]])
    addresses: Any = {name.lower(): address for name, address in planned.items()}
    return Deployment(w3.eth.chain_id, int(start["number"]), bytes(start["hash"]), **addresses)


def _arguments(planned: dict[str, str], terms: ProtocolTerms, treasury: str, admin: str) -> dict[str, list[Any]]:
    at = planned
    return {
        "Token": [],
        "Admin": [terms.admin_delay, admin, treasury],
        "Credits": [at["Token"], at["Market"], at["Registry"]],
        "Registry": [at["Token"], at["Admin"], at["Credits"], at["Rounds"], terms.registry],
        "Market": [at["Registry"], at["Credits"], at["Rounds"], terms.market],
        "Rounds": [at["Registry"], at["Market"], terms.rounds],
        "Traps": [at["Rounds"]],
    }


def _create(w3: Web3, account: TransactionSigner, nonce: int, name: str, arguments: list[Any]) -> None:
    factory = w3.eth.contract(abi=abi.artifact(name)["abi"], bytecode=abi.bytecode(name))
    bid = 2 * int(w3.eth.get_block("latest")["baseFeePerGas"]) + GWEI
    transaction: dict[str, Any] = dict(
        factory.constructor(*arguments).build_transaction(
            {"from": account.address, "nonce": nonce, "maxFeePerGas": bid, "maxPriorityFeePerGas": GWEI}
        )
    )
    del transaction["from"], transaction["to"]
    sent = w3.eth.send_raw_transaction(account.sign_transaction(transaction))
    if w3.eth.wait_for_transaction_receipt(sent, WAIT_SECONDS)["status"] != 1:
        raise Rejected(f"the chain refused {name} in transaction 0x{sent.hex()}")
