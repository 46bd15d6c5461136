"""Proofs against the reference package itself, built from source: the same bytes, and what crashes it rejected here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toploc import build_proofs_bytes, verify_proofs_bytes

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Rejected
from protocol.tensor import proofs
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import load_model
from protocol.wire.toploc.codec import Distance
from tests.bench.toploc import separated
from trainer.builtin import Warmup, make_builtin

torch.set_num_threads(1)


def reference(rows: torch.Tensor) -> list[bytes]:
    return build_proofs_bytes(rows, 32, 128, skip_prefill=True)


def distances(rows: torch.Tensor, given: list[bytes]) -> list[Distance]:
    return proofs.distances_batch(rows, [len(rows)], [given])[0]


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """What the LM head of a built-in model saw, a little trained, while it decoded: (T, H) bf16."""
    directory = tmp_path_factory.mktemp("model")
    make_builtin(directory, seed=4, environment=Arithmetic(3), warmup=Warmup(steps=3))
    model = load_model(directory, torch.float32)
    prompts = [model.text_tokens(Arithmetic(3).problem(bytes([n]) * 32).prompt) for n in range(8)]
    requests = [Request(prompt, (n, 7), 96, 1.0, (-1,)) for n, prompt in enumerate(prompts)]
    return torch.cat([completion.hidden_TH for completion in decode(model.network, requests)])


def test_proofs_of_a_models_own_activations_are_the_references_bytes(decoded):
    rows = separated(decoded)
    assert len(rows) == 8 * 96
    assert proofs.build_proofs(rows) == reference(rows)


@settings(deadline=None, max_examples=30)
@given(
    chunks=st.integers(1, 3),
    width=st.sampled_from([8, 33, 256, 4096]),
    spread=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 10_000),
)
def test_proofs_of_random_activations_are_the_references_bytes(chunks, width, spread, seed):
    random = torch.Generator().manual_seed(seed)
    loudness = torch.exp(spread * torch.randn(width, generator=random))
    rows = separated(torch.randn(32 * chunks, width, generator=random) * loudness)
    assert proofs.build_proofs(rows) == reference(rows)


def test_our_figures_of_a_proof_are_the_references(decoded):
    rows = separated(decoded)
    noisy = separated(rows.float() * (1 + 0.02 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))))
    built = proofs.build_proofs(rows)
    for ours, theirs in zip(
        distances(noisy, built), verify_proofs_bytes(noisy, built, 32, 128, skip_prefill=True), strict=True
    ):
        assert ours.exponent_mismatches == theirs.exp_mismatches
        assert ours.mantissa_median == theirs.mant_err_median
        assert ours.mantissa_mean == pytest.approx(theirs.mant_err_mean)


def test_where_magnitudes_tie_the_reference_accepts_our_proof_as_exact_but_for_the_tied(decoded):
    for ours, theirs in zip(
        verify_proofs_bytes(decoded, proofs.build_proofs(decoded), 32, 128, skip_prefill=True),
        verify_proofs_bytes(decoded, reference(decoded), 32, 128, skip_prefill=True),
        strict=True,
    ):
        assert theirs.exp_mismatches == 0
        assert ours.exp_mismatches <= 16


FP16 = torch.arange(1, 32 * 64 + 1, dtype=torch.float32).view(32, 64).to(torch.float16)


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(lambda proof: [bytes(258)], id="null proof: division by the modulus 0"),
        pytest.param(lambda proof: [proof, proof], id="extra proof: rows past the end"),
        pytest.param(lambda proof: [proof[:2]], id="no coefficients: the last of none"),
        pytest.param(lambda proof: [b""], id="no bytes"),
        pytest.param(lambda proof: [], id="no proof"),
    ],
)
def test_what_crashes_the_reference_is_rejected(crash):
    rows = torch.randn(32, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    with pytest.raises(Rejected):
        distances(rows, crash(proofs.build_proofs(rows)[0]))


def test_a_proof_laid_through_fp16_bits_is_rejected_or_far_away():
    """The reference lays fp16 bits as they are and its verifier throws; bytes do not say what they were made from."""
    (laid,) = reference(FP16)
    (distance,) = distances(FP16.bfloat16(), [laid])
    assert distance.rel > 0.3 * distance.null
    assert not np.isnan(distance.rel)
