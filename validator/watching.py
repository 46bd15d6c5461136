"""``assize validator watch``: a validator's seats, votes, fees and bond, from its state folder and the chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.amounts import UNIT, rounded, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.node.activity import doing_of, duty_cycle, read_health, runs
from protocol.node.watching import Grid, Row, View, watch
from protocol.times import clock, spell
from validator.settings import ValidatorSettings

VERDICTS = ("accepted", "void", "fraud", "unavailable")


@dataclass(frozen=True, slots=True)
class SlotContest:
    """A newcomer that takes this validator's slot ``until`` a unix second, unless ``missing`` wei are added."""

    newcomer: int
    missing: int
    until: int


@dataclass(frozen=True, slots=True)
class ValidatorLook:
    """One look at a validator.

    Args:
        health: content of its health file, with ``activity``.
        alive: its process runs on this machine.
        bond, needed: bond, and bond below which it is not drawn, in token wei.
        slot: slot that it holds or waits for.
        holds: it holds the slot.
        contest: the newcomer that waits for its slot, if any.
        strikes: strikes that count now, by run that it has joined.
        max_strikes: strikes that end its service in a run.
        credits: free credits of its owner, in wei.
    """

    health: Mapping[str, Any]
    alive: bool
    bond: int
    needed: int
    slot: int
    holds: bool
    contest: SlotContest | None
    strikes: Mapping[int, int]
    max_strikes: int
    credits: int


def watch_validator(settings: ValidatorSettings, once: bool, as_json: bool) -> None:
    """Shows the validator until Ctrl-C."""
    read_health(settings.state_dir, "validator")
    with Chain.connect(settings.rpc_url, settings.addresses) as chain:
        watch(lambda: validator_view(_look(settings, chain), time.time()), once, as_json)


def _look(settings: ValidatorSettings, chain: Chain) -> ValidatorLook:
    health = read_health(settings.state_dir, "validator")
    activity = health.get("activity", {})
    head = chain.head()
    reader, node = chain.pinned(head), int(activity.get("node", 0))
    known = reader.node(node)
    return ValidatorLook(
        health=health,
        alive=runs(int(health["pid"])),
        bond=known.bond,
        needed=reader.registry_terms().validator_bond,
        slot=known.slot,
        holds=reader.holder(known.slot) == node,
        contest=_contest(chain, reader, node, known.slot),
        strikes={run: _strikes(reader, run, node, head.timestamp) for run in activity.get("runs", [])},
        max_strikes=reader.market_terms().max_strikes,
        credits=reader.credits_of(known.owner),
    )


def _strikes(reader: Reader, run: int, node: int, now: int) -> int:
    count, until = reader.strikes(run, node)
    return count if now < until else 0


def _contest(chain: Chain, reader: Reader, node: int, slot: int) -> SlotContest | None:
    newcomer, until = reader.contest(slot)
    if not newcomer or newcomer == node:
        return None
    return SlotContest(newcomer, max(0, reader.node(newcomer).bond - reader.node(node).bond), until)


def validator_view(look: ValidatorLook, now: float) -> View:
    """Returns the view of a validator. PURE."""
    activity = look.health.get("activity", {})
    record, node = activity.get("record", {}), activity.get("node", 0)
    doing, duty = doing_of(look.health, look.alive), duty_cycle(activity.get("seconds", {}))
    fees, margin = record.get("fees", {}), look.bond - look.needed
    votes = "  ".join(f"{name} {record['votes'][name]}" for name in VERDICTS if record.get("votes", {}).get(name))
    seats, strikes = activity.get("seats", []), max(look.strikes.values(), default=0)
    rows = (
        Row("now", doing.lasting(now), doing.tone),
        Row("at work", "–" if duty is None else f"{100 * duty:.0f} % of {spell(now - activity['started'])}"),
        Row("seats so far", f"{record.get('seats', 0)}, {_absences(record)}", "bad" if record.get("absent") else ""),
        Row("votes on jobs", votes or "none yet"),
        Row("agreement", _agreement(record)),
        Row("strikes", _strike_words(look), "bad" if strikes else ""),
        Row("fees today", f"{_rounded(fees.get('wei'))} {UNIT}, {_rounded(fees.get('total_wei'))} {UNIT} in all"),
        Row("owner's credits", f"{rounded(look.credits)} {UNIT}"),
        Row("bond", f"{tokens(look.bond)}, {tokens(look.needed)} needed", "" if margin >= 0 else "bad"),
        Row("bond margin", tokens(margin), "" if margin >= 0 else "bad"),
        Row("slot", f"{look.slot}{'' if look.holds else ', not held'}", "" if look.holds else "bad"),
        Row("versions loaded", _versions(activity.get("versions", {}))),
        *(Row("fetching", f"run {run}, {words}") for run, words in activity.get("fetching", {}).items()),
    )
    seated = Grid(
        ("round", "kind", "jobs", "phase", "until", "left"),
        tuple(
            (
                str(seat["round"]),
                "appeal" if seat["appeal"] else "round",
                str(seat["jobs"]),
                seat["phase"],
                clock(seat["deadline"]),
                spell(max(0.0, seat["deadline"] - now)),
            )
            for seat in seats
        ),
    )
    line = (
        f"{doing.words}  seats {len(seats)}  votes {votes or 'none yet'}  {_absences(record)}  bond {tokens(look.bond)}"
    )
    figures = {
        "node": node,
        "alive": look.alive,
        "activity": activity,
        "problem": look.health.get("problem", ""),
        "duty_cycle": duty,
        "credits_wei": look.credits,
        "bond_wei": look.bond,
        "needed_wei": look.needed,
        "margin_wei": margin,
        "slot": look.slot,
        "holds_slot": look.holds,
        "contest": look.contest,
        "strikes": {str(run): count for run, count in look.strikes.items()},
        "max_strikes": look.max_strikes,
    }
    return View(f"validator: node {node}", rows, _warnings(look, now), line, figures, seated)


def _absences(record: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {record.get(name, 0)}" for name in ("absent", "abstained", "overturned"))


def _agreement(record: Mapping[str, Any]) -> str:
    judged, agreed = record.get("judged", 0), record.get("agreed", 0)
    return f"{100 * agreed / judged:.1f} % of {judged} settled jobs" if judged else "no round of its own settled yet"


def _strike_words(look: ValidatorLook) -> str:
    counted = ", ".join(f"{count} of {look.max_strikes} in run {run}" for run, count in look.strikes.items() if count)
    return counted or "none"


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{version} of run {run}" for run, version in versions.items()) or "none yet"


def _rounded(wei: object) -> str:
    return rounded(int(str(wei or 0)))


def _warnings(look: ValidatorLook, now: float) -> tuple[str, ...]:
    """Returns what an operator should act on."""
    found = list(look.health.get("activity", {}).get("behind", ()))
    if look.bond < look.needed:
        found.append(f"not drawn: add {tokens(look.needed - look.bond)} with assize stake deposit")
    if not look.holds:
        found.append("not drawn: it holds no slot, and waits for one or was displaced")
    if look.contest is not None:
        found.append(
            f"node {look.contest.newcomer} contests the slot: add {tokens(look.contest.missing)} with assize stake "
            f"deposit until {clock(look.contest.until)}, in {spell(max(0.0, look.contest.until - now))}"
        )
    return tuple(found)
