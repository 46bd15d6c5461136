"""URLs are shown without their credentials."""

from __future__ import annotations

import pytest

from protocol.chain.rpc import Rpc
from protocol.errors import Unavailable
from protocol.masking import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://me:secret@host/0", "redis://me:***@host/0"),
        ("redis://:secret@host/0", "redis://:***@host/0"),
        ("https://me:p@ss:w@rd@host:1/x", "https://me:***@host:1/x"),
        ("https://TOKEN@host", "https://***@host"),
        ("http://a:b@one,https://TOKEN@two", "http://a:***@one,https://***@two"),
        ("no RPC answers at 'http://a:b@one': is it running?", "no RPC answers at 'http://a:***@one': is it running?"),
        ("http://host/path?to=a@b", "http://host/path?to=a@b"),
        ("https://rpc.example/v3/0123456789abcdef0123456789abcdef", "https://rpc.example/v3/***"),
        ("at https://one.example/v2/aB3-dE_6gH9jK2mN5pQ8: no", "at https://one.example/v2/***: no"),
        ("(https://a.example/v3/0123456789abcdef0123)", "(https://a.example/v3/***)"),
        ("https://a.example/?apikey=0123456789abcdefghij&x=1", "https://a.example/?apikey=***&x=1"),
        (f"http://host/v1/artifacts/{'ab' * 31}00", f"http://host/v1/artifacts/{'ab' * 31}00"),
        (f"http://host/nodes/0x{'00' * 19}a1", f"http://host/nodes/0x{'00' * 19}a1"),
        ("write to someone@somewhere", "write to someone@somewhere"),
    ],
)
def test_passwords_and_tokens_are_masked_and_the_rest_stays(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_an_error_of_an_rpc_shows_no_credentials() -> None:
    with pytest.raises(Unavailable) as refused:
        Rpc("http://me:secret@127.0.0.1:1").call("eth_chainId")
    assert "me:***@127.0.0.1:1" in str(refused.value)
    assert "secret" not in str(refused.value)
