"""``assize zoo``: bring your own adversary."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.node.console import guard, show

if TYPE_CHECKING:
    from deploy.zoo.trial import TrialRow
    from protocol.wire.rules import Rules

app = typer.Typer(help="Bring your own adversary.", no_args_is_help=True)
BUILTIN = Path(__file__).parents[1] / "runs" / "builtin.toml"


@app.callback()
def zoo() -> None:
    """Bring your own adversary."""


@app.command("try")
@guard
def try_file(
    file: Annotated[Path, typer.Argument(help="Python file with one class derived from worker.producer.Producer.")],
    rules: Annotated[Path, typer.Option(help="Rules, or a run file with rules, to be judged by.")] = BUILTIN,
    model: Annotated[
        Path | None, typer.Option(help="Directory of the weights; by default the built-in model, made once.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Jobs to make and have judged.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and noise.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="Longest that the worker may take.")] = 600.0,
) -> None:
    """Put a cheating worker before the judge, beside an honest one; the last line is JSON."""
    import torch

    from deploy.zoo.trial import rules_in, tried
    from protocol.tensor.determinism import with_canary

    torch.set_num_threads(1)
    read = rules_in(rules)
    weights = (model or _built_in(read)).absolute()
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="assize-zoo-") as name:
        rows = tried(Path(name), file, with_canary(read, weights), weights, jobs, seed, seconds)
    show([_shown(worker, row) for worker, row in rows.items()], False, f"{file.name} before the judge")
    print(_verdict(rows["stranger"], rows["honest"]))
    print(json.dumps({worker: asdict(row) for worker, row in rows.items()}), flush=True)


def _built_in(rules: Rules) -> Path:
    """Returns the built-in model for the sums of ``rules``, made in about a minute if it is missing."""
    from deploy.adversaries.models import KEPT_IN, arithmetic, make_once
    from protocol.environments.registry import environment
    from trainer.builtin import Warmup

    sums = arithmetic(environment(rules.environment.name, rules.environment.params))
    return make_once(KEPT_IN / f"policy-{sums.digits}-v0", 1, sums, Warmup())


def _shown(worker: str, row: TrialRow) -> dict[str, str]:
    return {
        "worker": worker,
        "jobs": str(row.jobs),
        "caught": str(row.caught),
        "fraud": str(row.fraud),
        "why": ", ".join(f"{name} {count}" for name, count in row.reasons.items()),
        "jobs to 99%": "-" if row.jobs_to_99 is None else str(row.jobs_to_99),
        "nats a job": f"{row.evidence:.2f}",
        "‰ flips that pass": f"{row.flips_per_1000:.2f}",
        "reward": "-" if row.reward is None else f"{row.reward:.3f}",
    }


def _verdict(stranger: TrialRow, honest: TrialRow) -> str:
    """Returns in one sentence what came of it."""
    if not stranger.jobs:
        return "nothing to judge: the worker handed in no job"
    if stranger.jobs_to_99 is not None:
        return f"caught: 99 of 100 such nodes within {stranger.jobs_to_99} jobs"
    gained = 0.0 if stranger.reward is None or honest.reward is None else stranger.reward - honest.reward
    return (
        f"not found within {stranger.jobs} jobs, {stranger.caught} of them refused; reward beside honest work "
        f"{gained:+.3f}. Try more jobs; CONTRIBUTING.md says how to report a cheat that gets through"
    )
