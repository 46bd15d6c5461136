"""What holds of the network at any moment, whatever befell it. Each check returns what it found wrong, in sentences.

L  ledger and mirror say what the canonical events say, and the contracts' views say the same
D  nothing is credited twice, nothing is trained on twice      G  nothing was trained on that was not accepted
M  tokens and credits add up
N  an upload that was acknowledged is kept, byte for byte
T  an intent is mined once or reported failed; nonces have no gaps; fees stay under the cap
W  weights that somebody holds hash to a root that the chain named
R  the market goes on: the next version comes, and ledger and mirror come to the head
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from coordinator.mirror.fold import fold
from coordinator.mirror.market import Market
from coordinator.mirror.mirror import load
from coordinator.store import Store
from coordinator.tables import CursorRow
from deploy.localnet.services import ledger_database
from ledger.audit import audit
from ledger.store.database import Database
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor as Position
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.writing.fees import Fees
from protocol.errors import Misconfigured, Unavailable
from protocol.wire import manifest
from protocol.wire.artifact_blob import HEAD_BYTES
from tests.chaos.network import Network, stored

AUDIT_ATTEMPTS = 20
SHOWN = 3
LOOKS = 5
FOLLOWING_SECONDS = 30.0
"""A follower waits ten seconds at most after failures in a row, and then has to catch up."""

LETTER_OF = {
    "consumption": "DG",
    "credits": "D",
    "settlements": "D",
    "conservation": "M",
    "escrow": "M",
    "treasury": "M",
}
"""What the audit's checks say of the invariants; all others are of L."""


def broken(network: Network) -> list[str]:
    """Every invariant, checked once: what is broken, each with its letters."""
    found = [
        *_following(network),
        *_ledger(network),
        *_honest(network),
        *_mirror(network),
        *_uploads(network),
        *_weights(network),
    ]
    for path in sorted(network.layout.root.glob("state/*/sender.*")):
        if path.suffix in (".db", ".sqlite"):
            found += _sent(network, path)
    return found


def _following(network: Network) -> Iterator[str]:
    """R: ledger and mirror come to where the head is now."""
    head, deadline = network.chain.head().number, time.monotonic() + FOLLOWING_SECONDS
    for name, path, query in (
        ("ledger", network.layout.root / "ledger.db", "SELECT block_number FROM position"),
        ("mirror", network.layout.state("coordinator") / "coordinator.db", "SELECT number FROM cursor"),
    ):
        while (at := stored(path, query)[0][0]) < head and time.monotonic() < deadline:
            time.sleep(0.5)
        if at < head:
            yield f"R: the {name} stands at block {at}, and {FOLLOWING_SECONDS:.0f} s ago the chain had {head}"


def _ledger(network: Network) -> Iterator[str]:
    """L, D, G and M: the running ledger's own database, against everything recomputed from the chain."""
    with _chain(network) as chain, closing(_database(network)) as database:
        report = _audited(chain, database)
    for check in report.checks:
        for finding in check.findings[:SHOWN]:
            yield f"{LETTER_OF.get(check.name, 'L')}: {finding}"


def _honest(network: Network) -> Iterator[str]:
    """M: nobody honest lost a bond to fraud, and nothing a cheat did was trained on."""
    network.scoreboard.refresh()
    figures = network.scoreboard.run_figures()
    if figures.honest_slashed_wei:
        yield f"M: honest nodes were slashed {figures.honest_slashed_wei} wei for fraud"
    if figures.cheat_rollouts_trained:
        yield f"G: {figures.cheat_rollouts_trained} rollouts of a cheat were trained on"


def _audited(chain: Chain, database: Database) -> Any:
    """Audits once the ledger stands at a block that the chain still has."""
    for _ in range(AUDIT_ATTEMPTS):
        try:
            return audit(chain, database)
        except Unavailable as error:
            problem = error
            time.sleep(0.5)
    raise problem


def _mirror(network: Network) -> list[str]:
    """L: the coordinator's tables as they stand, against a fold of the canonical events up to the same block."""
    with TemporaryDirectory() as folder, _chain(network) as chain:
        for _ in range(AUDIT_ATTEMPTS):
            stored, number, digest = _mirrored(network, Path(folder))
            with suppress(Unavailable):  # the chain may have become shorter, until the mirror has heard of it
                if chain.block(number).hash == digest:
                    return _apart(stored, _folded(chain, number))
            time.sleep(0.5)
    return ["L: the coordinator's mirror stands at a block that the chain does not have"]


def _mirrored(network: Network, folder: Path) -> tuple[Market, int, bytes]:
    """A copy of the coordinator's market, and the block it stands at."""
    copy = folder / "copy.db"
    with (
        closing(sqlite3.connect(network.layout.state("coordinator") / "coordinator.db")) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    with closing(Store(f"sqlite:///{copy}")) as store, store.reading() as session:
        cursor = session.get(CursorRow, 1)
        assert cursor is not None
        position = Position.from_json(cursor.position)
        return load(session), position.number, position.hash


def _folded(chain: Chain, number: int) -> Market:
    market, tail = Market(), Tail(chain)
    while left := number - tail.cursor.number:
        answer = tail.poll(max_blocks=left)
        if isinstance(answer, Rollback):
            raise Unavailable("the chain was reorganised while it was checked")
        for block in answer:
            for log in block.logs:
                fold(market, log)
    return market


def _apart(stored: Market, folded: Market) -> list[str]:
    found = []
    for name in ("runs", "nodes", "members", "earnings", "rounds", "listings", "submitted", "seats"):
        mine, theirs = (_plain(getattr(market, name)) for market in (stored, folded))
        if name in ("listings", "submitted", "seats"):  # kept only while a round holds anything
            mine, theirs = ({key: rows[key] for key in rows if key in stored.live} for rows in (mine, theirs))
        mine, theirs = ({key: rows[key] for key in rows if rows[key]} for rows in (mine, theirs))
        found += [
            f"L: the mirror's {name} {key} say {mine.get(key)}, the events say {theirs.get(key)}"
            for key in sorted({*mine, *theirs}, key=str)
            if mine.get(key) != theirs.get(key)
        ]
    return found[:SHOWN]


def _plain(rows: dict[Any, Any]) -> dict[Any, Any]:
    return {key: _values(row) for key, row in rows.items()}


def _values(row: Any) -> Any:
    if isinstance(row, list):
        return [_values(each) for each in row]
    if isinstance(row, dict):
        return {key: _values(each) for key, each in row.items()}
    return {name: value for name, value in row.model_dump().items() if name not in CALCULATED}


CALCULATED = ("neglect", "absent")
"""Follow from rules that the coordinator knows and a bare fold does not."""


def _uploads(network: Network) -> Iterator[str]:
    """N, of what was acknowledged since the last look."""
    with httpx.Client(base_url=network.layout.url("coordinator"), trust_env=False, timeout=30) as client:
        for upload in network.take_acknowledged():
            kind = "artifacts" if upload.path.endswith("/artifact") else "evidence"
            answer = client.get(f"/{kind}/{upload.root}")
            if kind == "evidence" and answer.status_code == 404 and "once committing has ended" in answer.text:
                network.acknowledge(upload)  # to be asked for at the next look
            elif answer.status_code != 200:
                yield f"N: {upload.path} was acknowledged, and asked for its bytes it answers {answer.status_code}"
            elif hashlib.sha256(answer.content[HEAD_BYTES if kind == "artifacts" else 0 :]).digest() != upload.digest:
                yield f"N: the bytes of {upload.path} are not those that were acknowledged"


def _sent(network: Network, journal: Path) -> Iterator[str]:
    """T, of one process's journal."""
    who = journal.parent.name
    intents = stored(journal, "SELECT key, state, nonce FROM intents WHERE nonce IS NOT NULL")
    attempts = stored(journal, "SELECT key, tx_hash, max_fee FROM attempts")
    hashes: dict[str, list[str]] = {}
    for key, digest, fee in attempts:
        hashes.setdefault(key, []).append("0x" + digest.hex())
        if fee > Fees().cap:
            yield f"T: {who} bid {fee} wei for {key}, over its cap"
    used = [nonce for _, state, nonce in intents if state != "failed"]
    if len(set(used)) != len(used):
        yield f"T: {who} means to use a nonce for two intents"
    if gaps := set(range(max(used, default=-1) + 1)) - {nonce for _, _, nonce in intents}:
        yield f"T: {who} left out the nonces {sorted(gaps)}"
    for key, state, _ in intents:
        mined = sum(_is_mined(network, digest) for digest in hashes.get(key, []))
        if mined > 1:
            yield f"T: {who} had {key} mined {mined} times"
        if state == "final" and mined != 1:
            yield f"T: {who} calls {key} final, and the chain has {mined} transactions of it"


def _is_mined(network: Network, digest: str) -> bool:
    return network.rpc.call("eth_getTransactionReceipt", digest) is not None


def _weights(network: Network) -> Iterator[str]:
    """W: every model directory that a worker or validator holds is of a version and root that the chain named."""
    state = network.layout.root / "state"
    places = (state.glob(f"*/{folder}/runs/*/[0-9]*") for folder in ("checkpoints", "weights"))
    directories = [path for found in places for path in found if path.is_dir() and path.suffix != ".partial"]
    if not directories:
        yield "W: nobody holds a version"
    named = {(version, root.hex()) for version, root in network.named()}
    for directory in directories:
        version, _, root = directory.name.partition("-")
        if (int(version), root) not in named:
            yield f"W: {directory.parents[3].name} holds {directory.name}, which the chain never named"
            continue
        for _ in range(LOOKS):
            if not _others(directory):
                break
            time.sleep(1.0)  # an old one goes file by file
        else:
            yield f"W: {directory.parents[3].name} holds other weights than {directory.name} says"


def _others(directory: Path) -> bool:
    """Whether a directory's bytes are not those of its name."""
    version, _, root = directory.name.partition("-")
    try:
        return not manifest.from_directory(directory, int(version)).root.hex().startswith(root)
    except (Misconfigured, OSError):
        return False  # an old one, dropped meanwhile


def _chain(network: Network) -> closing[Chain]:
    return closing(Chain.connect(network.layout.url("chain"), network.layout.addresses))


def _database(network: Network) -> Database:
    return Database(ledger_database(network.layout.root), network.chain.deployment)
