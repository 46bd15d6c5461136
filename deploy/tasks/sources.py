"""Sources of tasks: files of rows, Reasoning Gym's generators, and datasets of the Hugging Face hub."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from deploy.tasks.shapes import RawTask, Record, Unfit, procedural_task, reads, task_of, value_of
from protocol.errors import AssizeError, Misconfigured, accessing
from protocol.wire.tasks import MAX_WEIGHT

GYM, HUB = "reasoning-gym/", "hf/"
MAX_LINE = 64 << 20
"""Bytes of a line of a JSON Lines file."""
MAX_JSON = 1 << 30
"""Bytes of a JSON file, which is read at once."""
MAX_SOURCES = 64
DEFAULT_SIZE = 1000
"""Tasks of a generator whose source does not say how many."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILES = (".jsonl", ".json", ".parquet")
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source as a person names it: ``place`` is a file, ``reasoning-gym/…`` or ``hf/…``."""

    name: str
    place: str
    weight: int


def named_sources(texts: list[str]) -> list[NamedSource]:
    """Reads sources given as ``[NAME=]PLACE[:WEIGHT]``. PURE.

    Raises:
        Misconfigured: one is invalid, two have the same name, or there are too many.
    """
    sources = [_named(text) for text in texts]
    if len(sources) > MAX_SOURCES:
        raise Misconfigured(f"invalid sources: expected at most {MAX_SOURCES}, not {len(sources)}")
    for index, source in enumerate(sources):
        if source.name in {other.name for other in sources[:index]}:
            raise Misconfigured(
                f"invalid source {source.place}: the name {source.name} is taken, give another as NAME={source.place}"
            )
    return sources


def _named(text: str) -> NamedSource:
    before, equals, after = text.partition("=")
    name = before if equals and not set(before) & set("/?:") else ""
    place = after if name else text
    front, colon, tail = place.rpartition(":")
    weighted = bool(colon) and not tail.endswith(_FILES) and "/" not in tail
    place = front if weighted else place
    if not place:
        raise Misconfigured(f"invalid source {text!r}: expected [NAME=]PATH[:WEIGHT]")
    name = name or _usual_name(place)
    if not _NAME.fullmatch(name):
        raise Misconfigured(
            f"invalid name {name!r} of a source: expected lower-case letters, digits, '.', '_' and '-', at most 64"
        )
    weight = tail if weighted else "1"
    if not (weight.isascii() and weight.isdigit() and len(weight) <= 5 and 1 <= int(weight) <= MAX_WEIGHT):
        raise Misconfigured(f"invalid weight {weight} of the source {name}: expected 1 to {MAX_WEIGHT}")
    return NamedSource(name, place, int(weight))


def _usual_name(place: str) -> str:
    if place.startswith((GYM, HUB)):
        parts = re.split(r"[@?]", place)[0].strip("/").split("/")
        last = parts[min(2, len(parts) - 1)] if place.startswith(HUB) else parts[-1]
    else:
        last = Path(place).stem
    return re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-._")[:64]


class RowReader:
    """Rows of one source. ``count`` is how many there are, or 0 where that is not known before they are read.

    ``seed`` is that of generators.

    Raises:
        Misconfigured: the source cannot be read.
    """

    def __init__(self, source: NamedSource, seed: int) -> None:
        self.source, self.count = source, 0
        place, path = source.place, Path(source.place)
        self.title = path.name
        self.procedural = place.startswith(GYM)
        if self.procedural:
            self.title, self._rows = place, self._generated(place, seed)
        elif place.startswith(HUB):
            self.title, self._rows = place, self._from_hub(place)
        elif not path.is_file():
            raise Misconfigured(f"invalid source {place}: expected a file, {GYM}DATASET or {HUB}OWNER/NAME")
        elif path.suffix == ".jsonl":
            self._rows = self._lines(path)
        elif path.suffix == ".json":
            self._rows = self._list(path)
        elif path.suffix == ".parquet":
            self._rows = self._parquet(path)
        else:
            raise Misconfigured(f"invalid source {place}: expected a name that ends in {', '.join(_FILES)}")

    def tasks(self) -> Iterator[tuple[Record, RawTask | Unfit]]:
        """Yields each row with its task, or why it has none.

        Raises:
            Misconfigured: a row is invalid, or cannot be read.
        """
        for number, row in self._rows:
            try:
                if not isinstance(row, Mapping):
                    raise Misconfigured("expected an object")
                if self.procedural:
                    yield row, procedural_task(self._dataset, row)
                else:
                    yield row, task_of(row)
            except Unfit as reason:
                yield row, reason
            except AssizeError as error:
                raise self._invalid(number, str(error)) from error

    def _invalid(self, number: int, why: str) -> Misconfigured:
        return Misconfigured(f"invalid row {number} of {self.title}: {why}")

    def _lines(self, path: Path) -> Iterator[tuple[int, Any]]:
        with accessing(f"read {path}"), path.open("rb") as file:
            while part := file.read(1 << 20):
                self.count += part.count(b"\n")
            file.seek(0)
            for number in range(1, self.count + 2):
                line = file.readline(MAX_LINE + 1)
                if len(line) > MAX_LINE:
                    raise self._invalid(number, f"expected at most {MAX_LINE} bytes")
                if line.strip():
                    yield number, self._json(number, line)

    def _json(self, number: int, line: bytes) -> Any:
        try:
            return value_of(line.decode())
        except UnicodeDecodeError as error:
            raise self._invalid(number, "expected UTF-8") from error
        except ValueError as error:
            raise self._invalid(number, "expected JSON") from error

    def _list(self, path: Path) -> Iterator[tuple[int, Any]]:
        with accessing(f"read {path}"):
            if path.stat().st_size > MAX_JSON:
                raise Misconfigured(f"invalid source {path}: expected at most {MAX_JSON} bytes, or JSON Lines")
            data = path.read_bytes()
        try:
            rows = value_of(data.decode())
        except ValueError:
            rows = None
        if not isinstance(rows, list):
            raise Misconfigured(f"invalid source {path}: expected a JSON list of objects in UTF-8")
        self.count = len(rows)
        yield from enumerate(rows, 1)

    def _parquet(self, path: Path) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path) as file:
                self.count = file.metadata.num_rows
                columns = [name for name in file.schema_arrow.names if reads(name)]
                if not columns:
                    raise Misconfigured(f"invalid source {path}: expected the columns question and answer")
                number = 0
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Misconfigured(f"invalid source {path}: expected Parquet: {_first_line(error)}") from error

    def _generated(self, place: str, seed: int) -> Iterator[tuple[int, Any]]:
        self._dataset, _, asked = place.removeprefix(GYM).partition("?")
        config: dict[str, Any] = {"size": DEFAULT_SIZE, "seed": seed}
        for part in filter(None, asked.split("&")):
            name, equals, value = part.partition("=")
            if not equals or not name.isidentifier():
                raise Misconfigured(f"invalid source {place}: expected {GYM}DATASET?NAME=VALUE&NAME=VALUE")
            config[name] = _value(value)
        package = _package("reasoning_gym", "reasoning-gym")
        try:
            entries = package.create_dataset(self._dataset, **config)
            self.count = len(entries)
            for index in range(self.count):
                yield index + 1, entries[index]
        except Exception as error:  # each generator has its own
            raise Misconfigured(f"cannot make tasks of {place}: {_first_line(error)}") from error

    def _from_hub(self, place: str) -> Iterator[tuple[int, Any]]:
        path, _, split = place.removeprefix(HUB).partition("@")
        owner, _, rest = path.partition("/")
        name, _, subset = rest.partition("/")
        if not owner or not name:
            raise Misconfigured(f"invalid source {place}: expected {HUB}OWNER/NAME[/SUBSET][@SPLIT]")
        package = _package("datasets", "datasets")
        for library in ("datasets", "huggingface_hub"):
            logging.getLogger(library).setLevel(logging.ERROR)  # each retry would be told
        try:
            rows = package.load_dataset(f"{owner}/{name}", subset or None, split=split or "train", streaming=True)
            if rows.features is not None:
                rows = rows.select_columns([column for column in rows.features if reads(column)])
            if (whole := (rows.info.splits or {}).get(split or "train")) is not None:
                self.count = whole.num_examples or 0
            yield from enumerate(rows, 1)
        except Exception as error:  # of the hub, of the network, and of each of its formats
            raise Misconfigured(f"cannot read {place}: {_first_line(error)}") from error


def _package(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Misconfigured(f"the package {name} is not installed: pip install {name}") from error


def _value(text: str) -> Any:
    try:
        return value_of(text)
    except ValueError:
        return text


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
