"""Worker, validator and trainer make the same tokens of a version's tasks, each by its own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deploy.tasks.in_rules import bring_tasks, read_tasks
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import at_version
from protocol.tensor.directory import tokenizer_hash
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.pins import TASKS_FILE
from protocol.wire.tasks import LengthTarget, TaskHeader, TaskRow, TaskSource, encode_tasks
from tests.bench.task_draws import prompts_of
from tests.conftest import ROOT
from tests.coordinator.swarm import RULES
from trainer.builtin import Warmup, make_builtin

DRAWS = 1_000


def builtin(folder: Path) -> Path:
    torch.set_num_threads(1)
    make_builtin(folder / "model", 3, Arithmetic(3), Warmup(hidden=32, intermediate=32, steps=0))
    return folder / "model"


def smollm2(folder: Path) -> Path:
    """SmolLM2 without its weights, which `make test` makes."""
    (folder / "model").mkdir()
    for path in (ROOT / "models" / "smollm2").iterdir():
        if path.suffix != ".safetensors":
            (folder / "model" / path.name).symlink_to(path)
    return folder / "model"


@pytest.mark.parametrize("model_in", [builtin, smollm2])
def test_a_thousand_draws_have_the_same_tokens_for_every_party(
    model_in: Callable[[Path], Path], tmp_path: Path
) -> None:
    directory = model_in(tmp_path)
    tokenizer = load_tokenizer(directory)
    rows = [
        TaskRow(
            tuple(tokenizer.encode(f"{n}+{n * n}\n", add_special_tokens=False)),
            str(n),
            "exact",
            source=n % 2,
            budget_at=1,
        )
        for n in range(300)
    ]
    sources, targets = (TaskSource("a", 2), TaskSource("b", 5)), (LengthTarget(9, (3, 4)), LengthTarget(99, (5,)))
    (tmp_path / TASKS_FILE).write_bytes(encode_tasks(TaskHeader(tokenizer_hash(directory), sources, targets), rows))
    unopened = read_tasks(tmp_path / TASKS_FILE, directory)
    bring_tasks(tmp_path / TASKS_FILE, directory)
    model = Model(None, tokenizer, tokenizer.eos_token_id)
    drawn = {
        party: list(prompts_of(party, DRAWS, RULES, at_version(unopened, directory), model))
        for party in ("worker", "validator", "trainer")
    }
    assert drawn["worker"] == drawn["validator"] == drawn["trainer"]
    assert len({prompt[1:3] for prompt in drawn["worker"]}) > 2
