"""The trainer's inbox: groups of accepted, unconsumed jobs, and nothing else.

Follows the chain. A job enters once its round's tally accepts it, provided that its artifact hashes to the signed root
and no checkpoint has consumed it. Rewards are recomputed here, on the prompts that follow from the beacon and from the
tasks of the version that made the rollouts. A job under appeal waits for its final verdict; the round that tries an
appeal is ignored. Artifacts are fetched in threads of their nodes, and a node whose store is slow is waited for once:
what it serves comes in later, and delays no step. Nor does an answer that takes long to judge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from protocol.chain.events import CheckpointPublished, Log, RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.plantings import Plantings
from protocol.chain.reading.tail import Tail
from protocol.chain.round_changes import SubmittedLeaf
from protocol.chain.round_state import RoundState, fold
from protocol.chain.structs import State
from protocol.environments.environment import Environment, Problem, VersionedTasks, at_version
from protocol.errors import Rejected, Unavailable
from protocol.tensor.model import Model
from protocol.transport.node_pools import NodeFetch, NodePools
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.assignments import jobs_in
from protocol.wire.receipts import holders_of
from protocol.wire.rewards import JobRewards
from protocol.wire.rollout import Artifact, decode, rollouts_root
from protocol.wire.rules import Rules
from protocol.wire.seeds import job_seed
from protocol.wire.traps import Trap
from trainer.batch import Group
from trainer.rewarding import GRADERS, problems_of, rewards_of

FETCHES_PER_NODE = 4
WAIT_SECONDS = 2.0
"""Longest time that a step waits for artifacts of nodes which have not been slow before."""

GRADING_SECONDS = 0.1
"""Longest time that a step waits for answers to be judged."""

Fetch = Callable[[Sequence[str], bytes], bytes]
"""(holders, artifact root) -> the artifact's blob, checked. Raises `Unavailable` or `Rejected`."""
Directory = Callable[[int], Path | None]
"""version -> the directory of its files, None if they are not stored any more. Raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class AcceptedJob:
    """Groups of one accepted job, with the reward of every rollout."""

    round: int
    job: int
    groups: tuple[Group, ...]

    @property
    def rewards(self) -> JobRewards:
        """The rewards of all its rollouts, as they are published."""
        rewards = np.array([reward for group in self.groups for reward in group.rewards], np.float32)
        rows = tuple(group.row for group in self.groups if group.row is not None)
        return JobRewards(self.round, self.job, rewards, rows)


class _Wanted(NamedTuple):
    """An accepted job whose artifact is missing."""

    round: int
    job: int
    submitted: SubmittedLeaf


class _Grading(NamedTuple):
    """An accepted job whose answers are being judged; ``problems`` are those of its groups."""

    artifact: Artifact
    problems: list[Problem]
    rewards: Future[NDArray[np.float32]]


class Inbox:
    """Accepted, unconsumed groups of one run."""

    def __init__(
        self,
        chain: Chain,
        run: int,
        rules: Rules,
        environment: Environment,
        model: Model,
        fetch: Fetch,
        plantings: Plantings | None = None,
        directory: Directory | None = None,
    ) -> None:
        """``directory`` is needed where tasks come with the versions."""
        self.chain, self.run, self.rules, self.environment, self.model = chain, run, rules, environment, model
        self.fetch, self.plantings, self.directory = fetch, plantings, directory
        self.log = structlog.get_logger("trainer.inbox")
        self.pools = NodePools("artifacts", FETCHES_PER_NODE)
        self.fetches: dict[_Wanted, NodeFetch[bytes | None]] = {}
        self.graders = ThreadPoolExecutor(GRADERS, "graders")
        self.gradings: dict[_Wanted, _Grading] = {}
        self.closed = Event()
        self.slow: set[int] = set()
        self._expired = 0
        self._restart()

    def _restart(self) -> Tail:
        """Forgets everything; it is read from the chain again."""
        self.tail = Tail(self.chain)
        if self.plantings:
            self.plantings.forget()
        self.rounds: dict[int, RoundState] = {}
        self.jobs: dict[tuple[int, int], AcceptedJob] = {}
        self.refused: set[tuple[int, int]] = set()
        self.published = 0
        self.forget_tasks()
        return self.tail

    def forget_tasks(self) -> None:
        """Forgets how versions set tasks: another version may get the number of one that was taken back."""
        self.environments: dict[int, Environment] = {}

    def close(self) -> None:
        """Ends fetching and judging: an answer that is being judged is the last."""
        self.closed.set()
        self.pools.close()
        self.graders.shutdown(wait=False, cancel_futures=True)

    def poll(self, oldest_usable: int) -> None:
        """Follows the chain, and fetches accepted jobs of policy version ``oldest_usable`` or newer."""
        self.follow()
        self._forget(oldest_usable)
        self._take_in()

    def follow(self) -> None:
        """Reads new events without fetching artifacts. Raises ``FinalityMoved`` if a final block was reverted."""
        for log in self.tail.follow(self._restart):
            self._fold(log)

    def groups(self) -> list[Group]:
        """Returns every available group, in (round, job, group) order."""
        return [group for key in sorted(self.jobs) for group in self.jobs[key].groups]

    def _fold(self, log: Log) -> None:
        event = log.event
        if isinstance(event, CheckpointPublished) and event.run == self.run:
            self.published = max(self.published, event.version)
        if isinstance(event, RoundOpened) and event.run != self.run:
            return
        round_ = fold(self.rounds, log)
        if round_ is None:
            return
        if round_.state is State.VOID:
            del self.rounds[round_.number]
        for key in [key for key in self.jobs if key[0] == round_.number and not round_.usable >> key[1] & 1]:
            del self.jobs[key]

    def _forget(self, oldest_usable: int) -> None:
        """Drops rounds whose policy version is too old for this step and every later one."""
        for number in [n for n, round_ in self.rounds.items() if round_.policy_version < oldest_usable]:
            del self.rounds[number]
        for key in [key for key in self.jobs if key[0] not in self.rounds]:
            self._expired += sum(group.informative for group in self.jobs.pop(key).groups)

    def take_expired(self) -> int:
        """Returns how many informative groups became too old unused since the last call."""
        expired, self._expired = self._expired, 0
        return expired

    def _take_in(self) -> None:
        """Takes in what has arrived, after waiting for the nodes that were never slow."""
        self._fetch()
        prompt = {
            attempt.future: wanted.submitted.node
            for wanted, attempt in self.fetches.items()
            if wanted.submitted.node not in self.slow
        }
        for node in {prompt[future] for future in wait(prompt, WAIT_SECONDS).not_done}:
            self.slow.add(node)
            self.log.warning("store_slow", node=node, seconds=WAIT_SECONDS)
        for wanted in [wanted for wanted, attempt in self.fetches.items() if attempt.future.done()]:
            if (data := self.fetches.pop(wanted).future.result()) is not None:
                self._admit(wanted, data)
        wait([grading.rewards for grading in self.gradings.values()], GRADING_SECONDS)
        for wanted in [wanted for wanted, grading in self.gradings.items() if grading.rewards.done()]:
            self._take(wanted, self.gradings.pop(wanted))

    def _fetch(self) -> None:
        """Begins to fetch what is missing, and ends the fetches of what is no longer wanted."""
        missing = [
            _Wanted(number, job, round_.leaves[job])
            for number, round_ in self.rounds.items()
            for job in jobs_in(round_.usable)
            if (number, job) not in self.jobs and (number, job) not in self.refused and job not in self._planted(number)
        ]
        for wanted in self.fetches.keys() - set(missing):
            self.fetches.pop(wanted).cancel()
        for wanted in self.gradings.keys() - set(missing):
            self.gradings.pop(wanted).rewards.cancel()
        for wanted in missing:
            if wanted not in self.fetches and wanted not in self.gradings:
                fetch = functools.partial(self._fetched, wanted)
                self.fetches[wanted] = self.pools.submit(wanted.submitted.node, fetch)
        self.pools.keep({wanted.submitted.node for wanted in missing})

    def _planted(self, number: int) -> Mapping[int, Trap]:
        """Returns the jobs of a round in which the run's requester planted a fault."""
        return self.plantings.in_round(number) if self.plantings else {}

    def _fetched(self, wanted: _Wanted) -> bytes | None:
        try:
            return self.fetch(holders_of(wanted.submitted.uri, self.rules.stores), wanted.submitted.leaf.root)
        except (Rejected, Unavailable) as error:
            self.log.warning("artifact_missing", round=wanted.round, job=wanted.job, why=str(error))
            return None

    def _admit(self, wanted: _Wanted, data: bytes) -> None:
        """Checks an artifact, and has its answers judged."""
        number, job, round_ = wanted.round, wanted.job, self.rounds[wanted.round]
        try:
            head, file = parse_blob(data, round_.leaves[job].leaf.root)
            artifact = decode(file)
            deployment = self.chain.deployment
            root = rollouts_root(deployment.chain_id, deployment.address_of("Rounds"), artifact)
            if root != head.rollouts_root or artifact.job != job or artifact.round != number:
                raise Rejected("the artifact does not match the judged root")
            if len(artifact.rollouts) != self.rules.rollouts_per_job:
                raise Rejected(
                    f"the artifact has {len(artifact.rollouts)} rollouts: expected {self.rules.rollouts_per_job}"
                )
            environment = self._tasks(round_.policy_version)
        except Unavailable as error:
            self.log.warning("tasks_missing", round=number, job=job, why=str(error))
            return
        except Rejected as error:
            self.refused.add((number, job))
            self.log.warning("artifact_refused", round=number, job=job, why=str(error))
            return
        rounds = deployment.address_of("Rounds")
        problems = problems_of(
            environment, self.rules, job_seed(deployment.chain_id, rounds, number, round_.beacon, job)
        )
        text = partial(self.model.completion_text, stop_tokens=self.model.stop_tokens(self.rules))
        work = environment, problems, artifact.rollouts, text, self.closed
        rewards = self.graders.submit(rewards_of, *work)
        self.gradings[wanted] = _Grading(artifact, problems, rewards)

    def _tasks(self, version: int) -> Environment:
        """Returns the tasks as a version sets them.

        Raises:
            Rejected: its files are no longer stored, or not those of the run.
            Unavailable: the chain, which knows its root, does not answer.
        """
        if self.directory is None or not isinstance(self.environment, VersionedTasks):
            return self.environment
        if version not in self.environments:
            if (directory := self.directory(version)) is None:
                raise Rejected(f"the tasks of version {version} are no longer stored here")
            self.environments[version] = at_version(self.environment, directory)
            for old in sorted(self.environments)[: -self.rules.async_level - 2]:
                del self.environments[old]
        return self.environments[version]

    def _take(self, wanted: _Wanted, grading: _Grading) -> None:
        """Takes a job in whose answers are judged; begins again where what judges them does not run."""
        try:
            rewards = grading.rewards.result()
        except (Unavailable, Rejected) as error:
            self.log.warning("not_rewarded", round=wanted.round, job=wanted.job, why=str(error))
            if isinstance(error, Rejected):
                self.refused.add((wanted.round, wanted.job))
            return
        groups = tuple(self._groups(self.rounds[wanted.round], grading, rewards))
        self.jobs[wanted.round, wanted.job] = AcceptedJob(wanted.round, wanted.job, groups)

    def _groups(self, round_: RoundState, grading: _Grading, rewards: NDArray[np.float32]) -> Iterable[Group]:
        artifact, size = grading.artifact, self.rules.samples_per_group
        for group, problem in enumerate(grading.problems):
            part = slice(group * size, (group + 1) * size)
            rollouts = artifact.rollouts[part]
            completions = tuple(rollout.output_tokens for rollout in rollouts)
            yield Group(
                round=artifact.round,
                job=artifact.job,
                group=group,
                version=round_.policy_version,
                prompt_tokens=rollouts[0].prompt_tokens,
                completions=completions,
                rewards=tuple(rewards[part].tolist()),
                reported=tuple(rollout.logprobs for rollout in rollouts),
                source=problem.source,
                row=problem.row,
            )
