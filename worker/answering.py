"""Answers of a model directory to a prompt that a person types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from protocol.environments.environment import Environment, Problem, TypedProblems, VersionedTasks
from protocol.environments.registry import environment
from protocol.errors import Misconfigured
from protocol.node.terminal import printable
from protocol.tensor.chat import with_chat
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import DTYPES, load_model
from protocol.wire.rules import Rules

_DOMAIN = b"assize/try/1"


@dataclass(frozen=True, slots=True)
class TriedAnswer:
    """One completion of ``prompt``; ``reward`` is None where the environment knows no right answer to it."""

    prompt: str
    completion: str
    tokens: int
    finish_reason: str
    reward: float | None


@torch.no_grad()
def answers(directory: Path, rules: Rules, text: str, samples: int | None, device: str = "cpu") -> list[TriedAnswer]:
    """Returns ``samples`` completions at the run's temperature, or the greedy one if that is None.

    Raises:
        Misconfigured: the model does not load, or the prompt is empty.
    """
    tasks = environment(rules.environment.name, rules.environment.params)
    problem = tasks.typed(text) if isinstance(tasks, TypedProblems) else None
    prompt = text if problem is None else str(problem.prompt)
    model = load_model(directory, DTYPES[rules.model.dtype])
    model.network.to(device)
    if isinstance(tasks, VersionedTasks) and model.tokenizer.chat_template:
        rules = with_chat(rules, model.tokenizer)  # the file's prompts have the template in them
    if not (tokens := model.prompt_tokens(prompt, rules)):
        raise Misconfigured(f"empty prompt {text!r}: expected a text to complete")
    temperature = rules.temperature if samples else 0.0
    requests = [
        Request(tokens, _noise_key(prompt, index), rules.max_tokens, temperature, model.stop_tokens(rules))
        for index in range(samples or 1)
    ]
    completions = decode(model.network, requests)
    texts = [model.completion_text(each.output_tokens, model.stop_tokens(rules)) for each in completions]
    return [
        TriedAnswer(prompt, told, len(each.output_tokens), each.finish_reason, _reward(tasks, problem, told))
        for each, told in zip(completions, texts, strict=True)
    ]


def _reward(tasks: Environment, problem: Problem | None, told: str) -> float | None:
    return None if problem is None else tasks.reward(problem, told)


def _noise_key(prompt: str, index: int) -> tuple[int, int]:
    digest = hashlib.sha256(_DOMAIN + index.to_bytes(8, "big") + prompt.encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def show_answers(found: Sequence[TriedAnswer], run: int, version: int, samples: int | None, as_json: bool) -> None:
    """Prints answers: as JSON on one line, or each with its reward."""
    if as_json:
        print(json.dumps({"run": run, "version": version, "answers": [asdict(answer) for answer in found]}))
        return
    print("\n".join(answer_lines(found, run, version, samples)))


def answer_lines(found: Sequence[TriedAnswer], run: int, version: int, samples: int | None) -> list[str]:
    """Returns answers as lines for a person. PURE."""
    way = "greedy" if samples is None else f"{samples} samples at the run's temperature"
    lines = [f"run {run}, version {version}, {way}", *printable(found[0].prompt.rstrip("\n")).split("\n")]
    for number, answer in enumerate(found, 1):
        reward = "" if answer.reward is None else f", reward {answer.reward:g}"
        name = "answer" if samples is None else f"sample {number}"
        ending = "" if answer.finish_reason == "stop" else ", cut off at the run's limit"
        lines += ["", *printable(answer.completion).split("\n"), f"({name}: {answer.tokens} tokens{reward}{ending})"]
    if len(found) > 1 and found[0].reward is not None:
        lines += ["", f"mean reward {sum(answer.reward or 0.0 for answer in found) / len(found):.3f}"]
    return lines
