"""What every view of the contracts must answer, from the state of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from protocol.chain import structs
from protocol.chain.structs import Appeal, RunTerms, State, Verdict
from tests.model.market import Run
from tests.model.protocol import Protocol
from tests.model.registry import Node
from tests.model.round import Round, Seat, bitmap
from tests.model.transaction import NO_HASH, NOBODY

Question = tuple[str, str, tuple[Any, ...]]
"""Contract, view, arguments."""

NO_TERMS = RunTerms(NOBODY, NOBODY, NO_HASH, *[0] * 10)
FORGOTTEN = (
    *("slot_count", "opened_at", "max_units", "open_block", "close_block", "appeal_seats", "appeals", "price_per_unit"),
    *("juror_fee", "reserved", "draw_seconds", "commit_seconds", "reveal_seconds", "challenge_seconds", "eligible"),
    "appealed",
)
"""What the contracts do not keep of a round that ended."""

NO_APPEAL = Appeal(0, 0, Verdict.VOID, 0, 0, NOBODY, 0)


def views(model: Protocol, now: int, owners: Iterable[str]) -> dict[Question, Any]:
    """Every question with its answer at the timestamp ``now``; ``owners`` are those whose balances are looked at."""
    return dict([*_money(model, owners), *_registry(model, now), *_market(model, now), *_rounds(model)])


def _money(model: Protocol, owners: Iterable[str]) -> Iterator[tuple[Question, Any]]:
    for owner in [*owners, model.registry.address, model.credits.address]:
        yield ("Token", "balanceOf", (owner,)), model.token.balances[owner]
        yield ("Credits", "balanceOf", (owner,)), model.credits.free[owner]
    yield ("Credits", "totalLocked", ()), model.credits.locked
    yield ("Credits", "totalSupply", ()), model.credits.supply
    yield ("Admin", "paused", ()), model.admin.paused
    yield ("Admin", "treasury", ()), model.admin.treasury


def _registry(model: Protocol, now: int) -> Iterator[tuple[Question, Any]]:
    registry = model.registry
    yield ("Registry", "nodeCount", ()), len(registry.nodes)
    yield ("Registry", "slotCount", ()), len(registry.slots)
    yield ("Registry", "eligible", ()), bitmap(registry.eligible(now))
    yield ("Registry", "totalBonded", ()), sum(node.bond for node in registry.nodes.values())
    yield ("Registry", "treasuryBalance", ()), registry.pot
    for slot, number in enumerate(registry.slots):
        waiting = registry.contests.get(slot)
        yield ("Registry", "nodeAt", (slot,)), registry.seated(slot, now)
        yield ("Registry", "holderOf", (slot,)), number
        yield ("Registry", "contestOf", (slot,)), (waiting.newcomer, waiting.until) if waiting else (0, 0)
    for number, node in registry.nodes.items():
        yield ("Registry", "nodeOf", (number,)), _node(node)
        yield ("Registry", "isListable", (number,)), registry.listable(node, now)
    for key in registry.bound:
        yield ("Registry", "nodeByKey", (key,)), registry.node_by_key(key)


def _node(node: Node) -> structs.Node:
    return structs.Node(
        owner=node.owner,
        role=node.role,
        slot=node.slot,
        capacity=node.capacity,
        in_flight=node.in_flight,
        active_at=node.active_at,
        retired_at=node.retired_at,
        bond=node.bond,
        revoked=node.revoked,
        withdrawn=node.withdrawn,
        key=node.key,
    )


def _market(model: Protocol, now: int) -> Iterator[tuple[Question, Any]]:
    yield ("Market", "runCount", ()), len(model.market.runs)
    for number, run in model.market.runs.items():
        yield ("Market", "runOf", (number,)), _run(run, now)
        since, newest = run.history[-1]
        yield ("Market", "announcedOf", (number,)), (newest, since) if since else (NO_TERMS, 0)
        yield ("Market", "manifestRootOf", (number, run.version)), run.manifests[run.version]
        slots, least = model.market.juror_slots(number, now)
        yield ("Market", "jurorSlots", (number, run.terms(now).rules_hash)), (sum(1 << slot for slot in slots), least)
        for node in model.registry.nodes:
            yield ("Market", "joinedAt", (number, node)), run.joined.get(node, NO_HASH)
            if run.strikes.get(node):
                strikes = model.market.strikes(run, node, now)
                until = strikes[0] + model.registry.terms.unbonding_delay if strikes else 0
                yield ("Market", "strikesOf", (number, node)), (len(strikes), until)


def _run(run: Run, now: int) -> structs.Run:
    return structs.Run(run.requester, run.version, run.closed, run.escrow, run.reserved, run.terms(now))


def _rounds(model: Protocol) -> Iterator[tuple[Question, Any]]:
    yield ("Rounds", "roundCount", ()), len(model.rounds.rounds)
    for number, round in model.rounds.rounds.items():
        yield ("Rounds", "roundOf", (number,)), _round(round)
        seats = round.seats if round.state in (State.VOTING, State.TALLIED) else ()
        yield ("Rounds", "seatsOf", (number,)), tuple(_seat(seat) for seat in seats)
        yield ("Rounds", "appealAt", (number,)), round.appeal or NO_APPEAL
        for batch in range(len(round.batches) + 1):
            yield ("Rounds", "batchDigest", (number, batch)), round.digest(batch)
        for job in round.submitted:
            yield ("Rounds", "appealOf", (number, job)), round.appealed.get(job, 0)


def _round(round: Round) -> structs.Round:
    shown = _whole(round)
    return replace(shown, **dict.fromkeys(FORGOTTEN, 0), assignments_hash=NO_HASH) if round.ended else shown


def _whole(round: Round) -> structs.Round:
    terms = round.terms
    return structs.Round(
        state=round.state,
        attempt=round.attempt,
        committee=round.committee,
        revealing=round.revealing,
        jobs=len(round.assignees),
        slot_count=round.slot_count,
        batches=len(round.batches),
        settled_batches=len(round.batches) - round.unsettled,
        committed=_which(seat.commitment is not None for seat in round.seats),
        revealed=_which(seat.vote is not None for seat in round.seats),
        abstained=_which(seat.vote is not None and not seat.votes for seat in round.seats),
        policy_version=round.policy_version,
        opened_at=round.opened_at,
        deadline=round.deadline,
        run=round.run,
        max_units=terms.max_units,
        open_block=round.open_block,
        close_block=round.close_block,
        appeal_seats=terms.appeal_seats,
        appeals=round.pending,
        price_per_unit=terms.price_per_unit,
        juror_fee=terms.juror_fee,
        reserved=round.reserved,
        draw_seconds=terms.draw_seconds,
        commit_seconds=terms.commit_seconds,
        reveal_seconds=terms.reveal_seconds,
        challenge_seconds=terms.challenge_seconds,
        assignments_hash=round.assignments_hash,
        eligible=bitmap(round.eligible),
        submitted=bitmap(round.submitted),
        accepted=bitmap(round.jobs_with(Verdict.ACCEPTED, Verdict.UNAVAILABLE)),
        fraud=bitmap(round.jobs_with(Verdict.FRAUD, Verdict.UNAVAILABLE)),
        appealed=bitmap(set(round.appealed)),
        consumed=bitmap(round.consumed),
    )


def _seat(seat: Seat) -> structs.Seat:
    verdicts = seat.vote.verdicts if seat.vote else {}
    return structs.Seat(
        node=seat.juror,
        revealed=seat.vote is not None,
        abstained=seat.vote is not None and not seat.votes,
        commitment=NO_HASH if seat.vote else seat.commitment or NO_HASH,
        accept=bitmap({job for job, verdict in verdicts.items() if verdict & 1}),
        fraud=bitmap({job for job, verdict in verdicts.items() if verdict & 2}),
    )


def _which(flags: Iterable[bool]) -> int:
    return bitmap({place for place, flag in enumerate(flags) if flag})
