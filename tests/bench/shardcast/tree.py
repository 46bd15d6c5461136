"""A tree of 7 relays, depth 3, each edge with 50 Mbit/s of its own: the last leaf's time, over that of one hop.

    origin - R0 - R1 - R3, R4
                - R2 - R5, R6        each also knows its grandparent, or the origin

Then again, with R1 and R6 killed in the middle and R2 sending wrong bytes: what comes out, when, and who is named.
Every edge is a proxy in a process of its own that passes on so many bytes a second.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.localnet.processes import free_port
from deploy.localnet.services import ROOT
from protocol.broadcast.version_store import VersionStore
from protocol.chain.deployment import Deployment
from tests.bench.shardcast.__main__ import OURS, Bench, line, running, wait_for
from tests.bench.shardcast.ours import MARKET, RUN, TRAINER

PARENTS = {"R0": "origin", "R1": "R0", "R2": "R0", "R3": "R1", "R4": "R1", "R5": "R2", "R6": "R2"}
LEAVES = ("R3", "R4", "R5", "R6")
KILLED, CORRUPT = ("R1", "R6"), "R2"
EDGE = (sys.executable, "-m", "tests.bench.shardcast.edge")


class Tree:
    """The relays of one broadcast, and their edges."""

    def __init__(self, folder: Path, origin: int, parents: dict[str, str], rate: float, corrupt: str | None) -> None:
        self.folder, self.parents = folder, parents
        self.ports = {"origin": origin} | {name: free_port() for name in parents}
        Deployment(31337, 0, bytes(32), *[MARKET] * 7).save(folder / "addresses.json")
        self.edges: dict[tuple[str, str], int] = {}
        for name, parent in parents.items():
            for above in {parent, parents.get(parent, parent)}:
                self.edges[above, name] = free_port()
        self.proxies = [
            (*EDGE, str(port), str(self.ports[above]), str(rate), "1" if above == corrupt else "0")
            for (above, _), port in self.edges.items()
        ]

    def relay(self, name: str) -> subprocess.Popen[bytes]:
        """Starts a relay, whose log goes into a file."""
        words = ["--trainer", TRAINER.address, "--run", str(RUN), "--addresses", str(self.folder / "addresses.json")]
        words += ["--state-dir", str(self.folder / name), "--port", str(self.ports[name])]
        for (_, below), port in self.edges.items():
            words += ["--upstream", f"http://127.0.0.1:{port}"] if below == name else []
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, str(ROOT / "assize.py"), "relay", "serve", *words]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    @contextmanager
    def started(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        """Runs edges and relays."""
        with running(*self.proxies):
            relays: dict[str, subprocess.Popen[bytes]] = {}
            try:
                for port in self.edges.values():
                    wait_for(port)
                for name in self.parents:
                    relays[name] = self.relay(name)
                for name in relays:
                    wait_for(self.ports[name])
                time.sleep(2)
                yield relays
            finally:
                for process in relays.values():
                    process.kill()
                    process.wait()

    def arrived(self, name: str) -> bool:
        """Returns whether a relay has the newest version whole."""
        return any(path.is_dir() for path in (self.folder / name / "runs" / str(RUN)).glob("*[0-9a-f]"))

    def exact(self, name: str) -> bool:
        """Returns whether what a relay has is the version, byte for byte."""
        store = VersionStore(self.folder / name)
        held = [store.manifest(RUN, *named) for named in store.checkpoints(RUN)]
        return bool(held) and all(signed is not None and store.verify(signed) for signed in held)

    def named(self) -> set[str]:
        """Returns whose edges the relays say wrong bytes came from."""
        above = {str(port): pair[0] for pair, port in self.edges.items()}
        logs = "".join(path.read_text() for path in self.folder.glob("*.log"))
        return {above[port] for port in re.findall(r"source_lied.*127\.0\.0\.1:(\d+)", logs)}


def broadcast(
    bench: Bench, parents: dict[str, str], rate: float, leaves: tuple[str, ...], faults: bool
) -> dict[str, Any]:
    """Publishes a version over a new tree; returns the seconds until the last of ``leaves`` has it, and who lied."""
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    port = free_port()
    bench.refresh()
    with running((*OURS, "origin", str(folder / "origin"), str(port), str(bench.model))) as (origin,):
        wait_for(port)
        tree = Tree(folder, port, parents, rate, CORRUPT if faults else None)
        with tree.started() as relays:
            assert origin.stdin is not None
            origin.stdin.write("go\n")
            origin.stdin.flush()
            began = float(line(origin))
            if faults:
                time.sleep(bench.size / rate / 4)
                for name in KILLED:
                    relays[name].send_signal(signal.SIGKILL)
            awaited = [name for name in leaves if not faults or name not in KILLED]
            while not all(map(tree.arrived, awaited)):
                if time.time() - began > 600:
                    raise SystemExit(f"not everywhere after 600 s: {[n for n in awaited if not tree.arrived(n)]}")
                time.sleep(0.05)
            seconds = time.time() - began
        found = {"seconds": seconds, "exact": all(map(tree.exact, awaited)), "named": sorted(tree.named())}
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Measures one hop, the tree, and the tree with faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of a version")
    parser.add_argument("--mbit", type=float, default=50.0, help="bandwidth of each edge, Mbit/s")
    given = parser.parse_args()
    rate = given.mbit * 1e6 / 8
    folder = Path(tempfile.mkdtemp(prefix="assize-tree-"))
    try:
        bench = Bench(folder, given.mib << 20)
        print(f"one hop, then the tree, then the tree with faults: {bench.size / rate:.0f} s or more each", flush=True)
        hop = broadcast(bench, {"R0": "origin"}, rate, ("R0",), faults=False)
        whole = broadcast(bench, PARENTS, rate, LEAVES, faults=False)
        faulty = broadcast(bench, PARENTS, rate, LEAVES, faults=True)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
    table = Table(title=f"{given.mib} MiB over edges of {given.mbit:g} Mbit/s, one run")
    for column in ("network", "seconds", "over one hop", "bit-exact", "sent wrong bytes"):
        table.add_column(column, justify="right")
    for name, found in (("one hop", hop), ("7 relays", whole), ("2 killed, 1 corrupt", faulty)):
        ratio = found["seconds"] / hop["seconds"]
        table.add_row(name, f"{found['seconds']:.1f}", f"{ratio:.2f}", str(found["exact"]), ", ".join(found["named"]))
    Console().print(table)
    report = {"mib": given.mib, "mbit": given.mbit, "hop_s": round(hop["seconds"], 2)}
    report |= {
        "tree": round(whole["seconds"] / hop["seconds"], 3),
        "faulty": round(faulty["seconds"] / hop["seconds"], 3),
    }
    report |= {"exact": whole["exact"] and faulty["exact"], "named": faulty["named"], "corrupt": CORRUPT}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
