"""Examinations of ``assize relay doctor``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protocol.broadcast.fetching import LIST_BYTES
from protocol.broadcast.object_store import ObjectStore
from protocol.broadcast.sources import Sources
from protocol.chain.deployment import Deployment
from protocol.errors import Misconfigured, Unavailable
from protocol.node.commands.connection import address_of
from protocol.node.doctor import Examination, Result, disk, examine, metrics_port, writable
from protocol.transport.listening import listen
from protocol.wire.api import CheckpointList
from protocol.wire.canonical import validating

PROBE = "assize-doctor"
"""Key of an empty object that is written and removed again."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The settings of a relay that its doctor looks at, as ``assize relay serve`` takes them."""

    upstream: Sequence[str]
    trainer: Sequence[str]
    addresses: Path
    run: Sequence[int]
    state_dir: Path
    host: str
    port: int
    objects: str
    metrics_port: int
    metrics_host: str


def diagnose(settings: RelaySettings) -> Iterator[Result]:
    """Examines disk, ports, deployment, trainers, upstreams and the object store."""
    upstreams = (
        Examination(f"upstream {place}", functools.partial(_upstream, url, settings.run), "name another upstream")
        for place, url in enumerate(settings.upstream, 1)
    )
    objects = Examination("objects", lambda: _objects(settings.objects), "check its URL and credentials")
    yield from examine(
        (
            disk(settings.state_dir),
            writable(settings.state_dir),
            metrics_port(settings.metrics_port, settings.metrics_host),
            Examination("deployment", lambda: _deployment(settings.addresses), "check the address file"),
            Examination("trainers", lambda: _trainers(settings), "give one --trainer for each --run, in order"),
            Examination("port", lambda: _port(settings), "set another port"),
            *upstreams,
            *((objects,) if settings.objects else ()),
        )
    )


def _deployment(addresses: Path) -> str:
    return f"chain {Deployment.load(addresses).chain_id}"


def _trainers(settings: RelaySettings) -> str:
    if len(settings.run) != len(settings.trainer):
        raise Misconfigured(f"{len(settings.run)} runs and {len(settings.trainer)} trainers")
    return ", ".join(map(address_of, settings.trainer))


def _port(settings: RelaySettings) -> str:
    """Returns whether the port is free; one that a relay serves at is this one."""
    try:
        listen(settings.host, settings.port).close()
    except Misconfigured:
        with closing(Sources([url := f"http://{settings.host}:{settings.port}"])) as sources:
            sources.get(url, "/status", LIST_BYTES)
        return f"{settings.port}: a relay runs"
    return f"{settings.port} is free"


def _upstream(url: str, runs: Sequence[int]) -> str:
    newest = []
    with closing(Sources([url])) as sources:
        for run in runs:
            answer = sources.get(url.rstrip("/"), f"/runs/{run}/checkpoints", LIST_BYTES)
            with validating(f"{url} does not list versions", Unavailable):
                listed = CheckpointList.model_validate_json(answer[0] if answer else b"")
            newest.append(max((entry.version for entry in listed.checkpoints), default=None))
    if None in newest:
        raise Misconfigured(f"{url} has no version of one of the runs {', '.join(map(str, runs))}")
    return f"newest versions: {', '.join(map(str, newest))}"


def _objects(url: str) -> str:
    store = ObjectStore(url)
    store.put(PROBE, b"")
    store.delete([PROBE])
    return "takes what is written"
