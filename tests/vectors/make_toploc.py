"""Writes toploc.json: chunks of hidden states, and what the reference package says of them.

In an environment with torch, from the repository root (beside torch 2.13 the wheel does not load, a source build does):

    pip install setuptools wheel
    pip install --no-build-isolation --no-deps --no-binary toploc toploc==0.1.6
    python tests/vectors/make_toploc.py

A chunk is given by its non-zero entries: flat "positions", and their bf16 bits at the "prover" and the "verifier".
"proof" is the reference's proof of the prover's chunk, "reference" its exponent mismatches, mantissa mean and mantissa
median against the verifier's. Chunks whose 128th and 129th magnitudes tie are drawn again: the reference keeps any.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from toploc import build_proofs_bytes, verify_proofs_bytes
from torch import Tensor

ENTRIES = 128


def main() -> None:
    generator = torch.Generator().manual_seed(20250101)
    vectors = [vector(name, *shape, make, generator) for name, shape, make in CASES]
    lines = ",\n".join(json.dumps(entry) for entry in vectors)
    Path(__file__).with_name("toploc.json").write_text(f"[\n{lines}\n]\n")


def vector(name, rows, hidden, make, generator):
    """Draws until neither side ties at rank 128, then asks the reference."""
    while True:
        prover = make(rows, hidden, generator).bfloat16()
        noise = 1 + 0.02 * torch.randn(prover.shape, generator=generator)
        verifier = (prover.float() * noise).bfloat16()
        if not (ties(prover) or ties(verifier)):
            break
    proof = build_proofs_bytes([prover], rows, ENTRIES, skip_prefill=True)[0]
    result = verify_proofs_bytes(verifier, [proof], rows, ENTRIES, skip_prefill=True)[0]
    positions = bits(prover).nonzero().flatten()
    return {
        "name": name,
        "rows": rows,
        "hidden": hidden,
        "positions": positions.tolist(),
        "prover": bits(prover)[positions].tolist(),
        "verifier": bits(verifier)[positions].tolist(),
        "proof": proof.hex(),
        "reference": [result.exp_mismatches, result.mant_err_mean, result.mant_err_median],
    }


def ties(chunk: Tensor) -> bool:
    magnitudes = chunk.abs().flatten().sort(descending=True).values
    return len(magnitudes) > ENTRIES and bool(magnitudes[ENTRIES - 1] == magnitudes[ENTRIES])


def bits(chunk: Tensor) -> Tensor:
    return chunk.flatten().view(torch.int16).to(torch.int64) & 0xFFFF


def gaussian(rows, hidden, generator):
    return torch.randn(rows, hidden, generator=generator)


def negative(rows, hidden, generator):
    return -torch.randn(rows, hidden, generator=generator).abs()


def outliers(rows, hidden, generator):
    """A few loud channels, as trained models have, over silence."""
    chunk = torch.zeros(rows, hidden)
    chunk[:, :5] = torch.randn(rows, 5, generator=generator) * 30 + 100
    return chunk


def extremes(rows, hidden, generator):
    """Magnitudes from subnormal to nearly the largest, and both zeros."""
    exponents = torch.randint(-132, 127, (rows * hidden,), generator=generator)
    chunk = torch.randn(rows * hidden, generator=generator).double() * 2.0**exponents
    chunk[::7] = -0.0
    return chunk.float().clamp(-3e38, 3e38).reshape(rows, hidden)


def sparse(positions):
    """Loud at given positions, and at some drawn ones."""

    def make(rows, hidden, generator):
        chunk = torch.zeros(rows * hidden)
        drawn = torch.randperm(rows * hidden, generator=generator)[:200]
        chunk[drawn] = torch.randn(200, generator=generator)
        chunk[torch.tensor(positions)] = 40 + torch.randn(len(positions), generator=generator)
        return chunk.reshape(rows, hidden)

    return make


CASES = [
    ("gaussian", (32, 32), gaussian),
    ("all negative", (16, 32), negative),
    ("shortest span", (8, 64), gaussian),
    ("longest span", (39, 16), gaussian),
    ("just enough entries", (8, 16), gaussian),
    ("outlier channels", (32, 4096), outliers),
    ("subnormal to largest", (16, 32), extremes),
    ("beyond the prime without a clash", (32, 4096), sparse([65496, 65497, 131071])),
    ("one clash", (32, 4096), sparse([5, 65502])),
    ("clashes at several moduli", (32, 4096), sparse([5, 65502, 65501, 65500, 65498, 130000, 64510])),
    ("clash two moduli apart", (39, 8192), sparse([7, 7 + 4 * 65497, 7 + 2 * 65496])),
]

if __name__ == "__main__":
    main()
