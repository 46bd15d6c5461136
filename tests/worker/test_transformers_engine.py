"""The engine's tokens, logprobs and hidden states are those of a plain forward pass under the same noise."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured, Unavailable
from protocol.tensor import decode as decoding
from protocol.tensor.completions import Completion, Request
from protocol.wire import manifest as manifests
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.sampling import gumbel_noise
from trainer.builtin import Warmup, make_builtin
from worker.engines.transformers_engine import TransformersEngine

STOP = 1
SMALL = Warmup(hidden=32, intermediate=32, steps=0)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    torch.set_num_threads(1)
    made = [tmp_path_factory.mktemp(f"model-{seed}") for seed in (3, 4)]
    for seed, directory in zip((3, 4), made, strict=True):
        make_builtin(directory, seed, Arithmetic(3), SMALL)
    return made


@pytest.fixture
def engine(directories: list[Path]) -> TransformersEngine:
    engine = TransformersEngine()
    engine.load(directories[0])
    return engine


def _requests(temperature: float = 1.0, max_tokens: int = 24) -> list[Request]:
    """Three prompts of two lengths, four completions each, the groups interleaved."""
    prompts = [(5, 6, 7), (8, 9, 10, 11, 12), (7, 6, 5)]
    return [Request(prompts[n % 3], (n, 7 * n), max_tokens - n % 5, temperature, (STOP,)) for n in range(12)]


def _replayed(
    engine: TransformersEngine, request: Request, completion: Completion
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and last hidden states of one prefill, at the positions that sampled."""
    tokens = torch.tensor([request.prompt_tokens + completion.output_tokens])
    with torch.no_grad():
        output = engine.model.network(input_ids=tokens, output_hidden_states=True)
    rows = slice(len(request.prompt_tokens) - 1, -1)
    return output.logits[0, rows], output.hidden_states[-1][0, rows]


def _noise(request: Request, logits_TV: torch.Tensor) -> torch.Tensor:
    """The definition's noise of a request at every position."""
    key_12 = np.array([request.noise_key], dtype=np.uint32)
    return torch.from_numpy(gumbel_noise(key_12, range(len(logits_TV)), logits_TV.shape[1])[0])


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.5])
def test_every_token_is_the_argmax_of_logits_and_noise(engine: TransformersEngine, temperature: float) -> None:
    requests = _requests(temperature)
    for request, completion in zip(requests, engine.generate(requests), strict=True):
        logits_TV, hidden_TH = _replayed(engine, request, completion)
        noise_TV = _noise(request, logits_TV)
        assert (logits_TV + temperature * noise_TV).argmax(-1).tolist() == list(completion.output_tokens)
        logprobs_TV = (logits_TV / (temperature or 1.0)).log_softmax(-1)
        expected_T = logprobs_TV.gather(1, torch.tensor(completion.output_tokens)[:, None])[:, 0]
        assert torch.allclose(completion.logprobs_T, expected_T, atol=1e-5)
        assert completion.logprobs_T.dtype == torch.float32
        assert completion.hidden_TH.dtype == torch.bfloat16
        assert torch.allclose(completion.hidden_TH.float(), hidden_TH.bfloat16().float(), atol=0.02)


def test_completions_end_at_the_stop_token_or_at_their_limit(engine: TransformersEngine) -> None:
    requests = _requests(temperature=1.5, max_tokens=60)
    completions = engine.generate(requests)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for request, completion in zip(requests, completions, strict=True):
        assert STOP not in completion.output_tokens[:-1]
        assert (completion.output_tokens[-1] == STOP) == (completion.finish_reason == "stop")
        assert completion.finish_reason == "stop" or len(completion.output_tokens) == request.max_tokens
        assert len(completion.logprobs_T) == len(completion.hidden_TH) == len(completion.output_tokens)


def test_company_in_the_batch_changes_no_token(engine: TransformersEngine) -> None:
    requests = _requests()
    together = engine.generate(requests)
    alone = [engine.generate([request])[0] for request in requests]
    assert [c.output_tokens for c in together] == [c.output_tokens for c in alone]


def test_prompts_in_several_passes_change_no_token(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine.generate(_requests())
    monkeypatch.setattr(decoding, "PROMPT_TOKENS", {"cpu": 3})
    assert [c.output_tokens for c in engine.generate(_requests())] == [c.output_tokens for c in whole]


def test_another_noise_key_gives_another_completion(engine: TransformersEngine) -> None:
    requests = [Request((5, 6, 7), (key, 0), 24, 1.0, (STOP,)) for key in range(8)]
    assert len({completion.output_tokens for completion in engine.generate(requests)}) == 8


def test_no_requests_give_no_completions(engine: TransformersEngine) -> None:
    assert engine.generate([]) == []


@pytest.mark.parametrize("ahead", [False, True], ids=["loaded", "read ahead"])
def test_swapping_weights_is_like_loading_the_other_model(
    directories: list[Path], engine: TransformersEngine, ahead: bool
) -> None:
    other = TransformersEngine()
    other.load(directories[1])
    if ahead:
        engine.read_ahead(directories[1])
    before = [c.output_tokens for c in engine.generate(_requests())]
    engine.swap(directories[1])
    after = [c.output_tokens for c in engine.generate(_requests())]
    assert after == [c.output_tokens for c in other.generate(_requests())] != before


def test_weights_in_memory_are_those_of_the_manifest_or_named(
    directories: list[Path], engine: TransformersEngine
) -> None:
    for chunk_bytes in (1 << 10, 5000, 64 << 20):
        manifest = manifests.from_directory(directories[0], 0, chunk_bytes)
        assert engine.model.differing(manifest, directories[0]) == []
    next(iter(engine.model.weights().values())).view(-1)[-1] += 1
    assert engine.model.differing(manifest, directories[0]) == ["model.safetensors"]


def test_reading_one_version_ahead_does_not_bring_another(directories: list[Path], engine: TransformersEngine) -> None:
    before = [c.output_tokens for c in engine.generate(_requests())]
    engine.read_ahead(directories[1])
    engine.swap(directories[0])
    assert [c.output_tokens for c in engine.generate(_requests())] == before


def test_weights_of_another_shape_are_refused(engine: TransformersEngine, tmp_path: Path) -> None:
    make_builtin(tmp_path, 1, Arithmetic(3), Warmup(hidden=64, steps=0))
    with pytest.raises(UnfitCheckpoint, match=r"with shape .*: this model's is"):
        engine.swap(tmp_path)


def test_an_empty_checkpoint_is_refused(engine: TransformersEngine, tmp_path: Path) -> None:
    with pytest.raises(UnfitCheckpoint, match="lacks the tensor"):
        engine.swap(tmp_path)


def test_generation_stops_when_cancelled(engine: TransformersEngine) -> None:
    cancel = Event()
    cancel.set()
    with pytest.raises(Unavailable, match="cancelled"):
        engine.generate(_requests(), cancel)


def test_nothing_is_generated_before_a_model_is_loaded() -> None:
    with pytest.raises(Misconfigured, match="load a model directory first"):
        TransformersEngine().generate(_requests())


def test_a_directory_without_a_tokenizer_is_refused_in_one_sentence(directories: list[Path], tmp_path: Path) -> None:
    for path in directories[0].iterdir():
        if not path.name.startswith("tokenizer"):
            shutil.copy(path, tmp_path / path.name)
    with pytest.raises(Misconfigured, match=r"has no tokenizer: put its tokenizer\.json beside"):
        TransformersEngine().load(tmp_path)


def test_a_directory_that_is_no_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"invalid model directory .*: it has no config\.json"):
        TransformersEngine().load(tmp_path)


def test_a_directory_with_broken_weights_is_refused_in_one_sentence(directories: list[Path], tmp_path: Path) -> None:
    broken = shutil.copytree(directories[0], tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(UnfitCheckpoint, match=r"model\.safetensors has a header of"):
        TransformersEngine().load(broken)


def test_another_architecture_decodes_as_well(directories: list[Path], tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(directories[0] / name, tmp_path / name)
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=25, n_embd=32, n_layer=2, n_head=2, n_positions=64)).save_pretrained(tmp_path)
    engine = TransformersEngine("float32")
    engine.load(tmp_path)
    for request, completion in zip(_requests(), engine.generate(_requests()), strict=True):
        logits_TV, hidden_TH = _replayed(engine, request, completion)
        noise_TV = _noise(request, logits_TV)
        assert (logits_TV + noise_TV).argmax(-1).tolist() == list(completion.output_tokens)
        assert torch.allclose(completion.hidden_TH.float(), hidden_TH.bfloat16().float(), atol=0.02)
