"""Lineage of weights: earlier checkpoints, their rollouts, and the nodes that made and judged them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Connection

from ledger.facts import Checkpoint, Consumption, Job, Round, Seat, Taint
from ledger.facts.fact import Hex
from ledger.queries.lookup import At, at, every
from ledger.store.rows import find_fact
from protocol.wire.assignments import jobs_in

ENFORCED = (
    "only the run's trainer published, each version after the last",
    "every job trained on stood accepted when it was, and was trained on once",
    "the weights are those whose manifest has this root",
)
"""Guarantees of the contracts. The audit recomputes the order of versions and the second one; no event names the
publisher. The third is checked when weights are loaded."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One checkpoint of the line. ``nodes`` counts its rollouts' jobs by node, ``jurors`` the votes by validator.

    ``tainted`` jobs of its own were overturned after it was trained on them.
    """

    version: int
    manifest_root: Hex
    block_number: int
    tx_hash: Hex
    rounds: tuple[int, ...]
    jobs: int
    nodes: dict[int, int]
    jurors: dict[int, int]
    tainted: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """A checkpoint and all before it, newest first, as of a block. ``taints`` lie anywhere in the line."""

    run: int
    version: int
    at: At
    enforced: tuple[str, ...]
    ancestors: tuple[Ancestor, ...]
    taints: tuple[Taint, ...]


def lineage(connection: Connection, run: int, version: int, most: int | None = None) -> Lineage | None:
    """Returns the line of a checkpoint, its newest ``most`` versions; None where there is no such checkpoint."""
    checkpoint = find_fact(connection, Checkpoint, run, version)
    if checkpoint is None:
        return None
    taints = tuple(taint for taint in every(connection, Taint, run=run) if taint.version <= version)
    ancestors = [_ancestor(connection, checkpoint, taints)]
    while checkpoint.version and (most is None or len(ancestors) < most):
        previous = find_fact(connection, Checkpoint, run, checkpoint.previous)
        if previous is None:
            break
        checkpoint = previous
        ancestors.append(_ancestor(connection, checkpoint, taints))
    return Lineage(run, version, at(connection), ENFORCED, tuple(ancestors), taints)


def _ancestor(connection: Connection, checkpoint: Checkpoint, taints: tuple[Taint, ...]) -> Ancestor:
    consumptions = every(connection, Consumption, run=checkpoint.run, version=checkpoint.version)
    nodes: Counter[int] = Counter()
    jurors: Counter[int] = Counter()
    for consumption in consumptions:
        jobs = {job.job: job for job in every(connection, Job, round=consumption.round)}
        nodes.update(jobs[number].node for number in jobs_in(consumption.jobs))
        jurors.update(_voters(connection, consumption))
    return Ancestor(
        version=checkpoint.version,
        manifest_root=checkpoint.manifest_root,
        block_number=checkpoint.block_number,
        tx_hash=checkpoint.tx_hash,
        rounds=tuple(consumption.round for consumption in consumptions),
        jobs=checkpoint.jobs,
        nodes=dict(sorted(nodes.items())),
        jurors=dict(sorted(jurors.items())),
        tainted=sum(taint.version == checkpoint.version for taint in taints),
    )


def _voters(connection: Connection, consumption: Consumption) -> dict[int, int]:
    """Returns the number of jobs that each juror of the deciding attempt accepted."""
    round_ = find_fact(connection, Round, consumption.round)
    attempt = 0 if round_ is None else round_.attempt
    seats = every(connection, Seat, round=consumption.round, attempt=attempt)
    accepted = {seat.juror: seat.accept & ~seat.fraud for seat in seats if seat.state == "revealed"}
    return {juror: (jobs & consumption.jobs).bit_count() for juror, jobs in accepted.items()}
