"""Histories of several rounds, and what each round left to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache

from protocol.chain.structs import State, Verdict
from tests.bench.economics.playing import play
from tests.bench.economics.strategies import STRATEGIES
from tests.bench.economics.strategy import Strategy
from tests.bench.economics.terms import CHECK_COST, UNITS
from tests.bench.economics.world import JURORS, PROVIDERS, WATCHER, Quality, World
from tests.model.parties import REQUESTER, TREASURY
from tests.model.round import Round

ROUNDS_PER_HISTORY = 4
OWNERS = (REQUESTER, TREASURY, WATCHER, *JURORS, *PROVIDERS)


@dataclass(frozen=True, slots=True)
class Played:
    """One round. Amounts are in wei.

    Args:
        captured: hostile seats were a majority of a committee in this round or an earlier one of its history.
        decided: it did not end void.
        payoff: wealth gained, less the cost of checking, by role: holder, jurors, workers, requester, treasury.
        seats: seats had in the round, of the holder's and of honest validators.
        seated: what these validators' owners gained, less the cost of checking.
        unearned: growth of the holder's wealth beyond pay for good work, fees and awards.
        undeserved: pay for fraudulent work of the holder's.
        losses: bonds and deposits lost by honest parties, and pay for good work that all could read.
        unserved: pay that honest workers missed for work whose bytes somebody hid.
        refused: jobs of the holder that were not accepted.
        escaped: fraudulent jobs of the holder that were not slashed.
        refused_newcomers: validators that found no slot.
        strikes: against honest validators.
    """

    seed: int
    captured: bool
    decided: bool
    payoff: dict[str, int]
    seats: tuple[int, int]
    seated: tuple[int, int]
    unearned: int
    undeserved: int
    losses: int
    unserved: int
    refused: int
    escaped: int
    refused_newcomers: int
    strikes: int


@dataclass(slots=True)
class Before:
    """Wealth and bonds as a round begins."""

    wealth: dict[str, int]
    bonds: dict[int, int]
    checks: Counter[str]
    seats: Counter[str]
    refused: int
    strikes: int


def history(
    strategy: Strategy, seed: int, rounds: int = ROUNDS_PER_HISTORY, story: list[str] | None = None
) -> Iterator[Played]:
    """Plays one history; ``story`` takes down every call."""
    world = World(seed, strategy.held, story, _begun(strategy))
    for _ in range(rounds):
        world.restore_bonds()
        before = _look(world, strategy)
        world.flows.clear()
        yield _account(world, strategy, before, play(world, strategy))


@cache
def _begun(strategy: Strategy) -> tuple[bytes, int, int]:
    """The market once the holder has prepared itself."""
    world = World(0, strategy.held)
    strategy.begins(world)
    return world.protocol.saved(), world.now, world.block


def _owners(strategy: Strategy) -> list[str]:
    return list(dict.fromkeys([*OWNERS, *strategy.held]))


def _honest(strategy: Strategy, owners: Iterable[str]) -> list[str]:
    return [owner for owner in owners if owner not in {*strategy.held, *strategy.apart}]


def _look(world: World, strategy: Strategy) -> Before:
    return Before(
        {owner: world.wealth(owner) for owner in _owners(strategy)},
        {node.number: node.bond for node in world.protocol.registry.nodes.values()},
        world.checks.copy(),
        world.seats.copy(),
        world.refused_newcomers,
        world.strikes(_honest(strategy, JURORS)),
    )


def _account(world: World, strategy: Strategy, before: Before, round: Round) -> Played:
    grown = {owner: world.wealth(owner) - before.wealth[owner] for owner in _owners(strategy)}
    assert sum(grown.values()) == 0, f"seed {world.seed}: {sum(grown.values())} wei came from nowhere"
    checks = world.checks - before.checks
    net = {owner: amount - CHECK_COST * checks[owner] for owner, amount in grown.items()}
    held, aside = set(strategy.held), {*strategy.held, *strategy.apart}
    honest_jurors, honest_workers = _honest(strategy, JURORS), _honest(strategy, PROVIDERS)
    payoff = {
        "holder": _sum(net, held),
        "jurors": _sum(net, honest_jurors),
        "workers": _sum(net, honest_workers),
        "requester": 0 if REQUESTER in held else net[REQUESTER],
        "treasury": net[TREASURY],
    }
    sides, seats = ([owner for owner in JURORS if owner in held], honest_jurors), world.seats - before.seats
    return Played(
        seed=world.seed,
        captured=world.captured,
        decided=round.state is State.SETTLED,
        payoff=payoff,
        seats=(_sum(seats, sides[0]), _sum(seats, sides[1])),
        seated=(_sum(net, sides[0]), _sum(net, sides[1])),
        unearned=sum(grown[owner] for owner in held) - _entitled(world, round, held),
        undeserved=UNITS * round.terms.price_per_unit * sum(_accepted(round, job) for job in _frauds(world, round)),
        losses=_losses(world, before, round, grown, [*honest_jurors, *honest_workers, *{WATCHER} - aside]),
        unserved=_missed(world, round, honest_workers, hidden=True),
        refused=sum(not _accepted(round, job) for job in _jobs_of(world, round, held)),
        escaped=_escaped(world, round),
        refused_newcomers=world.refused_newcomers - before.refused,
        strikes=world.strikes(honest_jurors) - before.strikes,
    )


def _sum(amounts: Mapping[str, int], owners: Iterable[str]) -> int:
    return sum(amounts[owner] for owner in owners)


def _entitled(world: World, round: Round, held: set[str]) -> int:
    """What the holder may gain: pay for good work that was accepted, fees, and awards."""
    flows = sum(flow.amount for flow in world.flows if flow.owner in held and flow.kind != "pay")
    good = [job for job in _jobs_of(world, round, held) if world.works[round.number, job] is not Quality.FRAUD]
    return flows + UNITS * round.terms.price_per_unit * sum(_accepted(round, job) for job in good)


def _losses(world: World, before: Before, round: Round, grown: dict[str, int], honest: list[str]) -> int:
    """Bonds, deposits of appeals that awards did not make up for, and unpaid work that everybody could read."""
    nodes = world.protocol.registry.nodes.values()
    slashed = Counter[str]()
    for node in nodes:
        slashed[node.owner] += before.bonds.get(node.number, node.bond) - node.bond
    earned = Counter[str]()
    for flow in world.flows:
        if flow.kind != "award":
            earned[flow.owner] += flow.amount
    deposits = sum(max(0, earned[owner] - slashed[owner] - grown[owner]) for owner in honest)
    return sum(slashed[owner] for owner in honest) + deposits + _missed(world, round, honest, hidden=False)


def _missed(world: World, round: Round, owners: list[str], hidden: bool) -> int:
    """Pay for good work of these owners that was not accepted, hidden from somebody or not."""
    missed = [
        job
        for job in _jobs_of(world, round, set(owners))
        if world.works[round.number, job] is Quality.GOOD
        and not _accepted(round, job)
        and ((round.number, job) in world.hidden) == hidden
    ]
    return UNITS * round.terms.price_per_unit * len(missed)


def _escaped(world: World, round: Round) -> int:
    """Fraudulent jobs of the holder that were submitted and not slashed."""
    return sum(round.verdicts.get(job) != Verdict.FRAUD for job in _frauds(world, round))


def _frauds(world: World, round: Round) -> list[int]:
    frauds = [job for job in sorted(round.submitted) if world.works[round.number, job] is Quality.FRAUD]
    return [job for job in frauds if world.is_held(round.assignees[job])]


def _accepted(round: Round, job: int) -> bool:
    return round.verdicts.get(job) == Verdict.ACCEPTED


def _jobs_of(world: World, round: Round, owners: set[str]) -> list[int]:
    nodes = world.protocol.registry.nodes
    return [job for job, node in enumerate(round.assignees) if nodes[node].owner in owners]


# Many histories


def play_all(names: Iterable[str], rounds: int, processes: int) -> Iterator[tuple[str, list[Played]]]:
    """Plays ``rounds`` rounds of each strategy, a history at a time, on several processes."""
    lengths = [min(ROUNDS_PER_HISTORY, rounds - at) for at in range(0, rounds, ROUNDS_PER_HISTORY)]
    with ProcessPoolExecutor(processes) as pool:
        asked = {
            pool.submit(_one, name, seed, length): name for name in names for seed, length in enumerate(lengths, 1)
        }
        for future in as_completed(asked):
            yield asked[future], future.result()


def _one(name: str, seed: int, rounds: int) -> list[Played]:
    return list(history(STRATEGIES[name], seed, rounds))
