"""Series of a run's page: figures by version or round, as tables that are drawn as charts too. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from protocol.amounts import UNIT

if TYPE_CHECKING:
    from ledger.explorer.views import RunView

WEI_A_TOKEN = 10**18


@dataclass(frozen=True, slots=True)
class Series:
    """Figures by version or round.

    Args:
        title: heading of table and chart.
        of: kind of thing that the first column numbers.
        names: heading of each other column.
        form: of the values: digits after the point, or wei.
        rows: number of a version or round, and its values; None where one is not known. Newest first.
        tones: colours of the columns by their part in the style sheet; one of each series' own without.
    """

    title: str
    of: Literal["version", "round"]
    names: tuple[str, ...]
    form: Literal["0", "1", "3", "wei"]
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]
    tones: tuple[str, ...] = ()

    @property
    def scale(self) -> int:
        """Divisor of a value for a chart: wei are drawn as tokens."""
        return WEI_A_TOKEN if self.form == "wei" else 1


def series_of(view: RunView) -> tuple[Series, ...]:
    """Returns the series of a run that have values."""
    rounds = [each for each in view.progress.rounds[: view.shown] if each.state != "open"]
    rewards = [(each.made.version, each.rewards) for each in view.versions if each.rewards is not None]
    outcomes = [(each.accepted, each.void, each.fraud, each.unavailable, each.missing) for each in rounds]
    numbers = [each.round for each in rounds]
    staleness = tuple((each.made.version, (each.made.staleness,)) for each in view.versions)
    accuracy = tuple((version, (view.accuracy[version],)) for version in sorted(view.accuracy, reverse=True))
    found = (
        Series("Reward by version", "version", ("Mean reward",), "3", tuple((at, (one.mean,)) for at, one in rewards)),
        Series("Accuracy by version", "version", ("Accuracy",), "3", accuracy),
        Series("Versions behind by version", "version", ("Versions behind",), "1", staleness),
        Series(
            "Jobs by round",
            "round",
            ("Accepted", "Void", "Fraud", "Unavailable", "Missing"),
            "0",
            tuple(zip(numbers, outcomes, strict=True)),
            ("good", "idle", "bad", "warn", "link"),
        ),
        Series(
            f"Cost of a round in {UNIT}",
            "round",
            ("Paid",),
            "wei",
            tuple((each.round, (each.paid,)) for each in rounds),
        ),
    )
    return tuple(each for each in found if any(value is not None for _, values in each.rows for value in values))
