"""Markets of owners whose rewards are exchangeable or not: what a juror samples, and whom its samples condemn.

    depressed   honest owners beside some that do worse on purpose, so that the honest look steered
    steered     one owner that steers among honest ones, until its rewards condemn it
    honest      honest owners by engine and batch, of whom the juror samples everything

Models, rollouts, rewards and the juror's samples are real, and so are the verdicts on single jobs: a job that is not
accepted has no rewards. What flips say of an owner is measured and has no consequence here. Rounds are of one version
each, three versions by turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from deploy.adversaries import ADVERSARIES
from deploy.adversaries.steering import SteersAway
from deploy.zoo.trial import rewards_of
from protocol.tensor.completions import Completion, Request
from protocol.tensor.determinism import ExactShape
from protocol.wire.rollout import Rollout, decode
from protocol.wire.seeds import job_seed, prompt_seed
from tests.zoo.rows import SHOWN_JOBS, STEERING, ratios_of_job
from tests.zoo.stage import DEPLOYED, Judged, Remembering, Stage, passed
from validator.records.record import EvidenceState
from validator.records.resampling import sampled_groups
from validator.records.rewards import (
    GroupRewards,
    RoundRewards,
    compared,
    condemned_since,
    evidence_after,
    sampled,
    to_sample,
)
from worker.engines.engine import Engine
from worker.engines.registry import make_engine
from worker.producer import Producer
from worker.prover import Finished, Work
from worker.specimens import InBatches

OWNERS, OWNER_JOBS = 15, 4
SHARES = (0.33, 0.6)
"""Shares of the owners that do worse on purpose."""
AWAY = "steering-away"
WITHHOLDING = "withholding-best"
BOTH = "steering-away, withholding-best"
DEPRESSING = (AWAY, WITHHOLDING, BOTH)
"""What owners do to make honest ones look steered."""
FOUR_NODES = "steering, four nodes"
HONEST_JOBS = {1: 1, 8: 3, 64: 8, 128: 8}
"""Rollouts that an honest owner decodes at a time, and its jobs in a round."""
FIRST_ROUND = 1 << 24
"""Markets are of other rounds than the rest of the zoo, and than one another."""
ROUNDS_APART = 1 << 16
SECRET = b"\x5e" * 32
LARGE_BATCH = 512


class WithholdsBest(Producer):
    """Hands in the half of its jobs with the least rewards."""

    def make(self, work: Work, cancel: Event | None = None) -> list[Finished]:
        """Makes every job of ``work``, and returns the worse half."""
        problems = [task.problem for task in self.tasks(work)]
        size, stop_tokens = self.rules.rollouts_per_job, self.engine.model.stop_tokens(self.rules)

        def reward(place: int, made: Finished) -> float:
            rollouts, own = decode(made.file).rollouts, problems[place * size : (place + 1) * size]
            texts = [self.engine.model.completion_text(each.output_tokens, stop_tokens) for each in rollouts]
            return sum(self.environment.reward(*each) for each in zip(own, texts, strict=True))

        made = super().make(work, cancel)
        order = sorted(range(len(made)), key=lambda place: reward(place, made[place]))
        return [made[place] for place in sorted(order[: -(-len(made) // 2)])]


class WithholdsBestAway(WithholdsBest, SteersAway):
    """Steers away from right answers, and withholds the best of what is left."""


WITHHOLDERS_OF_BEST: dict[str, type[Producer]] = {WITHHOLDING: WithholdsBest, BOTH: WithholdsBestAway}
"""Cheats that hand in less than was asked for, so that they have no row of their own in the zoo."""


@dataclass(frozen=True, slots=True)
class ExchangeOwner:
    """An owner, and how many jobs each of its nodes has in a round. ``cheat`` names what it does, None: honest work."""

    name: str
    cheat: str | None = None
    jobs: tuple[int, ...] = (OWNER_JOBS,)
    engine: str = "transformers"
    batch: int = LARGE_BATCH


@dataclass(frozen=True, slots=True)
class ExchangeMarket:
    """Rounds of some owners, numbered from ``first_round``. The juror samples all ``always``, or where an alarm asks.

    ``hunted`` is the owner after whose condemnation the market ends.
    """

    name: str
    owners: tuple[ExchangeOwner, ...]
    rounds: int
    first_round: int = FIRST_ROUND
    always: bool = False
    hunted: str | None = None


@dataclass(frozen=True, slots=True)
class OwnerOutcome:
    """What came of one owner.

    fraud, void, missing   jobs that were condemned singly, that were not accepted, and that were not handed in
    record                 where the record of its flips stood at most, in nats
    alarms, alarm_jobs     rounds with an alarm, and jobs until the first
    groups                 groups that the juror sampled
    condemned_jobs         jobs until the juror's samples condemned it; None: not condemned
    highest                where the evidence of the samples stood at most, in nats; None: nothing was sampled
    reward                 mean reward of its accepted jobs; None: nothing was accepted
    uplift                 of a cheat: mean reward of its first accepted jobs beyond that of honest work on them
    """

    name: str
    cheat: str | None
    jobs: int
    rollouts: int
    fraud: int
    void: int
    missing: int
    record: float
    alarms: int
    alarm_jobs: int | None
    groups: int
    condemned_jobs: int | None
    highest: float | None
    reward: float | None
    uplift: float | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A market that was played. ``bound`` is what condemns, in nats, of rewards and of flips."""

    name: str
    rounds: int
    bound: float
    owners: tuple[OwnerOutcome, ...]

    @property
    def honest(self) -> list[OwnerOutcome]:
        """Owners that work honestly."""
        return [each for each in self.owners if each.cheat is None]

    @property
    def cheats(self) -> list[OwnerOutcome]:
        """The other owners."""
        return [each for each in self.owners if each.cheat is not None]

    def lead(self, owner: OwnerOutcome) -> float | None:
        """Returns the owner's mean reward beyond that of honest owners; None where either has none."""
        honest = _mean([each.reward for each in self.honest if each.reward is not None])
        return None if owner.reward is None or honest is None else owner.reward - honest

    @property
    def false_alarms(self) -> int:
        """Honest owners that the juror's samples condemned."""
        return sum(each.condemned_jobs is not None for each in self.honest)


def exchange_markets(jobs: int, honest_jobs: int, engines: Sequence[str]) -> list[ExchangeMarket]:
    """Returns the markets: ``jobs`` of each owner among cheats, and ``honest_jobs`` or a few more of honest owners."""
    rounds = -(-jobs // OWNER_JOBS)
    markets = [_depressed(name, share, rounds) for name in DEPRESSING for share in SHARES]
    steerers = [ExchangeOwner(name, name) for name in ADVERSARIES if name.startswith(STEERING) and name != AWAY]
    steerers.append(ExchangeOwner(FOUR_NODES, STEERING, (1,) * OWNER_JOBS))
    for each in steerers:
        owners = (each, *(ExchangeOwner(f"honest {n}") for n in range(OWNERS - 1)))
        markets.append(ExchangeMarket(each.name, owners, rounds, hunted=each.name))
    by_engine = [
        ExchangeOwner(f"{engine} by {batch}", jobs=(count,), engine=engine, batch=batch)
        for engine in engines
        for batch, count in HONEST_JOBS.items()
    ]
    if by_engine:
        honest_rounds = -(-honest_jobs // sum(sum(each.jobs) for each in by_engine))
        markets.append(ExchangeMarket("honest", tuple(by_engine), honest_rounds, always=True))
    return [replace(each, first_round=FIRST_ROUND + n * ROUNDS_APART) for n, each in enumerate(markets)]


def _depressed(name: str, share: float, rounds: int) -> ExchangeMarket:
    cheats = round(share * OWNERS)
    owners = [ExchangeOwner(f"{name} {n}", name) for n in range(cheats)]
    owners += [ExchangeOwner(f"honest {n}") for n in range(OWNERS - cheats)]
    return ExchangeMarket(f"{name}, {share:.0%}", tuple(owners), rounds)


@dataclass(slots=True)
class _PlayedJob:
    """One job of an owner: its seed, and its rollouts if it was accepted."""

    seed: bytes
    rollouts: tuple[Rollout, ...] = ()
    rewards: tuple[float, ...] = ()


@dataclass(slots=True)
class _Standing:
    """An owner so far; ``played`` are its jobs by round."""

    owner: ExchangeOwner
    past: list[RoundRewards] = field(default_factory=list)
    played: dict[int, list[_PlayedJob]] = field(default_factory=dict)
    record: EvidenceState = field(default_factory=EvidenceState)
    highest_record: float = 0.0
    jobs: int = 0
    handed_in: int = 0
    fraud: int = 0
    void: int = 0
    alarms: int = 0
    alarm_jobs: int | None = None
    groups: int = 0
    condemned_jobs: int | None = None
    rewards: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    paired: int = 0


class _Workers:
    """The producers of a market, by version where they cheat: honest ones of an engine take turns on it."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._engines: dict[str, tuple[InBatches, Producer]] = {}
        self._made: dict[Request, Completion] = {}
        self._cheats: dict[tuple[int, str, str], Producer] = {}

    def honest(self, engine: str, batch: int, version: int) -> Producer:
        """Returns an honest producer with the version loaded."""
        stage = self._stages[version]
        if engine not in self._engines:
            exact = ExactShape.of(stage.rules)
            batches = InBatches(make_engine(engine, stage.rules.model.dtype, exact=exact), batch)
            remembering: Engine = Remembering(batches, self._made)
            self._engines[engine] = batches, Producer(remembering, stage.rules, stage.environment, DEPLOYED)
        batches, producer = self._engines[engine]
        batches.size = batch
        producer.load(version, stage.directory)
        return producer

    def make_ahead(self, version: int, works: Iterable[tuple[ExchangeOwner, Work]]) -> None:
        """Generates the round's work of the honest owners that decode in large batches, in batches common to all."""
        self._made.clear()
        honest = [work for owner, work in works if owner.cheat is None and owner.batch == LARGE_BATCH]
        if honest:
            producer = self.honest("transformers", LARGE_BATCH, version)
            producer.engine.generate([task.request for work in honest for task in producer.tasks(work)])

    def of(self, owner: ExchangeOwner, version: int) -> Producer:
        """Returns the producer of an owner's nodes for a version."""
        if owner.cheat is None:
            return self.honest(owner.engine, owner.batch, version)
        key = (version, owner.name, owner.cheat)
        if key not in self._cheats:
            self._cheats[key] = self._cheat(owner.cheat, self._stages[version])
        return self._cheats[key]

    def _cheat(self, name: str, stage: Stage) -> Producer:
        kind = WITHHOLDERS_OF_BEST.get(name)
        if kind is None:
            return stage.producer(name)
        producer = kind(stage.engine(), stage.rules, stage.environment, DEPLOYED)
        producer.load(1, stage.directory)
        return producer


class _Play:
    """One market as it is played."""

    def __init__(self, market: ExchangeMarket, stages: Sequence[Stage]) -> None:
        self.market, self.stages, self.workers = market, stages, _Workers(stages)
        self.standings = [_Standing(owner) for owner in market.owners]
        self.bound = stages[0].rules.sequential.bound

    def over(self) -> bool:
        """Returns whether the owner that is hunted was condemned."""
        return any(each.owner.name == self.market.hunted and each.condemned_jobs is not None for each in self.standings)

    def step(self, number: int) -> None:
        """Plays one round: work, verdicts, comparison, samples."""
        works = list(self._works(number))
        self.workers.make_ahead(number % len(self.stages), ((standing.owner, work) for standing, work in works))
        for standing, work in works:
            self._work(standing, number, work)
        groups = [group for standing in self.standings for group in self._groups(standing, number)]
        for standing in self.standings:
            standing.past.append(RoundRewards(number, compared(standing.owner.name, groups)))
            self._sample(standing)

    def _works(self, number: int) -> Iterator[tuple[_Standing, Work]]:
        """Yields the work of each node in a round."""
        first, node = 0, 1
        for standing in self.standings:
            for count in standing.owner.jobs:
                jobs = range(first, first + count)
                yield standing, self._stage(number).work(self.market.first_round + number, jobs, node)
                first, node = first + count, node + 1

    def _work(self, standing: _Standing, number: int, work: Work) -> None:
        stage, version = self._stage(number), number % len(self.stages)
        judged = stage.judge(work, self.workers.of(standing.owner, version).make(work))
        rewards = dict(self._take(standing, judged, stage))
        for job in work.jobs:
            seed = job_seed(DEPLOYED.chain_id, DEPLOYED.rounds, work.round, work.beacon, job)
            standing.played.setdefault(number, []).append(rewards.get(job, _PlayedJob(seed)))
        standing.jobs += len(work.jobs)
        if standing.owner.cheat is not None and standing.paired < SHOWN_JOBS:
            self._pair(standing, work, version, rewards)

    def _take(self, standing: _Standing, judged: Iterable[Judged], stage: Stage) -> Iterator[tuple[int, _PlayedJob]]:
        """Yields the jobs that were accepted, and takes note of the others."""
        for one in judged:
            standing.handed_in += 1
            standing.record = standing.record.after(ratios_of_job(one, stage))
            standing.highest_record = max(standing.highest_record, standing.record.foremost[1])
            standing.fraud += one.judgement.reason.fraud
            standing.void += not passed(one) and not one.judgement.reason.fraud
            if passed(one):
                artifact = decode(one.file)
                rewards = tuple(rewards_of(stage.policy, stage.rules, artifact, one.claim.seed))
                kept = tuple(replace(each, proofs=(), logprobs=each.logprobs[:0]) for each in artifact.rollouts)
                standing.rewards += rewards
                yield one.claim.job, _PlayedJob(one.claim.seed, kept, rewards)

    def _pair(self, standing: _Standing, work: Work, version: int, found: dict[int, _PlayedJob]) -> None:
        """Compares a cheat's accepted jobs with honest work on the same."""
        stage, jobs = self.stages[version], tuple(found)
        made = self.workers.honest("transformers", LARGE_BATCH, version).make(replace(work, jobs=jobs)) if jobs else []
        for one in made:
            own = found[one.job]
            honest = rewards_of(stage.policy, stage.rules, decode(one.file), own.seed)
            standing.gains += [mine - other for mine, other in zip(own.rewards, honest, strict=True)]
        standing.paired += len(made)

    def _groups(self, standing: _Standing, number: int) -> Iterator[GroupRewards]:
        stage = self._stage(number)
        size = stage.rules.samples_per_group
        for job in standing.played[number]:
            for group in range(stage.rules.groups_per_job):
                source = stage.policy.tasks.problem(prompt_seed(job.seed, group)).source
                yield GroupRewards(standing.owner.name, source, job.rewards[group * size : (group + 1) * size])

    def _sample(self, standing: _Standing) -> None:
        """Samples what the juror has to after a round, and takes note of an alarm and of what comes of it."""
        past = standing.past
        if to_sample([replace(each, sampled=None) for each in past], math.inf):
            standing.alarms += 1
            standing.alarm_jobs = standing.alarm_jobs or standing.jobs
        places = {each.round: place for place, each in enumerate(past)}
        for each in [past[-1]] if self.market.always else to_sample(past, self.bound):
            stage = self._stage(each.round)
            found = [
                group
                for job in standing.played[each.round]
                for group in sampled_groups(stage.policy, stage.rules, job.seed, job.rollouts, SECRET)
            ]
            standing.groups += len(found)
            past[places[each.round]] = replace(each, sampled=sampled(found))
        if standing.condemned_jobs is None and condemned_since(past, self.bound) is not None:
            standing.condemned_jobs = standing.jobs

    def _stage(self, number: int) -> Stage:
        return self.stages[number % len(self.stages)]


def play(market: ExchangeMarket, stages: Sequence[Stage]) -> Exchange:
    """Plays a market under the stages' rules, a version by turns."""
    playing, number = _Play(market, stages), 0
    while number < market.rounds and not playing.over():
        playing.step(number)
        number += 1
    owners = tuple(_outcome(each, stages[0].rules.rollouts_per_job) for each in playing.standings)
    return Exchange(market.name, number, playing.bound, owners)


def _outcome(standing: _Standing, job_rollouts: int) -> OwnerOutcome:
    return OwnerOutcome(
        name=standing.owner.name,
        cheat=standing.owner.cheat,
        jobs=standing.jobs,
        rollouts=standing.handed_in * job_rollouts,
        fraud=standing.fraud,
        void=standing.void,
        missing=standing.jobs - standing.handed_in,
        record=standing.highest_record,
        alarms=standing.alarms,
        alarm_jobs=standing.alarm_jobs,
        groups=standing.groups,
        condemned_jobs=standing.condemned_jobs,
        highest=max(evidence_after(each.sampled for each in standing.past)) if standing.groups else None,
        reward=_mean(standing.rewards),
        uplift=_mean(standing.gains),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
