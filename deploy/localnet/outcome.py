"""Outcome of a run of the local network: its figures, failed expectations, report and plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.adversaries import ADVERSARIES, Adversary
from deploy.localnet.services import NetworkLayout, ledger_database
from deploy.localnet.watching import Watched
from deploy.runs.run_file import Goal
from ledger.api.blobs import BlobSource
from ledger.commands.options import published_by
from ledger.explorer.report import ReportSources, write_run_report
from ledger.store.database import Database
from ledger.store.index import sync
from ledger.trainer_metrics import read_metrics
from protocol.chain.reading.client import Chain

DEFAULT = ADVERSARIES["edited-answer"]
BUILTIN_GOAL = Goal()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The figures of a run that follow from the chain: counts of rollouts, and wei."""

    rounds: int
    steps: int
    rollouts_accepted: int
    rollouts_trained: int
    rollouts_fraud: int
    rollouts_void: int
    honest_rollouts_void: int
    cheat_rollouts_trained: int
    cheat_rounds_before_caught: int
    cheat_slashed_wei: int
    honest_slashed_wei: int
    penalties_wei: int
    credits: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(RunFigures):
    """The figures of one run, which ``assize localnet run`` prints as JSON in its last line, wei as strings.

    ``weights_received`` are the bytes that the honest workers received for versions, ``weights_whole`` those of the
    versions' files, ``weights_seconds`` the median from a version's appearance on chain to its use.
    """

    accuracy_before: float
    accuracy_after: float
    audit: str
    weights_received: int
    weights_whole: int
    weights_seconds: float
    rollouts_per_second: float
    wall_seconds: float
    seed: int

    def to_json(self) -> str:
        """Returns one line of JSON, wei as decimal strings."""
        credits = {provider: str(wei) for provider, wei in self.credits.items()}
        return json.dumps(in_strings(asdict(self)) | {"credits": credits})


def in_strings(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures with those in wei as decimal strings. PURE."""
    return {name: str(value) if name.endswith("_wei") else value for name, value in figures.items()}


def failures(
    outcome: Outcome, steps_wanted: int, judge_accuracy: bool, cheat: Adversary = DEFAULT, goal: Goal = BUILTIN_GOAL
) -> list[str]:
    """Returns a sentence for each expectation that the run did not meet. PURE.

    The adversary's kind determines its expected outcome: one whose jobs are fraud is slashed, one whose jobs are void
    is not paid, and a short run may end before the record of a slight one condemns it.
    """
    rules = [
        (outcome.audit == "ok", f"the audit says {outcome.audit}"),
        (outcome.steps >= steps_wanted, f"{outcome.steps} steps were made, not {steps_wanted}"),
        (outcome.honest_slashed_wei == 0, f"honest workers were slashed {outcome.honest_slashed_wei} wei"),
    ]
    if cheat.kind != "slight":
        rules += _caught(outcome, cheat)
    if judge_accuracy:
        gain = outcome.accuracy_after - outcome.accuracy_before
        reached = outcome.accuracy_after
        rules.append((reached >= goal.accuracy, f"accuracy ended at {reached:.3f}, under {goal.accuracy:.2f}"))
        rules.append((gain >= goal.gain, f"accuracy rose by {gain:.3f}, under {goal.gain:.2f}"))
    return [sentence for holds, sentence in rules if not holds]


def _caught(outcome: Outcome, cheat: Adversary) -> list[tuple[bool, str]]:
    """Returns (holds, sentence) for each expectation on an adversary none of whose jobs may be accepted."""
    if cheat.ends == "fraud":
        rules = [(outcome.cheat_slashed_wei > 0, "the cheat was not slashed")]
    else:
        rules = [(outcome.rollouts_void > 0, "none of the cheat's work was void")]
    if cheat.begins_honest:
        return rules
    through, trained = outcome.cheat_rounds_before_caught, outcome.cheat_rollouts_trained
    rules.append((through == 0, f"the cheat got through {through} judged rounds before it was caught"))
    return [*rules, (trained == 0, f"{trained} of the cheat's rollouts were trained on")]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The trainer's ``metrics.jsonl``: one dict per step, and one per evaluation, by version."""

    steps: tuple[dict[str, Any], ...]
    evaluations: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, path: Path) -> Metrics:
        """Reads the file; empty if it does not exist yet. Skips a line that is still being written."""
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return cls(
            tuple(record for record in records if record["kind"] == "step"),
            tuple(
                sorted(
                    (record for record in records if record["kind"] == "evaluation"),
                    key=lambda record: record["version"],
                )
            ),
        )

    def concluding(self, last_version: int, target_accuracy: float | None) -> dict[str, Any] | None:
        """Returns the evaluation with which a run ends: the first to reach the target, or the last version's."""
        for each in self.evaluations:
            reached = target_accuracy is not None and each["accuracy"] >= target_accuracy
            if each["version"] > 0 and (reached or each["version"] >= last_version):
                return each
        return None

    @property
    def began(self) -> float:
        """Unix time at which the trainer asked for its first evaluation, which it does as soon as it can train."""
        first = self.evaluations[0]
        return float(first["time"] - first["seconds"])


def draw_curve(metrics: Metrics, path: Path, goal: Goal = BUILTIN_GOAL) -> None:
    """Draws reward and held-out accuracy over versions, and staleness below, as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, 6), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    versions = [step["version"] for step in metrics.steps]
    rewards = [step["reward"] for step in metrics.steps]
    measured = [(evaluation["version"], evaluation["accuracy"]) for evaluation in metrics.evaluations]
    above.plot(versions, rewards, color="#3b6ea5", label="reward of accepted rollouts")
    above.plot(*zip(*measured, strict=True), "o", color="#b5432a", label=f"accuracy, {goal.problems} held-out problems")
    above.axhline(goal.accuracy, color="grey", linewidth=0.8, linestyle=":")
    above.set(ylabel="share right", ylim=(0, 1), title="Trained on accepted rollouts only")
    above.legend(loc="lower right", frameon=False)
    below.step(versions, [step["staleness"] for step in metrics.steps], where="mid", color="#555555")
    below.set(xlabel="checkpoint version", ylabel="staleness\n(versions)", ylim=(0, None))
    below.xaxis.get_major_locator().set_params(integer=True)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _answers(metrics: Metrics) -> str:
    """Returns the first and the last evaluation's first problem, as the model completed it."""
    shown = [metrics.evaluations[0], metrics.evaluations[-1]] if metrics.evaluations else []
    blocks = [
        f"Version {each['version']}:\n\n```\n{each['prompt'].rstrip()}\n{each['completion']}\n```\n"
        for each in shown
        if "prompt" in each
    ]
    return "## What it answers\n\n" + "\n".join(blocks) + "\n" if blocks else ""


def write_report(
    folder: Path,
    outcome: Outcome,
    metrics: Metrics,
    broken: Sequence[str],
    cpu_seconds: Mapping[str, float],
    watched: Watched | None = None,
    goal: Goal = BUILTIN_GOAL,
) -> None:
    """Writes ``report.json``, ``report.md`` and ``reward.png`` into ``folder``.

    ``cpu_seconds`` is the processor time of each service between start and last step, ``watched`` the figures of
    watching the jurors, if they were.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw_curve(metrics, folder / "reward.png", goal)
    figures = json.loads(outcome.to_json())
    whole = {"outcome": figures, "broken": list(broken), "cpu_seconds": dict(cpu_seconds)}
    whole |= {} if watched is None else {"watched": asdict(watched)}
    jurors = "" if watched is None else "## Jurors watched\n\n" + "\n".join(watched.sentences()) + "\n\n"
    (folder / "report.json").write_text(json.dumps(whole | asdict(metrics), indent=1))
    rows = "\n".join(f"| {name} | {value} |" for name, value in figures.items())
    parts = "\n".join(f"| {name} | {seconds:.1f} |" for name, seconds in cpu_seconds.items())
    verdict = "Every rule held." if not broken else "Broken: " + "; ".join(broken) + "."
    (folder / "report.md").write_text(
        f"# The run\n\n{verdict}\n\n![reward over versions](reward.png)\n\n| figure | value |\n|---|---|\n{rows}\n\n"
        f"{_answers(metrics)}{jurors}| service | processor seconds |\n|---|---|\n{parts}\n"
    )


def write_page(folder: Path, layout: NetworkLayout, chain: Chain) -> None:
    """Writes the run's page into ``folder`` as ``run.html``, as ``assize run report --html`` does."""
    with (
        closing(Database(ledger_database(layout.root), chain.deployment)) as database,
        closing(BlobSource([layout.url("coordinator")], [layout.url("relay")])) as blobs,
        published_by([layout.url("relay")], chain, database) as published,
    ):
        sync(chain, database)
        accuracy = read_metrics(layout.state("trainer")).accuracy
        with database.reading() as connection:
            sources = ReportSources(blobs, published, accuracy, ledger=None)  # which ends with the network
            write_run_report(folder / "run.html", connection, chain, layout.run, sources)
