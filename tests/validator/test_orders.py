"""Orders and answers come back as they went in; whatever else is in the queue is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.wire.evidence import Finding, JobEvidence
from protocol.wire.reasons import Reason
from tests.coordinator.conftest import redis_process, redis_url
from validator.judging.claims import Claim
from validator.judging.fingerprinting import KeptRows
from validator.queue.exchange import Exchange
from validator.queue.orders import Answer, Kind, Order, decode_order

__all__ = ["redis_process", "redis_url"]

WORDS = st.binary(min_size=32, max_size=32)
claims = st.builds(
    Claim,
    chain_id=st.integers(0, 2**63),
    rounds=st.just("0x" + "22" * 20),
    round=st.integers(0, 2**256 - 1),
    job=st.integers(0, 255),
    node=st.integers(0, 2**32 - 1),
    beacon=WORDS,
    signed_beacon=WORDS,
    manifest_root=WORDS,
    units=st.integers(0, 2**64 - 1),
    max_units=st.integers(0, 2**64 - 1),
    root=WORDS,
    uri=st.text(max_size=30),
    claimed_before=st.booleans(),
)
orders = st.builds(
    Order,
    run=st.integers(0, 2**256 - 1),
    version=st.integers(0, 2**32 - 1),
    manifest_root=WORDS,
    rules_hash=WORDS,
    chain_id=st.integers(0, 2**63),
    market=st.just("0x" + "33" * 20),
    trainer=st.just("0x" + "44" * 20),
    juror=st.integers(0, 2**32 - 1),
    claims=st.lists(claims, max_size=3).map(tuple),
)
JOB = JobEvidence(3, 1, bytes(32), Reason.SHAPE, 5, None, (Finding(Reason.SHAPE, "x", None, 1.0, 2.0),), None)


@given(orders)
@settings(deadline=None)
def test_an_order_comes_back_as_it_was(order: Order) -> None:
    assert decode_order(order.model_dump_json()) == order


@given(orders, claims)
@settings(deadline=None)
def test_a_job_goes_by_all_that_decides_its_answer_and_by_nothing_else(order: Order, claim: Claim) -> None:
    alone = order.model_copy(update={"claims": ()})
    assert order.key(claim) == alone.key(claim)
    assert order.key(claim) != order.key(replace(claim, job=claim.job ^ 1))
    assert order.key(claim) != order.model_copy(update={"version": order.version + 1}).key(claim)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(Kind.JUDGED, evidence=JOB),
        Answer(Kind.SILENT),
        Answer(Kind.DENIED),
        Answer(Kind.LATER, "a: b"),
        Answer(Kind.FAILED, "é"),
    ],
)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    assert Answer.decode(answer.encode()) == answer


def test_kept_rows_come_back_beside_the_evidence_and_broken_ones_are_refused() -> None:
    rows = KeptRows("torch", bytes(32), np.arange(6, dtype=np.uint16), np.ones(2, np.float32))
    encoded = Answer(Kind.JUDGED, evidence=JOB, rows=rows).encode()
    again = Answer.decode(encoded)
    assert again.evidence == JOB
    assert again.encode() == encoded
    ragged = replace(rows, rows=np.arange(7, dtype=np.uint16))
    torn = [
        Answer(Kind.JUDGED, evidence=JOB, rows=each).encode()
        for each in (ragged, replace(rows, gaps_N=np.zeros(0, np.float32)))
    ]
    for broken in (encoded[:-9], encoded + b"\n", encoded.replace(b"\n", b"\n\n"), *torn):
        with pytest.raises(Rejected):
            Answer.decode(broken)


def test_a_detail_that_is_not_text_is_told_as_far_as_it_is() -> None:
    assert Answer.decode(b"later:a\xff") == Answer(Kind.LATER, "a\ufffd")


@given(st.binary(max_size=80) | st.binary(max_size=80).map(b"judged:".__add__))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Rejected):
        Answer.decode(data)
    with pytest.raises(Rejected):
        decode_order(data.decode("latin-1"))


def test_a_job_is_at_most_one_workers_until_it_is_answered_or_forgotten(redis_url: str) -> None:
    first, second = Exchange(redis_url), Exchange(redis_url)
    assert first.lease(["a", "b"]) == ["a", "b"]
    assert second.lease(["b", "c"]) == ["c"]
    assert first.look(["a", "b", "c", "d"]).leased == {"a", "b", "c"}
    first.answer({"a": b"silent:", "b": b"later:x"})
    look = second.look(["a", "b", "c"])
    assert (look.answers, look.leased) == ({"a": b"silent:", "b": b"later:x"}, {"c"})
    assert second.lease(["a", "b", "c"]) == []
    second.forget(["a"])
    assert second.lease(["a", "b"]) == ["a"]
    first.announce(7, "one")
    first.announce(8, "two")
    assert second.announced() == ["one", "two"]
    first.close()
    second.close()
