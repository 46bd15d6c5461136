"""``make alerts``: checks and tests the rules with promtool, then fires each alert by a fault on a real network.

python -m tests.alerts [--only DiskLow --only GasLow] [--rules-only]

Each alert must be quiet before its fault, and fire after it. Times in the rules are shortened for that. The last line
is JSON.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from protocol.node.console import guard
from tests.alerts.faults import FAULTS, AlertFault
from tests.alerts.prometheus import Prometheus, program
from tests.alerts.rules import RULES, TIMES_SHORTER, alerts_of, shortened
from tests.alerts.watched import Watched
from tests.chaos.network import make_small_model

QUIET_SECONDS, FIRING_SECONDS, LOOK_SECONDS = 180.0, 300.0, 0.5


@dataclass(frozen=True, slots=True)
class Fired:
    """One alert: the seconds from its fault until it fired; or why it did not."""

    alert: str
    fault: str
    seconds: float | None
    why: str = ""


@guard
def main(
    only: Annotated[list[str] | None, typer.Option(help="These alerts, by name.")] = None,
    rules_only: Annotated[bool, typer.Option("--rules-only", help="Only what promtool does.")] = False,
) -> None:
    """Test the alert rules, and fire each."""
    began, console = time.monotonic(), Console(width=130)
    tested = test_rules()
    rules = shortened()
    alerts = [name for name in alerts_of(rules) if not only or name in only]
    came: list[Fired] = []
    if not rules_only:
        chosen = [each for each in FAULTS if set(each.alerts) & set(alerts)]
        console.print(
            f"rules with every time a {TIMES_SHORTER}th as long; making the model, starting the network", style="dim"
        )
        with tempfile.TemporaryDirectory() as folder:
            came = strike_all(console, Path(folder), chosen, alerts)
        show(console, came)
    fired = sum(one.seconds is not None for one in came)
    seconds = round(time.monotonic() - began)
    print(json.dumps({"alerts": len(alerts), "fired": fired, "rules_tested": tested, "seconds": seconds}))
    raise typer.Exit(0 if rules_only or fired == len(alerts) else 1)


def test_rules() -> int:
    """Has promtool check and test the rules; returns the number of tests. Exits with its status if one fails."""
    tests = RULES.with_name("alerts_test.yaml")
    config = RULES.with_name("prometheus.yaml")
    for words in (("check", "rules", RULES), ("check", "config", config), ("test", "rules", tests)):
        done = subprocess.run([program("promtool"), *map(str, words)], check=False)
        if done.returncode:
            raise typer.Exit(1)
    return len(yaml.safe_load(tests.read_text())["tests"])


def strike_all(console: Console, folder: Path, chosen: Iterable[AlertFault], alerts: Iterable[str]) -> list[Fired]:
    """Strikes one fault after another on one network, watched by one Prometheus."""
    model, found, wanted = folder / "model", list[Fired](), set(alerts)
    make_small_model(model)
    with ExitStack() as held:
        network = held.enter_context(Watched(folder / "net", model))
        prometheus = Prometheus(folder / "prometheus", shortened())
        held.callback(prometheus.close)
        network.start(endless=True)
        prometheus.scrape(network.targets)
        network.goes_on(2)
        for each in chosen:
            for one in strike(network, prometheus, each, wanted):
                console.print(f"{one.alert}: {one.why or f'{one.seconds:.0f} s after {one.fault}'}", style="dim")
                found.append(one)
    return found


def strike(network: Watched, prometheus: Prometheus, fault: AlertFault, wanted: set[str]) -> list[Fired]:
    """Waits until the fault's alerts are quiet, strikes, and waits until they fire."""
    waiting = {alert: at for alert, at in fault.alerts.items() if alert in wanted}
    loud = await_all(prometheus, waiting, QUIET_SECONDS, firing=False)
    found = [Fired(alert, fault.what, None, "fires without its fault") for alert in waiting.keys() - loud.keys()]
    waiting = {alert: at for alert, at in waiting.items() if alert in loud}
    began, times = time.monotonic(), dict[str, float]()
    try:
        with fault.breaks(network, prometheus):
            times = await_all(prometheus, waiting, FIRING_SECONDS, firing=True)
    except Exception as error:  # whatever it is, the other faults are still to come
        why = f"{type(error).__name__}: {error}"
    else:
        why = f"did not fire within {time.monotonic() - began:.0f} s"
    return found + [Fired(alert, fault.what, times.get(alert), "" if alert in times else why) for alert in waiting]


def await_all(prometheus: Prometheus, waiting: dict[str, str], seconds: float, firing: bool) -> dict[str, float]:
    """Waits until all alerts fire at their targets, or none does; returns when each came to it, as far as it did."""
    began, times = time.monotonic(), dict[str, float]()
    while len(times) < len(waiting) and time.monotonic() - began < seconds:
        now = prometheus.firing()
        for alert, at in waiting.items():
            fires = at in now[alert] or (not at and bool(now[alert])) if alert in now else False
            if fires is firing:
                times.setdefault(alert, time.monotonic() - began)
            elif not firing:
                times.pop(alert, None)
        time.sleep(LOOK_SECONDS)
    return times


def show(console: Console, came: Iterable[Fired]) -> None:
    """A row for each alert."""
    table = Table("alert", "fault", "fired after, s")
    for one in came:
        table.add_row(one.alert, one.fault, f"{one.seconds:.0f}" if one.seconds is not None else one.why)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
