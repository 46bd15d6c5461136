"""Endpoints that ask to slow down are asked again when they say, and no longer than anyone would wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from protocol.chain.rpc import Rpc, RpcRequest
from protocol.errors import Unavailable
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import Anvil
from tests.evms.chain import WIDEST_LOGS, Grudge


@pytest.fixture
def between(anvil: Anvil) -> Iterator[Between]:
    made = Between(urlsplit(anvil.url).port or 0)
    yield made
    made.close()


def test_a_request_that_is_to_wait_is_made_again(anvil: Anvil, between: Between) -> None:
    refused = list[Asked]()

    def once(asked: Asked, forward: Forward) -> Answer:
        if refused:
            return forward(asked)
        refused.append(asked)
        return Answer(429, {"content-type": "text/plain", "retry-after": "1"}, b"slow down")

    rpc, began = Rpc(between.url), time.monotonic()
    with between.interfering(once):
        assert rpc.call("eth_chainId") == anvil.rpc.call("eth_chainId")
    assert time.monotonic() - began >= 1
    assert rpc.round_trips == 2
    rpc.close()


def test_an_endpoint_that_names_no_time_to_wait_is_not_asked_at_full_speed(between: Between) -> None:
    refusal = Answer(429, {"content-type": "text/plain", "retry-after": "0"}, b"slow down")
    rpc = Rpc(between.url)
    with between.interfering(lambda asked, forward: refusal), pytest.raises(Unavailable, match="asks to slow down"):
        rpc.call("eth_chainId")
    assert rpc.round_trips <= 101
    rpc.close()


@pytest.mark.parametrize("header", [{}, {"retry-after": "3600"}, {"retry-after": "Fri, 27 Nov 2026 00:00:00 GMT"}])
def test_an_endpoint_that_names_no_short_time_is_unavailable_at_once(between: Between, header: dict[str, str]) -> None:
    rpc, began = Rpc(between.url), time.monotonic()
    refusal = Answer(429, {"content-type": "text/plain"} | header, b"slow down")
    with between.interfering(lambda asked, forward: refusal), pytest.raises(Unavailable, match="asks to slow down"):
        rpc.call("eth_chainId")
    assert time.monotonic() - began < 1
    rpc.close()


def test_the_grudging_endpoint_of_make_evms_refuses_wide_queries_and_answers_the_rest(
    anvil: Anvil, between: Between
) -> None:
    rpc = Rpc(between.url)
    with between.interfering(Grudge()):
        for width, refused in ((WIDEST_LOGS, False), (WIDEST_LOGS + 1, True)):
            query = {"fromBlock": "0x0", "toBlock": hex(width - 1)}
            chain_id, logs = rpc.batch([RpcRequest("eth_chainId"), RpcRequest("eth_getLogs", (query,))])
            assert chain_id == anvil.rpc.call("eth_chainId")
            assert isinstance(logs, Unavailable) == refused
    rpc.close()
