"""The trainer's inbox: groups of accepted, unconsumed jobs, and nothing else.

Follows the chain. A job enters once its round's tally accepts it, provided that its artifact hashes to the signed root
and no checkpoint has consumed it. Rewards are recomputed here, on the prompts that follow from the beacon. A job under
appeal waits for its final verdict; the round that tries an appeal is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from protocol.chain.events import (
    AppealedJobSettled,
    AppealOpened,
    CheckpointPublished,
    Event,
    JobsConsumed,
    Log,
    RoundOpened,
    RoundTallied,
    RoundVoided,
    Submitted,
)
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import Verdict
from protocol.environments.environment import Environment
from protocol.errors import Rejected, Unavailable
from protocol.tensor.model import Model
from protocol.wire.assignments import jobs_in, unpack_leaves
from protocol.wire.rollout import Artifact, artifact_root, decode
from protocol.wire.rules import Rules
from protocol.wire.seeds import job_seed, prompt_seed
from trainer.batch import Group

FETCHERS = 4

Fetch = Callable[[str, bytes], bytes]
"""(uri, artifact root) -> the artifact's bytes. Raises `Unavailable` or `Rejected`."""

RoundEvent = Submitted | RoundTallied | RoundVoided | JobsConsumed | AppealOpened | AppealedJobSettled
"""Events that change which jobs of a round may be trained on."""


@dataclass(slots=True)
class _Round:
    """State of a round until its groups are used or stale."""

    policy_version: int
    beacon: bytes
    claims: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    accepted: int = 0
    appealed: int = 0
    consumed: int = 0
    tallied: bool = False

    @property
    def usable(self) -> int:
        """Bitmap of the jobs that may be trained on."""
        return self.accepted & ~self.appealed & ~self.consumed


@dataclass(frozen=True, slots=True)
class AcceptedJob:
    """Groups of one accepted job, with the reward of every rollout."""

    round: int
    job: int
    groups: tuple[Group, ...]


class Inbox:
    """Accepted, unconsumed groups of one run."""

    def __init__(
        self, chain: Chain, run: int, rules: Rules, environment: Environment, model: Model, fetch: Fetch
    ) -> None:
        self.chain, self.run, self.rules, self.environment, self.model = chain, run, rules, environment, model
        self.fetch = fetch
        self.log = structlog.get_logger("trainer.inbox")
        self.pool = ThreadPoolExecutor(FETCHERS, "fetch")
        self._restart()

    def _restart(self) -> None:
        """Forgets everything; it is read from the chain again."""
        self.tail = Tail(self.chain)
        self.rounds: dict[int, _Round] = {}
        self.jobs: dict[tuple[int, int], AcceptedJob] = {}
        self.published = 0

    def poll(self, oldest_usable: int) -> None:
        """Follows the chain, and fetches accepted jobs of policy version ``oldest_usable`` or newer."""
        self.follow()
        self._forget(oldest_usable)
        self._take_in()

    def follow(self) -> None:
        """Reads new events without fetching artifacts. Raises ``FinalityMoved`` if a final block was reverted."""
        while True:
            blocks = self.tail.poll()
            if isinstance(blocks, Rollback):
                self._restart()
                continue
            if not blocks:
                break
            for block in blocks:
                for log in block.logs:
                    self._fold(log)

    def groups(self) -> list[Group]:
        """Returns every available group, in (round, job, group) order."""
        return [group for key in sorted(self.jobs) for group in self.jobs[key].groups]

    def _fold(self, log: Log) -> None:
        event: Event = log.event
        if isinstance(event, RoundOpened) and event.run == self.run:
            self.rounds[event.round] = _Round(event.policy_version, log.block_hash)
        elif isinstance(event, CheckpointPublished) and event.run == self.run:
            self.published = max(self.published, event.version)
        elif isinstance(event, RoundEvent):
            self._fold_round(event)

    def _fold_round(self, event: RoundEvent) -> None:
        round_ = self.rounds.get(event.round)
        if round_ is None:
            return
        if isinstance(event, Submitted):
            round_.claims |= {leaf.job: (event.uri, leaf.root) for leaf in unpack_leaves(event.leaves)}
        elif isinstance(event, RoundTallied):
            round_.accepted, round_.tallied = event.accepted, True
        elif isinstance(event, JobsConsumed):
            round_.consumed |= event.jobs
            self._drop(event.round, event.jobs)
        elif isinstance(event, AppealOpened):
            round_.appealed |= 1 << event.job
            self._drop(event.round, 1 << event.job)
        elif isinstance(event, AppealedJobSettled):
            bit = 1 << event.job
            round_.accepted = round_.accepted & ~bit | (bit if event.verdict is Verdict.ACCEPTED else 0)
            round_.appealed &= ~bit
        else:
            del self.rounds[event.round]

    def _drop(self, number: int, jobs: int) -> None:
        for job in jobs_in(jobs):
            self.jobs.pop((number, job), None)

    def _forget(self, oldest_usable: int) -> None:
        """Drops rounds whose policy version is too old for this step and every later one."""
        for number in [n for n, round_ in self.rounds.items() if round_.policy_version < oldest_usable]:
            del self.rounds[number]
        for key in [key for key in self.jobs if key[0] not in self.rounds]:
            del self.jobs[key]

    def _take_in(self) -> None:
        wanted = [
            (number, job)
            for number, round_ in self.rounds.items()
            for job in jobs_in(round_.usable)
            if (number, job) not in self.jobs
        ]
        for key, data in zip(wanted, self.pool.map(lambda key: self._fetched(*key), wanted), strict=True):
            if data is not None:
                self._admit(*key, data)

    def _fetched(self, number: int, job: int) -> bytes | None:
        uri, root = self.rounds[number].claims[job]
        try:
            return self.fetch(uri, root)
        except (Rejected, Unavailable) as error:
            self.log.warning("artifact_missing", round=number, job=job, why=str(error))
            return None

    def _admit(self, number: int, job: int, data: bytes) -> None:
        round_ = self.rounds[number]
        try:
            artifact = decode(data)
            deployment = self.chain.deployment
            root = artifact_root(deployment.chain_id, deployment.address_of("Rounds"), artifact)
            if root != round_.claims[job][1] or artifact.job != job or artifact.round != number:
                raise Rejected("the artifact does not match the judged root")
            if len(artifact.rollouts) != self.rules.rollouts_per_job:
                raise Rejected(
                    f"the artifact has {len(artifact.rollouts)} rollouts: expected {self.rules.rollouts_per_job}"
                )
        except Rejected as error:
            round_.consumed |= 1 << job
            self.log.warning("artifact_refused", round=number, job=job, why=str(error))
            return
        self.jobs[number, job] = AcceptedJob(number, job, tuple(self._groups(round_, artifact)))

    def _groups(self, round_: _Round, artifact: Artifact) -> Iterable[Group]:
        deployment = self.chain.deployment
        seed = job_seed(
            deployment.chain_id, deployment.address_of("Rounds"), artifact.round, round_.beacon, artifact.job
        )
        size = self.rules.samples_per_group
        for group in range(self.rules.groups_per_job):
            problem = self.environment.problem(prompt_seed(seed, group))
            rollouts = artifact.rollouts[group * size : (group + 1) * size]
            completions = tuple(tuple(rollout.output_tokens.tolist()) for rollout in rollouts)
            texts = [self.model.completion_text(completion) for completion in completions]
            yield Group(
                round=artifact.round,
                job=artifact.job,
                group=group,
                version=round_.policy_version,
                prompt_tokens=tuple(rollouts[0].prompt_tokens.tolist()),
                completions=completions,
                rewards=tuple(self.environment.reward(problem, text) for text in texts),
            )
