"""Search: what the ledger knows by a number, an address, or a hash.

Text of any other form is never passed on to the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from eth_utils import to_checksum_address
from sqlalchemy import Connection, select

from ledger.facts import THE_ONE, Admin, Checkpoint, Credit, Holding, Job, Node, Round, Run, RunTerms, Sweep
from ledger.facts.fact import hex_bytes
from ledger.queries.lookup import EventRecord, events_in
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES
from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.errors import Rejected

NUMBER = re.compile(r"#?([0-9]{1,18})", re.ASCII)
PAIR = re.compile(r"([0-9]{1,18})/([0-9]{1,18})", re.ASCII)
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
HASH = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
FORMS = "a number, ROUND/JOB, an address, or the hash of a transaction, beacon, artifact or manifest"
MOST = 20
"""Hits of one kind."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: its kind, a sentence, and the path that tells of it; empty where none does."""

    kind: str
    says: str
    path: str


@dataclass(frozen=True, slots=True)
class TransactionStory:
    """One transaction's events, in the order of the chain."""

    tx_hash: str
    block_number: int
    events: tuple[EventRecord, ...]


def search(connection: Connection, text: str, block: int | None = None) -> tuple[Hit, ...]:
    """Returns all that is known by ``text``; as a transaction, it is looked for in ``block`` (see ``locate``).

    Raises:
        Rejected: it has none of the forms that can be searched for.
    """
    text = text.strip()
    if found := NUMBER.fullmatch(text):
        return tuple(_by_number(connection, int(found[1])))
    if found := PAIR.fullmatch(text):
        return tuple(_by_pair(connection, int(found[1]), int(found[2])))
    if ADDRESS.fullmatch(text):
        return tuple(_by_address(connection, to_checksum_address(text)))
    if HASH.fullmatch(text):
        return tuple(_by_hash(connection, bytes.fromhex(text[2:]), block))
    raise Rejected(f"invalid search: expected {FORMS}")


def _by_number(connection: Connection, number: int) -> Iterator[Hit]:
    if run := find_fact(connection, Run, number):
        yield Hit("run", f"run {number}, at version {run.version}", f"/runs/{number}")
    if round_ := find_fact(connection, Round, number):
        kind = f"the trial of appeal {number}" if round_.parent else f"round {number} of run {round_.run}"
        yield Hit("round", f"{kind}, {round_.state}", f"/rounds/{number}")
    if node := find_fact(connection, Node, number):
        yield Hit("node", f"node {number}, a {node.role}", f"/nodes/{number}")


def _by_pair(connection: Connection, first: int, second: int) -> Iterator[Hit]:
    round_ = find_fact(connection, Round, first)
    if round_ is not None and second < round_.jobs and not round_.parent:
        yield Hit("job", f"job {second} of round {first}", f"/why/jobs/{first}/{second}")
    if find_fact(connection, Checkpoint, first, second):
        yield Hit("checkpoint", f"version {second} of run {first}", f"/checkpoints/{first}/{second}")


def _by_address(connection: Connection, address: str) -> Iterator[Hit]:
    nodes = TABLES[Node].c
    owned = connection.execute(select(nodes.node).where(nodes.owner == address).limit(1)).first()
    if owned or find_fact(connection, Credit, address):
        yield Hit("owner", f"owner {address}", f"/credits/{address}")
    elif holding := find_fact(connection, Holding, address):
        yield Hit("holder", f"{address} holds {tokens(holding.tokens)} outside the market", "")
    for row in connection.execute(select(nodes.node, nodes.role).where(nodes.key == address).limit(MOST)):
        yield Hit("node", f"node {row.node}, a {row.role}, signs with this key", f"/nodes/{row.node}")
    runs, terms = TABLES[Run].c, TABLES[RunTerms].c
    for row in connection.execute(select(runs.run).where(runs.requester == address).order_by(runs.run).limit(MOST)):
        yield Hit("run", f"run {row.run}, which this address requested", f"/runs/{row.run}")
    for role in ("coordinator", "trainer"):
        named = select(terms.run).where(terms[role] == address).distinct().order_by(terms.run).limit(MOST)
        for row in connection.execute(named):
            yield Hit("run", f"run {row.run}, whose terms name this {role}", f"/runs/{row.run}")

    admin = find_fact(connection, Admin, THE_ONE)
    sweeps = TABLES[Sweep].c
    swept = connection.execute(select(sweeps.treasury).where(sweeps.treasury == address).limit(1)).first()
    if swept or (admin is not None and admin.treasury == address):
        yield Hit("treasury", "address to which slashed bonds go or went", "/treasury")


def _by_hash(connection: Connection, word: bytes, block: int | None) -> Iterator[Hit]:
    name = hex_bytes(word)
    story = transaction_story(connection, name, block)
    if story is not None:
        says = f"transaction with {len(story.events)} events, in block {story.block_number}"
        yield Hit("transaction", says, f"/transactions/{name}")
    rounds, points, jobs = TABLES[Round], TABLES[Checkpoint], TABLES[Job]
    for row in connection.execute(select(rounds).where(rounds.c.beacon == word, rounds.c.parent == 0).limit(MOST)):
        round_ = fact_of(Round, row)
        says = f"block {round_.open_block}, whose hash is the beacon of round {round_.round}"
        yield Hit("round", says, f"/rounds/{round_.round}")
    for row in connection.execute(select(points).where(points.c.manifest_root == word).limit(MOST)):
        point = fact_of(Checkpoint, row)
        says = f"manifest of version {point.version} of run {point.run}"
        yield Hit("checkpoint", says, f"/checkpoints/{point.run}/{point.version}")
    for row in connection.execute(select(jobs).where(jobs.c.root == word).limit(MOST)):
        job = fact_of(Job, row)
        says = f"artifact of job {job.job} of round {job.round}"
        yield Hit("job", says, f"/why/jobs/{job.round}/{job.job}")


def locate(chain: Chain, text: str) -> int | None:
    """Returns the block of the transaction with this hash; None if there is none, or the text is no hash.

    To be asked before a snapshot is opened, which may keep writers waiting.

    Raises:
        Unavailable: the RPC does not answer.
    """
    if not HASH.fullmatch(text.strip()):
        return None
    receipt = chain.rpc.call("eth_getTransactionReceipt", text.strip().lower())
    return int(receipt["blockNumber"], 16) if receipt and receipt.get("blockNumber") else None


def transaction_story(connection: Connection, tx_hash: str, block: int | None) -> TransactionStory | None:
    """Returns the events of one transaction of a block; None where the ledger has none."""
    found = () if block is None else events_in(connection, block, tx_hash.lower())
    return TransactionStory(tx_hash.lower(), block, found) if block is not None and found else None
