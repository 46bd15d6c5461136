"""``assize trainer``: train on accepted rollouts, publish weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.node.console import guard
from protocol.node.doctor import AsJson, report

SHOWN_EVERY = 50

app = typer.Typer(help="Train on accepted rollouts, publish weights.", no_args_is_help=True)


@app.callback()
def trainer() -> None:
    """Train on accepted rollouts, publish weights. Settings come from ASSIZE_TRAINER_… variables or a file."""


@app.command()
@guard
def run(
    settings: Annotated[
        Path | None, typer.Option(help="File of ASSIZE_TRAINER_… settings, one NAME=value per line.")
    ] = None,
) -> None:
    """Train until the last version is published, serving weights meanwhile."""
    from protocol.tensor.directory import check_model_directory
    from trainer.settings import TrainerSettings, read_recipe

    read = TrainerSettings.read(settings)
    # Before torch loads, so that configuration errors show at once.
    check_model_directory(read.model)
    read_recipe(read.run_file)
    from trainer.service import serve

    raise SystemExit(serve(read))


@app.command()
@guard
def doctor(
    settings: Annotated[
        Path | None, typer.Option(help="File of ASSIZE_TRAINER_… settings, one NAME=value per line.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check disk, model, recipe, key, chain and coordinator; exit 1 if a check fails."""
    from trainer.doctor import diagnose
    from trainer.settings import TrainerSettings

    report(diagnose(TrainerSettings.read(settings)), json)


@app.command()
@guard
def make(
    directory: Annotated[Path, typer.Argument(help="Model directory to create.")],
    seed: Annotated[int, typer.Option(help="Seed of weights and lessons.")] = 1,
) -> None:
    """Make the tiny built-in model: no download, about a minute of training."""
    import torch

    from trainer.builtin import Warmup, make_builtin

    torch.set_num_threads(1)  # a model this small gains nothing from more, and one thread makes it reproducible
    lessons = Warmup().steps

    def progress(step: int, loss: float) -> None:
        if step % SHOWN_EVERY == 0:
            print(f"imitated {step} of {lessons} lessons, loss {loss:.3f}", flush=True)

    make_builtin(directory, seed, progress=progress)
    print(f"wrote the model to {directory}")
