"""``make upgrade``: a market of the revision before, moved to this one process by process; then one line of JSON.

Everything runs the old code at first, on the same contracts. Parties are restarted with the new code one after another,
so that each pair of old and new has to work together for a version: nodes before their coordinator, some after it, an
API of each revision on one database. Then all invariants are checked, and a ledger of each revision reads the chain.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.localnet.processes import ProcessSpec, free_port, wait_until_listening
from ledger import facts
from tests.chaos.invariants import broken
from tests.chaos.network import Interposed, Network, make_small_model
from tests.conftest import ROOT

BEFORE = "ca07e5c7475bba024f686e00989ef8abd449d1ee"
"""The revision from which this one is to take over."""

STAGES = (
    ("ledger", ("ledger",)),
    ("nodes under an old coordinator", ("worker-1", "validator-1")),
    ("coordinator's clock", ("coordinator-driver",)),
    ("coordinator's API, over old nodes", ("coordinator",)),
    ("an old API beside it", ()),
    ("weights", ("relay", "trainer")),
    ("the other nodes", ("worker-2", "validator-2", "validator-3")),
)
"""What is restarted with the new code, in this order, versions being made after each. The cheat is new."""


NEW_SETTINGS = ("_DRAIN_SECONDS",)
"""Ends of the names of settings that the local network gives and the old code does not have."""


class Rolling(Interposed):
    """Starts services with the old code until they are upgraded."""

    def __init__(self, root: Path, old: Path) -> None:
        super().__init__(root)
        self.old, self.upgraded = old, set[str]()

    def start(self, service: ProcessSpec) -> None:
        """Starts it; the old code without the settings that it would refuse as unknown."""
        known = {name: value for name, value in service.environment.items() if not name.endswith(NEW_SETTINGS)}
        super().start(service if service.name in self.upgraded else replace(service, environment=known))
        self.services[service.name] = service

    def _rewritten(self, name: str, value: str) -> str:
        value = super()._rewritten(name, value)
        return value if name in self.upgraded else value.replace(str(ROOT / "assize.py"), str(self.old / "assize.py"))


class Market(Network):
    """A network that begins with the old code."""

    supervisor: Rolling

    def __init__(self, root: Path, model: Path, old: Path) -> None:
        super().__init__(root, model, Rolling(root, old))

    def upgrade(self, name: str) -> None:
        """Ends a service as an operator does, and starts it with the new code."""
        self.supervisor.upgraded.add(name)
        self.supervisor.more.pop(name, None)
        self.restart(name)

    def serve_beside(self, worker: str) -> None:
        """Starts one more API of the coordinator with the old code, on the same database, for an old worker."""
        service, port = self.supervisor.services["coordinator"], free_port()
        url = f"http://127.0.0.1:{port}"
        more = {**service.environment, "ASSIZE_COORDINATOR_PORT": str(port)}
        other = replace(service, name="coordinator-old", environment=more, url=url)
        self.supervisor.start(other)
        wait_until_listening(other, port, self.supervisor)
        self.supervisor.more[worker] = {"ASSIZE_WORKER_COORDINATOR_URL": url}
        self.restart(worker)


def main(
    revision: Annotated[str, typer.Option("--from", help="The revision to begin with.")] = BEFORE,
) -> None:
    """Upgrade a running market."""
    console, began = Console(width=110), time.monotonic()
    table = Table("restarted with the new code", "versions", "seconds", title=f"from {revision[:7]} to this revision")
    with tempfile.TemporaryDirectory() as folder:
        old, model = Path(folder) / "old", Path(folder) / "model"
        _check_out(revision, old)
        console.print("making the model, starting the network with the old code", style="dim")
        make_small_model(model)
        (Path(folder) / "net").mkdir()
        refused: list[str] = []
        with Market(Path(folder) / "net", model, old) as market:
            market.start(endless=True)
            market.goes_on(2)
            for words, names in STAGES:
                console.print(f"restarting {', '.join(names) or 'an old worker at an old API'}", style="dim")
                for name in names:
                    market.upgrade(name)
                if not names:
                    failed = [line for line in market.log("worker-2").splitlines() if "heartbeat_failed" in line]
                    refused = [line for line in failed if "does not answer" not in line]  # as while it is restarted
                    market.serve_beside("worker-2")
                took = market.goes_on(2)
                table.add_row(words, str(market.version()), f"{took:.1f}")
            console.print("checking every invariant", style="dim")
            found = broken(market)
            if refused:
                found.append(f"the old worker refused {len(refused)} answers to its heartbeats: {refused[0]}")
            void, redrawn, twice = _rounds(market)
            last = market.version()
            hashes = _states(market, old)
    console.print(table)
    for sentence in found:
        console.print(sentence, style="red")
    told = {"versions": last, "void": void, "redrawn": redrawn, "twice": twice}
    equal = len(set(hashes)) == 1
    told |= {"broken": len(found), "state_hashes_equal": equal, "seconds": round(time.monotonic() - began)}
    print(json.dumps(told))
    raise typer.Exit(int(bool(found or void or twice) or not equal))


def _check_out(revision: str, folder: Path) -> None:
    """Writes the files of a revision, without its history."""
    made = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True)
    if made.returncode:
        raise SystemExit(f"revision {revision} is not in this clone: fetch its history (git fetch --unshallow)")
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    # The contracts' tools are those of this clone.
    (folder / "contracts" / "node_modules").symlink_to(ROOT / "contracts" / "node_modules")


def _rounds(market: Market) -> tuple[int, int, int]:
    """Rounds void, committees drawn again, and steps of the run that were opened more than once."""
    market.scoreboard.refresh()
    rounds = [each for each in market.scoreboard.book.all(facts.Round) if not each.parent]
    steps = [each.step for each in rounds]
    void, redrawn = (each.state == "void" for each in rounds), (each.attempt for each in rounds)
    return sum(void), sum(redrawn), len(steps) - len(set(steps))


def _states(market: Market, old: Path) -> list[str]:
    """State hashes by each revision, from the chain alone, once nobody sends any more."""
    for name in list(market.supervisor.children):
        if name != "chain":
            market.supervisor.end(name)
    hashes = []
    for place in (old, ROOT):
        words = ["ledger", "replay", "--rpc", market.layout.url("chain")]
        words += ["--addresses", str(market.layout.addresses), "--json"]
        command = [sys.executable, str(place / "assize.py"), *words]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=place)
        if answer.returncode:
            raise SystemExit(answer.stderr)
        hashes.append(json.loads(answer.stdout)["state_hash"])
    return hashes


if __name__ == "__main__":
    typer.run(main)
