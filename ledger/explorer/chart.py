"""Line charts as SVG, drawn for pages that run no script. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from ledger.explorer.series import Series

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 12, 28
"""Margins around the lines, in which the axes are labelled."""
DASHES = ("none", "7 4", "2 3", "9 3 2 3", "12 3")
"""Dashes of the series in turn: colours are not all that tells them apart."""
TICKS = 5
"""Most steps between the ticks of an axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from the first tick to the last, drawn from ``start`` to ``end``."""

    ticks: tuple[float, ...]
    start: float
    end: float

    def place(self, value: float) -> float:
        """Returns the coordinate of a value."""
        least, most = self.ticks[0], self.ticks[-1]
        return self.start + (value - least) / (most - least) * (self.end - self.start)


def axis(values: Sequence[float], start: float, end: float, whole: bool = False) -> Axis:
    """Returns an axis with round ticks that holds all values; whole numbers only, if ``whole``."""
    least, most = min(values), max(values)
    most = most if most > least else least + 1.0
    rough = (most - least) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.999)
    step = max(1.0, step) if whole else step
    first, last = math.floor(least / step), math.ceil(most / step)
    return Axis(tuple(step * each for each in range(first, max(last, first + 1) + 1)), start, end)


def chart(series: Series) -> Markup:
    """Returns the chart of a series that has rows; its title and description say what it shows."""
    rows = sorted(series.rows)
    columns = [[_drawn(values[at], series.scale) for _, values in rows] for at in range(len(series.names))]
    known = [value for column in columns for value in column if value is not None]
    over = axis([float(at) for at, _ in rows], LEFT, WIDTH - RIGHT, whole=True)
    up = axis([0.0, *known], HEIGHT - BOTTOM, TOP, whole=series.form == "0")
    parts = [*_grid(over, up)]
    for at, column in enumerate(columns):
        points = [(over.place(row[0]), None if y is None else up.place(y)) for row, y in zip(rows, column, strict=True)]
        parts += _line(points, tone_of(series, at), DASHES[at % len(DASHES)])
    spans = " ".join(_span(name, column) for name, column in zip(series.names, columns, strict=True))
    says = f"{series.of.capitalize()} {rows[0][0]:,} to {rows[-1][0]:,}. {spans}"
    whole = '<svg class="chart-lines" viewBox="0 0 {} {}" role="img"><title>{}</title><desc>{}</desc>{}</svg>'
    return Markup(whole).format(WIDTH, HEIGHT, f"Line chart: {series.title}", says, Markup("").join(parts))


def legend(series: Series) -> Markup:
    """Returns the names of the columns, each beside a piece of its line."""
    sample = '<li><svg viewBox="0 0 30 8" width="30" height="8" aria-hidden="true">{}</svg> {}</li>'
    lines = (_path("M1 4H29", tone_of(series, at), DASHES[at % len(DASHES)]) for at in range(len(series.names)))
    items = (Markup(sample).format(line, name) for line, name in zip(lines, series.names, strict=True))
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def tone_of(series: Series, at: int) -> str:
    """Returns the colour of a column, by its part in the style sheet."""
    return series.tones[at] if series.tones else f"series-{1 + at % 4}"


def _drawn(value: float | None, scale: int) -> float | None:
    return None if value is None else float(value) / scale


def _span(name: str, column: Sequence[float | None]) -> str:
    known = [value for value in column if value is not None]
    if not known:
        return f"{name}: nothing."
    return f"{name}: {_spelled(min(known))} to {_spelled(max(known))}, newest {_spelled(known[-1])}."


def _spelled(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _grid(over: Axis, up: Axis) -> list[Markup]:
    """Returns a line and a label for each tick."""
    level = '<path class="rule" d="M{} {}H{}"/><text class="up" x="{}" y="{}">{}</text>'
    parts = []
    for tick in up.ticks:
        y = round(up.place(tick), 1)
        parts.append(Markup(level).format(LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, _spelled(tick)))
    for tick in over.ticks:
        x = round(over.place(tick), 1)
        parts.append(Markup('<text class="over" x="{}" y="{}">{}</text>').format(x, HEIGHT - 8, _spelled(tick)))
    return parts


def _line(points: Sequence[tuple[float, float | None]], tone: str, dashes: str) -> list[Markup]:
    """Returns the pieces of a line between its gaps; a point alone is a dot."""
    parts = []
    for there, group in groupby(points, lambda point: point[1] is not None):
        if there:
            piece = [f"{x:.1f} {y:.1f}" for x, y in group]
            parts.append(_path("M" + "L".join(piece) + ("h0.01" if len(piece) == 1 else ""), tone, dashes))
    return parts


def _path(d: str, tone: str, dashes: str) -> Markup:
    return Markup('<path class="line {}" d="{}" stroke-dasharray="{}"/>').format(tone, d, dashes)
