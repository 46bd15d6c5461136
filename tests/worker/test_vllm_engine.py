"""vLLM itself, on the CPU build: its rollouts are those of the transformers engine under the same noise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import load_model
from protocol.wire.pins import UnfitCheckpoint
from tests.checkpoints import CHANGES
from tests.conftest import ROOT
from trainer.builtin import Warmup, make_builtin
from validator.judging.prefill import Completed, prefill
from worker.engines.transformers_engine import TransformersEngine
from worker.engines.vllm_engine import VllmEngine

STOP = 1
SMALL = Warmup(hidden=64, intermediate=64, heads=2, key_value_heads=1, steps=0)
ROWS = 8
CACHE_BYTES = 1 << 26
BLOCK_BYTES = 128 * 2 * 2 * 32 * 4
"""Of vLLM's cache for the model here: 128 positions, keys and values of 2 layers, 32 numbers of fp32 each."""


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    torch.set_num_threads(1)
    made = [tmp_path_factory.mktemp(f"model-{seed}") for seed in (3, 4)]
    for seed, directory in zip((3, 4), made, strict=True):
        make_builtin(directory, seed, Arithmetic(3), SMALL)
    return made


@pytest.fixture(scope="module")
def loaded(directories: list[Path]) -> Iterator[VllmEngine]:
    """One engine for all tests: starting it takes seconds. It runs eight requests at once."""
    engine = VllmEngine(max_rows=ROWS, cache_bytes=CACHE_BYTES)
    engine.load(directories[0])
    yield engine
    engine.close()


@pytest.fixture
def engine(loaded: VllmEngine, directories: list[Path]) -> Iterator[VllmEngine]:
    yield loaded
    loaded.swap(directories[0])


@pytest.fixture(scope="module")
def reference(directories: list[Path]) -> TransformersEngine:
    engine = TransformersEngine()
    engine.load(directories[0])
    return engine


def _requests(count: int, temperature: float = 1.0, max_tokens: int = 40) -> list[Request]:
    """Requests of many prompt lengths and limits, groups of three with the same prompt."""
    prompts = [tuple(3 + (7 * n + i) % 20 for i in range(3 + (5 * n) % 37)) for n in range(count)]
    return [Request(prompts[n // 3], (n, 7 * n), max_tokens - 5 * (n % 7), temperature, (STOP,)) for n in range(count)]


def _generate_for_ever(engine: VllmEngine, cancel: threading.Event) -> None:
    while True:
        engine.generate(_requests(30), cancel)


def _tokens(completions: list[Completion]) -> list[tuple[int, ...]]:
    return [completion.output_tokens for completion in completions]


@pytest.mark.parametrize("count", [1, 5, 8, 61])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_rollouts_are_those_of_the_transformers_engine(
    engine: VllmEngine, reference: TransformersEngine, count: int, temperature: float
) -> None:
    requests = _requests(count, temperature)
    for ours, theirs in zip(engine.generate(requests), reference.generate(requests), strict=True):
        assert ours.output_tokens == theirs.output_tokens
        assert ours.finish_reason == theirs.finish_reason
        assert (ours.logprobs_T.dtype, ours.hidden_TH.dtype) == (torch.float32, torch.bfloat16)
        assert torch.allclose(ours.logprobs_T, theirs.logprobs_T, atol=2e-5)
        assert torch.allclose(ours.hidden_TH.float(), theirs.hidden_TH.float(), atol=0.02)


def test_temperatures_and_keys_stay_with_their_requests(engine: VllmEngine, reference: TransformersEngine) -> None:
    requests = [
        Request(request.prompt_tokens, request.noise_key, request.max_tokens, (n % 4) * 0.5, (STOP,))
        for n, request in enumerate(_requests(40))
    ]
    assert _tokens(engine.generate(requests)) == _tokens(reference.generate(requests))


def test_company_in_the_batch_changes_no_token(engine: VllmEngine) -> None:
    requests = _requests(10)
    assert _tokens(engine.generate(requests)) == [engine.generate([one])[0].output_tokens for one in requests]


@pytest.mark.parametrize(("shortest", "blocks"), [(100, 16), (200, 64)])
def test_prompts_run_in_pieces_and_requests_that_give_way_change_no_token(
    directories: list[Path], reference: TransformersEngine, shortest: int, blocks: int
) -> None:
    """A cache of 16 blocks for 24 requests that grow beyond one; prompts of more tokens than one step takes."""
    cramped = VllmEngine(max_rows=24, cache_bytes=blocks * BLOCK_BYTES)
    cramped.load(directories[0])
    prompts = [tuple(3 + (11 * n + i) % 20 for i in range(shortest + n)) for n in range(24)]
    requests = [Request(prompt, (n, n), 30, 0.9, (STOP,)) for n, prompt in enumerate(prompts)]
    completions = cramped.generate(requests)
    cramped.close()
    assert _tokens(completions) == _tokens(reference.generate(requests))


def test_completions_end_at_the_stop_token_or_at_their_limit(engine: VllmEngine) -> None:
    requests = _requests(40, temperature=1.5, max_tokens=60)
    completions = engine.generate(requests)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for request, completion in zip(requests, completions, strict=True):
        assert STOP not in completion.output_tokens[:-1]
        assert (completion.output_tokens[-1] == STOP) == (completion.finish_reason == "stop")
        assert completion.finish_reason == "stop" or len(completion.output_tokens) == request.max_tokens
        assert len(completion.logprobs_T) == len(completion.hidden_TH) == len(completion.output_tokens)


def test_a_validator_finds_nothing_in_the_rollouts(engine: VllmEngine, directories: list[Path]) -> None:
    requests = _requests(30)
    completions = engine.generate(requests)
    sequences = [
        Completed(
            np.array(request.prompt_tokens, np.int32), np.array(completion.output_tokens, np.int32), request.noise_key
        )
        for request, completion in zip(requests, completions, strict=True)
    ]
    found = prefill(load_model(directories[0], torch.float32), sequences, 1.0, torch.float32)
    assert found.margins_S.max() == 0
    reported_S = torch.cat([completion.logprobs_T for completion in completions]).numpy()
    assert np.abs(found.logprobs_S - reported_S).max() < 2e-5


def test_a_prefill_by_vllm_sees_what_its_decoding_saw(engine: VllmEngine) -> None:
    requests = _requests(6)
    for request, completion in zip(requests, engine.generate(requests), strict=True):
        hidden_TH = engine.hidden_states(request, completion.output_tokens)
        assert hidden_TH.shape == completion.hidden_TH.shape
        assert torch.allclose(hidden_TH.bfloat16().float(), completion.hidden_TH.float(), atol=0.02)
    assert _tokens(engine.generate(requests)) == _tokens(engine.generate(requests))


def test_swapping_weights_is_like_loading_the_other_model(directories: list[Path], engine: VllmEngine) -> None:
    other = TransformersEngine()
    other.load(directories[1])
    requests = _requests(20)
    before = _tokens(engine.generate(requests))
    engine.swap(directories[1])
    assert _tokens(engine.generate(requests)) == _tokens(other.generate(requests)) != before
    engine.swap(directories[0])
    assert _tokens(engine.generate(requests)) == before


def test_a_swap_forgets_what_was_cached_of_a_long_prompt(directories: list[Path], engine: VllmEngine) -> None:
    other = TransformersEngine()
    other.load(directories[1])
    prompt = tuple(3 + n % 20 for n in range(200))
    requests = [Request(prompt, (n, n), 8, 1.0, (STOP,)) for n in range(4)]
    engine.generate(requests)
    engine.swap(directories[1])
    assert _tokens(engine.generate(requests)) == _tokens(other.generate(requests))


def test_weights_of_another_shape_are_refused_and_change_nothing(engine: VllmEngine, tmp_path: Path) -> None:
    make_builtin(tmp_path, 1, Arithmetic(3), Warmup(hidden=128, intermediate=64, heads=2, steps=0))
    before = _tokens(engine.generate(_requests(6)))
    with pytest.raises(UnfitCheckpoint, match="does not hold the tensors of the model that is loaded"):
        engine.swap(tmp_path)
    assert _tokens(engine.generate(_requests(6))) == before


@pytest.mark.parametrize("what", ["a second file of tensors", "a missing tensor", "pickled weights", "code"])
def test_a_fresh_engine_and_a_running_one_refuse_the_same(
    directories: list[Path], engine: VllmEngine, tmp_path: Path, what: str
) -> None:
    changed = shutil.copytree(directories[1], tmp_path / "changed")
    CHANGES[what][0](changed)
    before = _tokens(engine.generate(_requests(2)))
    for load in (VllmEngine().load, engine.swap):
        with pytest.raises(UnfitCheckpoint):
            load(changed)
    assert _tokens(engine.generate(_requests(2))) == before


def test_cancelling_ends_generation_and_leaves_nothing_behind(engine: VllmEngine) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Unavailable, match="cancelled"):
        engine.generate(_requests(30), cancel)
    before = _tokens(engine.generate(_requests(30)))
    timer = threading.Timer(0.05, cancel.set)
    cancel.clear()
    timer.start()
    with pytest.raises(Unavailable, match="cancelled"):
        _generate_for_ever(engine, cancel)
    assert _tokens(engine.generate(_requests(30))) == before


def test_a_stop_token_of_no_vocabulary_ends_nothing(engine: VllmEngine, reference: TransformersEngine) -> None:
    requests = [Request((5, 6, 7), (n, n), 60, 1.0, (25,)) for n in range(4)]
    completions = engine.generate(requests)
    assert {len(completion.output_tokens) for completion in completions} == {60}
    assert _tokens(completions) == _tokens(reference.generate(requests))


def test_no_requests_give_no_completions(engine: VllmEngine) -> None:
    assert engine.generate([]) == []


def test_more_tokens_than_the_model_has_positions_are_refused_in_one_sentence(engine: VllmEngine) -> None:
    with pytest.raises(Misconfigured, match="exceed the 256 positions of this model"):
        engine.generate([Request((5, 6, 7), (0, 0), 254, 1.0, (STOP,))])
    assert engine.generate([Request((5, 6, 7), (0, 0), 2, 1.0, (STOP,))])


def test_generating_before_loading_is_refused_in_one_sentence() -> None:
    with pytest.raises(Misconfigured, match="load a model directory first"):
        VllmEngine().generate(_requests(1))


def test_a_model_that_vllm_cannot_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    make_builtin(tmp_path, 1, Arithmetic(3), Warmup(hidden=32, intermediate=32, steps=0))
    with pytest.raises(Misconfigured, match="vLLM cannot run"):
        VllmEngine(cache_bytes=CACHE_BYTES).load(tmp_path)


def test_another_version_is_refused_in_one_sentence() -> None:
    from worker.engines.vllm_internals import check_version

    check_version()
    with pytest.raises(Misconfigured, match=r"unsupported vLLM 0\.19\.1: expected 0\.32, .* install vllm==0\.32\.0"):
        check_version("0.19.1")


def test_bf16_rollouts_pass_the_margins_of_a_bf16_prefill(directories: list[Path]) -> None:
    engine = VllmEngine("bfloat16", max_rows=ROWS, cache_bytes=CACHE_BYTES)
    engine.load(directories[0])
    requests = _requests(12)
    completions = engine.generate(requests)
    engine.close()
    sequences = [
        Completed(
            np.array(request.prompt_tokens, np.int32), np.array(completion.output_tokens, np.int32), request.noise_key
        )
        for request, completion in zip(requests, completions, strict=True)
    ]
    found = prefill(load_model(directories[0], torch.bfloat16), sequences, 1.0, torch.bfloat16)
    assert (found.margins_S > 0).mean() < 0.05
    assert found.margins_S.max() < 0.1


WATCHED = """
import sys
seen = []
def hear(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        address = arguments[1] if event != "socket.getaddrinfo" else arguments
        host = address[0] if isinstance(address, tuple) else address
        if host not in (None, "", "127.0.0.1", "localhost", "::1") and not str(host).startswith("/"):
            seen.append((event, str(host)))
sys.addaudithook(hear)
from pathlib import Path
from protocol.tensor.completions import Request
from worker.engines.vllm_engine import VllmEngine
assert "vllm" not in sys.modules
engine = VllmEngine(cache_bytes=1 << 26)
engine.load(Path(sys.argv[1]))
print(engine.generate([Request((5, 6, 7), (1, 2), 5, 1.0, (1,))])[0].output_tokens)
print("reached", seen)
"""


def test_vllm_reaches_for_no_network(directories: list[Path], reference: TransformersEngine) -> None:
    """A process of its own, with whatever vLLM does at import: every address it asks for is this machine's own."""
    argv = [sys.executable, "-c", WATCHED, str(directories[0])]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (expected,) = reference.generate([Request((5, 6, 7), (1, 2), 5, 1.0, (STOP,))])
    assert done.stdout.splitlines()[-2:] == [str(expected.output_tokens), "reached []"]
