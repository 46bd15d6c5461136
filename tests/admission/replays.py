"""One accepted request, and all that can be made of it or of its parts: none may be let through a second time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from protocol.wire.auth import (
    HEADER_ADDRESS,
    HEADER_DEADLINE,
    HEADER_NONCE,
    HEADER_SIGNATURE,
    MAX_REQUEST_SECONDS,
    sign_request,
)
from tests.coordinator.swarm import Party, Swarm

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


class Signer:
    """Signs requests of one node for one coordinator."""

    def __init__(self, swarm: Swarm, party: Party) -> None:
        self.party = party
        self._deployment = swarm.chain.deployment

    def headers(self, method: str, path: str, body: bytes = b"", **changes: int | str) -> dict[str, str]:
        """The headers of a request as they should be, or with other values under the signature."""
        values: dict[str, int | str] = {
            "chain_id": self._deployment.chain_id,
            "contract": self._deployment.rounds,
            "nonce": secrets.randbits(256),
            "deadline": int(time.time()) + 60,
        } | changes
        return sign_request(self.party.key, method=method, path=path, body=body, **values)  # type: ignore[arg-type]


def attempts(swarm: Swarm, client: httpx.Client) -> Iterator[Attempt]:
    """Has one request accepted, then gives what can be made of it, one part changed at a time."""
    worker, other = (Signer(swarm, party) for party in swarm.workers)
    path, now = f"/nodes/{worker.party.node}/assignments?wait=0", int(time.time())
    used = worker.headers("GET", path)
    assert client.get(path, headers=used).status_code == 200
    outsider = Signer(swarm, Party(swarm.make_wallet("outsider"), swarm.make_wallet("outsider-key")))

    def get(part: str, what: str, headers: dict[str, str]) -> Attempt:
        return Attempt(part, what, "GET", path, b"", headers)

    yield get("all", "the same again", used)
    yield get("time", "its deadline put off", used | {HEADER_DEADLINE: str(now + 90)})
    yield get("time", "never sent, past its deadline", worker.headers("GET", path, deadline=now - 1))
    yield get("time", "a deadline too far", worker.headers("GET", path, deadline=now + 10 * MAX_REQUEST_SECONDS))
    yield get("nonce", "another nonce", used | {HEADER_NONCE: str(secrets.randbits(256))})
    yield get("nonce", "the same nonce, signed anew", worker.headers("GET", path, nonce=int(used[HEADER_NONCE])))
    yield get("nonce", "the nonce with a zero before it", used | {HEADER_NONCE: "0" + used[HEADER_NONCE]})
    yield get("method", "signed for a POST", worker.headers("POST", path))
    yield Attempt("method", "sent as a POST", "POST", path, b"", worker.headers("GET", path))
    yield get("path", "signed for another query", worker.headers("GET", path[:-1] + "1"))
    yield get("path", "signed without the query", worker.headers("GET", path.split("?")[0]))
    yield Attempt("path", "used with more in the query", "GET", path + "&more=1", b"", used)
    yield Attempt("path", "used with a slash more", "GET", "/" + path, b"", used)
    theirs = f"/nodes/{other.party.node}/assignments?wait=0"
    yield Attempt("path", "used for another node", "GET", theirs, b"", used)
    yield Attempt("path", "signed for another node's work", "GET", theirs, b"", worker.headers("GET", theirs))
    yield get("body", "signed with a body", worker.headers("GET", path, b"{}"))
    beat = b'{"node": %d, "version": 0}' % worker.party.node
    signed = worker.headers("POST", "/heartbeats", beat)
    yield Attempt("body", "another body", "POST", "/heartbeats", beat.replace(b"0}", b"1}"), signed)
    yield Attempt("body", "no body", "POST", "/heartbeats", b"", signed)
    yield get("chain", "signed for another chain", worker.headers("GET", path, chain_id=1))
    contract = worker.headers("GET", path, contract=swarm.chain.deployment.market)
    yield get("chain", "signed for another contract", contract)
    yield get("address", "another node's name", used | {HEADER_ADDRESS: other.party.key.address})
    yield get("address", "another node's signature", other.headers("GET", path))
    yield get("address", "a stranger's signature", outsider.headers("GET", path))
    yield get("address", "its owner's signature", _by_owner(swarm, worker.party, path))
    for what, signature in _signatures(used[HEADER_SIGNATURE]):
        yield get("signature", what, used | {HEADER_SIGNATURE: signature})


def _by_owner(swarm: Swarm, party: Party, path: str) -> dict[str, str]:
    return Signer(swarm, Party(party.owner, party.owner, party.node)).headers("GET", path)


def _signatures(hexadecimal: str) -> Iterator[tuple[str, str]]:
    """The other ways to write a signature."""
    signature = bytes.fromhex(hexadecimal[2:])
    r, s, v = signature[:32], int.from_bytes(signature[32:64], "big"), signature[64]
    yield "its other half of the curve", "0x" + (r + (CURVE_ORDER - s).to_bytes(32, "big") + bytes([55 - v])).hex()
    yield "v counted from zero", "0x" + (signature[:64] + bytes([v - 27])).hex()
    yield "in capitals", "0x" + signature.hex().upper()
    yield "empty", "0x"
