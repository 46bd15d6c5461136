"""``assize run try``: a version of a run's model answers a prompt, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, RpcUrl, connected, state_directory
from protocol.node.commands.weights import CoordinatorUrl, SourceUrls, Version, WeightsOffer, offered
from protocol.node.console import guard

app = typer.Typer()

VERSIONS_KEPT = 2
"""Versions of a run that stay on disk for the next question, the newest ones."""


@app.command("try")
@guard
def try_run(
    addresses: Addresses,
    run: Annotated[int, typer.Argument(min=1, help="Id of the run.")],
    prompt: Annotated[str, typer.Argument(help="What to ask, such as 23+48= of a run on sums.")],
    version: Version = None,
    samples: Annotated[
        int | None, typer.Option(min=1, max=64, help="Answers at the run's temperature; else one, greedy.")
    ] = None,
    source: SourceUrls = None,
    coordinator: CoordinatorUrl = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to compute on.")] = "cpu",
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Ask a version of a run's model; it is fetched and checked as by `assize weights fetch`, and kept."""
    with connected(rpc, addresses) as chain, offered(chain, run, version, coordinator, source) as offer:
        directory = _place(state_directory() / "weights" / chain.deployment.label, offer)
        offer.fetch(directory, quiet=as_json)
        _drop_others(directory)
    from worker.answering import answers, show_answers

    show_answers(answers(directory, offer.rules, prompt, samples, device), run, offer.version, samples, as_json)


def _place(folder: Path, offer: WeightsOffer) -> Path:
    """Returns where a version of a deployment's run is kept."""
    return folder / f"run-{offer.run}" / f"{offer.version:010d}-{offer.root.hex()[:16]}"


def _drop_others(directory: Path) -> None:
    """Removes all but the newest versions beside ``directory``."""
    import shutil

    others = sorted(path for path in directory.parent.glob("[0-9]*-*") if path != directory)
    for path in others[: len(others) - (VERSIONS_KEPT - 1)]:
        shutil.rmtree(path, ignore_errors=True)
