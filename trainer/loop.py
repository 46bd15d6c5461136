"""The trainer's loop: wait for accepted groups, train, save, publish.

The order of the last two makes crashes harmless. The state is on disk before the checkpoint is announced, so a
restarted trainer announces the same weights with the same jobs, and the contract takes them once. If an appeal or a
reorganisation has invalidated one of these jobs meanwhile, the trainer goes back to the newest version on chain: the
full state before the last step is kept until the next step, and the weights of earlier versions.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import structlog

from protocol.chain.reverts import Reverted
from protocol.chain.structs import Consumption
from protocol.errors import Misconfigured, Unavailable
from protocol.files import write_atomically
from protocol.wire.assignments import bitmap_of
from protocol.wire.pins import CURRICULUM_FILE, OWN_FILES, REWARDS_FILE
from protocol.wire.rewards import Rewards
from trainer import checkpoint
from trainer.batch import Group, Selection, mismatch, select, usable
from trainer.config import Recipe
from trainer.curriculum import Curriculum
from trainer.evaluator import Evaluator
from trainer.inbox import Inbox
from trainer.metrics import MetricsLog
from trainer.policy import Policy
from trainer.publish import Publisher
from trainer.rewarding import mean_by_source
from trainer.sink import Sink

UNDONE = ("NotAccepted", "WrongState", "WrongRun")
"""Reverts of a version trained on jobs that are not, or no longer, accepted on chain."""
EVALUATIONS_WAITING = 3
"""Versions that may wait for their evaluation, each of which takes its bytes on disk."""
UNDONE_SECONDS = 45.0
"""Time for a tally dropped by a reorganisation to be mined again, before the step is taken back."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds spent in each part since the last lap."""

    clock: Callable[[], float] = time.monotonic
    parts: dict[str, float] = field(default_factory=dict)
    since: float = 0.0

    def __post_init__(self) -> None:
        self.since = self.clock()

    def mark(self, part: str) -> None:
        """Adds the time since the last mark to ``part``."""
        now = self.clock()
        self.parts[part] = self.parts.get(part, 0.0) + now - self.since
        self.since = now

    def lap(self) -> dict[str, float]:
        """Returns the parts in seconds and resets them."""
        parts, self.parts = {name: round(seconds, 4) for name, seconds in self.parts.items()}, {}
        return parts


@dataclass(frozen=True, slots=True)
class Schedule:
    """End of the run, and interval in versions between evaluations (0: only at the start and the end).

    ``target_accuracy`` ends the run early, with the first evaluation that reaches it.
    """

    last_version: int
    evaluate_every: int = 0
    target_accuracy: float | None = None


class Trainer:
    """One run's trainer. ``tick`` makes at most one step; ``done`` is set once the schedule is complete."""

    def __init__(
        self,
        policy: Policy,
        inbox: Inbox,
        publisher: Publisher,
        schedule: Schedule,
        state_dir: Path,
        evaluator: Evaluator | None = None,
        sink: Sink | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        """Without an ``evaluator`` there are no evaluations, without a ``curriculum`` no tasks from a file."""
        self.policy, self.inbox, self.publisher, self.evaluator = policy, inbox, publisher, evaluator
        self.recipe, self.rules = policy.recipe, policy.rules
        self.schedule, self.state_dir = schedule, state_dir
        self.state, self.previous = state_dir / "state.safetensors", state_dir / "previous.safetensors"
        self.evaluations = state_dir / "evaluations.json"
        self.log = structlog.get_logger("trainer")
        self.metrics = MetricsLog(state_dir / "metrics.jsonl", sink)
        self.watch = Stopwatch()
        self.consumed: tuple[Consumption, ...] = ()
        self.files: dict[str, bytes] = {}
        self.curriculum = curriculum
        self.weighed: dict[tuple[int, int, int], Group] = {}
        self.lost: set[int] = set()
        self.evaluated: dict[int, float | None] = {}
        self.announced: int | None = None
        self.refused_since: float | None = None
        self.undone_seconds = UNDONE_SECONDS
        self.done = False

    def resume(self) -> None:
        """Loads the state on disk, and announces its version if a crash prevented that.

        Raises:
            Misconfigured: the chain has a newer version than the state.
        """
        if self.state.exists():
            self._load()
        if self.evaluations.exists():
            found = dict(json.loads(self.evaluations.read_bytes()))
            self.evaluated = {version: reached for version, reached in found.items() if version <= self.policy.version}
        on_chain = self.publisher.newest_version()
        if on_chain > self.policy.version and not self.state.exists():
            self._start_from(on_chain)
        if on_chain > self.policy.version:
            raise Misconfigured(
                f"the chain has version {on_chain} of this run, the state in {self.state_dir} only "
                f"{self.policy.version}: put the newest state back"
            )
        self._announce()
        self._evaluate_left_behind()
        self.log.info("resumed", version=self.policy.version)

    def _start_from(self, version: int) -> None:
        """Takes a published version up without the state it was trained with, if its weights are stored here."""
        if (directory := self.publisher.stored(version)) is not None:
            self.policy.adopt(version, directory)
            self.policy.optimizer_steps = version * self.recipe.optimizer_steps
            self._take_files(directory)
            self.log.warning("started_from_weights", version=version, without="masters and moments of the optimizer")

    def tick(self) -> bool:
        """Makes the next version if there are enough groups; returns whether it did."""
        self._announce()
        self._take_evaluations()
        self._evaluate_if_due()
        if self._finished():
            self.done = self.evaluator is None or not self.evaluator.pending
            return False
        selection = self._selection()
        self.watch.mark("wait")
        if selection is None:
            return False
        record = self.policy.train(selection.taken)
        self.watch.mark("train")
        self.consumed, self.files = consumption(selection.taken), self._own_files(selection.taken)
        self._keep_previous()
        self._save()
        self.watch.mark("save")
        self._announce()
        self.watch.mark("publish")
        self.metrics.step(asdict(record) | self._described(selection))
        self.log.info("step", version=self.policy.version, groups=len(selection.taken), tokens=record.tokens)
        return True

    def close(self) -> None:
        """Ends the fetches, and the evaluation that is under way, which a restarted trainer repeats."""
        self.inbox.close()
        if self.evaluator is not None:
            self.evaluator.close()
        self.metrics.close()

    def _announce(self) -> None:
        """Publishes the current version unless that is done. Training waits for it: its jobs are not yet consumed."""
        if self.announced == self.policy.version:
            return
        self.inbox.follow()  # raises at once if a final block was reverted
        try:
            self.publisher.publish(self.policy, self.consumed, self.files)
        except Reverted as refusal:
            if refusal.name not in UNDONE:
                raise
            self.refused_since = self.refused_since or time.monotonic()
            if refusal.name == "WrongState" and time.monotonic() - self.refused_since < self.undone_seconds:
                raise Unavailable(
                    f"version {self.policy.version} waits for a tally to be mined again: {refusal}"
                ) from refusal
            self._take_back(refusal)
        self.announced, self.refused_since = self.policy.version, None

    def _take_back(self, refusal: Reverted) -> None:
        """Goes back to the newest version on chain: later ones used jobs that are no longer accepted."""
        version, standing = self.policy.version, self.publisher.newest_version()
        self.weighed, self.lost = {}, set()
        if self.previous.exists():
            os.replace(self.previous, self.state)
            self._load()
        if self.policy.version != standing:
            directory = self.publisher.directory(standing)
            self.policy.adopt(standing, directory)
            self.consumed = ()
            self._take_files(directory)
            self._save()
        self.inbox.forget_tasks()
        for undone in range(standing + 1, version + 1):
            self.publisher.withdraw(undone)
            if self.evaluator is not None:
                self.evaluator.forget(undone)
        self.evaluated = {version: reached for version, reached in self.evaluated.items() if version <= standing}
        self._keep_evaluations()
        self.log.warning("steps_taken_back", version=version, to_version=standing, why=str(refusal))

    def _keep_previous(self) -> None:
        """Keeps the state before this step under another name, by a hard link."""
        if self.state.exists():
            link = self.previous.with_suffix(".unfinished")
            link.unlink(missing_ok=True)
            os.link(self.state, link)
            os.replace(link, self.previous)

    def _load(self) -> None:
        state = checkpoint.load(self.state)
        self.policy.load_state_dict(state["policy"])
        self.consumed = tuple(Consumption(round_, int(jobs, 16)) for round_, jobs in state["consumed"])
        self.files = {name: base64.b64decode(data) for name, data in state["files"].items()}
        self._take_curriculum()

    def _take_files(self, directory: Path) -> None:
        """Takes up the files of its own that a version in ``directory`` was published with."""
        self.files = {name: path.read_bytes() for name in OWN_FILES if (path := directory / name).exists()}
        self._take_curriculum()

    def _take_curriculum(self) -> None:
        if self.curriculum is not None:
            self.curriculum.take(self.files.get(CURRICULUM_FILE))

    def _own_files(self, groups: Sequence[Group]) -> dict[str, bytes]:
        """Returns the files of the version just made that are its own: rewards of what it consumed, tasks' weights."""
        jobs = sorted({(group.round, group.job) for group in groups})
        files = {REWARDS_FILE: Rewards(tuple(self.inbox.jobs[job].rewards for job in jobs)).canonical}
        if self.curriculum is not None:
            self.curriculum.use(groups)
            files[CURRICULUM_FILE] = self.curriculum.file
        return files

    def _selection(self) -> Selection | None:
        """Returns the groups for the next step, or None if it should wait for more."""
        newest = self.policy.version
        self.inbox.poll(oldest_usable=newest - self.rules.async_level)
        if self.inbox.published < newest:
            self.announced = None  # a reorganisation dropped the announcement: repeat it first
            return None
        available = self.inbox.groups()
        groups = self._weighed(available if self.curriculum is None else self.curriculum.unused(available))
        selection = select(groups, newest, self.rules.async_level, self.recipe.groups_per_step)
        return selection if ready(selection, self.recipe) else None

    def _weighed(self, groups: Sequence[Group]) -> list[Group]:
        """Returns the groups with the logprobs of those that can be trained on, each recomputed once, on arrival.

        Without groups whose version's weights are no longer stored, as where a step was taken back.
        """
        known = ((group, self.weighed.get(group.key)) for group in groups)
        # After a reorganisation, another artifact may have the same place.
        self.weighed = {g.key: held for g, held in known if held and held.completions is g.completions}
        usable_ = [
            g for g in groups if g.informative and usable(g.version, self.policy.version, self.rules.async_level)
        ]
        arrived = sorted((g for g in usable_ if g.key not in self.weighed), key=lambda group: group.version)
        if arrived:
            self.watch.mark("wait")
        for version, made in groupby(arrived, key=lambda group: group.version):
            if version not in self.lost:
                self.weighed |= {group.key: group for group in self._weigh(version, list(made))}
        if arrived:
            self.watch.mark("weigh")
        unweighed = {group.key for group in usable_} - self.weighed.keys()
        return [self.weighed.get(group.key, group) for group in groups if group.key not in unweighed]

    def _weigh(self, version: int, groups: Sequence[Group]) -> list[Group]:
        if version == self.policy.version:
            return self.policy.weigh(groups)
        if (directory := self.publisher.stored(version)) is None:
            self.lost.add(version)
            self.log.warning("weights_missing", version=version)
            return []
        return self.policy.weigh(groups, self.policy.model.stored_weights(directory))

    def _finished(self) -> bool:
        target = self.schedule.target_accuracy
        reached = target is not None and any(found is not None and found >= target for found in self.evaluated.values())
        used_up = self.curriculum is not None and self.curriculum.used_up
        return reached or used_up or self.policy.version >= self.schedule.last_version

    def _evaluate_if_due(self) -> None:
        """Asks for the evaluation of this version if it is due, and of the first as long as it is not evaluated.

        A version in between is left out while as many wait as may, each of which is kept on disk.
        """
        if self.evaluator is None:
            return
        every, ends = self.schedule.evaluate_every, [0, self.schedule.last_version]
        if self.curriculum is not None and self.curriculum.used_up:
            ends.append(self.policy.version)
        for version in {0, self.policy.version}:
            due = version in ends or (every > 0 and version % every == 0)
            if not due or version in self.evaluated or version in self.evaluator.pending:
                continue
            if version not in ends and len(self.evaluator.pending) >= EVALUATIONS_WAITING:
                self.evaluated[version] = None
                self.log.warning("evaluation_left_out", version=version, waiting=len(self.evaluator.pending))
                continue
            self.evaluator.request(version, self.publisher.directory(version))

    def _evaluate_left_behind(self) -> None:
        """Asks again for the evaluations that a trainer before this one did not see."""
        if self.evaluator is None:
            return
        for version, directory in self.evaluator.left_behind().items():
            if version in self.evaluated or version > self.policy.version:
                self.evaluator.forget(version)
            else:
                self.evaluator.request(version, directory)

    def _take_evaluations(self) -> None:
        if self.evaluator is None:
            return
        for result in self.evaluator.take():
            if result.found is None and result.version in (0, self.schedule.last_version):
                raise Misconfigured(
                    f"version {result.version} could not be evaluated, see above: "
                    "mend that, or train without evaluations by evaluation_problems 0"
                )
            self.evaluated[result.version] = None if result.found is None else result.found.accuracy
            if result.found is not None:
                self.metrics.evaluation(result.version, result.found, result.seconds)
            self._keep_evaluations()
            self.evaluator.forget(result.version)

    def _keep_evaluations(self) -> None:
        write_atomically(self.evaluations, json.dumps(list(self.evaluated.items())).encode())

    def _save(self) -> None:
        checkpoint.save(
            self.state,
            {
                "policy": self.policy.state_dict(),
                "consumed": [[entry.round, hex(entry.jobs)] for entry in self.consumed],
                "files": {name: base64.b64encode(data).decode() for name, data in self.files.items()},
            },
        )

    def _described(self, selection: Selection) -> dict[str, Any]:
        groups = [*selection.taken, *selection.idle]
        lengths = [len(completion) for group in groups for completion in group.completions]
        return {
            "version": self.policy.version,
            "reward": fmean(reward for group in groups for reward in group.rewards),
            "sources": mean_by_source((group.source, reward) for group in groups for reward in group.rewards),
            "length": fmean(lengths),
            "truncated": fmean(length == self.rules.max_tokens for length in lengths),
            "mismatch": mismatch(selection.taken),
            "groups": len(selection.taken),
            "rollouts": sum(len(group.completions) for group in selection.taken),
            "groups_idle": len(selection.idle),
            "groups_left": len(selection.left),
            "groups_stale": len(selection.stale) + self.inbox.take_expired(),
            "rounds": sorted({group.round for group in selection.taken}),
            "seconds": self.watch.lap(),
        }


def ready(selection: Selection, recipe: Recipe) -> bool:
    """Returns whether to make a step now: there are enough groups, or they come from more than one round. PURE."""
    rounds = {group.round for group in selection.taken}
    return len(selection.taken) >= recipe.groups_to_start or len(rounds) > 1


def consumption(groups: Sequence[Group]) -> tuple[Consumption, ...]:
    """Returns the jobs that ``groups`` come from, by round. PURE."""
    rounds = sorted({group.round for group in groups})
    return tuple(Consumption(number, bitmap_of({g.job for g in groups if g.round == number})) for number in rounds)
