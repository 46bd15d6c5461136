"""What one party makes of a version's tasks: a hash over the tokens of its prompts, in a process of its own.

``python -m tests.bench.task_draws VERSION PARAMS DRAWS PARTY``
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from protocol.environments.environment import at_version
from protocol.environments.registry import environment
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.rules import EnvironmentRules
from protocol.wire.seeds import job_seed, prompt_seed
from tests.coordinator.swarm import RULES

ADDRESS = "0x" + "11" * 20


def main() -> None:
    """Prints the hash."""
    directory, params, draws, party = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    tokenizer = load_tokenizer(directory)
    model = Model(None, tokenizer, tokenizer.eos_token_id)
    rules = RULES.model_copy(update={"environment": EnvironmentRules(name="tasks", params=params)})
    tasks = at_version(environment("tasks", params), directory)
    digest = hashlib.sha256()
    for prompt in prompts_of(party, draws, rules, tasks, model):
        digest.update(np.array(prompt, "<i4").tobytes() + b"|")
    print(digest.hexdigest())


def prompts_of(party: str, draws: int, rules: Any, tasks: Any, model: Model) -> Iterator[tuple[int, ...]]:
    """Yields the tokens of prompts by the party's own code, one job of one group for each draw."""
    for number in range(draws):
        beacon = number.to_bytes(32, "big")
        seed = job_seed(1, ADDRESS, number, beacon, 0)
        if party == "worker":
            from worker.prover import Deployed, Work, tasks_of

            work = Work(number, 1, (0,), beacon, 0, bytes(32), 1)
            yield tasks_of(work, Deployed(1, ADDRESS), rules, tasks, model)[0].request.prompt_tokens
        elif party == "validator":
            from validator.judging.judge import prompts_of as expected

            yield expected(model, rules, tasks, seed)[0]
        else:
            from trainer.rewarding import problems_of

            (problem,) = problems_of(tasks, rules, seed)
            assert problem == tasks.problem(prompt_seed(seed, 0))
            yield model.prompt_tokens(problem.prompt, rules)


if __name__ == "__main__":
    main()
