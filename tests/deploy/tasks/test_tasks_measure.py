"""``assize tasks measure``: tasks that a model solves sometimes are kept, the held-out ones always."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deploy.tasks.measuring import PassRate, kept, rates_by_source
from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured
from protocol.tensor.directory import tokenizer_hash
from protocol.tensor.model import load_tokenizer
from protocol.wire.tasks import TaskHeader, TaskRow, TaskSource, decode_tasks, encode_tasks
from tests.deploy.tasks.conftest import Tasks
from trainer.builtin import Warmup, make_builtin

HEADER = TaskHeader(bytes(32), (TaskSource("a", 1), TaskSource("b", 1)))
ROWS = [TaskRow((n + 1,), str(n), "exact", source=n // 4, held_out=n == 7) for n in range(8)]
RATES = [PassRate(row, rate, 5.0) for row, rate in enumerate((0.0, 0.125, 0.5, 1.0, 0.25, 0.0, 1.0))]


@pytest.mark.parametrize("command", ["build", "show", "try", "measure"])
def test_every_command_explains_itself(tasks: Tasks, command: str) -> None:
    assert tasks(command, "--help").code == 0


def test_tasks_within_the_range_stay_and_so_do_held_out_ones() -> None:
    file = decode_tasks(encode_tasks(HEADER, ROWS))
    again = decode_tasks(kept(file, RATES, 0.125, 0.5))
    assert [again.row(index).answer for index in range(len(again))] == ["1", "2", "4", "7"]
    assert again.header == file.header
    first, second = rates_by_source(file, RATES, 0.125, 0.5)
    assert (first["measured"], first["never"], first["always"], first["kept"]) == (4, 1, 1, 2)
    assert (second["source"], second["kept"], second["pass_rate"]) == ("b", 1, 0.4167)
    with pytest.raises(Misconfigured, match=r"source b has no task with a pass rate from 0\.5 to 0\.6"):
        kept(file, RATES, 0.5, 0.6)


def test_a_model_tries_tasks_and_is_measured_the_same_each_time(tasks: Tasks, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model, file, out = tmp_path / "model", tmp_path / "tasks.parquet", tmp_path / "kept.parquet"
    make_builtin(model, 3, Arithmetic(1), Warmup(hidden=32, intermediate=32, steps=150))
    tokenizer = load_tokenizer(model)
    rows = [
        TaskRow(tuple(tokenizer.encode(f"{a}+{b}\n", add_special_tokens=False)), f"{a + b:02d}", "exact")
        for a in range(4)
        for b in range(4)
    ]
    file.write_bytes(encode_tasks(TaskHeader(tokenizer_hash(model), (TaskSource("sums", 1),)), rows))
    words = ["measure", file, "--model", model, "--max-tokens", 40, "--samples", 4, "--keep", "0:1", "--out", out]
    told = tasks(*words, "--json").json
    (row,) = told["sources"]
    assert (row["measured"], row["kept"]) == (16, 16)
    assert 0 < row["pass_rate"] < 1, "some tries are right"
    assert tasks(*words, "--json").json == told
    assert out.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("keep", ["", "1", "0.5:0.1", "-1:1", "x:y", "0:2"])
def test_a_range_that_is_none_is_refused(tasks: Tasks, model: Path, tmp_path: Path, keep: str) -> None:
    refused = tasks("measure", tmp_path / "none", "--model", model, "--keep", keep)
    assert refused.code == 2
    assert "expected MIN:MAX from 0 to 1" in refused.err
