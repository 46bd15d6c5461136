"""From a model directory to rules that a run can stand on, in one command; wrong input is told in a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from protocol.wire.rules import decode_rules
from validator.commands import app

RUN_FILE = """
[rules]
groups_per_job = 2
samples_per_group = 2
temperature = 1.0
max_tokens = 24
async_level = 1
model = { dtype = "float32", head_dtype = "float32" }
environment = { name = "arithmetic", params = { digits = 2 } }
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE)
    return path


def types(*words: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, words)])


def test_prompts_go_into_the_models_chat_template_where_asked(
    model_directory: Path, run_file: Path, tmp_path: Path
) -> None:
    model, words = tmp_path / "model", ("--run-file", run_file, "--rollouts", 16, "--batches", "8", "--chat")
    shutil.copytree(model_directory, model)
    refused = types("--model", model, "--out", tmp_path / "x-rules.json", *words)
    assert refused.exit_code == 2
    assert "no chat template" in refused.output
    (model / "chat_template.jinja").write_text("answer {{ messages[0].content }}=")
    assert types("--model", model, "--out", tmp_path / "x-rules.json", *words).exit_code == 0
    rules = decode_rules((tmp_path / "x-rules.json").read_bytes())
    assert (rules.prompt_before, rules.prompt_after) == ("answer ", "=")


def test_rules_report_picture_and_numbers_come_of_one_command(
    model_directory: Path, run_file: Path, tmp_path: Path
) -> None:
    out, picture, raw = tmp_path / "x-rules.json", tmp_path / "x.png", tmp_path / "x.npz"
    made = ("--run-file", run_file, "--rollouts", 64, "--batches", "1,8", "--picture", picture, "--raw", raw)
    done = types("--model", model_directory, "--out", out, *made, "--json")
    assert done.exit_code == 0, done.output
    rules = decode_rules(out.read_bytes())
    assert (rules.max_tokens, rules.rollouts_per_job) == (24, 4)
    assert rules.thresholds.sampling_fraud is None
    shown, report = json.loads(done.stdout.splitlines()[-1]), json.loads((tmp_path / "x-calibration.json").read_text())
    assert shown["rules_hash"] == report["rules_hash"]
    assert report["rules"] == rules.model_dump(mode="json")
    assert report["honest"]["fraud"] == 0
    assert report["honest"]["jobs"] == 16
    assert {band["kind"].get("batch") for band in report["bands"]} >= {1, 8}
    assert report["specimens"][0]["jobs_by_batch"].keys() == {"1", "8"}
    assert str(tmp_path) not in json.dumps(report)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(np.load(raw)["margins_S"]) == report["honest"]["tokens"]
    again = tmp_path / "again.toml"
    again.write_text('rules = "x-rules.json"\n')
    cheat = ("--made", _kept(model_directory, out, tmp_path), "--against", f"itself={tmp_path / 'kept'}")
    done = types("--model", model_directory, "--run-file", again, "--rollouts", 0, "--out", tmp_path / "y.json", *cheat)
    assert done.exit_code == 0, done.output
    assert "itself" in done.stdout


def _kept(model: Path, rules: Path, folder: Path) -> Path:
    """Specimens made by a worker elsewhere."""
    from worker.specimens import generate_specimens

    generate_specimens(rules, model, folder / "kept", "transformers", [4], 16, 3, "cpu")
    return folder / "kept"


def test_what_will_not_do_is_told_before_anything_is_made(
    model_directory: Path, run_file: Path, tmp_path: Path
) -> None:
    given: dict[str, object] = {"--model": model_directory, "--rollouts": 4, "--out": tmp_path / "rules.json"}
    given |= {"--run-file": run_file}
    (tmp_path / "bare.toml").write_text("[terms]\n")
    (tmp_path / "named.toml").write_text('rules = "none.json"\n')
    (tmp_path / "wrong.toml").write_text(RUN_FILE.replace("temperature = 1.0", "temperature = 9"))
    for changed, words in (
        ({"--model": tmp_path}, "invalid model directory"),
        ({"--engines": "steam"}, "unknown engine 'steam': expected transformers, vllm"),
        ({"--rollouts": 0}, "nothing to measure"),
        ({"--headroom": 0.5}, "1 or more"),
        ({"--void-rate": 2}, "between 0 and 1"),
        ({"--out": tmp_path / "nowhere" / "rules.json"}, "there is no folder"),
        ({"--against": "elephant"}, "NAME=FOLDER"),
        ({"--against": f"x={tmp_path}"}, "no specimens in"),
        ({"--made": tmp_path}, "no specimens in"),
        ({"--run-file": tmp_path / "no.toml"}, "cannot read the run file"),
        ({"--run-file": tmp_path / "bare.toml"}, "expected a [rules] table or the path of a rules file"),
        ({"--run-file": tmp_path / "named.toml"}, "none.json"),
        ({"--run-file": tmp_path / "wrong.toml"}, "rules.temperature"),
        ({"--dtype": "int3"}, "rules.model.dtype"),
        ({"--batches": "many"}, "batch sizes"),
        (
            {"--batches": "1"},
            "too few rollouts for a calibration: 1 of the 4 jobs that it takes at least, each of 4; give",
        ),
    ):
        done = types(*(word for pair in (given | changed).items() for word in pair))
        assert done.exit_code == 2, (changed, done.output)
        told = [line for line in done.stderr.splitlines() if line.startswith("assize: ")]
        assert len(told) == 1
        assert words in told[0], told
        assert "Traceback" not in done.output
    assert not (tmp_path / "rules.json").exists()
