"""Run files: the built-in one holds together, and a wrong one is named with its field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.errors import Misconfigured, Rejected
from protocol.wire.rules import decode_rules, encode_rules, rules_hash
from trainer.settings import read_recipe

NAMED = 'rules = "builtin-rules.json"'
RULES = BUILTIN.with_name("builtin-rules.json")
TABLE = """
[rules]
groups_per_job = 4
samples_per_group = 8
temperature = 1.0
max_tokens = 64
async_level = 2
model = { dtype = "float32", head_dtype = "float32" }
environment = { name = "arithmetic", params = { digits = 3 } }
sequential = { sigma = 1e-4 }

[rules.thresholds]
sampling_void = 0.01
sampling_fraud = 0.25
logprob_median = 1e-3
logprob_tail = 1e-2
toploc = 0.03125
toploc_mean = 0.005
toploc_null_ratio = 0.6
"""


def changed(folder: Path, old: str, new: str) -> Path:
    """A run file like the built-in one but for one change, with its rules in a table."""
    text = BUILTIN.read_text().replace(NAMED, TABLE)
    assert old in text
    path = folder / "run.toml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_a_round_of_the_built_in_run_suffices_for_a_step() -> None:
    run_file, recipe = read_run_file(), read_recipe(BUILTIN)
    rules = run_file.rules
    assert run_file.recipe == recipe
    jobs = run_file.terms.jobs_per_round
    assert jobs * rules.groups_per_job >= recipe.groups_to_start
    assert decode_rules(encode_rules(rules)) == rules
    with pytest.raises(Rejected, match=r"pin no checkpoint.*--model"):
        decode_rules(encode_rules(rules), rules_hash(encode_rules(rules)))


def test_the_rules_are_those_that_the_committed_calibration_measured() -> None:
    rules, report = RULES.read_bytes(), json.loads(BUILTIN.with_name("builtin-calibration.json").read_text())
    assert encode_rules(read_run_file().rules) == rules
    assert report["rules_hash"] == "0x" + rules_hash(rules).hex()
    assert report["honest"]["fraud"] == 0
    assert report["honest"]["void_interval"][0] <= report["stated"]["void_rate_a_job"]
    assert report["honest"]["tokens"] >= 1_000_000
    assert {made["maker"] for made in report["specimens"]} == set(read_run_file().rules.model.worker_engines)


def test_rules_in_a_table_and_rules_in_a_file_are_read_alike(tmp_path: Path) -> None:
    table = read_run_file(changed(tmp_path, "[recipe]", "[recipe]")).rules
    (tmp_path / "own-rules.json").write_bytes(encode_rules(table))
    path = tmp_path / "named.toml"
    path.write_text(BUILTIN.read_text().replace(NAMED, 'rules = "own-rules.json"'))
    assert read_run_file(path).rules == table


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"{}", b"[1]", b'{"version": 2}'])
def test_a_rules_file_that_will_not_do_is_named_in_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BUILTIN.read_text())
    if content is not None:
        (tmp_path / RULES.name).write_bytes(content)
    with pytest.raises(Misconfigured, match=RULES.name) as refused:
        read_run_file(path)
    assert "run.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_terms_go_on_chain_with_the_parties_they_do_not_name() -> None:
    terms = read_run_file().terms
    coordinator, trainer = "0x" + "11" * 20, "0x" + "22" * 20
    on_chain = terms.on_chain(coordinator, trainer, b"\x03" * 32)
    assert (on_chain.coordinator, on_chain.trainer, on_chain.rules_hash) == (coordinator, trainer, b"\x03" * 32)
    assert (on_chain.price_per_unit, on_chain.committee) == (terms.price_per_unit, terms.committee)
    assert (on_chain.appeal_seats, on_chain.challenge_seconds) == (terms.appeal_seats, terms.challenge_seconds)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("temperature = 1.0", "temperature = 9.0", "rules.temperature"),
        ("committee = 3", "committee = 16", "terms.committee"),
        ("committee = 3", "comittee = 3", "terms.com"),
        ("groups_per_job = 4\n", "", "rules.groups_per_job"),
        ("steps = 56", "steps = 'many'", "recipe.steps"),
        ("steps = 56", "temperature = 1.0", "recipe.temperature: set by the run's rules"),
        ("[recipe]", "[reciepe]", "has no .recipe."),
        ("[rules]", "[rules", "cannot read the run file"),
    ],
)
def test_a_field_that_will_not_do_is_named_in_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as refused:
        read_run_file(changed(tmp_path, old, new))
    assert "run.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nowhere\.toml"):
        read_run_file(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Misconfigured, match="cannot read the run file"):
        read_run_file(tmp_path / "binary.toml")
