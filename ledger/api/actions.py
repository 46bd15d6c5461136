"""Actions: the calls with which a reader's own wallet changes its nodes, runs and credits, planned and simulated.

The ledger has no key: it plans as the command line does for an address without its key, and answers with the calls. Who
signs them decodes them again first; see ``ledger/explorer/browser/src/wallet.js``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from ledger.api.parameters import OwnPage
from protocol.amounts import LARGEST_WEI
from protocol.chain import abi
from protocol.chain.abi import checksummed
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.writing import actions, appealing, calls, plans
from protocol.chain.writing.account import Account
from protocol.chain.writing.calls import Call
from protocol.chain.writing.plans import Plan
from protocol.errors import Rejected

MOST_BODY_BYTES = 4 << 10
"""Largest body of a request for an action."""
BODY_SECONDS = 10.0
"""Longest time in which that body arrives."""
MOST_AT_ONCE = 8
"""Most actions that are planned at once, so that a slow RPC leaves threads to other requests."""
JSON = "application/json"
READ_ONLY = "this ledger is read-only: actions are offered by assize ledger serve --actions"


def _wei(text: str) -> str:
    if not 0 < int(text) <= LARGEST_WEI:
        raise ValueError("expected more than 0 wei, and no more than the contracts can count")
    return text


Address = Annotated[str, Field(pattern="^0x[0-9a-fA-F]{40}$"), AfterValidator(checksummed)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Wei = Annotated[str, Field(pattern="^[0-9]{1,39}$", description="An amount in wei."), AfterValidator(_wei)]
Hash = Annotated[str, Field(pattern="^0x[0-9a-fA-F]{64}$")]


class ActionRequest(BaseModel):
    """Request for an action; ``sender`` is the address that will sign."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sender: Address


class NodeRequest(ActionRequest):
    """An action on a node."""

    node: Number


class TopUpRequest(NodeRequest):
    """An amount of tokens for a node's bond."""

    amount_wei: Wei


class LeaveRequest(NodeRequest):
    """A node of a run."""

    run: Number


class JoinRequest(LeaveRequest):
    """A node, a run, and the hash of the rules that its owner read."""

    rules_hash: Hash


class RedeemRequest(ActionRequest):
    """An amount of credits, and whom to pay their tokens to."""

    amount_wei: Wei
    to: Address


class FundRequest(ActionRequest):
    """An amount of credits for a run's escrow."""

    run: Number
    amount_wei: Wei


class AppealRequest(ActionRequest):
    """A job whose verdict is disputed."""

    round: Number
    job: Annotated[int, Field(ge=0, lt=256)]


class Decoded(BaseModel):
    """A call in words: its arguments by name, amounts in tokens."""

    contract: str
    function: str
    arguments: dict[str, str]


class ActionCall(BaseModel):
    """A call of a contract without native value."""

    to: str
    data: str
    decoded: Decoded


class Simulated(BaseModel):
    """Outcome of the call that is due, on the pending state: accepted, or why not."""

    ok: bool
    says: str


class Action(ActionCall):
    """An action's own call, and the calls ``first`` that provide for it, in order: an approval, a purchase of credits.

    Only the call that is due is ``simulated``: the first of them all. Once it is mined, ask again for the others.
    """

    chain_id: int
    first: tuple[ActionCall, ...]
    simulated: Simulated


@dataclass(frozen=True, slots=True)
class ActionKind:
    """An action: its request, and the plan of its calls."""

    summary: str
    asked: type[ActionRequest]
    plan: Callable[[Account, Any], Plan[Any]]


VERBS: Mapping[str, ActionKind] = {
    "top-up": ActionKind(
        "Add to a node's bond",
        TopUpRequest,
        lambda owner, asked: actions.deposit(owner, asked.node, int(asked.amount_wei)),
    ),
    "retire": ActionKind(
        "Take a node out of service",
        NodeRequest,
        lambda owner, asked: plans.plan_of(owner, calls.retire(owner.chain.deployment, asked.node)),
    ),
    "withdraw": ActionKind(
        "Withdraw a retired node's bond",
        NodeRequest,
        lambda owner, asked: actions.withdraw(owner, asked.node),
    ),
    "join": ActionKind(
        "Consent to a run's rules for a node",
        JoinRequest,
        lambda owner, asked: actions.join_run(owner, asked.run, asked.node, bytes.fromhex(asked.rules_hash[2:])),
    ),
    "leave": ActionKind(
        "End a node's part in a run's new rounds",
        LeaveRequest,
        lambda owner, asked: plans.plan_of(owner, calls.leave(owner.chain.deployment, asked.run, asked.node)),
    ),
    "redeem": ActionKind(
        "Turn credits into tokens",
        RedeemRequest,
        lambda owner, asked: actions.redeem_credits(owner, int(asked.amount_wei), asked.to),
    ),
    "fund": ActionKind(
        "Lock credits in a run's escrow",
        FundRequest,
        lambda owner, asked: actions.fund_run(owner, asked.run, int(asked.amount_wei)),
    ),
    "appeal": ActionKind(
        "Appeal against the verdict on a job",
        AppealRequest,
        lambda owner, asked: appealing.open_appeal(owner, asked.round, asked.job),
    ),
}


async def _body(request: Request) -> bytes:
    """Returns the body of a request, which must be short and arrive in time."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY_BYTES:
                    raise HTTPException(413, f"invalid body: expected at most {MOST_BODY_BYTES} bytes")
    except (TimeoutError, ClientDisconnect) as error:
        raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds") from error
    return body


def add_actions(app: FastAPI, chain: Chain, offered: bool) -> None:
    """Adds ``POST /actions/{verb}``: for each verb where actions are ``offered``, and a 404 that says so elsewhere."""
    slots = BoundedSemaphore(MOST_AT_ONCE)
    for name in VERBS if offered else ():
        _add(app, chain, name, VERBS[name], slots)
    refusal = f"invalid action: expected one of {', '.join(VERBS)}" if offered else READ_ONLY

    @app.post("/actions/{verb}", include_in_schema=False)
    def no_action(verb: str) -> None:
        raise HTTPException(404, refusal)


def _add(app: FastAPI, chain: Chain, name: str, verb: ActionKind, slots: BoundedSemaphore) -> None:
    schema = {"requestBody": {"required": True, "content": {JSON: {"schema": verb.asked.model_json_schema()}}}}

    @app.post(f"/actions/{name}", summary=verb.summary, dependencies=[OwnPage], openapi_extra=schema)
    def action(body: Annotated[bytes, Depends(_body)]) -> Action:
        if not slots.acquire(blocking=False):
            raise HTTPException(429, f"{MOST_AT_ONCE} actions are being planned: try again in a moment")
        try:
            return answer(chain, verb, body)
        finally:
            slots.release()


def answer(chain: Chain, verb: ActionKind, body: bytes) -> Action:
    """Returns the calls of an action.

    Raises:
        Rejected: the body is invalid, or the action is known to fail before any call of it is simulated.
        Unavailable: no RPC answers.
    """
    try:
        asked = verb.asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise HTTPException(422, f"{where or 'body'}: {first['msg']}") from error
    plan = verb.plan(Account(chain, asked.sender), asked)
    *first_calls, own = (in_words(chain.deployment, call) for call in plan.calls)
    return Action(**own.model_dump(), chain_id=chain.chain_id, first=tuple(first_calls), simulated=_simulated(plan))


def _simulated(plan: Plan[Any]) -> Simulated:
    try:
        plan.dry_run()
    except Rejected as refusal:
        return Simulated(ok=False, says=str(refusal))
    return Simulated(ok=True, says="the chain would accept it as things are")


def in_words(deployment: Deployment, call: Call) -> ActionCall:
    """Returns a call with its words, read from its bytes. PURE."""
    contract = deployment.contract_names()[call.to.lower()]
    function = next(each for each in abi.functions(contract).values() if call.data.startswith(each.selector))
    values = zip(function.parameters, function.inputs.decode(call.data[4:]), strict=True)
    words = {name: calls.worded(name, value) for name, value in values}
    spoken = Decoded(contract=contract, function=function.name, arguments=words)
    return ActionCall(to=call.to, data="0x" + call.data.hex(), decoded=spoken)
