"""A run's tasks from data: one file, the same for everybody, and each version's curriculum.

``tasks.parquet`` travels with every version, and the run's rules name its BLAKE3-256, the root of the tasks. It has the
Parquet layout of ``protocol.wire.parquet``, one row for each task, and in the footer under ``assize.tasks`` the
canonical JSON of ``TaskHeader``.

    prompt_tokens   what the model is given, its chat template applied once, by whoever built the file
    budget_at       place in the prompt at which the tokens of a length budget are put; -1 for none
    answer, verifier, info   right answer, the verifier's name, and what else it needs, a JSON object
    held_out        1 for evaluation alone, 0 for training
    source          place of the task's source in the header
    weight          chance of the task within its source, at first, 0 to 65535

``curriculum.u16`` has the weight of each task as a little-endian u16, in place of the first ones. Each version may
bring its own, signed with it, so that the draw of a task is nobody's choice. PURE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3
from numpy.typing import NDArray
from pydantic import Field

from protocol.errors import Rejected
from protocol.wire import parquet
from protocol.wire.canonical import Bytes32, Canonical
from protocol.wire.pins import CURRICULUM_FILE, MAX_TASK_FILE_BYTES

MAX_TASKS = 1 << 22
MAX_WEIGHT = (1 << 16) - 1
MAX_PROMPT_TOKENS = 1 << 16
_MAX_UNCOMPRESSED_BYTES = 2 << 30
_MAX_RATIO, _SLACK_BYTES = 32, 1 << 20
"""Most bytes that a byte of the file may become, and room for small files: tokens and text become five to ten."""
_KEY = "assize.tasks"

U16 = NDArray[np.uint16]
I32 = NDArray[np.int32]


def _tokens() -> pa.DataType:
    return pa.list_(pa.field("element", pa.int32(), nullable=False))


TASK_SCHEMA = pa.schema(
    [
        pa.field("prompt_tokens", _tokens(), nullable=False),
        pa.field("budget_at", pa.int32(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("verifier", pa.string(), nullable=False),
        pa.field("info", pa.string(), nullable=False),
        pa.field("held_out", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("weight", pa.int32(), nullable=False),
    ]
)

SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
TokenId = Annotated[int, Field(ge=0, lt=1 << 24)]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Origin of tasks, by name, and its share of the draws: its weight among those of all sources."""

    name: SourceName
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT)]


@dataclass(frozen=True, slots=True)
class LengthTarget:
    """A length in tokens that a prompt asks for, and the tokens that ask for it."""

    length: Annotated[int, Field(ge=1, le=1 << 20)]
    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True)
class TaskHeader:
    """Properties of a whole file.

    tokenizer   BLAKE3-256 of the tokenizer whose tokens the prompts are (``protocol.tensor.directory``)
    targets     length budgets, one of which each drawn task gets that has a place for it
    penalty     loss of reward for each token by which a completion misses its target
    """

    tokenizer: Bytes32
    sources: Annotated[tuple[TaskSource, ...], Field(min_length=1, max_length=64)]
    targets: Annotated[tuple[LengthTarget, ...], Field(max_length=16)] = ()
    penalty: Annotated[float, Field(ge=0, le=1)] = 0.0
    format: Literal["assize/tasks/1"] = "assize/tasks/1"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task, as in the columns drawn above; ``info`` is JSON text."""

    prompt_tokens: tuple[int, ...]
    answer: str
    verifier: str
    info: str = "{}"
    held_out: bool = False
    source: int = 0
    weight: int = 1
    budget_at: int = -1


class TaskFile:
    """The tasks of a file: its header, and its rows as a table. Columns of numbers have one value for each task."""

    def __init__(self, header: TaskHeader, table: pa.Table) -> None:
        self.header, self.table = header, table
        prompts = table.column("prompt_tokens").combine_chunks()
        self._ends: I32 = prompts.offsets.to_numpy()
        self._tokens: I32 = prompts.values.to_numpy()
        self._texts = [table.column(name) for name in ("answer", "verifier", "info")]
        self.budget_at, self.held_out, self.source, self.weight = (
            table.column(name).to_numpy() for name in ("budget_at", "held_out", "source", "weight")
        )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt, the longest length budget included."""
        budget = max((len(target.tokens) for target in self.header.targets), default=0)
        return int(np.diff(self._ends).max()) + budget

    @property
    def largest_token(self) -> int:
        """The largest token of any prompt."""
        asked = (max(target.tokens) for target in self.header.targets)
        return max(int(self._tokens.max()), *asked, 0)

    def prompt_tokens(self, row: int) -> tuple[int, ...]:
        """Returns the tokens of a row's prompt, without a length budget."""
        return tuple(self._tokens[self._ends[row] : self._ends[row + 1]].tolist())

    def answer(self, row: int) -> str:
        """Returns the right answer to a row."""
        return str(self._texts[0][row].as_py())

    @property
    def verifiers(self) -> list[str]:
        """Names of the verifiers of all tasks, each once, sorted."""
        return sorted(pc.unique(self.table.column("verifier")).to_pylist())

    def row(self, row: int) -> TaskRow:
        """Returns a row."""
        answer, verifier, info = (column[row].as_py() for column in self._texts)
        return TaskRow(
            prompt_tokens=self.prompt_tokens(row),
            answer=answer,
            verifier=verifier,
            info=info,
            held_out=bool(self.held_out[row]),
            source=int(self.source[row]),
            weight=int(self.weight[row]),
            budget_at=int(self.budget_at[row]),
        )


def encode_tasks(header: TaskHeader, rows: Sequence[TaskRow]) -> bytes:
    """Returns the file of ``rows``; raises ``Rejected`` as ``decode_tasks`` would."""
    columns = {name: [getattr(row, name) for row in rows] for name in TASK_SCHEMA.names}
    columns["held_out"] = [int(row.held_out) for row in rows]
    table = pa.Table.from_pydict(columns, schema=TASK_SCHEMA)
    data = parquet.write(table, {_KEY: _HEADER.encode(header).decode()})
    decode_tasks(data)
    return data


def decode_tasks(data: bytes) -> TaskFile:
    """Returns the tasks in ``data``; raises ``Rejected`` for anything else."""
    most = min(_MAX_UNCOMPRESSED_BYTES, _MAX_RATIO * len(data) + _SLACK_BYTES)
    try:
        table, metadata = parquet.read(data, TASK_SCHEMA, MAX_TASKS, MAX_TASK_FILE_BYTES, most)
    except Rejected as error:
        raise Rejected(f"the task file {str(error).removeprefix('the artifact ')}") from error
    if metadata.keys() != {_KEY}:
        raise Rejected(f"the task file has no footer {_KEY}")
    header = _HEADER.decode(metadata[_KEY].encode())
    _check(header, table)
    return TaskFile(header, table)


def tasks_root(data: bytes) -> bytes:
    """Returns the root of a task file, 32 bytes: its BLAKE3-256."""
    return blake3(data).digest()


def encode_curriculum(weights: U16) -> bytes:
    """Returns the file of a version's weights, one for each task."""
    return weights.astype("<u2").tobytes()


def decode_curriculum(data: bytes, tasks: int) -> U16:
    """Returns a version's weights; raises ``Rejected`` unless there is one for each of so many ``tasks``."""
    if len(data) != 2 * tasks:
        raise Rejected(f"{CURRICULUM_FILE} has {len(data)} bytes: expected 2 for each of {tasks} tasks")
    return np.frombuffer(data, "<u2")


def _check(header: TaskHeader, table: pa.Table) -> None:
    """Raises ``Rejected`` for rows that the header does not allow, or that nobody could draw."""
    if len({source.name for source in header.sources}) < len(header.sources):
        raise Rejected("the task file has two sources of one name")
    if len({target.tokens for target in header.targets}) < len(header.targets):
        raise Rejected("the task file has two length budgets in the same tokens")
    columns = {name: table.column(name).combine_chunks() for name in TASK_SCHEMA.names}
    prompts = columns["prompt_tokens"]
    lengths = np.diff(prompts.offsets.to_numpy()) if table.num_rows else np.zeros(0, np.int32)
    if not len(lengths) or lengths.min() < 1 or lengths.max() > MAX_PROMPT_TOKENS:
        raise Rejected(f"the task file has no task, or a prompt without tokens or with more than {MAX_PROMPT_TOKENS}")
    if prompts.values.null_count or prompts.values.to_numpy().min() < 0:
        raise Rejected("the task file has a negative token")
    bounds = {"held_out": (0, 1), "source": (0, len(header.sources) - 1), "weight": (0, MAX_WEIGHT)}
    for name, (least, most) in bounds.items():
        values = columns[name].to_numpy()
        if values.min() < least or values.max() > most:
            raise Rejected(f"the task file has a {name} that is not {least} to {most}")
    places = columns["budget_at"].to_numpy()
    if (places < -1).any() or (places > lengths).any() or (not header.targets and (places >= 0).any()):
        raise Rejected("the task file has a length budget outside its prompt")
    drawn = columns["source"].to_numpy()[(columns["weight"].to_numpy() > 0) & (columns["held_out"].to_numpy() == 0)]
    for index, source in enumerate(header.sources):
        if index not in drawn:
            raise Rejected(f"the source {source.name} has no task to train on")


_HEADER = Canonical(TaskHeader, "header of the task file", 15 << 10)
