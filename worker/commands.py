"""``assize worker``: generate rollouts and earn credits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.commands.connection import DEFAULT_RPC, Addresses, RpcUrl
from protocol.node.commands.weights import CoordinatorUrl, SourceUrls
from protocol.node.console import guard, show
from protocol.node.doctor import AsJson, report
from protocol.node.watching import Once
from protocol.wire.rules import DEFAULT_ENGINE

app = typer.Typer(help="Generate rollouts and earn credits.", no_args_is_help=True)

EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_WORKER_… settings, one NAME=value a line.")
]


@app.callback()
def worker() -> None:
    """Generate rollouts and earn credits. Settings come from ASSIZE_WORKER_… variables or a file."""


@app.command()
@guard
def run(settings: EnvFile = None) -> None:
    """Work until stopped."""
    from worker.settings import WorkerSettings

    read = WorkerSettings.read(settings)  # before torch loads, so that a wrong setting fails at once
    from worker.service import serve

    raise SystemExit(serve(read))


@app.command()
@guard
def doctor(settings: EnvFile = None, json: AsJson = False) -> None:
    """Check machine, engine, key, chain, node and coordinator; exit 1 if a check fails."""
    from worker.settings import WorkerSettings

    read = WorkerSettings.read(settings)
    from worker.doctor import diagnose

    report(diagnose(read), json)


@app.command("class")
@guard
def class_(
    addresses: Addresses,
    run: Annotated[int, typer.Argument(min=1, help="Id of the run.")],
    device: Annotated[str, typer.Option(help="Device that would serve it: cpu or cuda.")] = "cpu",
    coordinator: CoordinatorUrl = None,
    source: SourceUrls = None,
    rpc: RpcUrl = DEFAULT_RPC,
    json: AsJson = False,
) -> None:
    """Check that this machine may serve a run that compares bits; exit 2 if it is of another determinism class."""
    from protocol.node.commands.connection import connected
    from worker.machine_class import class_for

    with connected(rpc, addresses) as chain:
        found = class_for(chain, run, coordinator, source or (), device)
    show({"run": run, "this machine": found}, json)


@app.command()
@guard
def watch(settings: EnvFile = None, once: Once = False, json: AsJson = False) -> None:
    """Show what the worker of these settings does, its jobs, earnings and bond, until Ctrl-C."""
    from worker.settings import WorkerSettings
    from worker.watching import watch_worker

    watch_worker(WorkerSettings.read(settings), once, json)


@app.command()
@guard
def drain(
    settings: EnvFile = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back: the worker takes new jobs again.")] = False,
) -> None:
    """Have the running worker hand in its jobs, take no new ones, and end.

    SIGTERM drains too, for drain_seconds at most. Ctrl-C ends it after the current step: the next start goes on with
    its jobs.
    """
    from worker.availability import Drain
    from worker.settings import WorkerSettings

    asked = Drain(WorkerSettings.read(settings).state_dir)
    if cancel:
        asked.end()
        print("the worker takes new jobs again")
        return
    print(f"the worker (process {asked.ask()}) takes no new jobs, and ends once those it has are on the chain")


@app.command()
@guard
def fleet(
    file: Annotated[Path, typer.Argument(help="TOML file of the nodes: see worker/fleet/fleet_file.py.")],
    settings: EnvFile = None,
    check: Annotated[bool, typer.Option("--check", help="Have every node's doctor look, start nothing.")] = False,
    json: AsJson = False,
) -> None:
    """Work with several nodes of one owner: a process each, restarted when it ends, all of them drained by SIGTERM."""
    import os

    from worker.fleet.fleet_file import read_fleet

    read = read_fleet(file, settings, os.environ, os.cpu_count() or 1)
    if check:
        from worker.fleet.checking import check_fleet

        report(check_fleet(read), json)
        return
    from protocol.node import telemetry
    from protocol.node.watching import showing
    from worker.fleet.bonds import BondKeeper
    from worker.fleet.supervising import FleetSupervisor

    telemetry.configure("fleet")
    supervisor = FleetSupervisor(read, BondKeeper(read))
    with showing(json) as show_view:
        raise SystemExit(supervisor.run(show_view))


@app.command()
@guard
def estimate(
    settings: EnvFile = None,
    node: Annotated[int, typer.Option(min=0, help="A node that works in the run already; 0 for a newcomer.")] = 0,
    capacity: Annotated[int, typer.Option(min=1, max=256, help="A newcomer's jobs in flight.")] = 4,
    rounds: Annotated[int, typer.Option(min=5, max=500, help="Ended rounds to look at.")] = 40,
    watts: Annotated[float, typer.Option(min=0, help="What the machine draws at work; 0 leaves electricity out.")] = 0,
    price_per_kwh: Annotated[str, typer.Option(help="What a kWh costs, in tokens; such as '0.2 ASZ'.")] = "0",
    json: AsJson = False,
) -> None:
    """Estimate what this machine would earn an hour: measure it, look at the last rounds; prints every assumption."""
    from protocol.amounts import wei_of
    from worker.settings import EstimateSettings

    read, price = EstimateSettings.read(settings), wei_of(price_per_kwh)
    from rich.console import Console
    from rich.progress import Progress

    from worker.estimate import Electricity
    from worker.measuring import make_estimate

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring this machine")
        made = make_estimate(
            *(read, node, capacity, rounds, Electricity(watts, price)),
            lambda done, of: bar.update(task, completed=done, total=of),
        )
    show(made.told(), json, "expected earnings an hour")


@app.command()
@guard
def engines(json: AsJson = False) -> None:
    """List the engines and the versions that are installed."""
    from worker.engines.registry import ENGINES

    show([{"name": entry.name, "installed": entry.versions()} for entry in ENGINES.values()], json, "engines")


@app.command()
@guard
def generate(
    rules: Annotated[Path, typer.Option("--rules", help="The run's rules; thresholds are ignored.")],
    model: Annotated[Path, typer.Option("--model", help="Model directory in Hugging Face's layout.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write to: empty or new.")],
    engine: Annotated[str, typer.Option("--engine", help="Engine that generates.")] = DEFAULT_ENGINE,
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes, comma-separated.")] = "64",
    rollouts: Annotated[
        int, typer.Option("--rollouts", min=1, help="Total number of rollouts, rounded to whole jobs.")
    ] = 512,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of prompts and noise.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
) -> None:
    """Generate rollouts outside any round, for `assize validator calibrate` on this or another machine."""
    from worker.specimens import generate_specimens, sizes

    generate_specimens(rules, model, out, engine, sizes(batches), rollouts, seed, device)
