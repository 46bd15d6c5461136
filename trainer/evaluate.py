"""Evaluation on held-out problems, by the same seeded decoding as the workers'."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import fmean

from protocol.environments.environment import Environment
from protocol.errors import Misconfigured
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import Model
from protocol.wire.rules import Rules

_DOMAIN = b"assize/evaluate/1"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean reward of one completion for each held-out problem, and the first problem's prompt and completion."""

    accuracy: float
    prompt: str
    completion: str


def evaluate(model: Model, environment: Environment, rules: Rules, seed: int, count: int = 512) -> Evaluation:
    """Evaluates a model on held-out problems, sampling as the run's rules say.

    ``seed`` fixes the ``count`` problems and the sampling noise.

    Raises:
        Misconfigured: the environment has fewer problems.
    """
    try:
        problems = environment.held_out_problems(count, seed)
    except ValueError as error:
        raise Misconfigured(f"invalid evaluation_problems {count}: {error}") from error
    requests = [
        Request(
            prompt_tokens=model.prompt_tokens(problem.prompt, rules),
            noise_key=_noise_key(seed, index),
            max_tokens=rules.max_tokens,
            temperature=rules.temperature,
            stop_tokens=model.stop_tokens(rules),
        )
        for index, problem in enumerate(problems)
    ]
    completions = decode(model.network, requests)
    texts = [model.completion_text(completion.output_tokens) for completion in completions]
    reward = fmean(environment.reward(problem, text) for problem, text in zip(problems, texts, strict=True))
    return Evaluation(reward, problems[0].prompt, texts[0])


def _noise_key(seed: int, index: int) -> tuple[int, int]:
    digest = hashlib.sha256(_DOMAIN + seed.to_bytes(8, "big") + index.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")
