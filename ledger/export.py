"""The ledger as files: a table each in CSV or Parquet, and a manifest with block, schema and hashes.

    FOLDER/manifest.json     format, chain, deployment, block, state hash; of each table: file, columns, rows, hash
    FOLDER/credit.csv ...    all values as text, as in ``ledger.store.state``; in CSV each of them in quotes

A reader checks the folder against its own manifest (``verify``), and the manifest's state hash against the
chain (``assize ledger replay --against``): no row can be changed without changing the hash. A file has the schema's
columns and no others, and each value in the one way that the ledger writes it: whatever reads the file reads what was
checked.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection

from ledger.facts import KINDS, Fact
from ledger.facts.fact import Bitmap, Hex, Wide, annotations_of
from ledger.store import state as states
from ledger.store.database import read_position
from ledger.store.state import FORMAT, LedgerState, TableState
from ledger.store.tables import snake
from protocol.chain.deployment import Deployment
from protocol.errors import Misconfigured, Rejected
from protocol.files import write_atomically

MANIFEST = "manifest.json"
ROWS_AT_ONCE = 10_000
LONGEST_FIELD = 2**31 - 1
"""Characters of one value in CSV: what a party put on the chain may be longer than the 131,072 that Python reads."""
TYPES: dict[Any, str] = {int: "integer", Wide: "integer", bool: "boolean", str: "text", Bitmap: "bitmap", Hex: "bytes"}


def export(connection: Connection, deployment: Deployment, folder: Path, form: str) -> LedgerState:
    """Writes every table into a new folder, the manifest last; returns the state that was written.

    Raises:
        Misconfigured: the folder is there already, or cannot be written.
    """
    position = read_position(connection)
    block_hash = "0x" + position.block_hash.hex()
    state = LedgerState(deployment.chain_id, position.block_number, block_hash, states.tables_of_database(connection))
    try:
        folder.mkdir(parents=True)
        for kind in KINDS:
            _write(folder / f"{snake(kind)}.{form}", kind, states.stored(connection, kind))
        manifest = json.dumps(_manifest(state, deployment, form), indent=2) + "\n"
        write_atomically(folder / MANIFEST, manifest.encode())
    except FileExistsError as error:
        raise Misconfigured(f"{folder} is there already; give --out a folder that is not") from error
    except OSError as error:
        raise Misconfigured(f"cannot write {folder}: {error.strerror}") from error
    return state


def verify(folder: Path) -> LedgerState:
    """Reads an export back and returns its state, which is the one its manifest names.

    Raises:
        Rejected: a file is missing, unreadable, or says something else than the manifest.
    """
    manifest = _read_manifest(folder)
    found: dict[str, TableState] = {}
    for kind in KINDS:
        name = snake(kind)
        try:
            told = manifest["tables"][name]
            path = folder / str(told["file"])
            if path.parent != folder:
                raise ValueError("a file outside the export")
            found[name] = states.table_state(_facts(path, kind))
            expected = TableState(_number(told["rows"]), str(told["hash"]))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, csv.Error) as error:
            raise Rejected(f"the export's table {name} cannot be read: {error!r}") from error
        if found[name] != expected:
            raise Rejected(
                f"the export's table {name} is not what its manifest says: {found[name].rows} rows with hash "
                f"{found[name].digest}, not {expected.rows} with {expected.digest}"
            )
    try:
        chain_id, block_number = _number(manifest["chain_id"]), _number(manifest["block_number"])
    except ValueError as error:
        raise Rejected(f"{folder / MANIFEST} names no chain or no block: {error}") from error
    state = LedgerState(chain_id, block_number, str(manifest["block_hash"]), found)
    if state.digest != manifest["state_hash"]:
        raise Rejected(f"the export's state hash is {state.digest}, its manifest says {manifest['state_hash']}")
    return state


def _manifest(state: LedgerState, deployment: Deployment, form: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "chain_id": state.chain_id,
        "deployment": deployment.identity(),
        "block_number": state.block_number,
        "block_hash": state.block_hash,
        "state_hash": state.digest,
        "tables": {
            snake(kind): {
                "file": f"{snake(kind)}.{form}",
                "columns": [{"name": name, "type": TYPES[hint]} for name, hint in annotations_of(kind).items()],
                "key": list(kind.KEY),
                "rows": state.tables[snake(kind)].rows,
                "hash": state.tables[snake(kind)].digest,
            }
            for kind in KINDS
        },
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise Rejected(f"{folder} is not an export of the ledger: expected a file {MANIFEST} in it") from error
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{folder / MANIFEST} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Rejected(f"{folder / MANIFEST} is not of the format {FORMAT}")
    missing = {"chain_id", "block_number", "block_hash", "state_hash", "tables"} - set(manifest)
    if missing:
        raise Rejected(f"{folder / MANIFEST} lacks {', '.join(sorted(missing))}")
    return manifest


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"invalid count, chain id or block {value!r}: expected an integer from 0 to 2**63 - 1")
    return value


def _write(path: Path, kind: type[Fact], facts: Iterable[Fact]) -> None:
    names = list(states.codecs(kind))
    rows = (states.texts(fact) for fact in facts)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n", quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
        return
    schema = pa.schema([(name, pa.string()) for name in names])
    with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
        for part in _parts(rows):
            parquet.write_table(pa.Table.from_pylist(part, schema=schema))


def _parts(rows: Iterator[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    while part := list(islice(rows, ROWS_AT_ONCE)):
        yield part


def _facts(path: Path, kind: type[Fact]) -> Iterator[Fact]:
    """Yields a file's facts. ``Rejected`` where it has other columns, or a row that is not as the ledger writes it."""
    table, names = snake(kind), list(annotations_of(kind))
    with _reading(path) as (columns, rows):
        if columns != names:
            raise Rejected(
                f"the columns of the export's table {table} are not the schema's, which are {', '.join(names)}"
            )
        for number, values in enumerate(rows, start=1):
            try:
                fact = states.fact_from(kind, dict(zip(names, values, strict=True)))
            except ValueError as error:
                raise Rejected(f"row {number} of the export's table {table} is not as the ledger writes it") from error
            yield fact


@contextmanager
def _reading(path: Path) -> Iterator[tuple[list[str], Iterable[Iterable[Any]]]]:
    """A file's columns, and the values of each of its rows."""
    if path.suffix == ".csv":
        csv.field_size_limit(LONGEST_FIELD)
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            yield next(lines, []), lines
        return
    with pq.ParquetFile(path) as parquet:
        batches = parquet.iter_batches(ROWS_AT_ONCE)
        yield parquet.schema_arrow.names, (row.values() for batch in batches for row in batch.to_pylist())
