"""A stranger's worker is run apart, judged by its files alone, and its failures are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.zoo.commands import app
from deploy.zoo.making import producer_in
from protocol.errors import Misconfigured
from protocol.wire.rules import encode_rules
from tests.validator.conftest import RULES, model_directory  # noqa: F401

HONEST = """
from worker.producer import Producer

class Mine(Producer):
    \"\"\"Works honestly.\"\"\"
"""
EDITS = """
from dataclasses import replace
from worker.producer import Producer

class Edits(Producer):
    \"\"\"Replaces the first token of every rollout.\"\"\"

    def prove(self, tasks, completions):
        made = super().prove(tasks, completions)
        for rollout in made:
            tokens = rollout.output_tokens.copy()
            tokens[0] = (tokens[0] + 1) % 20
            object.__setattr__(rollout, "output_tokens", tokens)
        return made
"""
PATCHES = (
    EDITS
    + """
import validator.judging.judge as judging
judging.judge = lambda *arguments: []
print("{}")
"""
)


def tried(tmp_path: Path, model: Path, source: str, *more: str) -> tuple[int, str]:
    """Exit code and output of a trial of eight jobs of a tiny model."""
    (tmp_path / "rules.json").write_bytes(encode_rules(RULES))
    (tmp_path / "mine.py").write_text(source)
    words = ["try", str(tmp_path / "mine.py"), "--rules", str(tmp_path / "rules.json"), "--model", str(model)]
    done = CliRunner().invoke(app, [*words, "--jobs", "2", *more])
    return done.exit_code, done.output


def test_an_honest_worker_is_not_found(tmp_path: Path, model_directory: Path) -> None:  # noqa: F811
    code, said = tried(tmp_path, model_directory, HONEST)
    rows = json.loads(said.splitlines()[-1])
    assert (code, rows["stranger"]["caught"], rows["honest"]["caught"]) == (0, 0, 0)
    assert rows["stranger"] == rows["honest"]
    assert "not found within 2 jobs" in said


@pytest.mark.parametrize("source", [EDITS, PATCHES])
def test_a_cheat_is_caught_whatever_it_does_to_its_own_process(
    tmp_path: Path,
    model_directory: Path,  # noqa: F811
    source: str,
) -> None:
    code, said = tried(tmp_path, model_directory, source)
    rows = json.loads(said.splitlines()[-1])
    assert (code, rows["stranger"]["caught"], rows["honest"]["caught"]) == (0, 2, 0)
    assert "caught: 99 of 100 such nodes within 1 jobs" in said


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise ValueError('no luck')", "exit code 1: ValueError: no luck"),
        ("import os; os._exit(9)", "exit code 9: it says nothing"),
    ],
)
def test_a_file_that_is_no_worker_is_told_in_one_sentence(
    tmp_path: Path,
    model_directory: Path,  # noqa: F811
    source: str,
    sentence: str,
) -> None:
    code, said = tried(tmp_path, model_directory, source)
    assert code == 2
    assert sentence in " ".join(said.split())
    assert "Traceback" not in said


@pytest.mark.parametrize(("source", "workers"), [("x = 1", 0), (HONEST + "class Other(Producer):\n    pass\n", 2)])
def test_a_file_defines_one_worker(tmp_path: Path, source: str, workers: int) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(Misconfigured, match=f"defines {workers} workers, expected one class"):
        producer_in(tmp_path / "mine.py")


def test_a_worker_that_never_ends_is_ended(tmp_path: Path, model_directory: Path) -> None:  # noqa: F811
    code, said = tried(tmp_path, model_directory, "while True: pass", "--seconds", "1")
    assert code == 3
    assert "took longer than 1 s" in " ".join(said.split())
