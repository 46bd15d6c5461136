"""Pinned files: everything in a run's checkpoints but the values of tensors, which alone change between versions.

A run's rules name every file of its checkpoints, by size and hash:

    *.safetensors    BLAKE3-256 of the file up to its values: names, formats, shapes and places of its tensors
    any other file   BLAKE3-256 of the file

Two files are each version's own, and not pinned: the weights of the tasks (``protocol.wire.tasks``), and the rewards of
the rollouts that it was trained on (``protocol.wire.rewards``).

So one manifest root means one policy, in a process that starts afresh as in one that has run for weeks. A version that
differs is refused from its manifest, its small files and its headers, before its weights are fetched: bytes under the
root that the trainer signed show whose fault it is. Files that may hold code or pickles cannot be pinned.

PURE, except that ``pin_directory``, ``check_directory`` and ``tensors_in`` read the directory that they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blake3 import blake3
from pydantic import AfterValidator, Field

from protocol.errors import Rejected, accessing
from protocol.wire.canonical import Bytes32, check_depth
from protocol.wire.reasons import Reason
from protocol.wire.safetensors_header import LENGTH_BYTES, MAX_HEADER_BYTES, StoredTensor, head_bytes, parse_head

MAX_PINNED = 256
"""Most files of a checkpoint: their pins must fit into the rules."""
MAX_OTHER_BYTES = 64 << 20
"""Most bytes of the files without tensors together, which are read whole; a large tokenizer has 30 MiB."""
MAX_OWN_BYTES = 16 << 20
"""Most bytes of each file that is a version's own."""
MAX_JSON_DEPTH = 32
"""Deepest nesting of a configuration or a tokenizer: parsers crash on files that are made to be deeper."""
TENSORS = ".safetensors"
TASKS_FILE, CURRICULUM_FILE, REWARDS_FILE = "tasks.parquet", "curriculum.u16", "rewards.json"
"""Files of a run's tasks, of their weights in a version, and of the rewards that it was trained on."""
MAX_TASK_FILE_BYTES = 1 << 30
OWN_FILES = (CURRICULUM_FILE, REWARDS_FILE)
"""Files of each version's own, which it may lack."""
_NAME = (
    r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,80}\.(json|txt|model|jinja|md|safetensors)|LICENSE|"
    + "|".join(map(re.escape, (TASKS_FILE, *OWN_FILES)))
    + ")$"
)
_READ_BYTES = 4 << 20

Read = Callable[[str, int, int], bytes]
"""Reads part of a file: its name, the first byte, and the number of bytes."""


class UnfitCheckpoint(Rejected):
    """A directory or a published version is no checkpoint of its run: the trainer's fault, and no node's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.UNFIT_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of every checkpoint of a run: its name, its size in bytes, and the hash drawn above."""

    name: Annotated[str, Field(pattern=_NAME)]
    size: Annotated[int, Field(ge=0, lt=1 << 50)]
    hash: Bytes32


def _checked(files: tuple[PinnedFile, ...]) -> tuple[PinnedFile, ...]:
    names = [file.name for file in files]
    if names != sorted(set(names)) or not any(map(_of_tensors, names)):
        raise ValueError("expected files in ascending order of names, each once, and a *.safetensors among them")
    if any(name in OWN_FILES for name in names):
        raise ValueError(f"expected no pin of {' or '.join(OWN_FILES)}, which are each version's own")
    if sum(file.size for file in files if _is_small(file.name)) > MAX_OTHER_BYTES:
        raise ValueError(f"expected at most {MAX_OTHER_BYTES} bytes in the files without tensors")
    return files


Pins = Annotated[tuple[PinnedFile, ...], Field(max_length=MAX_PINNED), AfterValidator(_checked)]
"""All files of a run's checkpoints, ascending by name."""


def check_names(names: Iterable[str]) -> None:
    """Raises ``UnfitCheckpoint`` if a checkpoint may not hold a file of one of these names."""
    for name in sorted(names):
        if not re.fullmatch(_NAME, name, re.ASCII):
            raise UnfitCheckpoint(
                f"{name} cannot be part of a checkpoint: expected tensors in *.safetensors, JSON and text beside them"
            )


def check_sizes(pins: Sequence[PinnedFile], sizes: Mapping[str, int]) -> None:
    """Raises ``UnfitCheckpoint`` unless the pinned files are there, each of its size, and none but a version's own."""
    check_names(sizes)
    for name in OWN_FILES:
        if sizes.get(name, 0) > MAX_OWN_BYTES:
            raise UnfitCheckpoint(f"{name} has {sizes[name]} bytes: expected at most {MAX_OWN_BYTES}")
    for name in sorted(sizes.keys() - {file.name for file in pins} - set(OWN_FILES)):
        raise UnfitCheckpoint(f"{name} is not among the files that the run's rules pin")
    for file in pins:
        if file.name not in sizes:
            raise UnfitCheckpoint(f"{file.name} is missing, which the run's rules pin")
        if sizes[file.name] != file.size:
            raise UnfitCheckpoint(f"{file.name} has {sizes[file.name]} bytes: the run's rules pin {file.size}")


def check_contents(pins: Sequence[PinnedFile], read: Read) -> None:
    """Raises ``UnfitCheckpoint`` unless every file that ``read`` returns has its hash and every tensor is held once."""
    sizes = {file.name: file.size for file in pins}
    heads = _heads(sizes, read)
    for file in pins:
        found = _hash(heads[file.name]) if file.name in heads else _tasks_hash(file.size, read)
        if found != file.hash:
            what = "holds tensors of other names, shapes or formats" if _of_tensors(file.name) else "is another file"
            raise UnfitCheckpoint(f"{file.name} {what} than the run's rules pin")
    _tensors(heads, sizes)


def check_directory(directory: Path, pins: Sequence[PinnedFile]) -> None:
    """Raises ``UnfitCheckpoint`` unless ``directory`` holds a checkpoint of the run whose rules have these pins."""
    try:
        check_sizes(pins, _sizes(directory))
        check_contents(pins, _reading(directory))
    except UnfitCheckpoint as error:
        raise UnfitCheckpoint(f"{directory} holds no checkpoint of this run: {error}") from error


def pin_directory(directory: Path) -> tuple[PinnedFile, ...]:
    """Returns the pins of the model in ``directory``; raises ``UnfitCheckpoint`` if it cannot be pinned."""
    sizes, read = pinned_sizes(directory), _reading(directory)
    check_names(sizes)
    heads = _heads(sizes, read)
    _tensors(heads, sizes)
    hashes = {name: _hash(head) for name, head in heads.items()}
    if TASKS_FILE in sizes:
        hashes[TASKS_FILE] = _tasks_hash(sizes[TASKS_FILE], read)
    return tuple(PinnedFile(name, size, hashes[name]) for name, size in sizes.items())


def tensors_in(directory: Path) -> dict[str, dict[str, StoredTensor]]:
    """Returns the tensors of each ``*.safetensors`` of ``directory``, in the order of their values.

    Raises:
        UnfitCheckpoint: a header is invalid, a tensor is held twice, or a file cannot be part of a checkpoint.
    """
    sizes = _sizes(directory)
    check_names(sizes)
    tensor_sizes = {name: size for name, size in sizes.items() if _of_tensors(name)}
    return _tensors(_heads(tensor_sizes, _reading(directory)), sizes)


def pinned_sizes(directory: Path) -> dict[str, int]:
    """Returns the sizes of the files in ``directory`` that are not a version's own, ascending by name."""
    return {name: size for name, size in _sizes(directory).items() if name not in OWN_FILES}


def head_of(path: Path) -> bytes:
    """Returns a ``*.safetensors`` file up to its values."""
    return _heads({path.name: path.stat().st_size}, _reading(path.parent))[path.name]


def _of_tensors(name: str) -> bool:
    return name.endswith(TENSORS)


def _is_small(name: str) -> bool:
    """Returns whether a file is read whole: one that holds neither tensors nor tasks."""
    return not _of_tensors(name) and name != TASKS_FILE


def _hash(head: bytes) -> bytes:
    return blake3(head).digest()


def _tasks_hash(size: int, read: Read) -> bytes:
    """Returns the hash of the file of tasks, which is read part by part."""
    if size > MAX_TASK_FILE_BYTES:
        raise UnfitCheckpoint(f"{TASKS_FILE} has {size} bytes: expected at most {MAX_TASK_FILE_BYTES}")
    hasher = blake3()
    for start in range(0, size, _READ_BYTES):
        hasher.update(read(TASKS_FILE, start, min(_READ_BYTES, size - start)))
    return hasher.digest()


def _heads(sizes: Mapping[str, int], read: Read) -> dict[str, bytes]:
    """Returns the pinned part of each file, that of tasks apart: all, or up to the tensors' values. Bounded in all."""
    sizes = {name: size for name, size in sizes.items() if name != TASKS_FILE}
    if sum(size for name, size in sizes.items() if _is_small(name)) > MAX_OTHER_BYTES:
        raise UnfitCheckpoint(f"more than {MAX_OTHER_BYTES} bytes in files without tensors")
    heads, room = {}, MAX_HEADER_BYTES
    for name, size in sizes.items():
        kept = size
        if _of_tensors(name):
            with _naming(name):
                kept = head_bytes(read(name, 0, min(LENGTH_BYTES, size)), size, room)
            room -= kept
        heads[name] = read(name, 0, kept)
        if name.endswith(".json"):
            with _naming(name):
                check_depth(heads[name], MAX_JSON_DEPTH)
    return heads


def _tensors(heads: Mapping[str, bytes], sizes: Mapping[str, int]) -> dict[str, dict[str, StoredTensor]]:
    """Returns the tensors of each file; raises ``UnfitCheckpoint`` for an invalid header, and for one held twice."""
    found: dict[str, dict[str, StoredTensor]] = {}
    holder: dict[str, str] = {}
    for name in filter(_of_tensors, heads):
        with _naming(name):
            found[name] = parse_head(heads[name], sizes[name])
        for tensor in found[name]:
            if tensor in holder:
                raise UnfitCheckpoint(f"tensor {tensor} is held twice, in {holder[tensor]} and in {name}")
            holder[tensor] = name
    return found


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turns what is wrong with a file into ``UnfitCheckpoint``, with the file's name."""
    try:
        yield
    except Rejected as error:
        raise UnfitCheckpoint(f"{name} has {error}") from error


def _sizes(directory: Path) -> dict[str, int]:
    """Returns the sizes of the files that a manifest of ``directory`` would name, ascending by name."""
    with accessing(f"read the model in {directory}"):
        files = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
        return {path.name: path.stat().st_size for path in sorted(files)}


def _reading(directory: Path) -> Read:
    def read(name: str, start: int, size: int) -> bytes:
        with accessing(f"read {directory / name}"), (directory / name).open("rb") as file:
            file.seek(start)
            return file.read(size)

    return read
