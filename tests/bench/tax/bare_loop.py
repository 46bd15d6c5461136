"""The bare loop: a run's training in one process, without a market. Baseline for the market's wall-clock.

Uses the market's engine, rules, recipe, batch and staleness, on all the threads torch is given. Nothing is proved, sent
or judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from eth_utils.crypto import keccak

from protocol.environments.environment import Environment, Problem
from protocol.tensor.completions import Completion, Request
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from trainer.batch import Group, select
from trainer.config import Recipe
from trainer.evaluate import evaluate
from trainer.policy import Policy, StepRecord
from worker.engines.transformers_engine import TransformersEngine

_DOMAIN = b"assize/bare/1"


@dataclass(frozen=True, slots=True)
class BareStep:
    """One round and the step made from it. ``step`` is absent where no group was informative."""

    round: int
    reward: float
    groups_taken: int
    generation_seconds: float
    training_seconds: float
    step: StepRecord | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class BareRecord:
    """What a bare run did and where its time went; ``wall_seconds`` is the sum of the parts, evaluation left out.

    ``reached_round`` is the round after which the target accuracy was measured, ``None`` where it was not asked or
    not met.
    """

    seed: int
    accuracy_before: float
    accuracy_after: float
    rounds: int
    rollouts: int
    trained_tokens: int
    wall_seconds: float
    generation_seconds: float
    training_seconds: float
    other_seconds: float
    evaluation_seconds: float
    reached_round: int | None
    steps: tuple[BareStep, ...]


def run_bare(
    model_directory: Path,
    environment: Environment,
    rules: Rules,
    recipe: Recipe,
    seed: int,
    *,
    staleness: int | None = None,
    target_accuracy: float | None = None,
    evaluate_every: int = 5,
    problems: int = 512,
    lose: Callable[[int, int], bool] = lambda round_, group: False,
    progress: Callable[[BareStep], None] = lambda step: None,
) -> BareRecord:
    """Train ``recipe.steps`` rounds, or until ``target_accuracy`` is measured on ``problems`` held-out problems.

    ``staleness`` is how many versions old the generating weights are (default: the rules' async level); ``lose``
    says which groups of a round never reach the trainer.
    """
    loop = Loop(model_directory, environment, rules, recipe, seed)
    loop.staleness = rules.async_level if staleness is None else staleness
    loop.problems, loop.lose = problems, lose
    before = loop.accuracy()
    reached: int | None = None
    while loop.round < recipe.steps and reached is None:
        step = loop.advance(measured=target_accuracy is not None and (loop.round + 1) % evaluate_every == 0)
        if target_accuracy is not None and step.accuracy is not None and step.accuracy >= target_accuracy:
            reached = loop.round
        progress(step)
    return loop.record(before, loop.accuracy(), reached)


@dataclass(slots=True)
class _Clock:
    """Seconds spent by part."""

    parts: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("generation", "training", "evaluation"), 0.0)
    )
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.parts[name] += time.perf_counter() - start


class Loop:
    """State of a bare run between rounds."""

    staleness: int
    problems: int
    lose: Callable[[int, int], bool]

    def __init__(
        self, model_directory: Path, environment: Environment, rules: Rules, recipe: Recipe, seed: int
    ) -> None:
        self.environment, self.rules, self.recipe, self.seed = environment, rules, recipe, seed
        self.policy = Policy(model_directory, recipe, rules)
        self.kept = {0: self.policy.weights()}
        self.engine = TransformersEngine(rules.model.dtype)
        self.engine.load(model_directory)
        self.round, self.steps = 0, list[BareStep]()
        self.left: tuple[Group, ...] = ()
        self.clock = _Clock()

    def advance(self, measured: bool) -> BareStep:
        """One round of generation and one training step."""
        before = dict(self.clock.parts)
        version = max(0, self.policy.version - self.staleness)
        with self.clock.part("generation"):
            groups = self._generate(version)
        kept = [group for group in groups if not self.lose(self.round, group.group)]
        with self.clock.part("training"):
            taken, record = self._train(self.policy.weigh([g for g in kept if g.informative], self.kept[version]))
        self.round += 1
        step = BareStep(
            round=self.round,
            reward=sum(sum(group.rewards) for group in groups) / sum(len(group.rewards) for group in groups),
            groups_taken=taken,
            generation_seconds=self.clock.parts["generation"] - before["generation"],
            training_seconds=self.clock.parts["training"] - before["training"],
            step=record,
            accuracy=self.accuracy() if measured else None,
        )
        self.steps.append(step)
        return step

    def _train(self, groups: Sequence[Group]) -> tuple[int, StepRecord | None]:
        recipe = self.recipe
        chosen = select([*self.left, *groups], self.policy.version, self.rules.async_level, recipe.groups_per_step)
        self.left = chosen.left
        if not chosen.taken:
            return 0, None
        record = self.policy.train(chosen.taken)
        self.kept[self.policy.version] = self.policy.weights()
        self.kept.pop(self.policy.version - self.staleness - 1, None)
        return len(chosen.taken), record

    def _generate(self, version: int) -> list[Group]:
        """A round's groups, made and rewarded with the weights of ``version``."""
        round_seed = keccak(_DOMAIN + self.seed.to_bytes(8, "big") + self.round.to_bytes(8, "big"))
        self.engine.model.copy_weights(self.kept[version])
        count, samples = self.recipe.groups_per_step, self.rules.samples_per_group
        problems = [self.environment.problem(keccak(round_seed + group.to_bytes(4, "big"))) for group in range(count)]
        prompts = [self.engine.model.prompt_tokens(problem.prompt, self.rules) for problem in problems]
        requests = [self._request(prompts[r // samples], noise_key(round_seed, r)) for r in range(count * samples)]
        completions = self.engine.generate(requests)
        return [
            self._group(version, g, problems[g], prompts[g], completions[g * samples : (g + 1) * samples])
            for g in range(count)
        ]

    def _request(self, prompt_tokens: tuple[int, ...], key: tuple[int, int]) -> Request:
        rules = self.rules
        return Request(prompt_tokens, key, rules.max_tokens, rules.temperature, self.engine.model.stop_tokens(rules))

    def _group(
        self, version: int, group: int, problem: Problem, prompt: tuple[int, ...], completions: Sequence[Completion]
    ) -> Group:
        model = self.engine.model
        stops = model.stop_tokens(self.rules)
        texts = [model.completion_text(completion.output_tokens, stops) for completion in completions]
        lengths = [len(completion.output_tokens) for completion in completions]
        return Group(
            round=self.round,
            job=group // self.rules.groups_per_job,
            group=group,
            version=version,
            prompt_tokens=np.array(prompt, np.int32),
            completions=tuple(np.array(completion.output_tokens, np.int32) for completion in completions),
            rewards=tuple(
                problem.total(self.environment.reward(problem, text), length)
                for text, length in zip(texts, lengths, strict=True)
            ),
        )

    def accuracy(self) -> float:
        """Sampled accuracy of the present weights on held-out problems."""
        with self.clock.part("evaluation"):
            return evaluate(self.policy.model, self.environment, self.rules, self.seed, self.problems).accuracy

    def record(self, before: float, after: float, reached: int | None) -> BareRecord:
        parts = self.clock.parts
        wall = time.perf_counter() - self.clock.started - parts["evaluation"]
        return BareRecord(
            seed=self.seed,
            accuracy_before=before,
            accuracy_after=after,
            rounds=self.round,
            rollouts=self.round * self.recipe.groups_per_step * self.rules.samples_per_group,
            trained_tokens=sum(step.step.tokens for step in self.steps if step.step is not None),
            wall_seconds=wall,
            generation_seconds=parts["generation"],
            training_seconds=parts["training"],
            other_seconds=wall - parts["generation"] - parts["training"],
            evaluation_seconds=parts["evaluation"],
            reached_round=reached,
            steps=tuple(self.steps),
        )
