"""An audit knows the contracts by the transactions that created them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import audit
from ledger.audit.report import Discrepancy
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain import abi
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.errors import Unavailable
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import Anvil, deploy_on

FAUCET_CAP = (10**24).to_bytes(10, "big")
"""Most token wei of the faucet for one address, as the code has it."""


def named(anvil: Anvil, deployment: Deployment, directory: Path) -> list[Discrepancy]:
    with (
        closing(Chain(anvil.url, deployment)) as chain,
        closing(Database(directory / "l.sqlite", deployment)) as database,
    ):
        sync(chain, database)
        report = audit(chain, database)
    return [finding for check in report.checks for finding in check.findings]


def test_a_contract_that_is_not_of_this_code_is_named(
    anvil: Anvil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = abi.bytecode("Token")
    assert ours.count(FAUCET_CAP) > 0
    generous = ours.replace(FAUCET_CAP, b"\xff" * len(FAUCET_CAP))
    with monkeypatch.context() as patched:
        others = {"Token": generous}
        bytecode = abi.bytecode
        patched.setattr(abi, "bytecode", lambda contract: others.get(contract) or bytecode(contract))
        deployment = deploy_on(anvil)
    (finding,) = named(anvil, deployment, tmp_path)
    assert (finding.check, finding.subject, finding.key) == ("code", "Token", deployment.token.lower())
    assert finding.field == "made from this repository's code"


def test_contracts_created_before_the_start_block_are_not_known(anvil: Anvil, chain: Chain, tmp_path: Path) -> None:
    late = chain.head()
    anvil.rpc.call("anvil_mine", hex(30))
    deployment = replace(chain.deployment, start_block=late.number, start_hash=late.hash)
    findings = named(anvil, deployment, tmp_path)
    unknown = [finding.subject for finding in findings if finding.check == "code"]
    assert sorted(unknown) == sorted(abi.CONTRACTS)
    assert {finding.field for finding in findings if finding.check == "code"} == {
        "created by a transaction of its own since the start block"
    }


def test_an_rpc_that_keeps_no_receipts_so_old_is_told_apart_from_other_code(
    anvil: Anvil, chain: Chain, database: Database
) -> None:
    def forgetful(asked: Asked, forward: Forward) -> Answer:
        answer = forward(asked)
        return answer.with_results(forgotten) if "eth_getTransactionReceipt" in asked.methods else answer

    def forgotten(result: Mapping[str, Any]) -> dict[str, Any]:
        return {**result, "result": None}

    between = Between(anvil.port)
    with closing(between), between.interfering(forgetful), closing(Chain(between.url, chain.deployment)) as asked:
        sync(asked, database)
        with pytest.raises(Unavailable, match=r"does not have eth_getTransactionReceipt 0x.*; ask one that keeps the"):
            audit(asked, database)
