"""``assize localnet``: the whole market on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.adversaries import ADVERSARIES
from protocol.errors import Misconfigured
from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.wire.rules import DEFAULT_ENGINE
from worker.engines.registry import ENGINES

if TYPE_CHECKING:
    from deploy.localnet.faulty_committee import DisputeOutcome
    from deploy.localnet.network import Localnet, NetworkOptions
    from deploy.localnet.outcome import Outcome
    from deploy.localnet.services import Server

localnet = typer.Typer(help="The whole market on this machine.", no_args_is_help=True)

HERE = Path(__file__).resolve().parent
END_SECONDS = 30.0

Root = Annotated[Path, typer.Option("--root", help="State folder of the network.")]
Seed = Annotated[int, typer.Option(help="Seed of the model and the held-out problems.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Checkpoints to make; by default the run file's number.")]
RunFilePath = Annotated[
    Path,
    typer.Option("--run-file", envvar="ASSIZE_LOCALNET_RUN_FILE", help="TOML file of rules, terms and recipe."),
]
ModelPath = Annotated[
    Path | None,
    typer.Option("--model", envvar="ASSIZE_LOCALNET_MODEL", help="Hugging Face causal LM directory to start from."),
]
TasksPath = Annotated[
    Path | None,
    typer.Option(
        "--tasks", envvar="ASSIZE_LOCALNET_TASKS", help="File of `assize tasks build`, for the model's tokenizer."
    ),
]
Adversary = Annotated[
    str | None,
    typer.Option(
        "--adversary",
        help=f"Adversary to run as the third worker: {', '.join(ADVERSARIES)}. [default: edited-answer, of tasks from "
        "a file random-tokens]",
        metavar="NAME",
        show_default=False,
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", help=f"Engine of the second worker: {', '.join(ENGINES)}.", metavar="NAME")
]
Port = Annotated[int | None, typer.Option(help="Port to listen on; by default a free one.")]

DEFAULT_ROOT = Path.cwd() / ".localnet"
BUILTIN = HERE.parent / "runs" / "builtin.toml"
FAULTY_COMMITTEE = HERE.parent / "runs" / "faulty-committee.toml"


@localnet.callback()
def _localnet() -> None:
    """The whole market on this machine, without a GPU, cheat included."""


@localnet.command()
@guard
def run(
    seed: Seed = 1,
    steps: Steps = None,
    root: Root = DEFAULT_ROOT,
    run_file: RunFilePath = BUILTIN,
    model: ModelPath = None,
    tasks: TasksPath = None,
    adversary: Adversary = None,
    engine: Engine = DEFAULT_ENGINE,
    target_accuracy: Annotated[
        float | None, typer.Option(help="End at the first evaluation that reaches this accuracy.")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(min=0, help="Steps between evaluations of held-out accuracy.")] = 10,
    watch_jurors: Annotated[
        bool, typer.Option(help="Plant a fault as the requester, and check some jobs and their jurors again.")
    ] = True,
    faulty: Annotated[
        bool,
        typer.Option(
            "--faulty-committee",
            help="Run with a validator that condemns honest work; end once appeals have overturned it.",
        ),
    ] = False,
) -> None:
    """Run the market to the last step, check the outcome and write a report; the last line is JSON."""
    from deploy.localnet.faulty_committee import run_until_restored

    if faulty:
        run_file = FAULTY_COMMITTEE if run_file == BUILTIN else run_file
        if tasks is not None:
            raise Misconfigured("invalid --tasks with --faulty-committee, whose jurors know sums only: leave one out")
        options = options_of(root, run_file, model, adversary, seed=seed, evaluate_every=0, faulty_committee=True)
        with _started(options, endless=True) as network:
            found = run_until_restored(network)
        _conclude(*found)
        return
    figures: dict[str, Any] = {"steps": steps, "target_accuracy": target_accuracy, "evaluate_every": evaluate_every}
    figures |= {"seed": seed, "tasks": tasks, "watch_jurors": watch_jurors}
    options = options_of(root, run_file, model, adversary, engine=engine, **figures)
    with _started(options, endless=False) as network:
        outcome, broken = network.run_to_end()
    folder = root / "report"
    print(f"report: {folder / 'report.md'}, picture: {folder / 'reward.png'}, the run's page: {folder / 'run.html'}")
    _conclude(outcome, broken)


@localnet.command()
@guard
def up(
    seed: Seed = 1,
    root: Root = DEFAULT_ROOT,
    run_file: RunFilePath = BUILTIN,
    model: ModelPath = None,
    tasks: TasksPath = None,
    adversary: Adversary = None,
    engine: Engine = DEFAULT_ENGINE,
    chain_port: Port = None,
    coordinator_port: Port = None,
    ledger_port: Port = None,
) -> None:
    """Start the market, print its URLs, and run until Ctrl-C or `assize localnet down`."""
    from deploy.localnet.consenting import ConsentingValidators
    from deploy.localnet.network import LOOK_SECONDS
    from deploy.localnet.profile_entry import enter

    ports: dict[Server, int | None] = {"chain": chain_port, "coordinator": coordinator_port, "ledger": ledger_port}
    options = options_of(root, run_file, model, adversary, seed=seed, engine=engine, ports=ports, tasks=tasks)
    with _started(options, endless=True) as network:
        if entered := enter(network.layout.url("chain"), network.layout.addresses):
            network.view.say(entered)
        network.view.say(where(root))
        validators = ConsentingValidators(network.layout, network.chain, network.parties, network.established.nodes)
        while True:
            network.watch()
            for number in validators.look():
                network.view.say(f"validators joined run {number}")
            time.sleep(LOOK_SECONDS)


@localnet.command()
@guard
def status(root: Root = DEFAULT_ROOT, json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show the running services with their URLs and process ids."""
    services = _running(root)["services"]
    rows = [
        {"service": name, "pid": service["pid"] or "ended", "url": service["url"] or ""}
        for name, service in services.items()
    ]
    show(rows, json, f"local network in {root}")


@localnet.command()
@guard
def start(
    name: Annotated[str, typer.Argument(help="Service, as named by `status`.")], root: Root = DEFAULT_ROOT
) -> None:
    """Restart a service, ending it first if it still runs."""
    services = _running(root)["services"]
    if name not in services:
        raise Misconfigured(f"unknown service {name!r}: expected one of {', '.join(services)}")
    request = root / "requests" / f"start-{name}"
    request.touch()
    deadline = time.monotonic() + END_SECONDS
    while request.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if request.exists():
        raise Misconfigured("the network is still being set up: try again once it prints steps")
    print(f"restarted {name}")


@localnet.command()
@guard
def down(root: Root = DEFAULT_ROOT) -> None:
    """End the local network and all of its processes."""
    from deploy.localnet.processes import read_state

    supervisor = int(_running(root)["supervisor"])
    os.kill(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while read_state(root) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    print("ended" if read_state(root) is None else f"process {supervisor} is still ending")


def options_of(
    root: Path, run_file: Path, model: Path | None, adversary: str | None = None, **more: Any
) -> NetworkOptions:
    """Returns the options of a network; ``adversary`` is the usual one of its tasks unless it is named.

    Raises:
        Misconfigured: nobody knows the adversary.
    """
    from deploy.adversaries import adversary as known
    from deploy.localnet.network import NetworkOptions

    if adversary is None:  # the usual cheat edits sums
        adversary = "edited-answer" if more.get("tasks") is None else "random-tokens"
    known(adversary)
    path = model.absolute() if model else None
    return NetworkOptions(root=root, run_file=run_file, model=path, adversary=adversary, **more)


@contextmanager
def _started(options: NetworkOptions, endless: bool) -> Iterator[Localnet]:
    """Starts a network in an emptied state folder, and ends it on leaving, also by SIGTERM and SIGINT."""
    from deploy.localnet.live import LiveView
    from deploy.localnet.network import Localnet, fresh
    from deploy.localnet.processes import Supervisor

    fresh(options.root)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with Supervisor(options.root) as supervisor, LiveView(None) as view:
        network = Localnet(options, supervisor, view)
        view.last_version = None if endless else network.steps
        network.start(endless)
        yield network


def _leave(number: int, frame: object) -> None:
    """Unwinds the stack, so that the supervisor ends every child process."""
    raise SystemExit(128 + number)


def _conclude(outcome: Outcome | DisputeOutcome, broken: list[str]) -> None:
    """Prints the rules that a run broke and its figures, JSON last; exits with a failure if any broke."""
    for sentence in broken:
        print(f"broken: {sentence}")
    print(outcome.to_json(), flush=True)
    if broken:
        raise SystemExit(EXIT_REFUSED)


def where(root: Path) -> str:
    """Returns the URLs of a running network, and a command to try next."""
    services = _running(root)["services"]
    urls = ", ".join(f"{name} {service['url']}" for name, service in services.items() if service["url"])
    chain = services["chain"]["url"]
    look = f"look at it in a browser: {services['ledger']['url']}"
    return f"up: {urls}\n{look}\naudit it: assize ledger audit --rpc {chain} --addresses {root / 'addresses.json'}"


def _running(root: Path) -> dict[str, Any]:
    from deploy.localnet.processes import read_state

    state = read_state(root)
    if state is None:
        raise Misconfigured(f"no local network is running in {root}: start one with: assize localnet up")
    return state
