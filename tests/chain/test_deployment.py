"""The address file is checked against the chain before anything trusts it."""

from __future__ import annotations

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from deploy.localnet.processes import free_port
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.errors import Misconfigured, Unavailable
from tests.conftest import TERMS, Anvil, deploy_on


def test_deployed_contracts_know_their_terms(chain: Chain) -> None:
    reader = chain.pinned(chain.head())
    assert reader.registry_terms() == TERMS.registry
    assert reader.market_terms() == TERMS.market
    assert reader.rounds_terms() == TERMS.rounds
    assert reader.node_count() == reader.run_count() == reader.round_count() == 0


def test_an_address_file_survives_saving_and_loading(deployment: Deployment, tmp_path: Path) -> None:
    deployment.save(tmp_path / "addresses.json")
    assert Deployment.load(tmp_path / "addresses.json") == deployment


@pytest.mark.parametrize("depth", [0, 64, 128, None])
def test_what_is_final_on_a_chain_stands_in_its_address_file(
    deployment: Deployment, tmp_path: Path, depth: int | None
) -> None:
    other = dataclasses.replace(deployment, finality_depth=depth)
    other.save(tmp_path / "addresses.json")
    assert Deployment.load(tmp_path / "addresses.json") == other
    assert other.identity() == deployment.identity()


@pytest.mark.parametrize("said", ["soon", -1, True, 1.5, None])
def test_finality_that_is_neither_a_number_nor_the_tag_is_refused(
    deployment: Deployment, tmp_path: Path, said: object
) -> None:
    (tmp_path / "addresses.json").write_text(json.dumps(deployment.to_json() | {"finality": said}))
    with pytest.raises(Misconfigured, match='expected a number of blocks or "finalized"'):
        Deployment.load(tmp_path / "addresses.json")


def test_a_missing_address_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot read the address file"):
        Deployment.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"chainId": 1, "startBlock": 0, "startHash": "0x", "contracts": {}}']
)
def test_garbage_is_no_address_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "addresses.json").write_text(text)
    with pytest.raises(Misconfigured, match="invalid address file"):
        Deployment.load(tmp_path / "addresses.json")


def test_no_rpc_is_one_sentence(deployment: Deployment) -> None:
    with pytest.raises(Unavailable, match=r"no RPC answers at http://127\.0\.0\.1"):
        Chain(f"http://127.0.0.1:{free_port()}", deployment)


def test_an_address_file_of_another_chain_id_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    with pytest.raises(Misconfigured, match="wrong chain: the address file is for chain 5"):
        Chain(anvil.url, dataclasses.replace(deployment, chain_id=5))


def test_addresses_without_code_are_refused(anvil: Anvil, deployment: Deployment) -> None:
    with pytest.raises(Misconfigured, match=r"no contract at 0x0+1, where the address file puts Rounds"):
        Chain(anvil.url, dataclasses.replace(deployment, rounds="0x" + "0" * 39 + "1"))


def test_an_address_file_of_another_history_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    with pytest.raises(Misconfigured, match="of another chain"):
        Chain(anvil.url, dataclasses.replace(deployment, start_hash=b"\1" * 32))


def test_contracts_of_two_deployments_are_not_mixed(anvil: Anvil, deployment: Deployment) -> None:
    other = deploy_on(anvil)
    with pytest.raises(Misconfigured, match="mixes deployments"):
        Chain(anvil.url, dataclasses.replace(deployment, rounds=other.rounds))


def test_a_view_that_the_contract_refuses_says_so_in_its_words(chain: Chain) -> None:
    with pytest.raises(Reverted, match=r"the contract refused: no node 7; .* \(UnknownNode\)"):
        chain.latest().node(7)


def test_views_are_of_the_pinned_block(chain: Chain, anvil: Anvil) -> None:
    before = chain.head()
    anvil.rpc.call("evm_mine")
    anvil.fund("0x" + "00" * 19 + "77", 5)
    anvil.rpc.call("evm_mine")
    assert chain.pinned(before).native_balance("0x" + "00" * 19 + "77") == 0
    assert chain.pinned(chain.head()).native_balance("0x" + "00" * 19 + "77") == 5


@pytest.mark.parametrize("code", ["null", '"-32000"', "[]"])
def test_an_error_whose_code_is_no_number_is_an_error_still(code: str) -> None:
    answer = f'{{"id": 1, "error": {{"code": {code}, "message": "too busy"}}}}'.encode()
    rpc = Rpc("http://rpc.test", transport=httpx.MockTransport(lambda request: httpx.Response(200, content=answer)))
    with pytest.raises(RpcFault, match="too busy"):
        rpc.call("eth_chainId")
    rpc.close()


@pytest.mark.parametrize(
    "answer", [b"[]", b'{"id": 1}', b'{"id": 1, "error": "no"}', b'"fine"', b"[1, 2]", b'[{"id": 77, "result": 1}]']
)
def test_what_is_json_and_no_json_rpc_is_one_sentence(answer: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=answer))
    rpc = Rpc("http://rpc.test", transport=transport)
    with pytest.raises(Unavailable, match="RPC"):
        rpc.call("eth_chainId")
    with pytest.raises(Unavailable, match="RPC"):
        rpc.batch([RpcRequest("eth_chainId"), RpcRequest("eth_blockNumber")])
    rpc.close()


def test_a_web_server_is_no_rpc() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b"<html>no such page</html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        rpc = Rpc(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(Unavailable, match=r"expected JSON-RPC, got HTTP 404"):
            rpc.call("eth_chainId")
        rpc.close()


def test_a_view_asked_of_a_block_before_the_contracts_is_told_in_a_sentence(chain: Chain) -> None:
    before = chain.pinned(chain.block(chain.deployment.start_block))
    with pytest.raises(Unavailable, match="does not have the contract at that block"):
        before.registry_terms()
