"""``assize validator``: judge rollouts and vote."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.node.commands.connection import DEFAULT_RPC, Addresses, RpcUrl
from protocol.node.commands.weights import CoordinatorUrl, SourceUrls
from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.node.doctor import report
from protocol.node.watching import Once
from protocol.wire.rules import DEFAULT_ENGINE

app = typer.Typer(help="Judge rollouts and vote.", no_args_is_help=True)

EnvFile = Annotated[
    Path | None, typer.Option("--settings", help="File of ASSIZE_VALIDATOR_… settings, one NAME=value a line.")
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.callback()
def validator() -> None:
    """Judge rollouts and vote. Settings come from ASSIZE_VALIDATOR_… variables or a file."""


@app.command()
@guard
def run(
    settings: EnvFile = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Judge every round, print the votes, send nothing: needs no key or bond.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: a line of JSON for each round.")] = False,
) -> None:
    """Follow rounds, judge, commit and reveal until stopped."""
    from validator.settings import ValidatorSettings

    if dry:
        from validator.settings import DryRunSettings

        read = DryRunSettings.read(settings)
        from validator.dry_run import lines_of, serve_dry

        def tell(vote: dict[str, Any]) -> None:
            print(dumps(vote) if json else "\n".join(lines_of(vote)), flush=True)

        raise SystemExit(serve_dry(read, tell))
    from validator.service import serve

    raise SystemExit(serve(ValidatorSettings.read(settings)))


@app.command("class")
@guard
def class_(
    addresses: Addresses,
    run: Annotated[int, typer.Argument(min=1, help="Id of the run.")],
    device: Annotated[str, typer.Option(help="Device that would serve it: cpu or cuda.")] = "cpu",
    coordinator: CoordinatorUrl = None,
    source: SourceUrls = None,
    rpc: RpcUrl = DEFAULT_RPC,
    json: Json = False,
) -> None:
    """Check that this machine may serve a run that compares bits; exit 2 if it is of another determinism class."""
    from protocol.node.commands.connection import connected
    from validator.machine_class import class_for

    with connected(rpc, addresses) as chain:
        found = class_for(chain, run, coordinator, source or (), device)
    show({"run": run, "this machine": found}, json)


@app.command()
@guard
def watch(settings: EnvFile = None, once: Once = False, json: Json = False) -> None:
    """Show the seats, votes, fees and bond of the validator of these settings, until Ctrl-C."""
    from validator.settings import ValidatorSettings
    from validator.watching import watch_validator

    watch_validator(ValidatorSettings.read(settings), once, json)


@app.command()
@guard
def background(settings: EnvFile = None) -> None:
    """Judge for a daemon on this machine's device, taking jobs from its queue (ASSIZE_VALIDATOR_QUEUE_URL).

    Run one per GPU, each with its own state folder. It needs the queue, the coordinator and sources of weights, but no
    key: commitments, deadlines and votes stay with the daemon. Workers may be started and stopped at any time.
    """
    from validator.settings import BackgroundSettings

    read = BackgroundSettings.read(settings)  # before torch is loaded, which takes a while

    from validator.service import serve_background

    raise SystemExit(serve_background(read))


@app.command()
@guard
def check(
    artifact: Annotated[Path, typer.Argument(help="The artifact's file.")],
    round_: Annotated[int, typer.Option("--round", help="The round it was submitted in.")],
    job: Annotated[int | None, typer.Option("--job", help="The job; default: the one the artifact names.")] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Directory of the round's weights; default: fetch them.")
    ] = None,
    settings: EnvFile = None,
    json: Json = False,
) -> None:
    """Judge one artifact by hand and print the evidence, check by check; exit 1 if it is not accepted."""
    from protocol.errors import Misconfigured
    from validator.review.display import show_inspection
    from validator.review.inspection import inspect
    from validator.settings import ValidatorSettings

    if not artifact.is_file():
        raise Misconfigured(f"file not found: {artifact}")
    inspection = inspect(ValidatorSettings.read(settings), artifact.read_bytes(), round_, job, model)
    show_inspection(inspection, json)
    if inspection.reason:
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def replay(
    bundle: Annotated[Path, typer.Argument(help="A juror's signed evidence, as the coordinator serves it.")],
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="Folder of artifacts named by root; default: fetch them.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Directory of the round's weights; default: fetch them.")
    ] = None,
    settings: EnvFile = None,
    json: Json = False,
) -> None:
    """Repeat a juror's judgement and compare; exit 1 if verdicts differ or the bundle is contradicted."""
    from protocol.errors import Misconfigured
    from validator.review.display import show_replay
    from validator.review.replay import replay as replay_bundle
    from validator.settings import ValidatorSettings

    if not bundle.is_file():
        raise Misconfigured(f"file not found: {bundle}")
    replayed = replay_bundle(ValidatorSettings.read(settings), bundle.read_bytes(), artifacts, model)
    show_replay(replayed, json)
    if not replayed.confirmed:
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def doctor(settings: EnvFile = None, json: Json = False) -> None:
    """Check disk, device, key, chain, node, rules and weights; exit 1 if a check fails."""
    from validator.settings import ValidatorSettings

    read = ValidatorSettings.read(settings)
    from validator.doctor import diagnose

    report(diagnose(read), json)


@app.command("compare-class")
@guard
def compare_class(
    rules: Annotated[Path, typer.Option("--rules", help="Rules of a run that compares bits.")],
    model: Annotated[Path, typer.Option("--model", help="Directory of a model of the run.")],
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to make and to run again.")] = 100_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads to make them with; one runs them again.")] = 1,
) -> None:
    """Compare this machine's determinism class with itself; exit 1 if a bit differs. The last line is JSON."""
    from validator.calibration.class_report import compare_and_report

    if not compare_and_report(rules, model, tokens, threads):
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def calibrate(
    out: Annotated[Path, typer.Option("--out", help="File for the rules; the report is written beside it.")],
    model: Annotated[list[Path], typer.Option("--model", help="Model directory; repeat for later versions.")],
    rollouts: Annotated[int, typer.Option("--rollouts", min=0, help="Honest rollouts per model and engine.")],
    engines: Annotated[str, typer.Option("--engines", help="Worker engines, comma-separated.")] = DEFAULT_ENGINE,
    run_file: Annotated[
        Path | None, typer.Option("--run-file", help="Run file whose rules to calibrate; default: the built-in run.")
    ] = None,
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes, comma-separated.")] = "1,8,64,512",
    dtype: Annotated[str | None, typer.Option("--dtype", help="Dtype of model and head: float32 or bfloat16.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Overrides the run file's.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put prompts into the first model's chat template.")] = False,
    short: Annotated[
        bool, typer.Option("--short", help="Bound fraud by some thousand tokens: a hundred times as wide.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="Device of generation and measuring: cpu or cuda.")] = "cpu",
    made: Annotated[
        list[Path] | None, typer.Option("--made", help="Honest specimens from elsewhere (`assize worker generate`).")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="NAME=FOLDER: specimens of a cheat, to report how soon it is detected."),
    ] = None,
    void_rate: Annotated[
        float, typer.Option("--void-rate", help="Largest share of honest jobs that may be void.")
    ] = 1e-3,
    headroom: Annotated[
        float, typer.Option("--headroom", help="Factor that allows for processors and weights that were not measured.")
    ] = 2.0,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="File for a picture of honest and cheating jobs (PNG).")
    ] = None,
    raw: Annotated[Path | None, typer.Option("--raw", help="File for every token's numbers (npz).")] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Folder for specimens; those already there are reused.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of prompts and noise.")] = 1,
    json: Json = False,
) -> None:
    """Measure honest rollouts and write the rules that follow: thresholds at stated error rates."""
    import sys

    from protocol.node.progress import CountBars
    from validator.calibration import command as calibration

    options = calibration.CalibrationOptions(
        *(tuple(model), tuple(engines.split(",")), rollouts, batches, out, run_file, dtype, max_tokens),
        *(tuple(made or ()), tuple(against or ()), void_rate, headroom, picture, raw, keep, seed),
        calibration.typed(sys.argv[1:]),
        chat,
        short,
        device,
    )
    with CountBars() as bars:
        result = calibration.calibrate(options, bars)
    show(calibration.summary(result, options), json, "calibration")
    if not json:
        show(calibration.table(result), False, "jobs under these rules")
