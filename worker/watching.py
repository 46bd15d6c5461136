"""``assize worker watch``: a worker's activity, jobs and earnings, from its state folder and the chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from protocol.amounts import UNIT, rounded, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.node.activity import doing_of, duty_cycle, read_health, runs
from protocol.node.watching import Row, View, watch
from protocol.times import spell
from protocol.transport.coordinator import CoordinatorClient
from worker.earnings import EARNINGS_FILE, OUTCOMES, DaysWork, Earnings
from worker.refusals import Refusals
from worker.settings import WorkerSettings

SHOWN_REFUSALS = 3


@dataclass(frozen=True, slots=True)
class WorkerLook:
    """One look at a worker.

    Args:
        health: content of its health file, with ``activity``.
        alive: its process runs on this machine.
        day: its day's work.
        bond, needed, held: bond, bond that its capacity requires, and bond that its jobs in flight hold, in token wei.
        capacity, in_flight: jobs that it can have in flight, and has.
        listable: the registry lets rounds list it.
        joined: it has joined the run at the rules in effect.
        credits: free credits of its owner, in wei.
        refusals: sentences on its last refused jobs, newest first.
    """

    health: Mapping[str, Any]
    alive: bool
    day: DaysWork
    bond: int
    needed: int
    held: int
    capacity: int
    in_flight: int
    listable: bool
    joined: bool
    credits: int
    refusals: tuple[str, ...]


def watch_worker(settings: WorkerSettings, once: bool, as_json: bool) -> None:
    """Shows the worker until Ctrl-C."""
    earnings = Earnings(settings.state_dir / EARNINGS_FILE)
    read_health(settings.state_dir, "worker")  # before the chain: without a worker there is nothing to watch
    with closing(Chain.connect(settings.rpc_url, settings.addresses)) as chain:
        url = coordinator_uri(chain, settings.run, settings.coordinator_url)
        with closing(CoordinatorClient(url)) as client:
            refusals = Refusals(chain, client)
            watch(lambda: worker_view(_look(settings, chain, earnings, refusals), time.time()), once, as_json)


def _look(settings: WorkerSettings, chain: Chain, earnings: Earnings, refusals: Refusals) -> WorkerLook:
    health, day = read_health(settings.state_dir, "worker"), earnings.today()
    activity = health.get("activity", {})
    reader, node = chain.pinned(chain.head()), int(activity.get("node", 0))
    known = reader.node(node)
    return WorkerLook(
        health=health,
        alive=runs(int(health["pid"])),
        day=day,
        bond=known.bond,
        needed=reader.required_bond(known.role, known.capacity),
        held=known.in_flight * reader.registry_terms().bond_per_job,
        capacity=known.capacity,
        in_flight=known.in_flight,
        listable=reader.is_listable(node),
        joined=reader.joined_at(settings.run, node) == reader.run(settings.run).terms.rules_hash,
        credits=reader.credits_of(known.owner),
        refusals=tuple(map(refusals.sentence, day.refused[:SHOWN_REFUSALS])),
    )


def worker_view(look: WorkerLook, now: float) -> View:
    """Returns the view of a worker. PURE."""
    activity = look.health.get("activity", {})
    node, run = activity.get("node", 0), activity.get("run", 0)
    doing = doing_of(look.health, look.alive)
    duty, speed, jobs = duty_cycle(activity.get("seconds", {})), activity.get("tokens_per_second"), _jobs(look.day)
    margin, rounds = look.bond - look.held, activity.get("rounds", [])
    rows = (
        Row("now", doing.lasting(now), doing.tone),
        Row("tokens a second", "–" if speed is None else f"{speed:,.1f} in its last jobs"),
        Row("at work", "–" if duty is None else f"{100 * duty:.0f} % of {spell(now - activity['started'])}"),
        Row("version loaded", "none yet" if activity.get("version") is None else str(activity["version"])),
        *((Row("fetching", activity["fetching"]),) if activity.get("fetching") else ()),
        Row("in flight", f"{look.in_flight} of {look.capacity} jobs{_rounds(rounds)}"),
        Row("jobs today", jobs, "bad" if look.day.jobs.get("fraud") else ""),
        Row("earned today", f"{rounded(look.day.wei)} {UNIT}", "good" if look.day.wei else ""),
        Row("owner's credits", f"{rounded(look.credits)} {UNIT}"),
        Row("bond", f"{tokens(look.bond)}, {tokens(look.needed)} needed", "" if look.bond >= look.needed else "bad"),
        Row("bond margin", f"{tokens(margin)} beyond jobs in flight", "" if margin >= 0 else "bad"),
    )
    line = (
        f"{doing.words}  in flight {look.in_flight}  today {jobs}  {rounded(look.day.wei)} {UNIT}"
        f"  bond {tokens(look.bond)}"
    )
    notes = (*_obstacles(look), *look.refusals)
    figures = {
        "node": node,
        "run": run,
        "alive": look.alive,
        "activity": activity,
        "problem": look.health.get("problem", ""),
        "duty_cycle": duty,
        "jobs_today": dict(look.day.jobs),
        "earned_today_wei": look.day.wei,
        "credits_wei": look.credits,
        "in_flight": look.in_flight,
        "capacity": look.capacity,
        "bond_wei": look.bond,
        "needed_wei": look.needed,
        "margin_wei": margin,
        "refusals": list(look.refusals),
    }
    return View(f"worker: node {node}, run {run}", rows, notes, line, figures)


def _jobs(day: DaysWork) -> str:
    return "  ".join(f"{name} {day.jobs[name]}" for name in OUTCOMES if day.jobs.get(name)) or "none yet"


def _rounds(rounds: list[int]) -> str:
    return f", round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}" if rounds else ""


def _obstacles(look: WorkerLook) -> list[str]:
    """Returns what keeps the node from being listed, as the chain has it."""
    found = list(look.health.get("activity", {}).get("behind", ()))
    if not look.listable:
        bond = f"its bond is {tokens(look.bond)} of {tokens(look.needed)}"
        found.append(f"not listed for rounds: {bond if look.bond < look.needed else 'it is not active'}")
    if not look.joined:
        found.append("not joined at the run's rules in effect: assize run join")
    return found
