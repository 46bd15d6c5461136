"""The file of a fleet: the nodes of one owner on one machine, and what is given out to each. PURE but for reading it.

    state_dir = "fleet"                 folder of the fleet; a node's state folder is one of its name in it
    metrics_port = 9300                 port of the first node's metrics, the others' follow; 0, the default: none
    drain_seconds = 900                 longest wait for the nodes once the fleet is told to end

    [nodes.left]
    keystore = "left"                   session key of the node
    password_file = "left.password"
    devices = [0, 1]                    GPUs of this node alone, as CUDA_VISIBLE_DEVICES names them
    engine = "vllm"
    tensor_parallel = 2                 times pipeline_parallel: the number of its devices

    [nodes.right]
    keystore = "right"
    password_file = "right.password"
    threads = 4                         without devices: threads of the processor

    [bond]                              optional: adds to bonds that have fallen below what the capacity requires
    keystore = "alice"                  key of the nodes' owner
    password_file = "alice.password"
    most_a_day = "20 ASZ"               of all nodes together, by UTC days

A node's table takes every setting of a worker but its device; what it leaves out comes from the profile, as for a
worker alone. Paths are relative to the file's folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from protocol.amounts import positive_wei
from protocol.errors import Misconfigured, Rejected, accessing
from protocol.node.profile import at_home
from worker.settings import WorkerSettings

NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/-]{1,80}$")] | Annotated[int, Field(ge=0, lt=1024)]

MOST_NODES = 64
VISIBLE = "CUDA_VISIBLE_DEVICES"

_PATHS = ("addresses", "keystore_directory", "password_file", "state_dir", "traps")
_VARIABLE = re.compile(r"ASSIZE_WORKER_([A-Z_]+)")


class _FleetTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


T = TypeVar("T", bound=_FleetTable)


class BondTable(_FleetTable):
    """``[bond]`` of a fleet's file: the owner's key, and the most that it adds to bonds in a day."""

    keystore: str
    password_file: str
    most_a_day: str


class FleetTables(_FleetTable):
    """The tables of a fleet's file; those of nodes are read with the worker's settings."""

    state_dir: str = "fleet"
    metrics_port: int = Field(default=0, ge=0, le=65_535 - MOST_NODES)
    drain_seconds: int = Field(default=900, ge=1, le=86_400)
    nodes: dict[NodeName, dict[str, Any]] = Field(min_length=1, max_length=MOST_NODES)
    bond: BondTable | None = None


class DevicesTable(_FleetTable):
    """The keys of a node's table that are not a worker's settings."""

    devices: list[DeviceName] = Field(default_factory=list, max_length=64)
    threads: int | None = Field(default=None, ge=1, le=4096)


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node of a fleet.

    Args:
        name: its name in the file.
        settings: those of its worker, as its process will read them.
        variables: environment of its process, beyond that of the fleet.
        devices: what it computes on, in words.
    """

    name: str
    settings: WorkerSettings
    variables: Mapping[str, str]
    devices: str

    def environment(self) -> dict[str, str]:
        """Returns the environment of its process."""
        return {**os.environ, **self.variables}


@dataclass(frozen=True, slots=True)
class BondFollowing:
    """The owner's key, and the most token wei a UTC day that it adds to the bonds of a fleet's nodes."""

    keystore: str
    password_file: Path
    most_wei_a_day: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet as its file states it; ``settings_file`` has settings that all its workers share."""

    path: Path
    state_dir: Path
    drain_seconds: int
    nodes: tuple[FleetNode, ...]
    bond: BondFollowing | None
    settings_file: Path | None

    def worker_words(self, *words: str) -> list[str]:
        """Returns the command line of an ``assize worker`` command with the settings that all nodes share."""
        shared = [] if self.settings_file is None else ["--settings", str(self.settings_file.absolute())]
        return [sys.executable, "-m", "assize", "worker", *words, *shared]


def read_fleet(path: Path, settings_file: Path | None, environment: Mapping[str, str], cores: int) -> Fleet:
    """Reads and checks the file of a fleet.

    Args:
        path: the file.
        settings_file: file of settings that all its workers share, if any.
        environment: variables of this process; its ``CUDA_VISIBLE_DEVICES`` limits the devices.
        cores: processor cores, shared out to nodes that state neither devices nor threads.

    Raises:
        Misconfigured: it cannot be read, or states something invalid; the message names the line or the key.
    """
    try:
        with accessing(f"read the fleet {path}"):
            content = tomllib.loads(path.read_bytes().decode())
    except ValueError as error:  # not TOML, which names the line, or not UTF-8
        raise Misconfigured(f"cannot read the fleet {path}: {error}") from error
    tables = _checked(FleetTables, content, str(path))
    state_dir = _placed(path, tables.state_dir)
    devices = {name: _devices_of(path, name, table) for name, table in tables.nodes.items()}
    share = max(1, cores // max(1, sum(not each.devices for each in devices.values())))
    nodes = []
    for index, (name, table) in enumerate(tables.nodes.items()):
        given = {
            "state_dir": str(state_dir / name),
            "metrics_port": tables.metrics_port and tables.metrics_port + index,
        }
        given |= {key: value for key, value in table.items() if key not in DevicesTable.model_fields}
        nodes.append(_node(path, name, given, devices[name], share, settings_file))
    _refuse_shared(path, nodes, devices, environment.get(VISIBLE))
    return Fleet(path, state_dir, tables.drain_seconds, tuple(nodes), _bond(path, tables.bond), settings_file)


def _devices_of(path: Path, name: str, table: Mapping[str, Any]) -> DevicesTable:
    own = {key: value for key, value in table.items() if key in DevicesTable.model_fields}
    read = _checked(DevicesTable, own, f"{path}: [nodes.{name}]")
    if read.devices and read.threads:
        raise Misconfigured(f"{path}: [nodes.{name}]: threads and devices: expected one of them")
    return read


def _node(
    path: Path, name: str, given: dict[str, Any], devices: DevicesTable, share: int, settings_file: Path | None
) -> FleetNode:
    where = f"{path}: [nodes.{name}]"
    if "device" in given:
        raise Misconfigured(f"{where}: unknown key 'device': expected devices, a list of GPUs, or threads")
    if unknown := next((key for key in given if key not in WorkerSettings.model_fields), None):
        known = ", ".join(sorted({*WorkerSettings.model_fields, *DevicesTable.model_fields} - {"device"}))
        raise Misconfigured(f"{where}: unknown key {unknown!r}: expected one of {known}")
    if not isinstance(given.get("keystore"), str):
        raise Misconfigured(f"{where}: no keystore: expected the name of the node's session key")
    for key in _PATHS:
        if isinstance(given.get(key), str):
            given[key] = str(_placed(path, given[key]))
    if os.sep in given["keystore"]:
        given["keystore"] = str(_placed(path, given["keystore"]))
    given["device"] = "cuda" if devices.devices else "cpu"
    try:
        settings = WorkerSettings.read(settings_file, **given)
    except Misconfigured as error:
        said = _VARIABLE.sub(lambda match: match[1].lower(), str(error)).removeprefix("settings: ")
        raise Misconfigured(f"{where}: {said}") from error
    if settings.password_file is None:
        raise Misconfigured(f"{where}: no password_file: expected a file, as nobody is asked for passwords")
    if devices.devices and len(devices.devices) != settings.parallel:
        raise Misconfigured(
            f"{where}: {len(devices.devices)} devices for tensor_parallel {settings.tensor_parallel} times "
            f"pipeline_parallel {settings.pipeline_parallel}: expected {settings.parallel}"
        )
    threads = devices.threads or share
    variables = {f"ASSIZE_WORKER_{key.upper()}": _as_variable(value) for key, value in given.items()}
    variables[VISIBLE] = ",".join(map(str, devices.devices))
    if not devices.devices:
        variables |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    words = f"cuda {variables[VISIBLE]}" if devices.devices else f"cpu, {threads} thread{'s' * (threads > 1)}"
    return FleetNode(name, settings, variables, words)


def _refuse_shared(
    path: Path, nodes: Sequence[FleetNode], devices: Mapping[str, DevicesTable], visible: str | None
) -> None:
    """Refuses keys, folders, ports and devices that two nodes name, and devices that this process may not use."""
    named = {
        "keystore": [node.settings.keystore for node in nodes],
        "state_dir": [str(node.settings.state_dir) for node in nodes],
        "metrics_port": [str(node.settings.metrics_port) for node in nodes if node.settings.metrics_port],
        "device": [str(device) for each in devices.values() for device in each.devices],
    }
    for key, values in named.items():
        if twice := next((value for value, count in Counter(values).items() if count > 1), None):
            raise Misconfigured(f"{path}: {key} {twice!r} is given out twice: expected one of its own for each node")
    allowed = None if visible is None else [each.strip() for each in visible.split(",")]
    if allowed is not None and (outside := next((each for each in named["device"] if each not in allowed), None)):
        raise Misconfigured(f"{path}: device {outside!r}: expected one of those in {VISIBLE}={visible}")


def _bond(path: Path, table: BondTable | None) -> BondFollowing | None:
    if table is None:
        return None
    try:
        most = positive_wei(table.most_a_day)
    except (Misconfigured, Rejected) as error:
        raise Misconfigured(f"{path}: [bond]: most_a_day: {error}") from error
    keystore = str(_placed(path, table.keystore)) if os.sep in table.keystore else table.keystore
    return BondFollowing(keystore, _placed(path, table.password_file), most)


def _checked(kind: type[T], content: Mapping[str, Any], where: str) -> T:
    """Returns the tables of a file; raises ``Misconfigured`` at the first thing that is wrong, by its key."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Misconfigured(f"{where}: {key}: {first['msg'].lower()}") from error


def _placed(path: Path, text: str) -> Path:
    return path.absolute().parent / at_home(Path(text))


def _as_variable(value: Any) -> str:
    """Returns a value as settings read it from a variable."""
    return value if isinstance(value, str) else json.dumps(value)
