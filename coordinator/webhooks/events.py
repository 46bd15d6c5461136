"""Events of the chain, of the operator and of conditions, as webhooks are told them. PURE.

Where ``assize notices`` tells people the same, the sentence is the one that they read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from coordinator.settings import HookKind
from coordinator.tables import RoundRow
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.structs import Verdict, jobs_by_verdict
from protocol.node.notices.fold import Followed, take
from protocol.wire.assignments import jobs_in, unpack_assignments


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event: ``id`` names its content, ``run`` is 0 if it is of none, ``number`` its block, 0 if it has none.

    ``at`` is in unix seconds, ``facts`` can be written as JSON; wei are decimal strings.
    """

    id: str
    kind: HookKind
    run: int
    at: int
    number: int
    facts: Mapping[str, Any]

    @property
    def body(self) -> str:
        """The JSON that is sent."""
        return body_of(self.kind, self.at, {"run": self.run} | dict(self.facts))


def body_of(kind: str, at: int, facts: Mapping[str, Any]) -> str:
    """Returns the JSON of an event of a ``kind`` at a time in unix seconds."""
    time = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": time, "data": facts}, separators=(",", ":"))


def event_id(*content: object) -> str:
    """Returns the id of the event that has this content."""
    return "evt_" + sha256("/".join(map(str, content)).encode()).hexdigest()[:32]


def events_of(log: Log, rounds: Mapping[int, RoundRow], chain_id: int) -> Iterator[HookEvent]:
    """Yields the events that a log of the chain ``chain_id`` gives, with the ``rounds`` as they are after it."""
    for kind, run, facts in _told(log, rounds):
        identity = event_id(chain_id, log.block_hash.hex(), log.log_index, kind)
        yield HookEvent(identity, kind, run, log.timestamp, log.block_number, {"block": log.block_number} | facts)


def _told(log: Log, rounds: Mapping[int, RoundRow]) -> Iterator[tuple[HookKind, int, dict[str, Any]]]:
    event = log.event
    round_ = rounds.get(getattr(event, "round", 0))
    facts: dict[str, Any]
    match event:
        case on_chain.RoundOpened():
            nodes = sorted({each.node for each in unpack_assignments(event.assignments)})
            facts = {"round": event.round, "step": event.step, "version": event.policy_version, "jobs": event.jobs}
            yield HookKind.ROUND_OPENED, event.run, facts | {"nodes": nodes}
        case on_chain.CheckpointPublished():
            (notice,) = take(Followed(named={event.run}), log)
            facts = {"version": event.version, "manifest_root": "0x" + event.manifest_root.hex(), "text": notice.text}
            yield HookKind.CHECKPOINT, event.run, facts
        case on_chain.NodeSlashed() if round_ is not None:
            (notice,) = take(Followed(nodes={event.node: event.owner}), log)
            facts = {"round": event.round, "node": event.node, "owner": event.owner, "cause": event.cause.name.lower()}
            facts |= {"amount_wei": str(event.amount), "bond_wei": str(event.bond), "text": notice.text}
            yield HookKind.SLASHED, round_.run, facts
        case on_chain.RoundTallied() if round_ is not None and not round_.parent:
            fraud = jobs_by_verdict(event.accepted, event.fraud, round_.submitted)[Verdict.FRAUD]
            if fraud:
                yield HookKind.FRAUD, round_.run, {"round": event.round, "jobs": list(jobs_in(fraud)), "appeal": False}
        case on_chain.AppealedJobSettled(verdict=Verdict.FRAUD) if round_ is not None:
            yield HookKind.FRAUD, round_.run, {"round": event.round, "jobs": [event.job], "appeal": True}
        case on_chain.RoundSettled() if round_ is not None and not round_.parent:
            judged = jobs_by_verdict(round_.accepted, round_.fraud, round_.submitted)
            accepted, fraudulent = judged[Verdict.ACCEPTED].bit_count(), judged[Verdict.FRAUD].bit_count()
            facts = {"round": event.round, "jobs": round_.jobs, "accepted": accepted, "fraud": fraudulent}
            yield HookKind.ROUND_SETTLED, round_.run, facts
        case on_chain.RoundVoided() if round_ is not None and not round_.parent:
            yield HookKind.ROUND_VOID, round_.run, {"round": event.round, "jobs": round_.jobs}
