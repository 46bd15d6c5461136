"""Exact completions depend on nothing but their job, and a second pass over the job's windows has their bits."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor import decode as decoding
from protocol.tensor import windows
from protocol.tensor.alignment import aligned
from protocol.tensor.completions import Completion, Request
from protocol.tensor.decode import decode
from protocol.tensor.exact_decode import ExactDecoding, decode_settling
from protocol.tensor.model import Model
from protocol.tensor.windows import JobWindows
from tests.protocol.test_decode import KINDS, MODELS, NEVER, STOP, VOCABULARY, _check, _ragged
from validator.judging.prefill import Completed, Prefill, prefill_exactly

ROLLOUTS, WIDTH, WIDEST = 6, 8, 64
HALF = {kind: copy.deepcopy(model).bfloat16() for kind, model in MODELS.items()}


def exactly(kind: str, requests: Sequence[Request], width: int = WIDTH, max_rows: int = 512) -> list[Completion]:
    """Decodes jobs of six rollouts in bfloat16."""
    return decode_settling(HALF[kind], requests, ROLLOUTS, width, torch.bfloat16, max_rows=max_rows)


def checked(kind: str, requests: Sequence[Request], made: Sequence[Completion], width: int = WIDTH) -> Prefill:
    """Runs the windows again, each job by itself."""
    sequences = [
        Completed(np.array(one.prompt_tokens, np.int32), np.array(done.output_tokens, np.int32), one.noise_key)
        for one, done in zip(requests, made, strict=True)
    ]
    jobs = [sequences[start : start + ROLLOUTS] for start in range(0, len(sequences), ROLLOUTS)]
    return prefill_exactly(Model(HALF[kind], None, STOP), jobs, width, requests[0].temperature, torch.bfloat16)


def same_bits(made: Sequence[Completion], again: Prefill) -> bool:
    """Whether hidden states are equal to the bit, and every token is the seeded choice."""
    hidden_SH = torch.cat([one.hidden_TH for one in made])
    return bool((hidden_SH.view(torch.int16) == again.hidden_SH.view(torch.int16)).all()) and not again.margins_S.any()


def at_one(temperature: float, requests: Sequence[Request]) -> list[Request]:
    """The requests at one temperature, as a run's are."""
    fields = ("prompt_tokens", "noise_key", "max_tokens", "stop_tokens")
    return [Request(**{name: getattr(one, name) for name in fields}, temperature=temperature) for one in requests]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_pass_over_a_jobs_windows_has_the_bits_of_the_first(kind: str) -> None:
    requests = at_one(1.0, _ragged(24))
    made = exactly(kind, requests)
    assert same_bits(made, checked(kind, requests, made))


@pytest.mark.parametrize("kind", KINDS)
def test_exact_completions_are_seeded_choices_too(kind: str) -> None:
    requests = _ragged(24)
    made = decode_settling(MODELS[kind], requests, ROLLOUTS, WIDTH, torch.float32)
    for request, completion in zip(requests, made, strict=True):
        _check(MODELS[kind], request, completion)


@pytest.mark.parametrize("max_rows", [1, 7, 12, 512])
def test_a_job_has_the_same_bits_whatever_runs_beside_it(max_rows: int) -> None:
    requests = at_one(1.5, _ragged(36, seed=3))
    together = exactly("qwen3", requests, max_rows=max_rows)
    alone = [one for start in range(0, 36, ROLLOUTS) for one in exactly("qwen3", requests[start : start + ROLLOUTS])]
    assert [one.output_tokens for one in together] == [one.output_tokens for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.hidden_TH, other.hidden_TH)
        assert torch.equal(one.logprobs_T, other.logprobs_T)


def test_a_guess_that_a_window_does_not_choose_is_taken_back() -> None:
    """Random weights in bfloat16: decoding alone and windows choose differently somewhere in 20,000 tokens."""
    prompts = [tuple(2 + (7 * n + p) % 20 for p in range(1 + n % 5)) for n in range(16)]
    requests = [Request(prompts[n // ROLLOUTS % 16], (n, 5), 100, 1.5, (NEVER,)) for n in range(ROLLOUTS * 32)]
    plain, exact = decode(HALF["qwen3"], requests), exactly("qwen3", requests, 32)
    differing = sum(one.output_tokens != other.output_tokens for one, other in zip(plain, exact, strict=True))
    assert 0 < differing < len(requests) // 2
    assert same_bits(exact, checked("qwen3", requests, exact, 32))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65])
@pytest.mark.parametrize("prompt", [1, 31, 32, 33])
def test_windows_end_before_at_and_behind_the_last_token(prompt: int, length: int) -> None:
    tokens = tuple(2 + n % 20 for n in range(prompt))
    requests = [Request(tokens, (n, 9), length, 1.0, (NEVER,)) for n in range(ROLLOUTS)]
    made = exactly("llama", requests, 32)
    assert {len(one.output_tokens) for one in made} == {length}
    assert same_bits(made, checked("llama", requests, made, 32))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 16), width=st.integers(2, 40), temperature=st.sampled_from([0.0, 0.7, 1.0, 1.5]))
def test_any_jobs_in_windows_of_any_width_can_be_compared_by_bits(seed: int, width: int, temperature: float) -> None:
    requests = at_one(temperature, _ragged(ROLLOUTS * 2, seed))
    made = exactly("qwen3, a window in the second layer", requests, width)
    assert same_bits(made, checked("qwen3, a window in the second layer", requests, made, width))


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_in_aligned_shapes_have_the_bits_of_windows(kind: str) -> None:
    """On this machine: so few jobs need be settled."""
    requests, decoding = at_one(1.0, _ragged(ROLLOUTS * 8, seed=2)), ExactDecoding(ROLLOUTS, WIDTH, torch.bfloat16)
    made = decoding.decode(HALF[kind], requests)
    assert same_bits(made, checked(kind, requests, made))
    assert not decoding.settles_all


@pytest.fixture(scope="module")
def wide() -> torch.nn.Module:
    """A model as wide as SmolLM2, whose matrix products of one row have other bits than of several.

    With AMX, products of few rows have other bits than of many, too.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=200, num_hidden_layers=2, max_position_embeddings=2048, **sizes)
    return LlamaForCausalLM(config).eval().bfloat16()


@pytest.fixture(scope="module")
def keeps_rows(wide: torch.nn.Module) -> bool:
    """Whether this machine's products of any number of rows but one give each row the same bits."""
    weights = {each.weight.shape: each.weight for each in wide.modules() if isinstance(each, torch.nn.Linear)}
    for weight in weights.values():
        states = torch.randn(WIDEST, weight.shape[1]).bfloat16()
        whole = torch.nn.functional.linear(states, weight)
        parts = (torch.nn.functional.linear(states[:rows], weight) for rows in range(2, WIDEST))
        if not all(torch.equal(part, whole[: len(part)]) for part in parts):
            return False
    return True


@pytest.mark.parametrize("lengths", [(40, 40, 40, 80), (40, 40, 40, 56), (5, 60, 1, 900), (300, 20, 340, 9)])
def test_a_row_that_goes_on_alone_or_beside_much_longer_ones_keeps_its_bits(
    wide: torch.nn.Module, keeps_rows: bool, lengths: tuple[int, ...]
) -> None:
    """Guesses do where the machine's products do; what is handed in does on every machine."""
    prompt, exact = tuple(range(2, 12)), ExactDecoding(len(lengths), WIDEST, torch.bfloat16)
    requests = [Request(prompt, (n, 3), length, 1.0, (NEVER,)) for n, length in enumerate(lengths)]

    def windows_agree(made: Sequence[Completion]) -> bool:
        sequences = [
            Completed(np.array(prompt, np.int32), np.array(done.output_tokens, np.int32), one.noise_key)
            for one, done in zip(requests, made, strict=True)
        ]
        return same_bits(made, prefill_exactly(Model(wide, None, NEVER), [sequences], WIDEST, 1.0, torch.bfloat16))

    assert windows_agree(decode(wide, requests, aligned=True)) or not keeps_rows
    assert windows_agree(exact.decode(wide, requests))


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_tokens_that_share_logits_are_scored_from_them_however_a_window_is_cut(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The first tokens of one prompt follow the same node; a block may hold fewer tokens than logits, or as many."""
    requests = [Request((5, 6, 7), (n, 3), 4, 1.0, (NEVER,)) for n in range(ROLLOUTS)]
    made = exactly("qwen3", requests)
    whole = checked("qwen3", requests, made)
    monkeypatch.setattr(windows, "HEAD_LOGITS", rows * VOCABULARY)
    monkeypatch.setattr(windows, "LEAST_HEAD_ROWS", rows)
    cut = checked("qwen3", requests, made)
    assert np.allclose(cut.logprobs_S, whole.logprobs_S, atol=0.1)
    assert np.allclose(cut.margins_S, whole.margins_S, atol=0.1)


def test_every_job_is_settled_once_a_guess_had_other_bits() -> None:
    """Logits of a head in float32 are not those of the model's own head, which guesses."""
    requests, decoding = at_one(1.5, _ragged(ROLLOUTS * 20, seed=4)), ExactDecoding(ROLLOUTS, WIDTH, torch.float32)
    for start in range(0, len(requests), ROLLOUTS):
        part = requests[start : start + ROLLOUTS]
        made = decoding.decode(HALF["qwen3"], part)
        if decoding.settles_all:
            settled = decode_settling(HALF["qwen3"], part, ROLLOUTS, WIDTH, torch.float32)
            assert [one.output_tokens for one in made] == [one.output_tokens for one in settled]
    assert decoding.settles_all


def test_another_token_is_seen_wherever_it_stands() -> None:
    requests = at_one(1.0, _ragged(ROLLOUTS, seed=11))
    made = exactly("qwen3", requests)
    for rollout, completion in enumerate(made):
        step = len(completion.output_tokens) - 1
        changed = (*completion.output_tokens[:step], (completion.output_tokens[step] + 1) % VOCABULARY)
        forged = Completion(changed, completion.logprobs_T, completion.hidden_TH, completion.finish_reason)
        again = checked("qwen3", requests, [*made[:rollout], forged, *made[rollout + 1 :]])
        assert np.count_nonzero(again.margins_S) == 1


def test_part_of_a_job_is_refused_and_so_is_one_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = _ragged(ROLLOUTS)
    with pytest.raises(ValueError, match="whole jobs of 6"):
        exactly("qwen3", requests[1:])
    monkeypatch.setattr(decoding, "KEY_VALUE_BYTES", 100)
    with pytest.raises(Misconfigured, match="smaller jobs"):
        exactly("qwen3", requests)


def test_a_job_that_does_not_fit_is_refused_before_a_token_is_guessed_and_by_the_verifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, asked = _ragged(ROLLOUTS), [0]
    made = exactly("qwen3", requests)
    monkeypatch.setattr(decoding, "KEY_VALUE_BYTES", 100)

    def cancelled() -> bool:
        asked[0] += 1
        return False

    with pytest.raises(Misconfigured, match=r"job's 6 rollouts of up to \d+ tokens take .* choose a run with smaller"):
        ExactDecoding(ROLLOUTS, WIDTH, torch.bfloat16).decode(HALF["qwen3"], requests, cancelled)
    assert asked == [0]
    with pytest.raises(Misconfigured, match="smaller jobs"):
        checked("qwen3", at_one(1.0, requests), made)


@pytest.mark.parametrize("longest", [70, 129, 200])
def test_windows_take_no_more_memory_than_their_longest_rollout_can_need(longest: int) -> None:
    tokens = [np.arange(longest, dtype=np.int32) % VOCABULARY for _ in range(ROLLOUTS)]
    windows = JobWindows(HALF["llama"], [1] * ROLLOUTS, 32, longest)
    for _ in windows.run_all(tokens):
        for keys_KSD, _ in windows.states.of(0, 1 << 20).values():
            assert keys_KSD.shape[1] <= aligned(longest)
    with pytest.raises(ValueError, match=f"expected at most {longest}"):
        list(windows.run_all([np.append(one, np.int32(1)) for one in tokens]))


def test_settling_a_sample_stops_when_it_is_cancelled() -> None:
    """Once all rows are guessed, only the windows of the first job are left to run."""
    requests = [Request((2, 3), (n, 1), 8 * WIDTH, 1.0, (NEVER,)) for n in range(ROLLOUTS)]
    asked = [0]

    def counted() -> bool:
        asked[0] += 1
        return False

    decode(HALF["qwen3"], requests, counted, aligned=True)
    guessing, asked[0] = asked[0], 0
    with pytest.raises(Unavailable, match="cancelled"):
        ExactDecoding(ROLLOUTS, WIDTH, torch.bfloat16).decode(
            HALF["qwen3"], requests, lambda: counted() or asked[0] > guessing + 2
        )
    assert asked[0] == guessing + 3


def test_exact_decoding_stops_when_it_is_cancelled() -> None:
    asked = iter([False] * 5 + [True] * 100)
    with pytest.raises(Unavailable, match="cancelled"):
        decode_settling(HALF["qwen3"], _ragged(12), ROLLOUTS, WIDTH, torch.bfloat16, lambda: next(asked))
