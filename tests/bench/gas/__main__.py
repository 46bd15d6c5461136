"""What the contracts cost: gas of every verb, and all-in gas per verified job from open to settled and credited.

The state of the measured network: 256 validators registered; 16 worker nodes of 16 owners in the round, all of whom
have earned before; in rounds of more than one job one fraudulent job, which counts as verified. Beside it, at 256 jobs,
the same round by 16 nodes of one owner and by 256 nodes of 256 owners. Figures are receipts' ``gasUsed``: calldata and
base included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from protocol.chain.structs import Role
from tests.bench.gas.chain import gas_chain
from tests.bench.gas.network import COMMITTEES, TERMS, GasNetwork, Member, establish, owners
from tests.bench.gas.rounds import RoundGas, whole_round
from tests.bench.gas.verbs import appealed_round, one_time_verbs

JOBS = (1, 16, 64, 256)
MOST_JOBS = 256
NODES = 16
TARGETS = {(3, 64): 26_500, (3, 256): 10_500}
DRAW_TARGET = 150_000
ORDER = ("open", "submit", "draw", "commit", "reveal", "settle")

REPLACED = (
    "The system this replaces, measured the same way: 239,693 a file submitted (290,993 for a node's first), 409,508\n"
    "a hard invalidation, 220,282 a soft one, 128,021 a claim, 220,650 registering with stake and 256,898 a node;\n"
    "accepting leaves no trace. There a job costs 239,693 to submit alone; here {per_job:,.0f} all-in,\n"
    "{ratio:.1f} times less."
)
REPLACED_SUBMIT = 239_693


@dataclass(frozen=True, slots=True)
class Measured:
    """Rounds by committee and jobs, and at 256 jobs by committee and owners."""

    rounds: dict[tuple[int, int], RoundGas]
    by_owners: dict[tuple[int, int], RoundGas]
    verbs: dict[str, int]


def measure() -> Measured:
    """Runs everything on a chain of its own."""
    with gas_chain() as chain:
        network = establish(chain)
        sixteen = _workers(network, owners(NODES))
        single = _workers(network, owners(1) * NODES)
        many = _workers(network, owners(MOST_JOBS))
        rounds = {
            (committee, jobs): whole_round(network, committee, sixteen, jobs, fraudulent=1 if jobs > 1 else 0)
            for committee in COMMITTEES
            for jobs in JOBS
        }
        by_owners = {
            (committee, len({worker.owner for worker in workers})): whole_round(network, committee, workers, MOST_JOBS)
            for committee in COMMITTEES
            for workers in (single, many)
        }
        for each in rounds.values():
            for verb, gas in each.verbs.items():
                network.note(verb, gas)
        appealed_round(network, sixteen)
        one_time_verbs(network, sixteen)
        return Measured(rounds, by_owners, network.verbs)


def _workers(network: GasNetwork, holders: Sequence[str]) -> list[Member]:
    """Registers a node for each owner, joins every run, and has each earn in a first round."""
    workers = network.enrol(Role.WORKER, holders)
    network.join("join worker", workers)
    network.chain.pass_seconds(TERMS.registry.activation_delay)
    whole_round(network, COMMITTEES[0], workers, min(MOST_JOBS, 2 * len(workers)))
    return workers


def show(measured: Measured) -> None:
    """Prints the tables for people, then one line of JSON."""
    console = Console(width=132, highlight=False)
    console.print(_by_verb(measured))
    console.print(_by_owners(measured))
    console.print(_others(measured))
    for (committee, jobs), target in TARGETS.items():
        console.print(_against(f"committee {committee}, {jobs} jobs", measured.rounds[committee, jobs].per_job, target))
    console.print(_against("draw", measured.verbs["draw"], DRAW_TARGET))
    best = measured.rounds[3, MOST_JOBS].per_job
    console.print(REPLACED.format(per_job=best, ratio=REPLACED_SUBMIT / best))
    per_job = {
        str(committee): {str(jobs): round(measured.rounds[committee, jobs].per_job) for jobs in JOBS}
        for committee in COMMITTEES
    }
    print(json.dumps({"all_in_per_job": per_job, "verbs": measured.verbs}))


def _by_verb(measured: Measured) -> Table:
    table = Table(title=f"gas of each transaction (its mean, × how many), {NODES} nodes of {NODES} owners")
    table.add_column("verb")
    for committee, jobs in measured.rounds:
        table.add_column(f"{committee} seats\n{_count(jobs)}", justify="right")
    for verb in ORDER:
        table.add_row(verb, *(_cell(each.verbs[verb]) for each in measured.rounds.values()))
    table.add_section()
    table.add_row("all-in", *(f"{each.total:,}" for each in measured.rounds.values()))
    table.add_row("per job", *(f"{each.per_job:,.0f}" for each in measured.rounds.values()), style="bold")
    return table


def _by_owners(measured: Measured) -> Table:
    table = Table(title=f"all-in gas per verified job at {MOST_JOBS} jobs, by owners in the round")
    table.add_column("committee")
    for label in ("16 nodes, 1 owner", "16 nodes, 16 owners", "256 nodes, 256 owners"):
        table.add_column(label, justify="right")
    for committee in COMMITTEES:
        each = (
            measured.by_owners[committee, 1],
            measured.rounds[committee, MOST_JOBS],
            measured.by_owners[committee, MOST_JOBS],
        )
        table.add_row(str(committee), *(f"{one.per_job:,.0f}" for one in each))
    return table


def _others(measured: Measured) -> Table:
    table = Table(title="the most that every other verb took")
    table.add_column("verb")
    table.add_column("gas", justify="right")
    for verb, gas in measured.verbs.items():
        if verb not in ORDER:
            table.add_row(verb, f"{gas:,}")
    return table


def _against(what: str, gas: float, target: int) -> str:
    return f"{what}: {gas:,.0f}, target {target:,}: {'reached' if gas <= target else 'MISSED'}"


def _count(jobs: int) -> str:
    return f"{jobs} job{'s' if jobs > 1 else ''}"


def _cell(gas: Sequence[int]) -> str:
    mean = f"{sum(gas) / len(gas):,.0f}"
    return mean if len(gas) == 1 else f"{mean} ×{len(gas)}"


if __name__ == "__main__":
    show(measure())
