"""``assize relay``: relays verified weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT
from protocol.errors import Misconfigured, Unavailable
from protocol.node.commands.connection import AsJson
from protocol.node.console import guard, show
from protocol.node.doctor import report
from protocol.node.telemetry import METRICS_HOST, serve_metrics
from protocol.times import spell
from protocol.wire.manifest import Authority

Upstreams = Annotated[
    list[str], typer.Option(envvar="ASSIZE_RELAY_UPSTREAM", help="Origin or relay to fetch from; repeatable.")
]
Trainers = Annotated[
    list[str], typer.Option(envvar="ASSIZE_RELAY_TRAINER", help="Address that signs the weights of each run.")
]
RelayAddresses = Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_ADDRESSES", help="Address file of the deployment.")]
RelayedRuns = Annotated[
    list[int], typer.Option(envvar="ASSIZE_RELAY_RUN", help="Run whose weights to relay; repeatable.")
]
StateDir = Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_STATE_DIR", help="Directory of the versions.")]
Host = Annotated[str, typer.Option(envvar="ASSIZE_RELAY_HOST", help="Address to listen on.")]
Port = Annotated[int, typer.Option(envvar="ASSIZE_RELAY_PORT", help="Port; 0 takes any free one.")]
Objects = Annotated[
    str,
    typer.Option(
        envvar="ASSIZE_RELAY_OBJECTS", help="Object store to write to as well: s3://, gs://, az://, file:///."
    ),
]
MetricsPort = Annotated[
    int,
    typer.Option(envvar="ASSIZE_RELAY_METRICS_PORT", min=0, max=65_535, help="Port of Prometheus metrics; 0: none."),
]
MetricsHost = Annotated[str, typer.Option(envvar="ASSIZE_RELAY_METRICS_HOST", help="Address to serve them at.")]

app = typer.Typer(help="Relay verified weights.", no_args_is_help=True)


@app.callback()
def relay() -> None:
    """Relay verified weights."""


@app.command()
@guard
def serve(
    upstream: Upstreams,
    trainer: Trainers,
    addresses: RelayAddresses,
    run: RelayedRuns,
    state_dir: StateDir,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    keep: Annotated[
        int, typer.Option(envvar="ASSIZE_RELAY_KEEP", min=1, help="Versions kept of each run.")
    ] = DEFAULT_VERSIONS_KEPT,
    keep_gib: Annotated[
        float, typer.Option(envvar="ASSIZE_RELAY_KEEP_GIB", min=0, help="Disk for the versions of each run; 0: any.")
    ] = 0.0,
    most_up: Annotated[
        float, typer.Option(envvar="ASSIZE_RELAY_MOST_UP", min=0, help="Cap on what is sent, MB/s; 0: none.")
    ] = 0.0,
    most_down: Annotated[
        float, typer.Option(envvar="ASSIZE_RELAY_MOST_DOWN", min=0, help="Cap on what is fetched, MB/s; 0: none.")
    ] = 0.0,
    objects: Objects = "",
    metrics_port: MetricsPort = 0,
    metrics_host: MetricsHost = METRICS_HOST,
) -> None:
    """Follow the upstreams, verify their weights and serve them until stopped.

    Several runs need one --trainer each, in the same order.
    """
    # Imported late, so that `assize --help` and nodes without a server's packages never load them.
    from protocol.broadcast.object_store import ObjectStore
    from protocol.broadcast.relay import Relay
    from protocol.broadcast.server import create_app
    from protocol.broadcast.sources import Sources
    from protocol.broadcast.traffic import Traffic
    from protocol.broadcast.version_store import VersionStore
    from protocol.chain.deployment import Deployment
    from protocol.transport.listening import listen, run_server

    if len(run) != len(trainer) or len(set(run)) != len(run):
        raise Misconfigured(f"{len(run)} runs and {len(trainer)} trainers: give one --trainer for each --run, in order")
    serve_metrics(metrics_port, metrics_host, state_dir)
    deployment = Deployment.load(addresses)
    authorities = {
        each: Authority(deployment.chain_id, deployment.market, signer)
        for each, signer in zip(run, trainer, strict=True)
    }
    store, traffic = VersionStore(state_dir), Traffic(int(most_up * 1e6))
    sources = Sources(upstream, most_bytes_per_second=int(most_down * 1e6))
    most_bytes, bucket = int(keep_gib * (1 << 30)), ObjectStore(objects) if objects else None
    following = Relay(store, sources, authorities, keep, most_bytes=most_bytes, traffic=traffic, objects=bucket)
    listener = listen(host, port)
    named = "run" if len(run) == 1 else "runs"
    print(f"relay of {named} {', '.join(map(str, run))} on http://{host}:{listener.getsockname()[1]}", flush=True)
    following.start()
    try:
        run_server(create_app(store, traffic=traffic, status_of=following.status), listener)
    finally:
        following.stop()


@app.command()
@guard
def doctor(
    upstream: Upstreams,
    trainer: Trainers,
    addresses: RelayAddresses,
    run: RelayedRuns,
    state_dir: StateDir,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    objects: Objects = "",
    metrics_port: MetricsPort = 0,
    metrics_host: MetricsHost = METRICS_HOST,
    as_json: AsJson = False,
) -> None:
    """Check disk, ports, deployment, trainers and upstreams; exit 1 if a check fails."""
    from protocol.node.commands.relay_doctor import RelaySettings, diagnose

    watched = (metrics_port, metrics_host)
    report(
        diagnose(RelaySettings(upstream, trainer, addresses, run, state_dir, host, port, objects, *watched)), as_json
    )


@app.command("status")
@guard
def status(
    url: Annotated[str, typer.Option("--url", help="The relay.")] = "http://127.0.0.1:8700",
    as_json: AsJson = False,
) -> None:
    """Show a relay's versions, what it has moved since its start, and the last check of its disk."""
    import time
    from contextlib import closing

    from protocol.broadcast.fetching import LIST_BYTES
    from protocol.broadcast.sources import Sources
    from protocol.wire.api import StoreStatus
    from protocol.wire.canonical import validating

    with closing(Sources([url])) as sources:
        answer = sources.get(url.rstrip("/"), "/status", LIST_BYTES)
    with validating(f"{url} is no relay that tells its status", Unavailable):
        found = StoreStatus.model_validate_json(answer[0] if answer else b"")
    if as_json:
        show(found.model_dump(mode="json"), as_json)
        return
    rows = [
        {
            "run": each.run,
            "version": each.version,
            "megabytes": _mb(each.size),
            "held": _share(each.held, each.size),
            "deltas_from": _bases(each.deltas),
        }
        for each in found.versions
    ]
    show(rows, as_json)
    checked = "not yet" if found.scrubbed_at is None else f"{spell(int(time.time() - found.scrubbed_at))} ago"
    show(
        {
            "received": f"{_mb(found.received)} MB",
            "sent": f"{_mb(found.sent_chunks)} MB of versions, {_mb(found.sent_frames)} MB of deltas",
            "disk checked": f"{checked}; damaged since the start: {found.damaged}",
            **{f"to {each.peer}": f"{_mb(each.sent)} MB" for each in found.peers},
        },
        as_json,
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.2f}"


def _share(held: int, size: int) -> str:
    return "whole" if held >= size else f"{100 * held / max(1, size):.0f} %"


def _bases(versions: list[int]) -> str:
    return ", ".join(map(str, sorted(versions, reverse=True))) or "–"
