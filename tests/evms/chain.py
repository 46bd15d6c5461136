"""Hardhat's node behind a grudging RPC, started as anvil is: ``--port PORT``, and options that it does not have.

Logs are given for ten blocks at a time, and one request in fifty is refused with 429, as public endpoints do.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pydantic_core import to_json

from deploy.localnet.processes import free_port
from protocol.chain.rpc import Rpc
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import ROOT

FOLDER = ROOT / ".venv" / "evms"
WIDEST_LOGS = 10
REFUSED_EVERY = 50
SLOW_SECONDS = 12


def main() -> None:
    """Serves the chain until it is told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    given, _ = parser.parse_known_args()
    port = free_port()
    words = ("node", FOLDER / "node_modules" / "hardhat" / "internal" / "cli" / "bootstrap.js")
    settings = {"HARDHAT_DISABLE_TELEMETRY_PROMPT": "true", "BLOCK_MILLISECONDS": os.environ["BLOCK_MILLISECONDS"]}
    node = subprocess.Popen(
        (*words, "node", "--hostname", "127.0.0.1", "--port", str(port)),
        cwd=FOLDER,
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    between = Between(port, listen_on=given.port)
    if slow_after := os.environ.get("SLOW_AFTER"):
        threading.Thread(target=slow_down, args=(port, Path(slow_after)), daemon=True).start()
    try:
        with between.interfering(Grudge()):
            node.wait()
    finally:
        node.terminate()
        between.close()


def slow_down(port: int, after: Path) -> None:
    """Lets blocks come every ``SLOW_SECONDS`` once a file is there."""
    while not after.exists():
        time.sleep(0.2)
    with closing(Rpc(f"http://127.0.0.1:{port}")) as rpc:
        rpc.call("evm_setIntervalMining", SLOW_SECONDS * 1_000)


class Grudge:
    """Refuses some requests, and logs of more than ten blocks."""

    def __init__(self) -> None:
        self._numbers, self._lock = itertools.count(1), threading.Lock()

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        """Answers one request."""
        with self._lock:
            number = next(self._numbers)
        if number % REFUSED_EVERY == 0:
            return Answer(429, {"content-type": "text/plain", "retry-after": "1"}, b"slow down")
        wide = {each["id"] for each in asked.calls if each["method"] == "eth_getLogs" and too_wide(each["params"][0])}
        if not wide:
            return forward(asked)
        refusal = {"code": -32005, "message": f"query exceeds max block range {WIDEST_LOGS}"}
        answer = forward(replace(asked, body=to_json(narrowed(asked, wide))))
        return answer.with_results(
            lambda one: {"jsonrpc": "2.0", "id": one["id"], "error": refusal} if one["id"] in wide else one
        )


def too_wide(query: dict[str, str]) -> bool:
    """Returns whether a query asks for the logs of more blocks than are given at a time."""
    if "blockHash" in query:
        return False
    first, last = (int(query[name], 16) for name in ("fromBlock", "toBlock"))
    return last - first + 1 > WIDEST_LOGS


def narrowed(asked: Asked, wide: set[object]) -> object:
    """Returns the same requests, those that are too wide asking for something cheap instead."""
    calls = [{**each, "method": "eth_chainId", "params": []} if each["id"] in wide else each for each in asked.calls]
    return calls if asked.body.lstrip().startswith(b"[") else calls[0]


if __name__ == "__main__":
    main()
