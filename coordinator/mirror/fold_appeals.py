"""Effects of appeals on the mirrored rows. PURE.

An appeal is tried as a round with a number of its own, and the handlers of every round apply to it. The handlers here
begin that round, and correct the counts of run and node once the appealed job has its last verdict.
"""

from __future__ import annotations

from coordinator.mirror.market import Handler, Market
from coordinator.tables import RoundRow
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.round_changes import appeal_round
from protocol.chain.structs import Verdict, verdict_in


def _opened(market: Market, log: Log, event: on_chain.AppealOpened) -> None:
    parent = market.rounds[event.round]
    fields = appeal_round(parent, event)
    market.begin_round(RoundRow(id=event.appeal, reveal_seconds=parent.reveal_seconds, **fields))


def _job_settled(market: Market, log: Log, event: on_chain.AppealedJobSettled) -> None:
    round_, node = market.rounds[event.round], market.nodes[event.node]
    before, after = verdict_in(round_.accepted, round_.fraud, event.job), event.verdict
    more = {kind: (after is kind) - (before is kind) for kind in Verdict}
    accepted, fraud = more[Verdict.ACCEPTED], more[Verdict.FRAUD]
    market.add(market.runs[round_.run], jobs_accepted=accepted, jobs_fraud=fraud, jobs_void=-accepted - fraud)
    market.set(node, in_flight=node.in_flight - 1, fraudulent=max(0, node.fraudulent + fraud))


APPEAL_HANDLERS: dict[str, Handler] = {"AppealOpened": _opened, "AppealedJobSettled": _job_settled}
"""By event name."""
