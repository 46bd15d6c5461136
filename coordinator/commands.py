"""``assize coordinator``: serve (the API), drive (the rounds), precheck (uploads), status; run control elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator import control_commands
from coordinator.control_commands import EnvFile
from protocol.node.console import guard, show
from protocol.node.doctor import AsJson, report

app = typer.Typer(help="Assign jobs, store uploads, drive rounds.", no_args_is_help=True)
app.add_typer(control_commands.app)
UPLOAD_SECONDS = 30
"""Longest that requests under way may take, uploads among them, once the API is told to end."""


@app.command()
@guard
def serve(env_file: EnvFile = None) -> None:
    """Serves the HTTP API."""
    from contextlib import closing

    import structlog

    from coordinator.api.app import create_app
    from coordinator.api.service import CoordinatorService
    from coordinator.driver.wiring import checked_run, coming_rules, keep_rules, read_rules
    from coordinator.settings import CoordinatorSettings
    from coordinator.store import Store
    from protocol.chain.reading.client import Chain
    from protocol.node import telemetry
    from protocol.transport.listening import listen, run_server
    from protocol.transport.processes import fork_processes

    settings = CoordinatorSettings.read(env_file)
    telemetry.configure("coordinator", settings.log_level)
    wallet = settings.wallet()
    listener = listen(settings.host, settings.port)
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    coming = coming_rules(settings)
    rules = [read_rules(file, run, checked_run(chain, run), coming) for run, file in settings.rules_files.items()]
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with closing(Store(settings.database)) as store:
        keep_rules(store, *rules, *coming)
        structlog.get_logger().info("tables", found=store.migrated)
    url = f"http://{settings.host}:{listener.getsockname()[1]}"
    structlog.get_logger().info("serving", url=url, run=settings.run, needs="`assize coordinator drive` beside it")
    number = fork_processes(settings.api_processes, listener)
    metrics_port = settings.api_metrics_port and settings.api_metrics_port + number
    telemetry.serve_metrics(metrics_port, settings.metrics_host, settings.state_dir, "api_metrics_port")
    service = CoordinatorService(settings, Store(settings.database), chain.deployment, wallet)
    run_server(create_app(service), listener, UPLOAD_SECONDS, ending=service.poller.end)


@app.command()
@guard
def drive(env_file: EnvFile = None) -> None:
    """Mirrors the chain, opens rounds, relays submissions, drives rounds to their end."""
    from coordinator.driver.wiring import build
    from coordinator.settings import CoordinatorSettings
    from protocol.garbage import collect_rarely
    from protocol.node import telemetry

    settings = CoordinatorSettings.read(env_file)
    telemetry.configure("coordinator-driver", settings.log_level)
    telemetry.serve_metrics(settings.metrics_port, settings.metrics_host, settings.state_dir)
    daemon = build(settings)
    collect_rarely()
    raise typer.Exit(daemon.run())


@app.command()
@guard
def precheck(env_file: EnvFile = None) -> None:
    """Examines what nodes upload to the object store (ASSIZE_COORDINATOR_OBJECTS); run one or several.

    It needs the settings of the other two processes, their database and Redis, but no key.
    """
    from coordinator.api.artifacts import ArtifactIntake
    from coordinator.api.uploads import Uploads
    from coordinator.blobs import KeptBlobs
    from coordinator.settings import CoordinatorSettings
    from coordinator.store import Store
    from protocol.chain.deployment import Deployment
    from protocol.node import telemetry

    settings = CoordinatorSettings.read(env_file)
    telemetry.configure("coordinator-precheck", settings.log_level)
    telemetry.serve_metrics(settings.precheck_metrics_port, settings.metrics_host, settings.state_dir)
    blobs, deployment = KeptBlobs.open(settings), Deployment.load(settings.addresses)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    store = Store(settings.database)
    artifacts = ArtifactIntake.of(settings, store, blobs.artifacts, deployment)
    raise typer.Exit(Uploads.of(settings, store, artifacts, blobs.objects).attend())


@app.command()
@guard
def doctor(env_file: EnvFile = None, json: AsJson = False) -> None:
    """Checks disk, key, database, Redis, store, chain, rules and escrow; exits 1 if a check fails."""
    from coordinator.doctor import diagnose
    from coordinator.settings import CoordinatorSettings

    report(diagnose(CoordinatorSettings.read(env_file)), json)


@app.command()
@guard
def status(
    url: Annotated[str, typer.Option(help="The coordinator's URL.")] = "http://127.0.0.1:8000",
    run: Annotated[int | None, typer.Option("--run", help="Run; omitted, the coordinator's first one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Shows the live counts of a running coordinator."""
    from protocol.transport.coordinator import CoordinatorClient

    client = CoordinatorClient(url, run=run)
    try:
        show(client.status(details=True).model_dump(), json, "coordinator")
    finally:
        client.close()
