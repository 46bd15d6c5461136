"""What came of markets of exchangeable rewards: tables for people, and a part of the zoo's last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.zoo.exchange import Exchange, OwnerOutcome

console = Console(width=180)


def show_exchange(played: Iterable[Exchange]) -> dict[str, Any]:
    """Prints the tables, and returns this part of the last line."""
    markets = sorted(played, key=lambda each: each.name)
    console.print(_honest(markets))
    console.print(_cheats(markets))
    return exchanged(markets)


def exchanged(markets: Sequence[Exchange]) -> dict[str, Any]:
    """The last line's part on exchangeable rewards: honest owners whom the juror's samples condemned, and figures."""
    return {
        "exchangeable_false_alarms": sum(each.false_alarms for each in markets),
        "exchange": {each.name: _figures(each) for each in markets},
    }


def _figures(market: Exchange) -> dict[str, Any]:
    honest = market.honest
    return {
        "rounds": market.rounds,
        "honest_owners": len(honest),
        "honest_rollouts": sum(each.rollouts for each in honest),
        "fraud": sum(each.fraud + (each.record >= market.bound) for each in honest),
        "void": sum(each.void for each in honest),
        "alarms": sum(each.alarms > 0 for each in honest),
        "groups_sampled": sum(each.groups for each in honest),
        "condemned": market.false_alarms,
        "cheats": {name: _cheat(market, cheats) for name, cheats in _kinds(market).items()},
    }


def _cheat(market: Exchange, cheats: Sequence[OwnerOutcome]) -> dict[str, Any]:
    condemned = [each.condemned_jobs for each in cheats if each.condemned_jobs is not None]
    return {
        "owners": len(cheats),
        "uplift": _rounded([each.uplift for each in cheats]),
        "lead": _rounded([market.lead(each) for each in cheats]),
        "alarm_jobs": min((each.alarm_jobs for each in cheats if each.alarm_jobs is not None), default=None),
        "condemned_jobs": min(condemned, default=None),
    }


def _kinds(market: Exchange) -> dict[str, list[OwnerOutcome]]:
    kinds: dict[str, list[OwnerOutcome]] = {}
    for each in market.cheats:
        kinds.setdefault(str(each.cheat), []).append(each)
    return kinds


def _rounded(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def _honest(markets: Sequence[Exchange]) -> Table:
    table = Table(title="exchangeable rewards: honest owners, in jobs of 16 rollouts of three versions")
    columns = ("market", "rounds", "owners", "rollouts", "fraud", "void jobs", "with an alarm", "rounds with one")
    for column in (*columns, "groups sampled", "condemned", "evidence at most", "record"):
        table.add_column(column, justify="left" if column == "market" else "right")
    for each in markets:
        honest = each.honest
        highest = max((owner.highest for owner in honest if owner.highest is not None), default=None)
        numbers = (
            each.rounds,
            len(honest),
            sum(owner.rollouts for owner in honest),
            sum(owner.fraud for owner in honest),
            sum(owner.void for owner in honest),
            sum(owner.alarms > 0 for owner in honest),
            sum(owner.alarms for owner in honest),
            sum(owner.groups for owner in honest),
            each.false_alarms,
        )
        evidence = "" if highest is None else f"{highest:.1f} of {each.bound:.1f}"
        record = max((owner.record for owner in honest), default=0.0)
        table.add_row(each.name, *map(str, numbers), evidence, f"{record:.1f}")
    return table


def _cheats(markets: Sequence[Exchange]) -> Table:
    table = Table(title="exchangeable rewards: cheats; jobs until the first of them is condemned by rewards alone")
    columns = ("market", "owners", "jobs each", "not accepted", "not handed in", "uplift", "lead over honest")
    for column in (*columns, "to alarm", "groups sampled", "condemned", "to condemned"):
        table.add_column(column, justify="left" if column == "market" else "right")
    for market in markets:
        for cheats in _kinds(market).values():
            said, jobs = _cheat(market, cheats), max(each.jobs for each in cheats)
            alarm, condemned = (
                f"> {jobs}" if said[key] is None else str(said[key]) for key in ("alarm_jobs", "condemned_jobs")
            )
            numbers = (
                len(cheats),
                jobs,
                sum(each.fraud + each.void for each in cheats),
                sum(each.missing for each in cheats),
            )
            gained = ("" if said[key] is None else f"{said[key]:+.3f}" for key in ("uplift", "lead"))
            sums = (sum(each.groups for each in cheats), sum(each.condemned_jobs is not None for each in cheats))
            table.add_row(market.name, *map(str, numbers), *gained, alarm, *map(str, sums), condemned)
    return table
