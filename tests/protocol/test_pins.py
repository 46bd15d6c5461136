"""What rules pin of a checkpoint, and what is refused before anything is judged by it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save, save_file
from typer.testing import CliRunner

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.run import app
from protocol.node.commands.terms import checked_rules_hash
from protocol.tensor.model import check_tensors, load_model
from protocol.wire.pins import (
    MAX_OTHER_BYTES,
    PinnedFile,
    UnfitCheckpoint,
    check_contents,
    check_directory,
    pin_directory,
    tensors_in,
)
from protocol.wire.reasons import Reason
from protocol.wire.rules import ModelRules, decode_rules, encode_rules, rules_hash, with_checkpoint
from protocol.wire.safetensors_header import MAX_HEADER_BYTES, head_bytes, parse_head
from tests.checkpoints import CHANGES, CONFIG, TENSORS, file_of_tensors, smallest
from tests.conftest import ROOT
from tests.coordinator.swarm import RULES
from trainer.builtin import Warmup, make_builtin


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return made(tmp_path_factory.mktemp("model") / "v0", 3)


def made(directory: Path, seed: int) -> Path:
    make_builtin(directory, seed, Arithmetic(3), Warmup(hidden=32, intermediate=32, steps=0))
    return directory


def test_versions_with_other_weights_have_the_same_pins_and_rules_carry_them(model: Path, tmp_path: Path) -> None:
    pins = pin_directory(model)
    assert pin_directory(made(tmp_path / "v1", 4)) == pins
    check_directory(tmp_path / "v1", pins)
    rules = with_checkpoint(RULES, model)
    encoded = encode_rules(rules)
    assert decode_rules(encoded, rules_hash(encoded)) == rules
    assert rules.pins == pins


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_version_may_not_change_is_refused_by_name(model: Path, tmp_path: Path, what: str) -> None:
    pins, changed = pin_directory(model), made(tmp_path / "v1", 3)
    change, words = CHANGES[what]
    change(changed)
    with pytest.raises(UnfitCheckpoint, match=words) as refused:
        check_directory(changed, pins)
    assert refused.value.reason == Reason.UNFIT_CHECKPOINT
    assert not Reason.UNFIT_CHECKPOINT.fraud


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "modeling.py", "x.so", "a b.json", "weights.pkl"])
def test_files_that_may_hold_code_cannot_be_pinned_or_loaded(model: Path, tmp_path: Path, name: str) -> None:
    directory = made(tmp_path / "v0", 3)
    (directory / name).write_bytes(b"")
    with pytest.raises(UnfitCheckpoint, match="cannot be part of a checkpoint"):
        pin_directory(directory)
    with pytest.raises(UnfitCheckpoint, match="cannot be part of a checkpoint"):
        load_model(directory, torch.float32)
    given = RULES.model.model_dump(mode="json") | {"checkpoint": [{"name": name, "size": 1, "hash": "0x" + "00" * 32}]}
    with pytest.raises(ValueError, match="should match pattern"):
        ModelRules.model_validate(given)


def test_a_tensor_held_twice_is_refused_also_where_two_names_are_one_tensor(model: Path, tmp_path: Path) -> None:
    directory = made(tmp_path / "v0", 3)
    tensors = load_file(directory / TENSORS)
    save_file({"model.norm.weight": tensors["model.norm.weight"]}, directory / "more.safetensors")
    with pytest.raises(UnfitCheckpoint, match=r"model\.norm\.weight is held twice, in model\.safetensors and in more"):
        pin_directory(directory)
    (directory / "more.safetensors").unlink()
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, directory / TENSORS)
    for check in (lambda: check_tensors(directory), lambda: load_model(directory, torch.float32)):
        with pytest.raises(UnfitCheckpoint, match=r"lm_head\.weight.*which are one tensor of this model"):
            check()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda held: held | {"extra": torch.zeros(2)}, "holds the tensor extra"),
        (lambda held: {name: held[name] for name in held if name != "model.norm.weight"}, "lacks the tensor"),
        (lambda held: held | {"model.norm.weight": torch.ones(31)}, "with shape"),
    ],
)
def test_tensors_other_than_the_configurations_are_refused_by_fresh_and_running_processes(
    model: Path, tmp_path: Path, change: Any, words: str
) -> None:
    directory, running = made(tmp_path / "v1", 4), load_model(model, torch.float32)
    save_file(change(load_file(directory / TENSORS)), directory / TENSORS, {"format": "pt"})
    for load in (
        lambda: load_model(directory, torch.float32),
        lambda: running.load_weights(directory),
        lambda: check_tensors(directory),
    ):
        with pytest.raises(UnfitCheckpoint, match=words):
            load()


def test_a_fresh_model_and_a_running_one_hold_the_same_weights_to_the_bit(model: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "v1", 4)
    running, fresh = load_model(model, torch.bfloat16), load_model(other, torch.bfloat16)
    running.load_weights(other)
    ours, theirs = running.network.state_dict(), fresh.network.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_saved_version_has_the_files_of_the_first_and_the_present_weights(model: Path, tmp_path: Path) -> None:
    trained = load_model(made(tmp_path / "other", 4), torch.float32)
    trained.save(tmp_path / "v1", model)
    check_directory(tmp_path / "v1", pin_directory(model))
    saved, wanted = load_file(tmp_path / "v1" / TENSORS), load_file(tmp_path / "other" / TENSORS)
    assert all(torch.equal(saved[name], wanted[name]) for name in wanted)


def test_a_model_stored_in_fewer_bits_than_the_rules_compute_in_cannot_open_a_run(model: Path, tmp_path: Path) -> None:
    directory = made(tmp_path / "v0", 3)
    save_file({name: held.bfloat16() for name, held in load_file(directory / TENSORS).items()}, directory / TENSORS)
    with pytest.raises(Misconfigured, match="fewer bits than the rules' float32"):
        with_checkpoint(RULES, directory)


def header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


PLAIN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
TWICE = header(a=PLAIN)[:-1] + b"," + header(a=PLAIN)[1:]


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        (header(a=PLAIN), 4, "4, the rest of the file"),
        (header(a=PLAIN), 12, "12, the rest of the file"),
        (header(a=PLAIN, b=PLAIN | {"data_offsets": [4, 12]}), 12, "expected"),
        (header(a=PLAIN, b=PLAIN | {"data_offsets": [12, 20]}), 20, "expected"),
        (header(a=PLAIN | {"dtype": "I64"}), 8, "in format 'I64'"),
        (header(a=PLAIN | {"shape": [3]}), 8, "expected"),
        (header(a=PLAIN | {"shape": [-2]}), 8, "greater than or equal to 0"),
        (header(a=PLAIN | {"shape": [True, 2]}), 8, "valid integer"),
        (header(a=PLAIN | {"shape": [1] * 9 + [2]}), 8, "at most 8 items"),
        (TWICE, 8, "'a' twice"),
        (b'{"__metadata__":{"format":1},"a":{}}', 8, "valid string"),
        (header(), 0, "tensors of 0 bytes"),
        (b"[" * 100_000, 8, "nested more than 3 times"),
        (b'{"a":' * 100_000, 8, "nested more than 3 times"),
        (b'{"\\"[[[[[":' + b"[" * 4, 8, "nested more than 3 times"),
        (b'{"a]]]]]]]":[[[[', 8, "nested more than 3 times"),
        (b"[]", 8, "valid dictionary"),
        (b"\xff", 8, "not JSON"),
    ],
)
def test_headers_that_do_not_describe_every_byte_once_are_refused(text: bytes, values: int, words: str) -> None:
    head = len(text).to_bytes(8, "little") + text
    with pytest.raises(Rejected, match=words):
        parse_head(head, len(head) + values)


def test_a_header_beyond_the_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    assert head_bytes((MAX_HEADER_BYTES - 8).to_bytes(8, "little"), 1 << 40) == MAX_HEADER_BYTES
    for length, size in ((MAX_HEADER_BYTES, 1 << 40), ((1 << 64) - 1, 1 << 40), (100, 107)):
        with pytest.raises(Rejected, match="header of"):
            head_bytes(length.to_bytes(8, "little"), size)
    directory = smallest(tmp_path / "v0", bytes(8))
    for number in range(3):  # each alone would fit
        tensor = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        padded = json.dumps({f"t{number}": tensor}).encode().ljust(MAX_HEADER_BYTES // 3)
        (directory / f"m{number}.safetensors").write_bytes(len(padded).to_bytes(8, "little") + padded)
    with pytest.raises(UnfitCheckpoint, match="header of"):
        pin_directory(directory)


def test_files_without_tensors_are_bounded_together(tmp_path: Path) -> None:
    directory = smallest(tmp_path / "v0", bytes(8))
    with (directory / "tokenizer.json").open("wb") as file:
        file.truncate(MAX_OTHER_BYTES)
    with pytest.raises(UnfitCheckpoint, match="bytes in files without tensors"):
        pin_directory(directory)
    pins = [PinnedFile(name, MAX_OTHER_BYTES // 2 + 1, bytes(32)) for name in ("a.json", "b.json")]
    with pytest.raises(ValueError, match="in the files without tensors"):
        ModelRules.model_validate(
            {"dtype": "float32", "head_dtype": "float32", "checkpoint": [*pins, PinnedFile(TENSORS, 8, bytes(32))]}
        )


NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 3), max_size=3)


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from(["F32", "BF16"]), SHAPES), min_size=1, max_size=4))
def test_what_safetensors_writes_is_read_as_it_was_meant(tensors: dict[str, tuple[str, list[int]]]) -> None:
    formats = {"F32": torch.float32, "BF16": torch.bfloat16}
    data = save({name: torch.zeros(shape, dtype=formats[kind]) for name, (kind, shape) in tensors.items()})
    size = head_bytes(data[:8], len(data))
    if size == len(data) and not any(data[size:]) and all(0 in shape for _, shape in tensors.values()):
        return  # empty tensors alone take no bytes, and a checkpoint of them is refused elsewhere
    read = parse_head(data[:size], len(data))
    assert {name: (held.dtype, list(held.shape)) for name, held in read.items()} == tensors


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_header_is_read_or_refused(text: bytes, values: int) -> None:
    head = len(text).to_bytes(8, "little") + text
    with suppress(Rejected):
        parse_head(head, len(head) + values)


def test_the_smallest_directory_is_pinned_by_size_and_hash(tmp_path: Path) -> None:
    pins = pin_directory(smallest(tmp_path / "v0", bytes(8)))
    assert [(file.name, file.size) for file in pins] == [
        (CONFIG, 2),
        (TENSORS, (tmp_path / "v0" / TENSORS).stat().st_size),
    ]
    assert list(tensors_in(tmp_path / "v0")[TENSORS]) == ["weight"]
    (tmp_path / "v0" / TENSORS).write_bytes(file_of_tensors({"weight": PLAIN | {"data_offsets": [0, 4]}}, bytes(4)))
    with pytest.raises(UnfitCheckpoint, match="expected"):
        pin_directory(tmp_path / "v0")


def test_the_requesters_command_pins_the_model_and_rules_without_pins_open_no_run(model: Path, tmp_path: Path) -> None:
    source, out = ROOT / "deploy" / "runs" / "builtin-rules.json", tmp_path / "rules.json"
    result = CliRunner().invoke(app, ["rules", str(source), str(out), "--model", str(model), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rules_hash"] == "0x" + checked_rules_hash(out).hex()
    assert decode_rules(out.read_bytes()).pins == pin_directory(model)
    with pytest.raises(Rejected, match=r"pin no checkpoint.*`assize run rules RULES OUT --model DIRECTORY`"):
        checked_rules_hash(source)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_json_made_to_crash_its_parser_is_refused_before_it_is_parsed(tmp_path: Path, name: str) -> None:
    directory = made(tmp_path / "v0", 3)
    (directory / name).write_bytes(b"[" * 200_000)
    with pytest.raises(UnfitCheckpoint, match=f"{name} has JSON nested more than 32 times"):
        pin_directory(directory)
    kept = PinnedFile(name, 200_000, blake3(b"[" * 200_000).digest())
    tensors = [file for file in pin_directory(smallest(tmp_path / "other", bytes(8))) if file.name == TENSORS]
    with pytest.raises(UnfitCheckpoint, match="nested more than 32 times"):
        check_contents(
            [kept, *tensors],
            lambda asked, start, size: ((tmp_path / ("v0" if asked == name else "other")) / asked).read_bytes()[
                start : start + size
            ],
        )
