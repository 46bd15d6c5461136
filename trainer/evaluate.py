"""Evaluation on held-out problems, by the same seeded decoding as the workers'."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from protocol.environments.environment import Environment, Problem
from protocol.errors import Misconfigured
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import Model
from protocol.wire.rules import Rules
from trainer.rewarding import GRADERS, mean_by_source

ROWS = 64
"""Completions decoded at once, which bounds the memory that an evaluation takes."""
_DOMAIN = b"assize/evaluate/1"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of ``samples`` completions of each held-out problem, and the first problem with its first completion.

    ``accuracy`` is the mean reward (avg@k) without length budgets, ``sources`` that of each source of tasks, by name;
    ``pass_at_k`` is the share of problems of which a completion has reward 1.
    """

    accuracy: float
    pass_at_k: float
    samples: int
    prompt: str
    completion: str
    sources: Mapping[str, float]


def held_out(environment: Environment, seed: int, count: int) -> list[Problem]:
    """Returns the problems of an evaluation; raises ``Misconfigured`` if the environment has fewer."""
    try:
        return environment.held_out_problems(count, seed)
    except ValueError as error:
        raise Misconfigured(f"invalid evaluation_problems {count}: {error}") from error


def evaluate(
    model: Model, environment: Environment, rules: Rules, seed: int, count: int = 512, samples: int = 1
) -> Evaluation:
    """Evaluates a model on held-out problems, sampling as the run's rules say.

    ``seed`` fixes the ``count`` problems and the sampling noise.

    Raises:
        Misconfigured: the environment has fewer problems.
    """
    problems = held_out(environment, seed, count)
    asked = [problem for problem in problems for _ in range(samples)]
    requests = [
        Request(
            prompt_tokens=model.prompt_tokens(problem.prompt, rules),
            noise_key=_noise_key(seed, index),
            max_tokens=rules.max_tokens,
            temperature=rules.temperature,
            stop_tokens=model.stop_tokens(rules),
        )
        for index, problem in enumerate(asked)
    ]
    texts = [
        model.completion_text(completion.output_tokens, model.stop_tokens(rules))
        for start in range(0, len(requests), ROWS)
        for completion in decode(model.network, requests[start : start + ROWS])
    ]
    with ThreadPoolExecutor(GRADERS) as graders:
        rewards = list(graders.map(environment.reward, asked, texts))
    best = [max(rewards[at : at + samples]) for at in range(0, len(rewards), samples)]
    return Evaluation(
        accuracy=fmean(rewards),
        pass_at_k=fmean(reward == 1.0 for reward in best),
        samples=samples,
        prompt=model.prompt_text(problems[0].prompt),
        completion=texts[0],
        sources=mean_by_source(zip((problem.source for problem in asked), rewards, strict=True)),
    )


def _noise_key(seed: int, index: int) -> tuple[int, int]:
    digest = hashlib.sha256(_DOMAIN + seed.to_bytes(8, "big") + index.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")
