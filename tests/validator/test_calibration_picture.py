"""The picture of a calibration can be drawn whatever was measured."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from validator.calibration import picture


def test_a_panel_in_which_nothing_lies_above_zero_is_drawn(tmp_path: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(layout="constrained")
    picture._curve(axis, np.zeros(64), picture.HONEST, "honest")
    axis.set(xscale="log", yscale="log")
    picture._limit(axis, 0.01, "void")
    picture._describe(axis, "title", "label")
    figure.savefig(tmp_path / "panel.png")
    pyplot.close(figure)
    assert (tmp_path / "panel.png").stat().st_size > 1_000
