"""Broadcast of a version through one relay: ours, shardcast 0.3.2, a plain nginx, and a copy on the same disk.

One run on the same cores, one system after the other, one client and then four, each time with new random bytes. The
clock runs from the call that publishes to the last verified byte under its final name, without fsync. nginx has no hop
before it and publishes nothing: its clock starts with its clients. Memory for all that a run writes is touched before
it: the first write to a page that a virtual machine's host has taken back costs ten times a copy. Then: how far a bf16
run moves weights, over an fp32 run; and deltas between the checkpoints of training (``tests.bench.shardcast.deltas``).
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from blake3 import blake3
from rich.console import Console
from rich.table import Table

from deploy.localnet.processes import free_port
from deploy.localnet.services import ROOT
from protocol.chain.deployment import Deployment
from tests.bench.shardcast import deltas
from tests.bench.shardcast.ours import MARKET, TRAINER

THEIRS = (str(ROOT / ".venv" / "shardcast" / "bin" / "python"), str(Path(__file__).with_name("theirs.py")))
OURS = (sys.executable, "-m", "tests.bench.shardcast.ours")
PLAIN = (sys.executable, "-m", "tests.bench.shardcast.plain")
CLIENTS = (1, 4)
ERRORS = tempfile.TemporaryFile()  # noqa: SIM115
NGINX = """
daemon off; worker_processes auto; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


class Bench:
    """A folder with the file that is broadcast, and the processes that a system needs."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self.model = folder / "model"
        self.model.mkdir()
        self.file = self.model / "model.safetensors"
        self.digest = ""

    def refresh(self) -> None:
        """Writes new random bytes, and waits until no earlier ones are left to be written to disk."""
        new, digest = self.folder / "new", blake3()
        with new.open("wb") as file:
            for _ in range(self.size >> 22):
                file.write(piece := os.urandom(1 << 22))
                digest.update(piece)
        os.replace(new, self.file)
        self.digest = digest.hexdigest()
        os.sync()
        time.sleep(1)

    def touched(self) -> mmap.mmap:
        """Returns memory for all that a run writes, a copy at each of its places: touched, to be freed as it begins."""
        memory = mmap.mmap(-1, (max(CLIENTS) + 4) * self.size)
        for start in range(0, len(memory), mmap.PAGESIZE):
            memory[start] = 1
        return memory

    def broadcast(
        self, origin: subprocess.Popen[str] | None, client: Callable[[int], tuple[str, ...]], clients: int
    ) -> float:
        """Returns the seconds from publishing new bytes to the last client's last byte."""
        self.refresh()
        with running(*[client(index) for index in range(clients)]) as processes:
            for process in processes:
                assert line(process) == "ready"
            with self.touched():
                time.sleep(1)
            began = time.time()
            if origin is None:
                for process in processes:
                    tell(process)
            else:
                tell(origin)
                began = float(line(origin))
            return max(float(line(process)) for process in processes) - began


def started(words: tuple[str, ...]) -> subprocess.Popen[str]:
    """Starts a process with pipes; its complaints go to a file of the benchmark."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=ERRORS, text=True, cwd=ROOT)


@contextmanager
def running(*commands: tuple[str, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs processes until the block ends."""
    with ExitStack() as ends:
        processes = []
        for words in commands:
            process = started(words)
            ends.callback(process.wait)
            ends.callback(process.send_signal, signal.SIGKILL)
            processes.append(process)
        yield processes


def line(process: subprocess.Popen[str]) -> str:
    """Returns the next line that a process prints."""
    assert process.stdout is not None
    printed = process.stdout.readline()
    if not printed:
        ERRORS.seek(0)
        raise SystemExit(f"a process of the benchmark ended: {process.args}\n{ERRORS.read().decode()[-2000:]}")
    return printed.strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Sends a process a line."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


class Peak:
    """The most anonymous memory that a process had while the block ran, in MiB."""

    def __init__(self, pid: int) -> None:
        self.mib, self._pid, self._over = 0.0, pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            status = Path(f"/proc/{self._pid}/status").read_text()
            kib = next(row.split()[1] for row in status.splitlines() if row.startswith("RssAnon"))
            self.mib = max(self.mib, int(kib) / 1024)


def wait_for(port: int) -> None:
    """Returns once something listens on a port of this machine."""
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def broadcasts(
    bench: Bench, runs: int, origin: subprocess.Popen[str], client: Callable[[int, int], tuple[str, ...]]
) -> dict[int, list[float]]:
    """Returns seconds by number of clients; ``client`` gives the command of one, by its index and the version."""
    seconds: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    for run in range(runs):
        for place, clients in enumerate(CLIENTS):
            version = 1 + run * len(CLIENTS) + place
            seconds[clients].append(bench.broadcast(origin, partial(client, version), clients))
    return seconds


def ours(bench: Bench, runs: int) -> tuple[dict[int, list[float]], float]:
    """Measures our side; returns seconds by number of clients, and the relay's most anonymous memory in MiB."""
    folder, ports = bench.folder / "ours", (free_port(), free_port())
    folder.mkdir()
    Deployment(31337, 0, bytes(32), *[MARKET] * 7).save(folder / "addresses.json")
    words = ["--upstream", f"http://127.0.0.1:{ports[0]}", "--trainer", TRAINER.address, "--run", "1", "--keep", "1"]
    words += ["--addresses", str(folder / "addresses.json"), "--state-dir", str(folder / "relay")]
    relay = (sys.executable, str(ROOT / "assize.py"), "relay", "serve", *words, "--port", str(ports[1]))

    def client(version: int, index: int) -> tuple[str, ...]:
        return (*OURS, "client", str(folder / f"c{index}"), f"http://127.0.0.1:{ports[1]}", str(version))

    with running((*OURS, "origin", str(folder / "origin"), str(ports[0]), str(bench.model)), relay) as processes:
        wait_for(ports[0])
        wait_for(ports[1])
        with Peak(processes[1].pid) as peak:
            seconds = broadcasts(bench, runs, processes[0], client)
    shutil.rmtree(folder)
    return seconds, peak.mib


def theirs(bench: Bench, runs: int) -> dict[int, list[float]]:
    """Measures shardcast, whose relay looks every second instead of every thirty."""
    folder, ports = bench.folder / "theirs", (free_port(), free_port())

    def client(version: int, index: int) -> tuple[str, ...]:
        return (*THEIRS, "client", str(folder / f"c{index}"), f"http://127.0.0.1:{ports[1]}", f"v{version}")

    relay = (*THEIRS, "relay", str(folder / "relay"), str(ports[1]), f"http://127.0.0.1:{ports[0]}")
    with running((*THEIRS, "origin", str(folder / "origin"), str(ports[0]), str(bench.file))) as (origin,):
        wait_for(ports[0])
        with running(relay):
            wait_for(ports[1])
            seconds = broadcasts(bench, runs, origin, client)
    shutil.rmtree(folder)
    return seconds


def plain(bench: Bench, runs: int) -> dict[int, list[float]] | None:
    """Measures nginx; None if the machine has none."""
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None:
        return None
    folder, port = bench.folder / "plain", free_port()
    folder.mkdir()
    (folder / "files").symlink_to(bench.model)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    os.chmod(bench.folder, 0o755)  # its workers are another user's

    def client(index: int) -> tuple[str, ...]:
        return (*PLAIN, f"http://127.0.0.1:{port}/{bench.file.name}", str(folder / f"c{index}"), bench.digest)

    seconds: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    with running((binary, "-c", str(folder / "nginx.conf"))) as (server,):
        wait_for(port)
        for _ in range(runs):
            for clients in CLIENTS:
                seconds[clients].append(bench.broadcast(None, client, clients))
        server.send_signal(signal.SIGTERM)  # its workers end with it
        server.wait()
    shutil.rmtree(folder)
    return seconds


def copying(bench: Bench, runs: int) -> list[float]:
    """Measures ``cp``."""
    seconds = []
    for _ in range(runs):
        bench.refresh()
        began = time.monotonic()
        subprocess.run(["cp", str(bench.file), str(bench.folder / "copy")], check=True)
        seconds.append(time.monotonic() - began)
        (bench.folder / "copy").unlink()
    return seconds


def bf16_moved(folder: Path) -> float:
    """Returns how far 8 steps at 3e-7 move the weights of a bf16 run, over those of an fp32 run."""
    from protocol.environments.arithmetic import Arithmetic
    from tests.trainer.movement import moved
    from tests.trainer.test_policy import BF16, RULES, groups_of, policy_of
    from trainer.builtin import Warmup, make_builtin

    make_builtin(folder / "tiny", 3, Arithmetic(1), Warmup(hidden=32, intermediate=32, steps=0))
    full, half = (moved(policy_of(folder / "tiny", rules, learning_rate=3e-7), groups_of, 8) for rules in (RULES, BF16))
    return half / full


def main() -> None:
    """Measures all four, and shows the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512, help="size of a version")
    parser.add_argument("--runs", type=int, default=3, help="runs of each system")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="assize-shardcast-"))
    try:
        bench = Bench(folder, given.mib << 20)
        report: dict[str, Any] = {"mib": given.mib, "runs": given.runs}
        by_system: dict[str, dict[int, list[float]]] = {}
        for name, measure in (("ours", ours), ("shardcast", theirs), ("nginx", plain)):
            print(f"{name}: {given.runs} runs with one client and with four", flush=True)
            measured = measure(bench, given.runs)
            if isinstance(measured, tuple):
                measured, report["relay_anon_mib"] = measured[0], round(measured[1], 1)
            if measured is None:
                print("nginx is not installed: its line is left out", flush=True)
            else:
                by_system[name] = measured
        report["cp"] = round(statistics.median(copying(bench, given.runs)), 3)
        report["bf16_moved"] = round(bf16_moved(folder), 4)
        (folder / "deltas").mkdir()
        report |= deltas.measure(folder / "deltas", lambda text: print(text, flush=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(by_system, report)


def show(by_system: dict[str, dict[int, list[float]]], report: dict[str, Any]) -> None:
    """Prints the table for people, then one line of JSON."""
    medians = {(name, n): statistics.median(seconds[n]) for name, seconds in by_system.items() for n in CLIENTS}
    table = Table(title=f"{report['mib']} MiB through one relay, seconds, medians of {report['runs']}")
    for column in ("system", "one client", "four clients"):
        table.add_column(column, justify="right")
    for name in by_system:
        table.add_row(name, *(f"{medians[name, n]:.2f}" for n in CLIENTS))
    table.add_row("cp", f"{report['cp']:.2f}", "")
    Console().print(table)
    Console().print(deltas.table_of(report))
    for n in CLIENTS:
        report |= {f"{name}_{n}": round(medians[name, n], 3) for name in by_system}
        for name in by_system.keys() - {"ours"}:
            report[f"vs_{name}_{n}"] = round(medians[name, n] / medians["ours", n], 3)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
