"""``assize worker estimate``: measures this machine with a run's newest weights, and reads its last rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from protocol.broadcast.checkpoints import Checkpoints
from protocol.broadcast.sources import Sources
from protocol.chain.events import RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.chain.reading.lookup import blocks_of, coordinator_uri
from protocol.chain.reading.tail import Tail
from protocol.chain.round_state import RoundState, fold
from protocol.chain.structs import Role, RunTerms, State
from protocol.environments.registry import environment
from protocol.errors import Rejected
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.assignments import bitmap_of, jobs_of, unpack_assignments
from protocol.wire.manifest import Authority
from protocol.wire.rollout import decode
from protocol.wire.rules import Rules
from protocol.wire.specimens import beacon_of
from worker.estimate import Electricity, Estimate, SeenRound, Speed, estimate, mean_and_error, share_of
from worker.producer import Producer
from worker.prover import Deployed, Work
from worker.service import engine_of
from worker.settings import EstimateSettings

BATCHES = 4
"""Batches measured, after one that warms up."""
IN_FLIGHT = 8
"""Rounds read besides, as the newest may have no verdict yet."""
LEAST_ROUNDS = 5
"""Ended rounds without which nothing can be said."""
VIEWS_AT_ONCE = 100

Progress = Callable[[int, int], None]


def measure(producer: Producer, jobs: int, root: bytes, max_units: int, batches: int, progress: Progress) -> Speed:
    """Makes ``jobs`` jobs at once, ``batches`` times and once before, as in a round; returns the speed."""
    seconds: list[float] = []
    tokens = units = 0
    for batch in range(batches + 1):
        work = Work(0, 0, tuple(range(jobs)), beacon_of(batch), 0, root, max_units)
        started = time.monotonic()
        finished = producer.make(work)
        if batch:
            seconds.append(time.monotonic() - started)
            units += sum(each.units for each in finished)
            tokens += sum(len(rollout.output_tokens) for each in finished for rollout in decode(each.file).rollouts)
        progress(batch + 1, batches + 1)
    mean, error = mean_and_error(seconds)
    made = jobs * batches
    return Speed(tokens / sum(seconds), made / sum(seconds), units / made, batches, error / mean)


def seen_rounds(chain: Chain, run: int, node: int, capacity: int, most: int) -> list[SeenRound]:
    """Returns the newest ``most`` rounds of a run that have a verdict, oldest first, as they concern one node.

    Args:
        chain: the deployment.
        run: the run.
        node: a node that is listed in it; 0 for one that has not joined yet.
        capacity: jobs that it can have in flight.
        most: most rounds to look at.

    Raises:
        Rejected: too few rounds have ended.
    """
    rounds = [each for each in _folded(chain, run, most) if each.state in (State.TALLIED, State.SETTLED)][-most:]
    if len(rounds) < LEAST_ROUNDS:
        raise Rejected(
            f"run {run} has {len(rounds)} rounds with a verdict, {LEAST_ROUNDS} are needed: estimate again later"
        )
    listed = sorted({each.node for round_ in rounds for each in unpack_assignments(round_.assignments)})
    capacities = dict(zip(listed, (one.capacity for one in chain.latest().nodes(listed)), strict=True))
    return [_seen(each, node, capacity, capacities) for each in rounds]


def _seen(round_: RoundState, node: int, capacity: int, capacities: Mapping[int, int]) -> SeenRound:
    if node:
        own = bitmap_of(jobs_of(round_.assignments, node))
        jobs: float = own.bit_count()
        counted = own.bit_count()
    else:
        own = (1 << round_.jobs) - 1
        listed = unpack_assignments(round_.assignments)
        jobs = share_of(round_.jobs, capacity, sum(capacities[each.node] for each in listed))
        counted = round_.submitted.bit_count()
    accepted = round_.accepted & ~round_.fraud & own
    return SeenRound(jobs, counted, accepted.bit_count(), round_.opened_at)


def _folded(chain: Chain, run: int, most: int) -> list[RoundState]:
    """Returns the newest rounds of a run, read from the block on in which the oldest of them was opened."""
    reader, wanted = chain.latest(), list[int]()
    last = reader.round_count()
    while last > 0 and len(wanted) < most + IN_FLIGHT:
        numbers = range(max(1, last - VIEWS_AT_ONCE + 1), last + 1)
        found = zip(numbers, reader.rounds(numbers), strict=True)
        wanted += reversed([number for number, each in found if each.run == run and each.jobs])
        last = numbers[0] - 1
    if not wanted:
        return []
    oldest, start = wanted[: most + IN_FLIGHT][-1], chain.deployment.start_block
    (opened,) = blocks_of(chain, "Rounds", RoundOpened, oldest, start)
    first = chain.block(max(opened - 1, start))

    def begin() -> Tail:
        rounds.clear()
        return Tail(chain, Cursor(first.number, first.hash))

    rounds: dict[int, RoundState] = {}
    for log in begin().follow(begin):
        fold(rounds, log)
    return [each for _, each in sorted(rounds.items()) if each.run == run]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A producer with a run's newest weights loaded, and what they and the run's terms are on the chain."""

    producer: Producer
    rules: Rules
    deployed: Deployed
    directory: Path
    version: int
    root: bytes
    terms: RunTerms


def prepare(settings: EstimateSettings, chain: Chain) -> Prepared:
    """Fetches a run's rules and newest weights, and loads them into the engine; needs no key.

    Raises:
        Misconfigured: the run does not allow the engine, or it is not installed.
        Unavailable: chain, coordinator or weights cannot be reached.
    """
    torch.set_grad_enabled(False)
    reader = chain.latest()
    run = reader.run(settings.run)
    root = reader.manifest_root(settings.run, run.version)
    authority = Authority(chain.chain_id, chain.deployment.market, run.terms.trainer)
    with closing(CoordinatorClient(coordinator_uri(chain, settings.run, settings.coordinator_url))) as client:
        rules = client.rules(run.terms.rules_hash)
        with closing(Sources(client.run(settings.run).weights_from)) as sources:
            held = Checkpoints(sources, settings.run, authority, settings.state_dir / "checkpoints", rules)
            directory = held.directory(run.version, root)
    tasks = environment(rules.environment.name, rules.environment.params)
    deployed = Deployed(chain.chain_id, chain.deployment.rounds)
    producer = Producer(engine_of(settings, rules), rules, tasks, deployed)
    producer.load(run.version, directory)
    return Prepared(producer, rules, deployed, directory, run.version, root, run.terms)


def make_estimate(
    settings: EstimateSettings, node: int, capacity: int, rounds: int, costs: Electricity, progress: Progress
) -> Made:
    """Reads, measures and computes.

    Raises:
        Rejected: too few rounds have ended, or there is no such worker.
        Unavailable: chain, coordinator or weights cannot be reached.
    """
    with closing(Chain.connect(settings.rpc_url, settings.addresses)) as chain:
        if node:
            capacity = _capacity(chain, node)
        seen = seen_rounds(chain, settings.run, node, capacity, rounds)
        prepared = prepare(settings, chain)
    terms = prepared.terms
    jobs = max(1, round(sum(each.jobs for each in seen) / len(seen)))
    speed = measure(prepared.producer, jobs, prepared.root, terms.max_units, BATCHES, progress)
    made = estimate(speed, seen, terms.price_per_unit, terms.max_units, terms.work_seconds, costs)
    return Made(made, speed, len(seen), capacity, terms.price_per_unit)


def _capacity(chain: Chain, node: int) -> int:
    reader = chain.latest()
    found = reader.node(node) if node <= reader.node_count() else None
    if found is None or found.role is not Role.WORKER:
        raise Rejected(f"there is no worker {node}: name one that is registered, or leave --node out for a newcomer")
    return found.capacity


@dataclass(frozen=True, slots=True)
class Made:
    """An estimate, and the assumptions that it rests on; ``price_wei`` is a unit's."""

    estimate: Estimate
    speed: Speed
    rounds: int
    capacity: int
    price_wei: int

    def told(self) -> dict[str, Any]:
        """Returns the estimate and every assumption by name, for a table or JSON."""
        found, speed = self.estimate, self.speed
        return {
            "low_wei": found.low_wei,
            "expected_wei": found.expected_wei,
            "high_wei": found.high_wei,
            "per": "hour",
            "tokens_per_second": round(speed.tokens_per_second, 1),
            "measured": f"{speed.batches} batches on this machine, as it is loaded now",
            "seconds_per_job": round(1 / speed.jobs_per_second, 3),
            "units_per_job": round(speed.units_per_job),
            "price_per_unit_wei": self.price_wei,
            "capacity": self.capacity,
            "rounds_seen": self.rounds,
            "jobs_per_round": round(found.jobs_per_round, 2),
            "limited_by": "this machine's speed" if found.limited_by_speed else "the jobs listed",
            "acceptance": round(found.acceptance, 4),
            "rounds_per_hour": round(found.rounds_per_hour, 1),
            "credits_per_round_wei": found.per_round_wei,
            "electricity_per_hour_wei": found.electricity_wei,
        }
