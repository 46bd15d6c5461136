"""Conditions that hold for a while, such as a bond under its margin, as notices. PURE.

Each has a key, and is told once for as long as it holds (``journal``). What could not be looked at is left out: it
neither holds nor ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from protocol.amounts import tokens
from protocol.chain.structs import NEVER, Node, Run, RunTerms, most_reserved
from protocol.node.notices.fold import Followed, WatchedRound
from protocol.node.notices.notice import Notice, NoticeFigures, NoticeKind
from protocol.times import clock
from protocol.wire.assignments import jobs_in

UNSEEN_JOBS = 16
"""Jobs of a round that a run is taken to have until one was seen: the most that a coordinator lists by default."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Views of one block: nodes, their required bonds, runs, credits by owner; wei and unix seconds.

    ``silent_seconds`` are by node the seconds since its last heartbeat, as coordinators tell; ``behind`` has a sentence
    on each run whose rules, present or announced, ask for a newer version than the one installed here.
    """

    now: int
    nodes: Mapping[int, Node]
    required: Mapping[int, int]
    runs: Mapping[int, Run]
    credits: Mapping[str, int]
    silent_seconds: Mapping[int, float]
    behind: Mapping[int, str] = field(default_factory=dict)


Conditions = dict[str, Notice | None]
"""By key: the notice of a condition that holds, or None where it does not."""


def conditions(followed: Followed, seen: Seen, figures: NoticeFigures) -> Conditions:
    """Returns every condition that could be looked at."""
    found: Conditions = {}
    for each in (_bonds(seen, figures), _silences(seen, figures), _credits(seen, figures), _releases(seen)):
        found |= dict(each)
    return found | dict(_escrows(followed, seen, figures)) | dict(_windows(followed, seen, figures))


def _bonds(seen: Seen, figures: NoticeFigures) -> Iterator[tuple[str, Notice | None]]:
    for number, node in seen.nodes.items():
        key, wanted = f"bond/{number}", seen.required[number] + figures.margin_wei
        text = (
            f"Node {number} has a bond of {tokens(node.bond)}; {tokens(seen.required[number])} are required, "
            f"and a margin of {tokens(figures.margin_wei)} is asked for. Add to it with: assize stake deposit {number} "
            f"'{tokens(wanted - node.bond)}'"
        )
        yield key, Notice(NoticeKind.BOND, key, text) if _serves(node) and node.bond < wanted else None


def _serves(node: Node) -> bool:
    return not node.retired_at and not node.withdrawn and node.active_at < NEVER


def _silences(seen: Seen, figures: NoticeFigures) -> Iterator[tuple[str, Notice | None]]:
    for number, seconds in seen.silent_seconds.items():
        silent = _serves(seen.nodes[number]) and seconds > figures.silent_seconds
        key = f"silent/{number}"
        text = f"Node {number} sent its last heartbeat {seconds:.0f} s ago. Look whether its process runs."
        yield key, Notice(NoticeKind.SILENT, key, text) if silent else None


def _credits(seen: Seen, figures: NoticeFigures) -> Iterator[tuple[str, Notice | None]]:
    for owner, wei in seen.credits.items():
        key = f"credits/{owner}"
        text = f"{owner} has {tokens(wei)} of credits. Redeem them with: assize credits redeem all"
        yield key, Notice(NoticeKind.CREDITS, key, text) if 0 < figures.credits_wei < wei else None


def _releases(seen: Seen) -> Iterator[tuple[str, Notice | None]]:
    for run, sentence in seen.behind.items():
        key = f"release/{run}"
        yield key, Notice(NoticeKind.TERMS, key, f"{sentence[0].upper()}{sentence[1:]}.") if sentence else None


def _escrows(followed: Followed, seen: Seen, figures: NoticeFigures) -> Iterator[tuple[str, Notice | None]]:
    for number, run in seen.runs.items():
        key, a_round = f"escrow/{number}", followed.last_reserved.get(number) or _first_reserve(run.terms)
        text = (
            f"Run {number} has {tokens(run.escrow)} of free escrow; a round reserves {tokens(a_round)}. "
            f"Fund it with: assize run fund {number} AMOUNT"
        )
        short = not run.closed and run.escrow < figures.escrow_rounds * a_round
        yield key, Notice(NoticeKind.ESCROW, key, text) if short else None


def _first_reserve(terms: RunTerms) -> int:
    """Returns what a round reserves under these terms, if it has ``UNSEEN_JOBS`` jobs."""
    return most_reserved(UNSEEN_JOBS, terms.max_units, terms.price_per_unit, terms.committee, terms.juror_fee)


def _windows(followed: Followed, seen: Seen, figures: NoticeFigures) -> Iterator[tuple[str, Notice | None]]:
    for number, round_ in followed.rounds.items():
        for node, jobs in round_.disputable.items():
            closing = seen.now <= round_.deadline <= seen.now + figures.appeal_seconds
            if jobs and closing and _offers_appeals(seen.runs.get(round_.run)):
                yield _window(number, node, jobs, round_)


def _offers_appeals(run: Run | None) -> bool:
    return run is not None and run.terms.appeal_seats > 0


def _window(number: int, node: int, jobs: int, round_: WatchedRound) -> tuple[str, Notice]:
    key, first = f"appeal/{number}/{node}", jobs_in(jobs)[0]
    named = ", ".join(map(str, jobs_in(jobs)))
    text = (
        f"Jobs {named} of node {node} in round {number} were not accepted; the verdict can be appealed until "
        f"{clock(round_.deadline)}. Look why with: assize ledger why {number}/{first}; appeal with: "
        f"assize appeal open {number} {first}"
    )
    return key, Notice(NoticeKind.APPEAL, key, text)
