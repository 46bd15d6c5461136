"""Progress of the local network in a terminal and in a pipe."""

from __future__ import annotations

import pytest
from rich.console import Console

from deploy.localnet.live import Figures, LiveView, step_line
from deploy.localnet.outcome import Metrics

STEP = {"version": 192, "reward": 0.8125, "staleness": 1.5}
FIGURES = Figures(2, 190, 3000, 4, 12, {"alice": 12 * 10**18, "mallory": 0}, {"mallory": 10**18})


def metrics() -> Metrics:
    return Metrics((STEP,), ({"version": 190, "accuracy": 0.9},))


def test_a_network_without_an_end_names_no_last_step() -> None:
    assert step_line(STEP, metrics(), FIGURES, None).startswith("step 192 reward 0.812 accuracy 0.900@190 ")
    assert step_line(STEP, metrics(), FIGURES, 200).startswith("step 192/200 reward")


@pytest.mark.parametrize("columns", [80, 140])
def test_the_live_table_fits_and_names_no_last_step(columns: int) -> None:
    view = LiveView(None, interactive=True)
    console = Console(width=columns, color_system=None)
    with console.capture() as captured:
        console.print(view._table(metrics(), FIGURES))
    lines = captured.get().splitlines()
    assert all(len(line) <= columns for line in lines)
    assert "192" in captured.get()
    assert " of " not in captured.get()
    assert "12.00" in captured.get()
