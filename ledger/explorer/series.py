"""Series of a run's page: figures by version or round, as tables that are drawn as charts too. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ledger.explorer.views import RunView

Form = Literal["share", "mean", "count", "wei"]
"""Form of a series' values: with three digits after the point, one, none, or as an amount."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """Values at a version or round, None where one is not known, and a remark that is not drawn."""

    at: int
    values: tuple[float | None, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Figures by version or round, the oldest first. ``names`` has one for each value of a row."""

    title: str
    of: Literal["version", "round"]
    names: tuple[str, ...]
    form: Form
    rows: tuple[SeriesRow, ...]
    remarks: str = ""


def series_of(view: RunView) -> tuple[Series, ...]:
    """Returns the series of a run."""
    versions, rounds = view.versions[::-1], [each for each in view.progress.rounds[::-1] if each.state != "open"]
    rewards = tuple(
        SeriesRow(each.made.version, (each.rewards.mean,), each.rewards.fault or f"{each.rewards.rollouts:,} rollouts")
        for each in versions
        if each.rewards is not None
    )
    staleness = tuple(SeriesRow(each.made.version, (each.made.staleness,)) for each in versions)
    jobs = tuple(
        SeriesRow(each.round, (each.accepted, each.void, each.fraud, each.unavailable, each.missing)) for each in rounds
    )
    paid = tuple(SeriesRow(each.round, (each.paid,), f"version {each.version}") for each in rounds)
    return (
        Series("Mean reward by version", "version", ("Mean reward",), "share", rewards, "Of"),
        Series("Versions behind, by version", "version", ("Versions behind",), "mean", staleness),
        Series("Jobs by round", "round", ("Accepted", "Void", "Fraud", "Unavailable", "Missing"), "count", jobs),
        Series("Cost of a round", "round", ("Paid",), "wei", paid, "With"),
    )
