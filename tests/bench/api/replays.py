"""One accepted request, and all that can be made of it or of its parts: none may be let through a second time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import httpx
from eth_utils import keccak

from protocol.wire.auth import (
    HEADER_ADDRESS,
    HEADER_BODY,
    HEADER_DEADLINE,
    HEADER_NONCE,
    HEADER_RUN,
    HEADER_SIGNATURE,
    MAX_REQUEST_SECONDS,
)
from tests.coordinator.swarm import Party, Swarm, headers

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that must be refused."""

    part: str
    what: str
    method: str
    path: str
    body: bytes
    headers: dict[str, str]

    def status(self, client: httpx.Client) -> int:
        """Sends it and returns the answer's status."""
        return client.request(self.method, self.path, content=self.body or None, headers=self.headers).status_code


def attempts(swarm: Swarm, client: httpx.Client) -> Iterator[Attempt]:
    """Has one request accepted, then gives what can be made of it, one part changed at a time."""
    worker, other = swarm.workers
    signed, by_other = partial(headers, swarm, worker), partial(headers, swarm, other)
    path, now = f"/nodes/{worker.node}/assignments?wait=0", int(time.time())
    used = signed("GET", path)
    assert client.get(path, headers=used).status_code == 200
    outsider = Party(swarm.make_wallet("outsider"), swarm.make_wallet("outsider-key"))
    owner = Party(worker.owner, worker.owner, worker.node)

    def get(part: str, what: str, sent: dict[str, str]) -> Attempt:
        return Attempt(part, what, "GET", path, b"", sent)

    yield get("all", "the same again", used)
    yield get("time", "its deadline put off", used | {HEADER_DEADLINE: str(now + 90)})
    yield get("time", "never sent, past its deadline", signed("GET", path, deadline=now - 1))
    yield get("time", "a deadline too far", signed("GET", path, deadline=now + 10 * MAX_REQUEST_SECONDS))
    yield get("nonce", "another nonce", used | {HEADER_NONCE: str(secrets.randbits(256))})
    yield get("nonce", "the same nonce, signed anew", signed("GET", path, nonce=int(used[HEADER_NONCE])))
    yield get("nonce", "the nonce with a zero before it", used | {HEADER_NONCE: "0" + used[HEADER_NONCE]})
    yield get("method", "signed for a POST", signed("POST", path))
    yield Attempt("method", "sent as a POST", "POST", path, b"", signed("GET", path))
    yield get("path", "signed for another query", signed("GET", path[:-1] + "1"))
    yield get("path", "signed without the query", signed("GET", path.split("?")[0]))
    yield Attempt("path", "used with more in the query", "GET", path + "&more=1", b"", used)
    yield Attempt("path", "used with a slash more", "GET", "/" + path, b"", used)
    theirs = f"/nodes/{other.node}/assignments?wait=0"
    yield Attempt("path", "used for another node", "GET", theirs, b"", used)
    yield Attempt("path", "signed for another node's work", "GET", theirs, b"", signed("GET", theirs))
    yield get("body", "signed with a body", signed("GET", path, b"{}"))
    beat = b'{"node": %d, "version": 0}' % worker.node
    beating = signed("POST", "/heartbeats", beat)
    yield Attempt("body", "another body", "POST", "/heartbeats", beat.replace(b"0}", b"1}"), beating)
    yield Attempt("body", "no body", "POST", "/heartbeats", b"", signed("POST", "/heartbeats", beat))
    other_beat = beat.replace(b"0}", b"1}")
    renamed = signed("POST", "/heartbeats", beat) | {HEADER_BODY: "0x" + keccak(other_beat).hex()}
    yield Attempt("body", "another body and its hash", "POST", "/heartbeats", other_beat, renamed)
    yield get("chain", "signed for another chain", signed("GET", path, chain_id=1))
    contract = signed("GET", path, rounds=swarm.chain.deployment.market)
    yield get("chain", "signed for another contract", contract)
    yield get("run", "signed for another run's coordinator", signed("GET", path, run=swarm.run + 1))
    yield get("run", "sent as if to this one", signed("GET", path, run=swarm.run + 1) | {HEADER_RUN: str(swarm.run)})
    yield get("run", "used with another run named", used | {HEADER_RUN: str(swarm.run + 1)})
    yield get("address", "another node's name", used | {HEADER_ADDRESS: other.key.address})
    yield get("address", "another node's signature", by_other("GET", path))
    yield get("address", "a stranger's signature", headers(swarm, outsider, "GET", path))
    yield get("address", "its owner's signature", headers(swarm, owner, "GET", path))
    for what, signature in _signatures(used[HEADER_SIGNATURE]):
        yield get("signature", what, used | {HEADER_SIGNATURE: signature})


def _signatures(hexadecimal: str) -> Iterator[tuple[str, str]]:
    """The other ways to write a signature."""
    signature = bytes.fromhex(hexadecimal[2:])
    r, s, v = signature[:32], int.from_bytes(signature[32:64], "big"), signature[64]
    yield "its other half of the curve", "0x" + (r + (CURVE_ORDER - s).to_bytes(32, "big") + bytes([55 - v])).hex()
    yield "v counted from zero", "0x" + (signature[:64] + bytes([v - 27])).hex()
    yield "in capitals", "0x" + signature.hex().upper()
    yield "empty", "0x"
