"""The view of ``assize run watch``. PURE."""

from __future__ import annotations

from ledger.facts import Slash
from ledger.queries.run_progress import RoundProgress, RunOutlook, spent_per_second
from ledger.trainer_metrics import TrainerMetrics
from protocol.amounts import UNIT, rounded
from protocol.node.watching import Grid, Row, View
from protocol.times import spell

SHOWN_ROUNDS = 6
SHOWN_VERSIONS = 4
OUTCOMES = ("accepted", "void", "fraud", "unavailable", "missing")
HEADINGS = ("round", "state", "jobs", *OUTCOMES, "paid")
UNKNOWN = "give the trainer's state folder with --metrics"


def run_view(progress: RunOutlook, metrics: TrainerMetrics | None, now: int) -> View:
    """Returns the view of a run at the unix second ``now``."""
    rate = spent_per_second(progress.rounds, now)
    reward, accuracy = _by_version(metrics, "reward"), _by_version(metrics, "accuracy")
    left = progress.escrow / rate if rate else None
    age = spell(now - progress.published_at)
    rows = (
        Row("version", f"{progress.version}, published {age} ago{', run closed' if progress.closed else ''}"),
        Row("reward", reward, "good" if metrics and metrics.reward else ""),
        Row("accuracy", accuracy, "good" if metrics and metrics.accuracy else ""),
        Row("versions behind", "–" if progress.staleness is None else f"{progress.staleness:.1f} on average"),
        Row("rounds", f"{progress.open_rounds} under way"),
        Row("paid so far", f"{rounded(progress.paid)} {UNIT}"),
        Row("cost a version", "–" if progress.a_version is None else f"{rounded(progress.a_version)} {UNIT}"),
        Row("escrow left", f"{rounded(progress.escrow)} {UNIT}, {rounded(progress.reserved)} {UNIT} reserved"),
        Row("lasts for", _lasts(progress, left), "bad" if progress.escrow == 0 else ""),
    )
    grid = Grid(HEADINGS, tuple(_row(each) for each in progress.rounds[:SHOWN_ROUNDS]))
    return View(
        title=f"run {progress.run}",
        rows=rows,
        notes=tuple(_slashed(slash) for slash in progress.slashes),
        line=_line(progress, metrics),
        figures=_figures(progress, metrics, rate, left),
        grid=grid,
    )


def _row(each: RoundProgress) -> tuple[str, ...]:
    counts = (getattr(each, name) for name in ("jobs", *OUTCOMES))
    return (str(each.round), each.state, *map(str, counts), rounded(each.paid))


def _by_version(metrics: TrainerMetrics | None, name: str) -> str:
    if metrics is None:
        return UNKNOWN
    values: dict[int, float] = getattr(metrics, name)
    newest = sorted(values)[-SHOWN_VERSIONS:]
    return "  ".join(f"{version}: {values[version]:.3f}" for version in newest) or "none yet"


def _lasts(progress: RunOutlook, left: float | None) -> str:
    if progress.escrow == 0:
        return "no further round: fund it with assize run fund"
    return "unknown before a round is paid" if left is None else f"{spell(left)} at the present rate"


def _slashed(slash: Slash) -> str:
    taken = f"{rounded(slash.amount)} {UNIT}"
    return f"slashed: node {slash.node} lost {taken} for {slash.cause} in round {slash.round} (assize ledger slashes)"


def _line(progress: RunOutlook, metrics: TrainerMetrics | None) -> str:
    """Returns the look as a line that changes with versions and rounds alone."""
    reward = metrics.reward.get(progress.version) if metrics else None
    newest = progress.rounds[0] if progress.rounds else None
    parts = [f"version {progress.version}"]
    if reward is not None:
        parts.append(f"reward {reward:.3f}")
    if newest is not None:
        counts = (
            ("accepted", newest.accepted),
            ("void", newest.void),
            ("fraud", newest.fraud),
            ("missing", newest.missing),
        )
        parts.append(f"round {newest.round} {newest.state}, {newest.jobs} jobs")
        parts += [f"{name} {count}" for name, count in counts if count]
    return "  ".join((*parts, f"paid {rounded(progress.paid)} {UNIT}", f"escrow {rounded(progress.escrow)} {UNIT}"))


def _figures(
    progress: RunOutlook, metrics: TrainerMetrics | None, rate: float | None, left: float | None
) -> dict[str, object]:
    return {
        "run": progress.run,
        "version": progress.version,
        "published_at": progress.published_at,
        "closed": progress.closed,
        "reward": metrics.reward if metrics else None,
        "accuracy": metrics.accuracy if metrics else None,
        "staleness": progress.staleness,
        "open_rounds": progress.open_rounds,
        "paid_wei": progress.paid,
        "a_version_wei": progress.a_version,
        "escrow_wei": progress.escrow,
        "reserved_wei": progress.reserved,
        "spent_per_second_wei": None if rate is None else round(rate),
        "escrow_lasts_seconds": None if left is None else round(left),
        "rounds": list(progress.rounds),
        "slashes": list(progress.slashes),
    }
