"""A canary is measured once for each machine and class; whatever says otherwise is measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from protocol.errors import Misconfigured
from protocol.tensor import determinism, measured_canary
from protocol.tensor.determinism import AnotherClass, ExactShape, canary_of

DTYPE = "bfloat16"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    place = tmp_path_factory.mktemp("model")
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    LlamaForCausalLM(config).save_pretrained(place)
    return place


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads are part of a class; those of other tests stay as they are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine that has measured nothing yet."""
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path))
    restart(monkeypatch)
    return tmp_path / "canaries"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[ExactShape]:
    """The shapes measured so far."""
    found: list[ExactShape] = []

    def counting(place: Path, dtype: str, device: str, shape: ExactShape) -> bytes:
        found.append(shape)
        return canary_of(place, dtype, device, shape)

    monkeypatch.setattr(determinism, "canary_of", counting)
    return found


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what a process knows, as a new one does."""
    monkeypatch.setattr(measured_canary, "_known", {})


def shape_of(directory: Path, window: int = 16, dtype: str = DTYPE) -> ExactShape:
    """The shape of a run of this machine's class."""
    unnamed = ExactShape(4, window, dtype, None)
    return ExactShape(4, window, dtype, canary_of(directory, dtype, "cpu", unnamed))


def test_a_second_load_and_a_second_start_measure_nothing(
    directory: Path, folder: Path, measured: list[ExactShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape_of(directory)
    assert shape.check(directory, DTYPE, "cpu") == shape.canary
    assert shape.check(directory, DTYPE, "cpu") == shape.canary
    assert len(measured) == 1
    restart(monkeypatch)
    assert shape.check(directory, DTYPE, "cpu") == shape.canary
    assert len(measured) == 1
    assert len(list(folder.iterdir())) == 1


def test_every_shape_format_and_machine_has_a_canary_of_its_own(
    directory: Path, folder: Path, measured: list[ExactShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [shape_of(directory), shape_of(directory, 24), shape_of(directory, dtype="float32")]
    for shape in shapes:
        shape.check(directory, shape.head_dtype, "cpu")
    torch.set_num_threads(2)
    shapes[0].check(directory, DTYPE, "cpu")
    torch.set_num_threads(1)
    monkeypatch.setenv("ONEDNN_VERBOSE", "0")
    shapes[0].check(directory, DTYPE, "cpu")
    monkeypatch.setattr(torch, "__version__", "99")
    shapes[0].check(directory, DTYPE, "cpu")
    assert len(measured) == 6
    assert len(list(folder.iterdir())) == 6


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[: len(data) // 2],
    "no JSON": lambda data: b"\xff" * 100,
    "a list": lambda data: b"[]",
    "another canary": lambda data: json.dumps(json.loads(data) | {"canary": "ab" * 32}).encode(),
    "a canary that is no text": lambda data: json.dumps(json.loads(data) | {"canary": 7}).encode(),
    "other conditions": lambda data: json.dumps(json.loads(data) | {"conditions": {}}).encode(),
    "deep": lambda data: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_measured_again_and_mended(
    damage: str, directory: Path, folder: Path, measured: list[ExactShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape_of(directory)
    shape.check(directory, DTYPE, "cpu")
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    restart(monkeypatch)
    assert shape.check(directory, DTYPE, "cpu") == shape.canary
    assert len(measured) == 2
    assert path.read_bytes() == whole


def test_a_machine_is_refused_by_what_it_measures_and_once_in_a_process(
    directory: Path, folder: Path, measured: list[ExactShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, foreign = shape_of(directory), ExactShape(4, 16, DTYPE, b"\xab" * 32, "another machine")
    own.check(directory, DTYPE, "cpu")
    restart(monkeypatch)
    for _ in range(3):
        with pytest.raises(AnotherClass, match=r"the run of 0xabab.*another machine"):
            foreign.check(directory, DTYPE, "cpu")
    assert len(measured) == 2, "what the disk said was measured again, once"


def test_a_folder_that_cannot_be_written_only_costs_time(
    directory: Path, tmp_path: Path, measured: list[ExactShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path / "file"))
    restart(monkeypatch)
    shape = shape_of(directory)
    for _ in range(2):
        assert shape.check(directory, DTYPE, "cpu") == shape.canary
    assert len(measured) == 1


def test_a_folder_without_a_model_is_refused_in_one_sentence(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(Misconfigured, match=r"cannot read .*config\.json: No such file"):
        shape_of(directory).check(tmp_path, DTYPE, "cpu")
