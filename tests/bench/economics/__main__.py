"""``make economics``: every strategy against an honest rest, on the reference model; two tables, then one line of JSON.

python -m tests.bench.economics [--rounds 2000] [--only lazy] [--processes 2] [--story 17]
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from itertools import count
from math import isfinite
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.capture import SHARES, SLOTS, best_of, majority_odds
from tests.bench.economics.estimates import Estimate, estimate
from tests.bench.economics.histories import ROUNDS_PER_HISTORY, Played, history, play_all
from tests.bench.economics.strategies import STRATEGIES, Honest, Lazy, LazyTrapped, SilentThird
from tests.bench.economics.strategy import Strategy
from tests.bench.economics.terms import BAD_JOBS, CHECK_COST, JOB_PAY, JOBS, PROTOCOL, RUN, TOKEN, TRAP_RATE, VALIDATORS

CONSOLE = Console(width=165)
DISCARDED = 8
NOTES = (
    f"Tokens a round, means with half of their 95% interval. {VALIDATORS} validators; {JOBS} jobs a round at "
    f"{JOB_PAY / TOKEN}, {BAD_JOBS:.0%} of them an outsider's fraud; {RUN.committee} seats at "
    f"{RUN.juror_fee / TOKEN:g} a round, {RUN.appeal_seats} in a trial; the public network's bonds and penalties. "
    f"Jurors pay {CHECK_COST / TOKEN:.3f} for each job that they check. Unearned: the holder's growth beyond pay for "
    "good work, fees and awards, most in a round. Lost by honest: bonds, deposits, pay for good work that all could "
    "read. Unserved: pay that honest workers missed because somebody hid the file. With the stores: the holder decides "
    "what the stores serve that gave receipts, or the rules name none."
)

Results = dict[str, list[Played]]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each strategy.")] = 2000,
    only: Annotated[str | None, typer.Option(help="One strategy alone, by name.")] = None,
    processes: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    story: Annotated[int | None, typer.Option(min=1, help="Tell the history of this seed, with --only.")] = None,
) -> None:
    """Play every strategy against an honest rest."""
    if only is not None and only not in STRATEGIES:
        raise typer.BadParameter(f"expected one of: {', '.join(STRATEGIES)}", param_hint="--only")
    if story is not None:
        tell(STRATEGIES[only or Honest.name], story)
        return
    names = [only] if only else list(STRATEGIES)
    results: Results = defaultdict(list)
    histories = len(names) * -(-rounds // ROUNDS_PER_HISTORY)
    playing = play_all(names, rounds, processes)
    for name, played in track(playing, "histories", total=histories, console=Console(stderr=True)):
        results[name] += played
    ordered = {name: results[name] for name in names}
    show(ordered)
    found = summary(ordered)
    print(json.dumps(found))
    raise typer.Exit(1 if unexpected(ordered) else 0)


def open_to(rounds: list[Played]) -> bool:
    """Returns whether these rounds show anything that they should not, hostile seats staying below every majority."""
    return any(
        each.losses or each.unearned > 0 or each.escaped or each.unserved or each.refused_newcomers or each.strikes
        for each in below(rounds)
    )


def unexpected(results: Results) -> list[str]:
    """Returns the strategies without a known hole that show one."""
    return [name for name, rounds in results.items() if open_to(rounds) and not STRATEGIES[name].hole]


def tell(strategy: Strategy, seed: int) -> None:
    """Prints every call of one history, and what each of its rounds left."""
    lines: list[str] = []
    for number, played in enumerate(history(strategy, seed, story=lines), 1):
        print(*lines, sep="\n")
        lines.clear()
        print(f"round {number}: {played}")


def below(rounds: list[Played]) -> list[Played]:
    """Returns the rounds of histories in which hostile seats have not reached a majority so far."""
    return [each for each in rounds if not each.captured]


def beyond(rounds: list[Played]) -> list[Played]:
    """Returns the other ones."""
    return [each for each in rounds if each.captured]


def show(results: Results) -> None:
    """Prints what rounds left to whom, below a majority and beyond it."""
    heads = ("strategy", "rounds", "holder", "unearned", "honest jurors", "honest workers", "lost by honest")
    table = Table(
        *heads, "unserved", "frauds unpunished", "honest strikes", title="while hostile seats stay below every majority"
    )
    for name, rounds in results.items():
        table.add_row(name, *_below_row(below(rounds)))
    CONSOLE.print(table)
    heads = ("strategy", "rounds", "holder", "paid for junk", "most", "lost by honest", "most")
    table = Table(*heads, title="once they have reached one: what a captured committee can still take")
    for name, rounds in results.items():
        if beyond(rounds):
            table.add_row(name, *_beyond_row(beyond(rounds)))
    CONSOLE.print(table)
    CONSOLE.print(NOTES)
    bond = f"{PROTOCOL.registry.validator_bond / TOKEN:,.0f} tokens each, bonded until they retire"
    CONSOLE.print(
        f"Validators needed beside {VALIDATORS} honest ones, at {bond}: {own_jury(VALIDATORS)} for a run "
        f"that they alone judge, {starving(VALIDATORS)} to keep a run from opening rounds."
    )
    for name, rounds in results.items():
        if isinstance(STRATEGIES[name], Lazy):
            more = shown(_lazy_minus_honest(rounds))
            CONSOLE.print(f"{name}: a seat of a round leaves a lazy juror {more} tokens more than an honest one")
        if STRATEGIES[name].hole:
            seed = next((each.seed for each in rounds if open_to([each])), "none")
            CONSOLE.print(f"OPEN: {name}: {STRATEGIES[name].hole} (first in the history of seed {seed})")


def _below_row(rounds: list[Played]) -> list[str]:
    if not rounds:
        return ["0"]
    return [
        str(len(rounds)),
        shown(estimate(rounds, lambda each: each.payoff["holder"])),
        tokens(max(each.unearned for each in rounds)),
        shown(estimate(rounds, lambda each: each.payoff["jurors"])),
        shown(estimate(rounds, lambda each: each.payoff["workers"])),
        shown(estimate(rounds, lambda each: each.losses)),
        tokens(sum(each.unserved for each in rounds) / len(rounds)),
        f"{sum(each.escaped for each in rounds) / len(rounds):.2f}",
        f"{sum(each.strikes for each in rounds) / len(rounds):.2f}",
    ]


def _beyond_row(rounds: list[Played]) -> list[str]:
    return [
        str(len(rounds)),
        shown(estimate(rounds, lambda each: each.payoff["holder"])),
        shown(estimate(rounds, lambda each: each.undeserved)),
        tokens(max(each.undeserved for each in rounds)),
        shown(estimate(rounds, lambda each: each.losses)),
        tokens(max(each.losses for each in rounds)),
    ]


def shown(found: Estimate) -> str:
    """Returns an estimate in tokens, without an interval where there is but one history."""
    return tokens(found.mean) + (f" ± {tokens(found.half)}" if isfinite(found.half) else "")


def tokens(wei: float) -> str:
    """Returns an amount in tokens."""
    return f"{wei / TOKEN:,.2f}"


def summary(results: Results) -> dict[str, object]:
    """Returns the last line: amounts in wei, ``rounds`` below a majority, ``lazy_…`` per seat of a round."""
    lazy = {
        name: round(_lazy_minus_honest(rounds).mean)
        for name, rounds in results.items()
        if isinstance(STRATEGIES[name], Lazy)
    }
    lost = {name: sum(each.losses for each in below(rounds)) for name, rounds in results.items()}
    unpunished = {name: sum(each.escaped for each in below(rounds)) for name, rounds in results.items()}
    return {
        "rounds": {name: len(below(rounds)) for name, rounds in results.items()},
        "honest_losses_wei": sum(lost.values()),
        "lost_by_honest_wei": {name: amount for name, amount in lost.items() if amount},
        "frauds_unpunished": {name: count for name, count in unpunished.items() if count},
        "profitable": [name for name, rounds in results.items() if any(each.unearned > 0 for each in below(rounds))],
        "lazy_minus_honest": lazy.get(LazyTrapped.name),
        "lazy_minus_honest_by_strategy": lazy,
        "trap_rate": TRAP_RATE,
        "capture": _capture(),
        "own_jury": _bonds(own_jury(VALIDATORS)),
        "starving": _bonds(starving(VALIDATORS)),
        "decided": _decided(results.get(SilentThird.name, [])),
    }


def _lazy_minus_honest(rounds: list[Played]) -> Estimate:
    """What a seat leaves a lazy juror more than an honest one in the same rounds, checking included."""
    lazy = estimate(rounds, lambda each: each.seated[0], lambda each: each.seats[0])
    honest = estimate(rounds, lambda each: each.seated[1], lambda each: each.seats[1])
    return lazy - honest


def _capture() -> dict[str, dict[str, dict[str, float]]]:
    """Odds of a majority of a first committee and of a trial, by slots held, without and with discarded blocks."""
    return {
        f"{share:.2f}": {
            str(seats): {
                str(lost): best_of(majority_odds(SLOTS, round(share * SLOTS), seats), lost + 1)
                for lost in (0, DISCARDED)
            }
            for seats in (RUN.committee, RUN.appeal_seats)
        }
        for share in SHARES
    }


def own_jury(honest: int) -> int:
    """Validators with which a requester opens rounds that only they judge, while honest ones serve other runs."""
    needed = RUN.committee + RUN.appeal_seats
    return next(own for own in count(1) if own >= max(needed, -(-(honest + own) // 3)))


def starving(honest: int) -> int:
    """Validators that serve another run, and so keep one that all honest ones serve from opening rounds."""
    return next(own for own in count(1) if honest < -(-(honest + own) // 3))


def _bonds(validators: int) -> dict[str, int]:
    return {"validators": validators, "bonds_wei": validators * PROTOCOL.registry.validator_bond}


def _decided(rounds: list[Played]) -> float | None:
    return sum(each.decided for each in rounds) / len(rounds) if rounds else None


if __name__ == "__main__":
    typer.run(main)
