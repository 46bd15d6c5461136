"""What appeals make of the mirrored rows. PURE.

The trial of an appeal is drawn, voted on and tallied under its own number, by the handlers of any round; here is how it
begins and what it changes in the round appealed against.
"""

from __future__ import annotations

from coordinator.mirror.market import Handler, Market
from coordinator.tables import Round
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.structs import State, Verdict, verdict_in, with_verdict


def _opened(market: Market, log: Log, event: on_chain.AppealOpened) -> None:
    parent, bit = market.rounds[event.round], 1 << event.job
    trial = Round(
        id=event.appeal,
        run=parent.run,
        parent=parent.id,
        state=State.CLOSED,
        step=parent.step,
        policy_version=parent.policy_version,
        jobs=0,
        slot_count=parent.slot_count,
        opened_at=parent.opened_at,
        deadline=event.deadline,
        reveal_seconds=parent.reveal_seconds,
        open_block=0,
        close_block=log.block_number,
        beacon=parent.beacon,
        assignments=b"",
        submitted=bit,
    )
    market.rounds[trial.id] = trial
    market.live.add(trial.id)
    market.listings[trial.id] = []
    market.touch(trial)
    market.set(parent, appealed=parent.appealed | bit, appeals=parent.appeals + 1)


def _decided(market: Market, log: Log, event: on_chain.AppealDecided) -> None:
    parent = market.rounds[event.round]
    market.set(parent, appeals=parent.appeals - 1)


def _job_settled(market: Market, log: Log, event: on_chain.AppealedJobSettled) -> None:
    """The job has its last verdict: the round, the run's counts and the node's record are put right."""
    round_, node = market.rounds[event.round], market.nodes[event.node]
    before, after = verdict_in(round_.accepted, round_.fraud, event.job), event.verdict
    accepted, fraud = with_verdict(round_.accepted, round_.fraud, event.job, after)
    market.set(round_, accepted=accepted, fraud=fraud)
    run = market.runs[round_.run]
    market.set(
        run,
        jobs_accepted=run.jobs_accepted + _more(Verdict.ACCEPTED, before, after),
        jobs_fraud=run.jobs_fraud + _more(Verdict.FRAUD, before, after),
        jobs_void=run.jobs_void + _more(Verdict.VOID, before, after),
    )
    market.set(
        node,
        in_flight=node.in_flight - 1,
        fraudulent=max(0, node.fraudulent + _more(Verdict.FRAUD, before, after)),
    )


def _more(kind: Verdict, before: Verdict, after: Verdict) -> int:
    """By how much the jobs with this verdict change."""
    return (after is kind) - (before is kind)


APPEAL_HANDLERS: dict[str, Handler] = {
    "AppealOpened": _opened,
    "AppealDecided": _decided,
    "AppealedJobSettled": _job_settled,
}
"""By event name."""
