"""The processes of our side: an origin, and clients that take a version as soon as it is listed.

python -m tests.bench.shardcast.ours origin FOLDER PORT MODEL    publishes MODEL at each line on standard input
python -m tests.bench.shardcast.ours client FOLDER URL VERSION   prints the time at which the version is whole
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import structlog
from eth_account import Account

from protocol.broadcast.publishing import publish
from protocol.broadcast.server import create_app
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.broadcast.versions import fetch_checkpoint
from protocol.transport.listening import listen, run_server
from protocol.wire.api import CheckpointList
from protocol.wire.manifest import Authority

CHAIN_ID, RUN, MARKET = 31337, 1, "0x" + "11" * 20
TRAINER = Account.from_key("0x" + "01" * 32)


class Trainer:
    """Signs with a key that everybody knows."""

    address = TRAINER.address

    def sign_typed(self, message: object) -> bytes:
        """Returns the 65-byte signature of an EIP-712 message."""
        return bytes(TRAINER.sign_typed_data(full_message=message).signature)


def origin(folder: Path, port: int, model: Path) -> None:
    """Serves a store; each line on standard input publishes the model as the next version, and prints when."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = VersionStore(folder)
    listener = listen("127.0.0.1", port)
    threading.Thread(target=run_server, args=(create_app(store), listener), daemon=True).start()
    for version, _ in enumerate(sys.stdin, 1):
        began = time.time()
        publish(model, RUN, version, CHAIN_ID, MARKET, Trainer(), store, versions_kept=1)
        print(began, flush=True)


def client(folder: Path, url: str, version: int) -> None:
    """Waits for the version to be listed, fetches it, and prints when it was whole."""
    store, authority = VersionStore(folder), Authority(CHAIN_ID, MARKET, Trainer.address)
    with closing(Sources([url])) as sources:
        known, root = None, None
        print("ready", flush=True)
        while root is None:
            answer = sources.get(url, f"/runs/{RUN}/checkpoints?wait=10", 1 << 20, known)
            if answer is not None:
                known = answer[1]
                listed = CheckpointList.model_validate_json(answer[0]).checkpoints
                root = next((each.root for each in listed if each.version == version), None)
        fetch_checkpoint(sources, RUN, version, root, authority, store, versions_kept=1)
    print(time.time(), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "origin":
        origin(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        client(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
