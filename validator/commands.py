"""``assize validator``: judge rollouts and vote."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import Annotated

import typer

from protocol.node.console import EXIT_REFUSED, guard, show

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
    from validator.display import show_inspection
    from validator.inspection import inspect
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
    from validator.display import show_replay
    from validator.replay import replay as replay_bundle
    from validator.settings import ValidatorSettings

    if not bundle.is_file():
        raise Misconfigured(f"there is no file {bundle}")
    replayed = replay_bundle(ValidatorSettings.read(settings), bundle.read_bytes(), artifacts, model)
    show_replay(replayed, json)
    if not replayed.confirmed:
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def preflight(settings: EnvFile = None, json: Json = False) -> None:
    """Check key, node, chain, weights and disk before judging; exit 1 where one of them will not do."""
    from validator.preflight import examine
    from validator.settings import ValidatorSettings

    found = list(examine(ValidatorSettings.read(settings)))
    show([{"check": one.check, "ok": one.ok, "found": one.found} for one in found], json, "preflight")
    if not all(one.ok for one in found):
        raise SystemExit(EXIT_REFUSED)


@app.command()
@guard
def measure(
    model: Annotated[Path, typer.Option("--model", help="A model directory in Hugging Face's layout.")],
    rollouts: Annotated[int, typer.Option("--rollouts", help="Rollouts for each batch size.")] = 512,
    out: Annotated[Path | None, typer.Option("--out", help="Write the measurement there, as JSON.")] = None,
    environment: Annotated[str, typer.Option("--environment", help="Whose prompts to use.")] = "arithmetic",
    params: Annotated[str, typer.Option("--params", help="The environment's parameters, as JSON.")] = "{}",
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes to decode at.")] = "1,8,64,512",
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=1.5)] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1)] = 64,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or bfloat16.")] = "float32",
) -> None:
    """Measure honest rollouts at several batch sizes and propose thresholds from them."""
    import torch

    from protocol.environments.registry import environment as environment_of
    from validator.measure import measure as measure_honest

    torch.set_num_threads(1)
    sizes = [int(size) for size in batches.split(",")]
    command = (
        f"assize validator measure --model {model.name} --rollouts {rollouts} --environment {environment}"
        f" --params '{params}' --batches {batches} --temperature {temperature:g}"
        f" --max-tokens {max_tokens} --dtype {dtype}"
    )
    tasks = environment_of(environment, jsons.loads(params))
    measured = measure_honest(model, tasks, rollouts, sizes, temperature, max_tokens, dtype, command)
    document = jsons.dumps(measured.to_json(), indent=2) + "\n"
    if out is not None:
        out.write_text(document)
    print(document, end="")
