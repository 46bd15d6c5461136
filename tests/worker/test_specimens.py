"""Specimens are what a worker would have made, and say what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocol.errors import Misconfigured, Rejected
from protocol.tensor.directory import weights_hash
from protocol.wire.rollout import decode
from protocol.wire.rules import encode_rules
from protocol.wire.specimens import INDEX, Specimens, decode_index, encode_index, file_of
from tests.coordinator.swarm import RULES
from worker.commands import app
from worker.specimens import NOWHERE, generate_specimens, sizes

SMALL = RULES.model_copy(update={"groups_per_job": 2, "samples_per_group": 2, "max_tokens": 12})


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_bytes(encode_rules(SMALL))
    return path


def generated(rules_file: Path, model: Path, out: Path, batches: list[int], rollouts: int) -> Specimens:
    generate_specimens(rules_file, model, out, "transformers", batches, rollouts, 5, "cpu")
    return decode_index((out / INDEX).read_text())


def test_every_batch_size_gets_jobs_of_its_own_and_the_index_names_them(
    rules_file: Path, small_model: Path, tmp_path: Path
) -> None:
    made = generated(rules_file, small_model, tmp_path / "out", [1, 8], 16)
    assert [batch.size for batch in made.batches] == [1, 8]
    jobs = [job for batch in made.batches for job in batch.jobs]
    assert sorted(set(jobs)) == jobs == list(range(len(jobs)))
    assert made.weights == weights_hash(small_model)
    assert made.maker == "transformers"
    for job in jobs:
        artifact = decode((tmp_path / "out" / file_of(job)).read_bytes())
        assert (artifact.job, artifact.manifest_root) == (job, made.weights)
        assert len(artifact.rollouts) == SMALL.rollouts_per_job


def test_the_batch_size_changes_no_token(rules_file: Path, small_model: Path, tmp_path: Path) -> None:
    for size in (1, 4):
        generated(rules_file, small_model, tmp_path / str(size), [size], 4)
    one, four = (decode((tmp_path / size / file_of(0)).read_bytes()) for size in ("1", "4"))
    for left, right in zip(one.rollouts, four.rollouts, strict=True):
        assert left.output_tokens.tolist() == right.output_tokens.tolist()


def test_an_index_is_read_back_and_anything_else_is_refused(
    rules_file: Path, small_model: Path, tmp_path: Path
) -> None:
    made = generated(rules_file, small_model, tmp_path / "out", [4], 4)
    assert decode_index(encode_index(made)) == made
    assert made.job_seed(0) != made.job_seed(1)
    unnamed = json.loads(encode_index(made))
    del unnamed["format"]
    for text in (json.dumps(unnamed), "", "[]", "{}", '{"format": "assize/specimens/1"}', '{"format": "x"}', "null"):
        with pytest.raises(Rejected, match="index"):
            decode_index(text)


def test_what_will_not_do_is_told_in_a_sentence(rules_file: Path, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(Misconfigured, match="not empty"):
        generated(rules_file, small_model, tmp_path / "full", [1], 1)
    with pytest.raises(Misconfigured, match="batch sizes"):
        sizes("1,none")
    for changed, words in (
        (("--rules", tmp_path / "nowhere.json"), "cannot read the rules"),
        (("--engine", "steam"), "expected one of transformers, vllm"),
        (("--model", tmp_path), "model directory"),
        (("--batches", "0"), "batch sizes"),
    ):
        given: dict[str, object] = {"--rules": rules_file, "--model": small_model, "--out": tmp_path / "out"}
        typed = [str(word) for pair in (given | dict([changed])).items() for word in pair]
        done = CliRunner().invoke(app, ["generate", *typed])
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert NOWHERE.chain_id == 0
