"""Ways to keep a SQLite table of a token's transfers at the head of a chain."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from web3 import HTTPProvider, Web3

from ledger.store.database import Database
from ledger.store.index import Index
from protocol.chain.abi import artifact
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc

RANGE = 1_000
"""Blocks in one ``eth_getLogs`` of those that read ranges."""

TABLE = """CREATE TABLE transfer (block_number INTEGER, log_index INTEGER, block_hash TEXT, tx_hash TEXT, sender TEXT,
recipient TEXT, value TEXT, PRIMARY KEY (block_number, log_index))"""
INSERT = "INSERT INTO transfer VALUES (?, ?, ?, ?, ?, ?, ?)"

Place = tuple[int, int, str]
"""Block number, place of the log in it, and transaction: which transfer it was."""


class Reader(Protocol):
    """Follows one chain."""

    calls: int
    """Round trips to the RPC so far."""

    def catch_up(self) -> None:
        """Reads up to the head."""
        ...

    def places(self) -> set[Place]:
        """Every transfer it holds."""
        ...

    def close(self) -> None:
        """Lets go of everything."""
        ...


class Ours:
    """The ledger: every raw event, and every fact folded from them."""

    def __init__(self, url: str, deployment: Deployment, folder: Path) -> None:
        self._chain = Chain(url, deployment)
        self._database = Database(folder / "ledger.sqlite", deployment)
        self._ahead = ThreadPoolExecutor(1)
        self._index = Index(self._chain, self._database, self._ahead)
        self._path = folder / "ledger.sqlite"
        self._before = self._chain.rpc.round_trips

    @property
    def calls(self) -> int:
        """Round trips so far."""
        return self._chain.rpc.round_trips - self._before

    def catch_up(self) -> None:
        """Reads up to the head."""
        self._index.sync()

    def places(self) -> set[Place]:
        """Every transfer it holds."""
        with sqlite3.connect(self._path) as connection:
            return set(connection.execute("SELECT block_number, log_index, tx_hash FROM event WHERE name = 'Transfer'"))

    def close(self) -> None:
        """Ends its connections."""
        self._ahead.shutdown()
        self._database.close()
        self._chain.close()


class _Table:
    """A table of transfers, and web3.py to fill it."""

    def __init__(self, url: str, deployment: Deployment, path: Path) -> None:
        self.calls = 0
        provider = HTTPProvider(url)
        self._web3 = Web3(provider)
        self._web3.middleware_onion.clear()
        self._transfer = self._web3.eth.contract(deployment.token, abi=artifact("Token")["abi"]).events.Transfer()
        self._next = deployment.start_block + 1
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(TABLE)

    def places(self) -> set[Place]:
        """Every transfer it holds."""
        return set(self._connection.execute("SELECT block_number, log_index, tx_hash FROM transfer"))

    def close(self) -> None:
        """Ends its connection."""
        self._connection.close()

    def _head(self) -> int:
        self.calls += 1
        return int(self._web3.eth.block_number)

    def _logs(self, first: int, last: int) -> Iterable[Any]:
        self.calls += 1
        return self._transfer.get_logs(from_block=first, to_block=last)

    def _insert(self, logs: Iterable[Any]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(INSERT, (_row(log) for log in logs))
        self._connection.execute("COMMIT")


class PerBlock(_Table):
    """web3.py a block at a time, with a commit each."""

    def catch_up(self) -> None:
        """Reads up to the head."""
        head = self._head()
        for number in range(self._next, head + 1):
            self._insert(self._logs(number, number))
        self._next = head + 1


class Ranges(_Table):
    """web3.py in ranges of blocks, with a commit each."""

    def catch_up(self) -> None:
        """Reads up to the head."""
        head = self._head()
        for first in range(self._next, head + 1, RANGE):
            self._insert(self._logs(first, min(first + RANGE - 1, head)))
        self._next = head + 1


class FetchOnly:
    """The raw JSON of the logs, parsed and dropped: no reader can be faster."""

    def __init__(self, url: str, deployment: Deployment) -> None:
        self._rpc = Rpc(url)
        self._token = deployment.token
        self._next = deployment.start_block + 1

    @property
    def calls(self) -> int:
        """Round trips so far."""
        return self._rpc.round_trips

    def catch_up(self) -> None:
        """Reads up to the head."""
        head = int(self._rpc.call("eth_blockNumber"), 16)
        for first in range(self._next, head + 1, RANGE):
            last = min(first + RANGE - 1, head)
            self._rpc.call("eth_getLogs", {"fromBlock": hex(first), "toBlock": hex(last), "address": self._token})
        self._next = head + 1

    def places(self) -> set[Place]:
        """Nothing: it keeps nothing."""
        return set()

    def close(self) -> None:
        """Ends its connection."""
        self._rpc.close()


def truth(rpc: Rpc, token: str) -> set[Place]:
    """Every transfer of the chain as it is now."""
    logs = rpc.call("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "address": token, "topics": [TRANSFER]})
    return {(int(log["blockNumber"], 16), int(log["logIndex"], 16), log["transactionHash"]) for log in logs}


def _row(log: Any) -> tuple[Any, ...]:
    arguments = log["args"]
    place = (log["blockNumber"], log["logIndex"], log["blockHash"].to_0x_hex(), log["transactionHash"].to_0x_hex())
    return (*place, arguments["from"], arguments["to"], str(arguments["value"]))


TRANSFER = str(Web3.keccak(text="Transfer(address,address,uint256)").to_0x_hex())
