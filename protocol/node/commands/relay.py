"""``assize relay``: relays verified weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT
from protocol.node.console import guard
from protocol.wire.manifest import Authority

app = typer.Typer(help="Relay verified weights.", no_args_is_help=True)


@app.callback()
def relay() -> None:
    """Relay verified weights."""


@app.command()
@guard
def serve(
    upstream: Annotated[list[str], typer.Option(envvar="ASSIZE_RELAY_UPSTREAM", help="Origin or relay to fetch from.")],
    trainer: Annotated[str, typer.Option(envvar="ASSIZE_RELAY_TRAINER", help="Address that signs the run's weights.")],
    addresses: Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_ADDRESSES", help="Address file of the deployment.")],
    run: Annotated[int, typer.Option(envvar="ASSIZE_RELAY_RUN", help="Run whose weights to relay.")],
    state_dir: Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_STATE_DIR", help="Directory of verified chunks.")],
    host: Annotated[str, typer.Option(envvar="ASSIZE_RELAY_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="ASSIZE_RELAY_PORT", help="Port; 0 takes any free one.")] = 8700,
    keep: Annotated[
        int, typer.Option(envvar="ASSIZE_RELAY_KEEP", min=1, help="Versions kept.")
    ] = DEFAULT_VERSIONS_KEPT,
) -> None:
    """Follow the upstreams, verify their weights and serve them until stopped."""
    # Imported late, so that `assize --help` and nodes without a server's packages never load them.
    from protocol.broadcast.relay import Relay
    from protocol.broadcast.server import create_app
    from protocol.broadcast.sources import Sources
    from protocol.broadcast.version_store import VersionStore
    from protocol.chain.deployment import Deployment
    from protocol.transport.listening import listen, run_server

    deployment = Deployment.load(addresses)
    authority = Authority(deployment.chain_id, deployment.market, trainer)
    store = VersionStore(state_dir)
    following = Relay(store, Sources(upstream), {run: authority}, keep)
    listener = listen(host, port)
    print(f"relay of run {run} on http://{host}:{listener.getsockname()[1]}", flush=True)
    following.start()
    try:
        run_server(create_app(store), listener)
    finally:
        following.stop()
