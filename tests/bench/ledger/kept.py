"""Grown chains, kept in ``.grown/EVENTS``: grown once, then loaded by everybody who measures with them.

A chain is grown again when the code that grows it or the contracts have changed; the ledger's database of it is read
again when the code that reads has.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.files import lock
from tests.bench.ledger.bulk import OPTIONS
from tests.bench.ledger.growing import Grown, grow
from tests.conftest import ROOT, Anvil

FOLDER = ROOT / ".grown"
LONGEST_SECONDS = 3_600
"""For growing a chain, and for another process that does."""
PATIENCE_SECONDS = 300
"""In which anvil writes the state of a million events, or reads it."""
GROWING = ("tests/bench/ledger", "tests/bench/mirror/spray.py", "tests/ledger/scenario.py", "tests/ledger/disputes.py")
GROWING += ("contracts/abi",)
READING = ("ledger/facts", "ledger/fold", "ledger/store", "protocol/chain", "protocol/sql.py")
NOT_GROWING = ("kept.py", "asking.py", "serving.py", "statements.py", "__main__.py")
"""Files among those that only measure."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A grown chain that is served, and where what is kept of it lies."""

    url: str
    folder: Path
    grown: Grown

    @property
    def addresses(self) -> Path:
        """The chain's address file."""
        return self.folder / "addresses.json"


@contextmanager
def kept(events: int, say: Callable[[str], None]) -> Iterator[Kept]:
    """Serves a chain of at least ``events`` events, grown now if there is none."""
    folder, stamp = FOLDER / str(events), stamp_of(GROWING, leaving=NOT_GROWING)
    FOLDER.mkdir(exist_ok=True)
    with lock(FOLDER / f"{events}.lock", LONGEST_SECONDS):
        if _stamped(folder / "grown.json") != stamp:
            shutil.rmtree(folder, ignore_errors=True)
            _grow(folder, events, stamp, say)
    with _anvil("--load-state", str(folder / "chain.json")) as anvil:
        yield Kept(anvil.url, folder, _told(folder))


def read(chain: Kept, say: Callable[[str], None]) -> Path:
    """Returns the ledger's SQLite database of a chain, read now if there is none."""
    path, made, stamp = chain.folder / "ledger.sqlite", chain.folder / "ledger.json", stamp_of(READING)
    with lock(chain.folder / "ledger.lock", LONGEST_SECONDS):
        if _stamped(made) != stamp:
            for each in (made, path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
                each.unlink(missing_ok=True)
            say(f"  reading {chain.grown.events:,} events")
            deployment = chain.grown.deployment
            with closing(Chain(chain.url, deployment)) as connected, closing(Database(path, deployment)) as database:
                sync(connected, database)
            made.write_text(json.dumps({"stamp": stamp}))
    return path


def stamp_of(names: Iterable[str], leaving: tuple[str, ...] = ()) -> str:
    """Returns a hash of files of the repository and of those in folders of it, but those of the names ``leaving``."""
    found = hashlib.sha256()
    for name in names:
        path = ROOT / name
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.name not in leaving and each.suffix in (".py", ".json"):
                found.update(f"{each.relative_to(ROOT)}\0".encode() + each.read_bytes())
    return found.hexdigest()


def _stamped(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        return str(json.loads(path.read_text())["stamp"])
    return None


def _grow(folder: Path, events: int, stamp: str, say: Callable[[str], None]) -> None:
    folder.mkdir()
    at_the_end = ("--dump-state", str(folder / "chain.json"), "--state-interval", str(LONGEST_SECONDS))
    with tempfile.TemporaryDirectory() as wallets, _anvil(*at_the_end) as anvil:
        grown = grow(anvil, Path(wallets), events, say)
    (folder / "addresses.json").write_text(json.dumps(grown.deployment.to_json()))
    told = asdict(grown) | {"deployment": None, "stamp": stamp}
    (folder / "grown.json").write_text(json.dumps(told))  # last: whatever is without it is grown again


def _told(folder: Path) -> Grown:
    told = json.loads((folder / "grown.json").read_text())
    marks = tuple((block, count) for block, count in told["marks"])
    deployment = Deployment.load(folder / "addresses.json")
    return Grown(deployment, told["run"], told["trader"], told["worker"], told["crooked"], marks)


@contextmanager
def _anvil(*state: str) -> Iterator[Anvil]:
    with tempfile.TemporaryDirectory() as folder:
        anvil = Anvil(Path(folder), *OPTIONS, *state, patience=PATIENCE_SECONDS)
        try:
            yield anvil
        finally:
            anvil.stop()
