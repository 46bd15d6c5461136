"""``assize validator``: judge rollouts and vote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.node.doctor import report
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
def run(settings: EnvFile = None) -> None:
    """Follow rounds, judge, commit and reveal until stopped."""
    from validator.service import serve
    from validator.settings import ValidatorSettings

    raise SystemExit(serve(ValidatorSettings.read(settings)))


@app.command()
@guard
def background(settings: EnvFile = None) -> None:
    """Judge for a daemon on this machine's device, taking jobs from its queue (ASSIZE_VALIDATOR_QUEUE_URL).

    Run one for each GPU, with a state folder of its own. It needs the queue, the coordinator and sources of weights,
    and no key: commitments, deadlines and votes stay with the daemon. Start and stop as many as you like at any time.
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
    job: Annotated[int | None, typer.Option("--job", help="The job; else the one the artifact names.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="The round's weights; else they are fetched.")] = None,
    settings: EnvFile = None,
    json: Json = False,
) -> None:
    """Judge one artifact by hand and print the evidence, check by check; exit 1 where it is not accepted."""
    from protocol.errors import Misconfigured
    from validator.review.display import show_inspection
    from validator.review.inspection import inspect
    from validator.settings import ValidatorSettings

    if not artifact.is_file():
        raise Misconfigured(f"there is no file {artifact}")
    inspection = inspect(ValidatorSettings.read(settings), artifact.read_bytes(), round_, job, model)
    show_inspection(inspection, json)
    if inspection.reason:
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def replay(
    bundle: Annotated[Path, typer.Argument(help="A juror's signed evidence, as the coordinator serves it.")],
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="A folder of artifacts by root; else they are fetched.")
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", help="The round's weights; else they are fetched.")] = None,
    settings: EnvFile = None,
    json: Json = False,
) -> None:
    """Judge again what a juror judged and compare; exit 1 where verdicts differ or the bundle is contradicted."""
    from protocol.errors import Misconfigured
    from validator.review.display import show_replay
    from validator.review.replay import replay as replay_bundle
    from validator.settings import ValidatorSettings

    if not bundle.is_file():
        raise Misconfigured(f"there is no file {bundle}")
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


@app.command()
@guard
def calibrate(
    out: Annotated[Path, typer.Option("--out", help="Where the rules go; the report is written beside them.")],
    model: Annotated[list[Path], typer.Option("--model", help="A model directory; repeat it for later versions.")],
    rollouts: Annotated[int, typer.Option("--rollouts", min=0, help="Honest rollouts of each model by each engine.")],
    engines: Annotated[str, typer.Option("--engines", help="Worker engines, comma-separated.")] = DEFAULT_ENGINE,
    run_file: Annotated[
        Path | None, typer.Option("--run-file", help="Whose rules to calibrate; the built-in run's if left out.")
    ] = None,
    batches: Annotated[str, typer.Option("--batches", help="Rollouts decoded at a time.")] = "1,8,64,512",
    dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16, of model and head.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="In place of the run file's.")] = None,
    made: Annotated[
        list[Path] | None, typer.Option("--made", help="Honest specimens from elsewhere (`assize worker generate`).")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option("--against", help="NAME=FOLDER: specimens of a cheat, to see how it shows.")
    ] = None,
    void_rate: Annotated[float, typer.Option("--void-rate", help="Share of honest jobs that may be void.")] = 1e-3,
    headroom: Annotated[
        float, typer.Option("--headroom", help="Factor for processors and weights that were not measured.")
    ] = 2.0,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw honest and cheating jobs there (PNG).")
    ] = None,
    raw: Annotated[Path | None, typer.Option("--raw", help="Keep every token's numbers there (npz).")] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Make specimens there, and take those that are there already.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="What prompts and noise follow from.")] = 1,
    json: Json = False,
) -> None:
    """Measure honest rollouts and write the rules that follow: thresholds at stated error rates."""
    import sys

    from validator.calibration import command as calibration

    options = calibration.CalibrationOptions(
        *(tuple(model), tuple(engines.split(",")), rollouts, batches, out, run_file, dtype, max_tokens),
        *(tuple(made or ()), tuple(against or ()), void_rate, headroom, picture, raw, keep, seed),
        calibration.typed(sys.argv[1:]),
    )
    result = calibration.calibrate(options, lambda line: print(line, file=sys.stderr, flush=True))
    show(calibration.summary(result, options), json, "calibration")
    if not json:
        show(calibration.table(result), False, "how jobs look under these rules")
