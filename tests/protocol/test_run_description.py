"""A node fetches weights from a run's relays, and from its origin where there are none."""

from __future__ import annotations

import pytest

from protocol.wire.api import ChainIdentity, RunDescription

NOBODY = "0x" + "0" * 40


@pytest.mark.parametrize(
    ("relays", "origin", "weights_from"),
    [
        (["http://relay.example"], "http://origin.example", ("http://relay.example",)),
        ([], "http://origin.example", ("http://origin.example",)),
        ([], None, ()),
        (["file:///etc", "s3://bucket", "http://relay.example"], None, ("http://relay.example",)),
        (["file:///etc"], "http://origin.example", ("http://origin.example",)),
        ([], "file:///etc", ()),
    ],
)
def test_weights_come_from_the_relays_or_else_from_the_origin(
    relays: list[str], origin: str | None, weights_from: tuple[str, ...]
) -> None:
    chain = ChainIdentity.model_construct()
    described = RunDescription.model_construct(
        run=1,
        rules_hash=bytes(32),
        rules={},
        chain=chain,
        trainer=NOBODY,
        coordinator=NOBODY,
        sources=relays,
        origin=origin,
    )
    assert described.weights_from == weights_from
