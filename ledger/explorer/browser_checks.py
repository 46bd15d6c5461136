"""Pages that the reader's own browser checks: what each is of, and the one node besides this server that it may ask."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from markupsafe import Markup, escape
from starlette.responses import Response

from ledger.explorer.rendering import POLICY
from protocol.chain.deployment import Deployment
from protocol.errors import Rejected

RPC = re.compile(
    r"(https?://[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[0-9]{1,5})?)(?:/[\w.~/-]{0,200})?", re.ASCII | re.IGNORECASE
)
"""URLs of nodes: no user, query, or character that means something in a policy. Group 1 is the origin."""


@dataclass(frozen=True, slots=True)
class CheckView:
    """A page's check: the ``name`` of the thing, its ``page``, its address for the script, and the node's URL.

    ``addresses`` is the address file of this ledger, in JSON.
    """

    name: str
    page: str
    thing: str
    rpc: str | None
    addresses: Markup


def check_view(name: str, page: str, thing: str, rpc: str | None, deployment: Deployment) -> CheckView:
    """Returns what the page of a check shows.

    Raises:
        Rejected: ``rpc`` is not the URL of a node.
    """
    if rpc and not RPC.fullmatch(rpc):
        raise Rejected(f"invalid RPC URL {rpc[:100]!r}: expected http(s)://host, with port and path if it has them")
    return CheckView(name, page, thing, rpc or None, escape(json.dumps(deployment.to_json(), indent=2)))


def allow_node(answer: Response, view: CheckView) -> Response:
    """Lets the page of a check ask the node that it names, and no other."""
    found = RPC.fullmatch(view.rpc) if view.rpc else None
    if found:
        policy = POLICY.replace("connect-src 'self'", f"connect-src 'self' {found[1]}")
        answer.headers["Content-Security-Policy"] = policy
    return answer
