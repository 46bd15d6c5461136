"""Picture of honest and cheating jobs with the bounds between them, one panel per drawn bound."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Misconfigured
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import noise
from validator.calibration.report import Calibration
from validator.judging.check import Fitting
from validator.judging.registry import CHECKS

F64 = NDArray[np.float64]

HONEST, LIMIT = "#1a1a1a", "#b3261e"
CHEATS = ("#2f6db3", "#d98324", "#3d9a5f", "#8b5fb8", "#b0566f", "#6b7a89")
PANEL_INCHES, DOTS = (13 / 3, 4.6), 110
POINTS = 400
AS_FAR_AS_SHOWN = 1e3
TITLE, ROOM = 11, 3.0
EMPTY_SHARES = (1e-3, 1.0)
"""Shares on the axis of a panel without curves."""


def draw(calibration: Calibration, path: Path) -> None:
    """Writes the picture as PNG; raises ``Misconfigured`` if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise Misconfigured(
            "--picture needs matplotlib: pip install 'assize[localnet]', or leave the option out"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    thresholds = calibration.rules.thresholds
    panels = [
        (check, bound, bound.panel)
        for check in CHECKS
        if check.applies(thresholds)
        for bound in check.bounds
        if bound.panel is not None
    ]
    width, height = PANEL_INCHES
    figure, axes = pyplot.subplots(1, len(panels), figsize=(width * len(panels), height), layout="constrained")
    for axis, (check, bound, (title, label)) in zip(np.atleast_1d(axes), panels, strict=True):
        _panel(axis, calibration, partial(_joined, values=bound.values), bound.axis)
        if bound.fitting is Fitting.NOISE:
            _noise(axis, calibration)
        for other in check.bounds:
            limit = thresholds.bounds[other.name]
            if other.values is bound.values and limit is not None:
                _limit(axis, limit, "fraud" if other.fitting is Fitting.NOISE_FRAUD else "void")
        _describe(axis, title, label)
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(labels)), frameon=False)
    figure.savefig(path, dpi=DOTS, pil_kwargs={"optimize": True})
    pyplot.close(figure)


def _noise(axis: Any, calibration: Calibration) -> None:
    """Adds the honest noise on scores, and says so if no honest token is off the seeded choice."""
    temperature = calibration.rules.temperature
    noises = _joined(calibration.everything, lambda job: noise(job, temperature))
    _curve(axis, noises, HONEST, "honest noise on a score", ":")
    if not any((job.margins_S > 0).any() for job in calibration.everything):
        told = f"of {len(noises):,}\nhonest tokens\nnone is off the\nseeded choice"
        axis.text(0.03, 0.05, told, transform=axis.transAxes, fontsize=8, color=HONEST)


def _panel(axis: Any, calibration: Calibration, values: Callable[[list[MeasuredJob]], F64], unit: str) -> None:
    """Draws the share of ``unit`` beyond each value, per maker, on logarithmic scales."""
    _curve(axis, values(calibration.everything), HONEST, "honest", "-", 2.6)
    for (name, jobs), colour in zip(calibration.against.items(), CHEATS * 3, strict=False):
        _curve(axis, values(jobs), colour, name)
    axis.set(xscale="log", yscale="log", ylabel=f"share of {unit} beyond")
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _curve(axis: Any, values: F64, colour: str, name: str, style: str = "-", width: float = 1.5) -> None:
    """Draws the share of values beyond x, for x above 0; an empty curve still appears in the legend."""
    ordered = np.sort(values[values > 0])[::-1]
    shares = np.arange(1, len(ordered) + 1) / max(1, len(values))
    kept = np.unique(np.geomspace(1, max(1, len(ordered)), POINTS).astype(int)) - 1
    kept = kept[kept < len(ordered)]
    line = {"color": colour, "label": name, "linestyle": style, "linewidth": width}
    axis.plot(ordered[kept], shares[kept], marker="o" if 0 < len(kept) < 8 else None, markersize=3, **line)


def _describe(axis: Any, title: str, label: str) -> None:
    """Sets title and label, and limits the axis to the curves, with room for the bounds."""
    reach = [float(x) for line in axis.get_lines() for x in np.atleast_1d(line.get_xdata()) if x > 0]
    axis.set_xlim(min(reach) / ROOM, max(reach) * ROOM)
    if not np.isfinite(axis.dataLim.minposy):  # no value above 0: a logarithmic axis has no limits of its own
        axis.set_ylim(EMPTY_SHARES)
    axis.set_title(title, fontsize=TITLE)
    axis.set_xlabel(label)


def _limit(axis: Any, value: float, name: str) -> None:
    axis.axvline(value, color=LIMIT, linewidth=1.2, linestyle="--")
    axis.axvspan(value, AS_FAR_AS_SHOWN, color=LIMIT, alpha=0.04, linewidth=0)
    place: dict[str, Any] = {"xy": (value, 0.02), "xycoords": ("data", "axes fraction"), "xytext": (-3, 0)}
    place |= {"textcoords": "offset points", "va": "bottom", "ha": "right"}
    axis.annotate(f"{name} beyond {value:g}", **place, color=LIMIT, fontsize=8, rotation=90)


def _joined(jobs: list[MeasuredJob], values: Callable[[MeasuredJob], NDArray[np.floating]]) -> F64:
    return np.concatenate([np.atleast_1d(values(job)) for job in jobs]).astype(np.float64)
