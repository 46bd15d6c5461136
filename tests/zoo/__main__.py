"""``python -m tests.zoo``: every adversary and honest work before the judge, beside what the `toploc` package says."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence

from rich.table import Table

from deploy.adversaries import ADVERSARIES
from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.environments.arithmetic import Arithmetic
from protocol.node.console import guard
from tests.bench.economics.terms import TOKEN
from tests.zoo.asking import insist_on_toploc
from tests.zoo.exchange import Exchange
from tests.zoo.exchange_tables import console, show_exchange
from tests.zoo.honest import Honest
from tests.zoo.jurors import SHARE, JurorRow, juror_rows
from tests.zoo.models import prepare
from tests.zoo.plan import GROUPS, Found, carry_out, exchange_plan, plan, stage_of
from tests.zoo.rows import SHOWN_JOBS, STEERING, Row
from tests.zoo.stage import JOBS_AT_ONCE, one_thread
from tests.zoo.withholders import WITHHOLDERS, WithholderRow, withholder_rows

JOBS, BYTE_JOBS, ROLLOUTS = 300, 3000, 20_480
ROUNDS = 400
"""Rounds of each worker that withholds."""
FORGERIES = (
    "constant-polynomial",
    "channel-template",
    "other-prompts-proof",
    "random-proofs",
    "negated-activations",
    "chosen-modulus",
    "another-modulus",
)


@guard
def main() -> None:
    """Runs the zoo and shows what came of it; the last line is JSON."""
    options = _options()
    markets_only = options.only == "exchange"
    if not markets_only:
        insist_on_toploc()
    print("preparing the models", flush=True)
    prepare(Arithmetic(3))
    tasks = exchange_plan(options.jobs, 2 * options.honest, options.engines)
    if not markets_only:
        tasks = plan(options.jobs, options.byte_jobs, options.honest, options.engines, options.names) + tasks
    rows: list[Row] = []
    honest: list[Honest] = []
    played: list[Exchange] = []
    started = time.monotonic()
    for done, found in enumerate(carry_out(tasks, options.processes), 1):
        if isinstance(found, Row):
            rows.append(found)
        elif isinstance(found, Honest):
            honest.append(found)
        else:
            played.append(found)
        print(f"{done}/{len(tasks)}  {_told(found)}, {time.monotonic() - started:.0f} s", flush=True)
    if markets_only:
        print(json.dumps(show_exchange(played)), flush=True)
        return
    one_thread()
    jurors = juror_rows(stage_of(BUILTIN), -(-options.jobs // JOBS_AT_ONCE))
    show(rows, honest, jurors, withholder_rows(ROUNDS, options.processes), played)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    jobs = int(os.environ.get("JOBS") or JOBS)
    parser.add_argument("--jobs", type=int, default=jobs, help="jobs of each adversary that generates")
    parser.add_argument("--byte-jobs", type=int, help="jobs of each that does not; ten times as many by default")
    parser.add_argument(
        "--honest",
        type=int,
        help="honest rollouts of each dtype, and half those of exchange; 20,480 for 300 jobs by default",
    )
    parser.add_argument("--engines", nargs="+", default=["transformers", "vllm"], help="honest engines")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=["exchange"], help="only the markets of exchangeable rewards")
    parser.add_argument("names", nargs="*", default=list(ADVERSARIES), help="adversaries; all by default")
    options = parser.parse_args()
    options.byte_jobs = options.byte_jobs or options.jobs * BYTE_JOBS // JOBS
    options.honest = options.honest or options.jobs * ROLLOUTS // JOBS
    return options


def _told(found: Found) -> str:
    """What came of a task, for whoever is waiting."""
    if isinstance(found, Exchange):
        condemned = sum(each.condemned_jobs is not None for each in found.cheats)
        what = f"market {found.name}: {found.rounds} rounds, {condemned} of {len(found.cheats)} cheats condemned"
        return f"{what}, {found.false_alarms} of {len(found.honest)} honest"
    if isinstance(found, Row):
        return f"{found.name} ({found.dtype}): {found.caught} of {found.jobs} jobs caught, {found.fraud} condemned"
    what = f"honest {found.engine} by {found.batch} ({found.dtype})"
    return f"{what}: {found.rollouts} rollouts, {found.fraud} fraud, {found.void} of {found.jobs} void"


def show(
    rows: Sequence[Row],
    honest: Sequence[Honest],
    jurors: Sequence[JurorRow],
    withholders: Sequence[WithholderRow],
    played: Sequence[Exchange],
) -> None:
    """Prints the tables for people, then one line of JSON."""
    rules = read_run_file(BUILTIN).rules
    order = {name: place for place, name in enumerate(ADVERSARIES)}
    for dtype in dict.fromkeys(row.dtype for row in rows):
        chosen = sorted((row for row in rows if row.dtype == dtype), key=lambda row: order[row.name])
        console.print(_cheats(chosen, dtype))
    console.print(_forgeries([row for row in rows if row.name in FORGERIES]))
    console.print(_honest(honest, rules.sequential.void_budget))
    console.print(_jurors(jurors))
    console.print(_withholders(withholders))
    console.print(_steering(rows))
    said = {"adversaries": _by_name(rows, rules.model.dtype), "honest": summary(honest), "jurors": caught(jurors)}
    said |= {"withholders": refused(withholders), "steering": steered(rows), **show_exchange(played)}
    print(json.dumps(said), flush=True)


def caught(jurors: Sequence[JurorRow]) -> dict[str, dict[str, float | None]]:
    """The jurors' part of the last line."""
    return {
        row.name: {"found": round(row.found / max(1, row.jobs), 4), "rounds_to_99": row.rounds_to_99} for row in jurors
    }


def refused(rows: Sequence[WithholderRow]) -> dict[str, dict[str, float | None]]:
    """The withholders' part of the last line; what each gains is in tokens a round."""
    return {row.name: {"gained": round(row.gained.mean / TOKEN, 4), "rounds_to_99": row.rounds_to_99} for row in rows}


def summary(honest: Sequence[Honest]) -> dict[str, float]:
    """The honest half of the last line."""
    jobs = max(1, sum(each.jobs for each in honest))
    return {
        "rollouts": sum(each.rollouts for each in honest),
        "fraud": sum(each.fraud for each in honest),
        "void_rate": round(sum(each.void for each in honest) / jobs, 6),
        "void_budget": read_run_file(BUILTIN).rules.sequential.void_budget,
    }


def _by_name(rows: Sequence[Row], dtype: str) -> dict[str, dict[str, float | None]]:
    """The other half: under the built-in rules by name, under others by name and dtype."""
    return {
        row.name if row.dtype == dtype else f"{row.name}@{row.dtype}": {
            "caught": round(row.share, 4),
            "jobs_to_99": row.jobs_to_99,
            "toploc_paper": round(row.said.paper, 4),
            "toploc_production": round(row.said.production, 4),
        }
        for row in rows
    }


def _cheats(rows: Sequence[Row], dtype: str) -> Table:
    title = f"{dtype}: jobs of {GROUPS * 8} rollouts; toploc: {SHOWN_JOBS} of them"
    table = Table(title=title)
    names = ("adversary", "jobs", "caught", "fraud", "to 99%", "record", "predicted", "nats a job", "‰ flips")
    for column in (*names, "toploc paper", "production", "why"):
        table.add_column(column, justify="left" if column in ("adversary", "why") else "right")
    for row in rows:
        said = row.said
        share = (f"{said.paper:.2f}", f"{said.production:.2f}") if said.jobs else ("-", "-")
        table.add_row(
            row.name,
            str(row.jobs),
            f"{row.share:.4g}",
            f"{row.fraud / max(1, row.jobs):.4g}",
            f"> {row.jobs}" if row.jobs_to_99 is None else str(row.jobs_to_99),
            "" if row.kind != "slight" else f"> {row.jobs // 2}" if row.record is None else str(row.record),
            "" if row.kind != "slight" or row.predicted is None else f"{row.predicted:.1f}",
            f"{row.evidence:.2f}",
            f"{1000 * row.flips / max(1, row.tokens):.2f}",
            *(f"{each}, {said.crashes} crash" if said.crashes else each for each in share),
            ", ".join(name.lower() for name, _ in row.reasons[:2]),
        )
    return table


def _forgeries(rows: Sequence[Row]) -> Table:
    table = Table(title="forged proofs on a trained model's activations: share of chunks that pass")
    for column in ("forgery", "toploc paper", "toploc production", "ours"):
        table.add_column(column, justify="left" if column == "forgery" else "right")
    for row in rows:
        said = row.said
        ours = f"{row.chunks_ours / row.chunks:.3f}" if row.chunks else "malformed"
        paper, production = (count / max(1, said.chunks) for count in (said.chunks_paper, said.chunks_production))
        table.add_row(row.name, f"{paper:.3f}", f"{production:.3f}", ours)
    return table


def _honest(honest: Sequence[Honest], budget: float) -> Table:
    table = Table(title=f"honest workers; void budget {budget:g}")
    for column in ("engine", "dtype", "batch", "rollouts", "tokens", "flips", "fraud", "void jobs", "record at most"):
        table.add_column(column, justify="left" if column in ("engine", "dtype") else "right")
    for each in sorted(honest, key=lambda each: (each.dtype, each.engine, each.batch)):
        numbers = (each.batch, each.rollouts, each.tokens, each.flips, each.fraud)
        void, highest = f"{each.void} of {each.jobs}", f"{each.highest:.1f} of {each.bound:.1f}"
        table.add_row(each.engine, each.dtype, *map(str, numbers), void, highest)
    return table


def _jurors(rows: Sequence[JurorRow]) -> Table:
    table = Table(title=f"jurors; rounds of {JOBS_AT_ONCE} jobs, of which a recheck looks at {SHARE:.0%}")
    columns = ("juror", "jobs", "found by", "without the model", "rounds to 99%", "furthest", "gap", "saves a job, ms")
    for column in columns:
        table.add_column(column, justify="left" if column == "juror" else "right")
    for row in rows:
        distance, gap = (f"{each:.3g}" for each in row.furthest)
        rounds = "-" if row.rounds_to_99 is None else str(row.rounds_to_99)
        numbers = (str(row.jobs), str(row.found), str(row.unprefilled), rounds, distance, gap, f"{row.saved_ms:.1f}")
        table.add_row(row.name, *numbers)
    return table


def _withholders(rows: Sequence[WithholderRow]) -> Table:
    table = Table(title="workers that do not serve what they signed; tokens beyond pay for good work, fees and awards")
    for column in ("strategy", "rounds", "gains a round", "unpaid in", "rounds to 99%", "what it does"):
        table.add_column(column, justify="left" if column in ("strategy", "what it does") else "right")
    for row in rows:
        gains = f"{row.gained.mean / TOKEN:.2f} ± {row.gained.half / TOKEN:.2f}"
        soon = "-" if row.rounds_to_99 is None else str(row.rounds_to_99)
        table.add_row(row.name, str(row.rounds), gains, str(row.refused), soon, WITHHOLDERS[row.name])
    return table


def steered(rows: Sequence[Row]) -> dict[str, int | None]:
    """The steerers' part of the last line: jobs until 99 of 100 are found, by name and dtype; null: more than these."""
    return {f"{row.name}@{row.dtype}": row.jobs_to_99 for row in rows if row.name.startswith(STEERING)}


def _steering(rows: Sequence[Row]) -> Table:
    table = Table(title="steering: tokens chosen for their reward, within the bound of single jobs")
    for column in ("steerer", "rules", "‰ flips that pass", "jobs to 99%", "record", "predicted", "uplift of reward"):
        table.add_column(column, justify="left" if column in ("steerer", "rules") else "right")
    for row in rows:
        if row.name.startswith(STEERING):
            found, record = (f"> {row.jobs}" if each is None else str(each) for each in (row.jobs_to_99, row.record))
            predicted = "" if row.predicted is None else f"{row.predicted:.1f}"
            gained = "nothing accepted" if row.uplift is None else f"{row.uplift:+.3f}"
            table.add_row(row.name, row.dtype, f"{row.flips_passed:.2f}", found, record, predicted, gained)
    return table


if __name__ == "__main__":
    main()
