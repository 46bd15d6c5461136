"""``assize relay``: passes verified weights on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import AssizeError, Misconfigured
from protocol.transport.shardcast import DEFAULT_VERSIONS_KEPT, Authority

app = typer.Typer(help="Pass verified weights on.", no_args_is_help=True)

MISCONFIGURED_EXIT = 2


@app.callback()
def relay() -> None:
    """Pass verified weights on."""


@app.command()
def serve(
    upstream: Annotated[list[str], typer.Option(envvar="ASSIZE_RELAY_UPSTREAM", help="Origin or relay to take from.")],
    trainer: Annotated[str, typer.Option(envvar="ASSIZE_RELAY_TRAINER", help="Address that signs the run's weights.")],
    addresses: Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_ADDRESSES", help="Address file of the deployment.")],
    run: Annotated[int, typer.Option(envvar="ASSIZE_RELAY_RUN", help="Run whose weights to pass on.")],
    state_dir: Annotated[Path, typer.Option(envvar="ASSIZE_RELAY_STATE_DIR", help="Where verified chunks are kept.")],
    host: Annotated[str, typer.Option(envvar="ASSIZE_RELAY_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="ASSIZE_RELAY_PORT", help="0 takes any free port.")] = 8700,
    keep: Annotated[
        int, typer.Option(envvar="ASSIZE_RELAY_KEEP", min=1, help="Versions kept.")
    ] = DEFAULT_VERSIONS_KEPT,
) -> None:
    """Follow the upstreams, verify what they send, and serve it on until stopped."""
    try:
        chain_id, market = read_market(addresses)
        _serve(upstream, run, Authority(chain_id, market, trainer), state_dir, host, port, keep)
    except AssizeError as error:
        print(f"assize: {error}", file=sys.stderr)
        raise typer.Exit(MISCONFIGURED_EXIT) from error


def read_market(addresses: Path) -> tuple[int, str]:
    """Returns chain id and Market address from an address file; raises `Misconfigured`."""
    try:
        content = json.loads(addresses.read_text())
        return int(content["chainId"]), str(content["contracts"]["Market"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(f"{addresses} is no address file: it needs chainId and contracts.Market") from error


def _serve(
    upstream: list[str], run: int, authority: Authority, state_dir: Path, host: str, port: int, keep: int
) -> None:
    # Imported late, so that `assize --help` and nodes without a server's packages never load them.
    import uvicorn

    from protocol.transport.chunks import ChunkStore
    from protocol.transport.listening import listen
    from protocol.transport.relay import Relay
    from protocol.transport.shardcast_server import create_app
    from protocol.transport.sources import Sources

    store = ChunkStore(state_dir)
    following = Relay(store, Sources(upstream), {run: authority}, keep)
    listener = listen(host, port)
    print(f"relay of run {run} on http://{host}:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(create_app(store), log_level="warning", timeout_graceful_shutdown=1)
    following.start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        following.stop()
