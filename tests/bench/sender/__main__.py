"""``make bench-sender``: 1,000 intents from two processes, ours and naive; a table for people, then one line of JSON.

Each runs on a fresh anvil with a block a half second, behind an RPC that fails one request in ten. Every few seconds
the mempool is emptied; once the chain is reorganised by three blocks; once one of our two processes is killed outright
and started again. An effect is a wei at the intent's own address: two wei are a duplicate, none is a loss.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from protocol.chain.rpc import Rpc, RpcRequest
from protocol.node.wallet import Wallet
from tests.bench.sender.payers import payee
from tests.bench.sender.proxy import losing_rpc
from tests.conftest import ROOT, Anvil, deploy_on, mining_halted

KEYS = ("11" * 32, "22" * 32)
BLOCK_SECONDS = 0.5
DROP_EVERY, KILL_AFTER, REORGANISE_AFTER = 5.0, 8.0, 12.0
REORG_DEPTH = 3
LONGEST_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Came:
    """What came of one way to send."""

    kind: str
    effects: int
    duplicated: int
    lost: int
    reported: int
    seconds: float


def main(
    intents: Annotated[int, typer.Option(min=2)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the RPC's failures.")] = 1,
) -> None:
    """Send under losses, ours and naive."""
    came = [run(kind, intents, seed) for kind in ("ours", "naive")]
    table = Table("sender", title=f"{intents} intents, two processes, one request in ten fails")
    for column in ("effects", "duplicated", "lost", "reported failed", "seconds"):
        table.add_column(column, justify="right")
    for one in came:
        counts = (one.effects, one.duplicated, one.lost, one.reported)
        table.add_row(one.kind, *map(str, counts), f"{one.seconds:.0f}")
    Console(width=100).print(table)
    ours, naive = came
    told = {"effects": ours.effects, "duplicated": ours.duplicated, "lost": ours.lost}
    theirs = {"effects": naive.effects, "duplicated": naive.duplicated, "lost": naive.lost}
    print(json.dumps(told | {"naive": theirs}))
    raise typer.Exit(0 if (ours.effects, ours.duplicated, ours.lost) == (intents, 0, 0) else 1)


def run(kind: str, intents: int, seed: int) -> Came:
    """One way to send, on a chain of its own."""
    with tempfile.TemporaryDirectory() as folder:
        anvil = Anvil(Path(folder), "--block-time", str(BLOCK_SECONDS), "--mixed-mining")
        try:
            deploy_on(anvil).save(Path(folder) / "addresses.json")
            for key in KEYS:
                anvil.fund(_address(key))
            with losing_rpc(anvil.url, seed) as url:
                started = time.monotonic()
                reported = _live(kind, url, Path(folder), anvil.rpc, intents)
                seconds = time.monotonic() - started
            return _counted(kind, anvil.rpc, intents, reported, seconds)
        finally:
            anvil.stop()


def _live(kind: str, url: str, folder: Path, rpc: Rpc, intents: int) -> int:
    """Runs both processes through everything that happens; returns how many intents they report as failed."""
    halves = (range(intents // 2), range(intents // 2, intents))
    payers = [_start(kind, url, folder, half, key) for half, key in zip(halves, KEYS, strict=True)]
    started = dropped = time.monotonic()
    killed, reorganised = kind != "ours", False
    while any(payer.poll() is None for payer in payers):
        now = time.monotonic()
        if now - started > LONGEST_SECONDS:
            for payer in payers:
                payer.kill()
            raise SystemExit(f"{kind} sending is not through after {LONGEST_SECONDS:.0f} s")
        if now - dropped > DROP_EVERY:
            dropped = now
            rpc.call("anvil_dropAllTransactions")
        if not killed and now - started > KILL_AFTER:
            killed = True
            payers[0].kill()
            payers[0].wait()
            payers[0] = _start(kind, url, folder, halves[0], KEYS[0])
        if not reorganised and now - started > REORGANISE_AFTER:
            reorganised = True
            with mining_halted(rpc):
                rpc.call("anvil_reorg", REORG_DEPTH, [])
        time.sleep(0.1)
    return sum(int(payer.communicate()[0].split()[-1]) for payer in payers)


def _start(kind: str, url: str, folder: Path, numbers: range, key: str) -> subprocess.Popen[str]:
    words = [kind, url, str(folder), str(numbers.start), str(numbers.stop), key]
    script = [sys.executable, "-m", "tests.bench.sender.payers", *words]
    return subprocess.Popen(script, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _counted(kind: str, rpc: Rpc, intents: int, reported: int, seconds: float) -> Came:
    asked = [RpcRequest("eth_getBalance", (payee(number), "latest")) for number in range(intents)]
    wei = [int(answer, 16) for answer in rpc.batch(asked)]
    return Came(kind, sum(wei), sum(each > 1 for each in wei), sum(each == 0 for each in wei), reported, seconds)


def _address(key: str) -> str:
    return Wallet("payer", bytes.fromhex(key)).address


if __name__ == "__main__":
    typer.run(main)
