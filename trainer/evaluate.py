"""Accuracy on held-out problems, by the same seeded decoding as the workers'."""

from __future__ import annotations

import hashlib

from protocol.environments.environment import Environment
from protocol.errors import Misconfigured
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import Model
from protocol.wire.rules import Rules

_DOMAIN = b"assize/evaluate/1"


def accuracy(model: Model, environment: Environment, rules: Rules, seed: int, count: int = 512) -> float:
    """Returns the mean reward of one completion per held-out problem, sampled as the run's rules say.

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
    return sum(environment.reward(problem, text) for problem, text in zip(problems, texts, strict=True)) / count


def _noise_key(seed: int, index: int) -> tuple[int, int]:
    digest = hashlib.sha256(_DOMAIN + seed.to_bytes(8, "big") + index.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")
