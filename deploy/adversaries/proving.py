"""Workers that sample honestly and hand in forged, empty, superfluous or malformed TOPLOC proofs.

Forgers use activations of earlier jobs only, and compute none of the jobs they prove.

Axes: T rows, H hidden size, C chunks, K points.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from protocol.tensor.completions import Completion
from protocol.tensor.proofs import build_proofs, build_proofs_batch
from protocol.wire.rollout import Artifact, Limits, Rollout, encode
from protocol.wire.toploc.codec import CHUNK_ROWS, ENTRIES, PRIME, Proof, chunk_spans
from protocol.wire.toploc.definition import I64, interpolate
from worker.producer import Producer
from worker.prover import Task

CHOSEN_MODULUS = 65479
FIRST = 5
"""Rollouts of the first job that a forger learns from."""


class Forging(Producer):
    """Replaces each rollout's proofs by those of ``forge``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.chance = random.Random(2)

    def prove(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[Rollout]:
        """Returns the rollouts to hand in."""
        rollouts = super().prove(tasks, completions)
        self.learn(completions)
        return [
            replace(rollout, proofs=tuple(self.forge(rollout, completion)))
            for rollout, completion in zip(rollouts, completions, strict=True)
        ]

    def learn(self, completions: Sequence[Completion]) -> None:
        """Records activations of other work for later forgeries."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        raise NotImplementedError


class Learned(Forging):
    """Holds the activations of a few earlier rollouts in ``seen_TH``."""

    seen_TH: torch.Tensor | None = None

    def learn(self, completions: Sequence[Completion]) -> None:
        """Records the activations of the first rollouts."""
        if self.seen_TH is None:
            self.seen_TH = torch.cat([completion.hidden_TH for completion in completions[:FIRST]]).float()

    @property
    def known_TH(self) -> torch.Tensor:
        """The recorded activations."""
        assert self.seen_TH is not None
        return self.seen_TH


class ConstantPolynomial(Learned):
    """Proves a constant: the median of the largest activations."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        largest_K = self.known_TH[:CHUNK_ROWS].abs().flatten().topk(ENTRIES).values
        constant = Proof(PRIME, (bits_of(largest_K.median()), *[0] * (ENTRIES - 1))).encode()
        return [constant] * len(rollout.proofs)


class ChannelTemplate(Learned):
    """Proves the mean of each channel for every row, which nearly holds for outlier channels."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return build_proofs(self.known_TH.mean(0).expand(len(rollout.output_tokens), -1).bfloat16())


class OtherPromptsProof(Learned):
    """Proves the activations of another prompt's completion."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        rows = len(rollout.output_tokens)
        repeated_TH = self.known_TH.repeat(-(-rows // len(self.known_TH)), 1)
        return build_proofs(repeated_TH[:rows].bfloat16())


class ChosenModulus(Learned):
    """Takes the hidden size as modulus: every position maps to its channel, and the polynomial gives its value."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return [channel_proof(usual_largest(self.known_TH))] * len(rollout.proofs)


class AnotherModulus(Forging):
    """Proves its true activations modulo a number of its own choice."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        spans = chunk_spans(len(completion.hidden_TH))
        return [proof_modulo(completion.hidden_TH[start:stop], CHOSEN_MODULUS) for start, stop in spans]


class NegatedActivations(Forging):
    """Proves the negative of its activations, which the reference cannot tell from them."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return build_proofs(-completion.hidden_TH)


class RandomProofs(Forging):
    """Proves random activations."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        random_TH = torch.randn(completion.hidden_TH.shape, generator=_generator(self.chance))
        return build_proofs(random_TH.bfloat16())


class HalfPrecision(Forging):
    """Proves fp16 activations as if they were bf16, like an engine in fp16."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return build_proofs(completion.hidden_TH.half().view(torch.bfloat16))


class NullProofs(Forging):
    """Hands in the null proofs that the reference implementation returns after an exception."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return [bytes(2 + 2 * ENTRIES)] * len(rollout.proofs)


class NoProofs(Forging):
    """Hands in no proofs at all."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return []


class MissingProof(Forging):
    """Leaves out the last proof of each rollout."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return rollout.proofs[:-1]


class ExtraProof(Forging):
    """Hands in one proof too many for each rollout."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return (*rollout.proofs, rollout.proofs[-1])


class CoefficientFree(Forging):
    """Hands in proofs that consist of the modulus alone."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return [proof[:2] for proof in rollout.proofs]


class OversizedProof(Forging):
    """Hands in proofs with too many coefficients, beyond the prime."""

    def forge(self, rollout: Rollout, completion: Completion) -> Sequence[bytes]:
        """Returns the proofs to hand in."""
        return [proof + b"\xff" * 64 for proof in rollout.proofs]

    def encode(self, artifact: Artifact) -> bytes:
        """Returns the file to hand in."""
        return encode(artifact, Limits(proof_bytes=1 << 10))


def bits_of(value: torch.Tensor) -> int:
    """Returns the bf16 bits of a number."""
    return int(value.bfloat16().reshape(1).view(torch.int16).item()) & 0xFFFF


def usual_largest(seen_TH: torch.Tensor) -> torch.Tensor:
    """Returns each channel's mean over those entries that are among the largest of a chunk, (H,)."""
    largest_TH = seen_TH.abs() >= seen_TH[:CHUNK_ROWS].abs().flatten().topk(ENTRIES).values[-1]
    usual = seen_TH[largest_TH].abs().mean()
    sums_H, counts_H = (seen_TH * largest_TH).sum(0), largest_TH.sum(0)
    return torch.where(counts_H > 0, sums_H / counts_H.clamp(min=1), usual)


def channel_proof(value_H: torch.Tensor) -> bytes:
    """Returns a proof modulo H that gives the 128 largest channels their values at every position."""
    channels_K = value_H.abs().topk(min(ENTRIES, len(value_H))).indices
    bits_K = value_H[channels_K].bfloat16().view(torch.int16).long() & 0xFFFF
    return _laid(channels_K.numpy(), bits_K.numpy(), len(value_H))


def proof_modulo(hidden_TH: torch.Tensor, modulus: int) -> bytes:
    """Returns the proof of a chunk with a given modulus; the honest one if that modulus has collisions."""
    (honest,) = build_proofs_batch(hidden_TH, [len(hidden_TH)])
    flat_F = hidden_TH.bfloat16().contiguous().view(torch.int16).flatten().long() & 0xFFFF
    magnitudes_F = (flat_F & 0x7FFF).numpy()
    positions_K = np.argsort(-magnitudes_F, kind="stable")[:ENTRIES].astype(np.int64)
    if len(np.unique(positions_K % modulus)) < len(positions_K):
        return honest[0]
    return _laid(positions_K % modulus, flat_F.numpy()[positions_K], modulus)


def _laid(x_K: I64, bits_K: I64, modulus: int) -> bytes:
    return Proof(modulus, tuple(interpolate(x_K, bits_K).tolist())).encode()


def _generator(chance: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(chance.getrandbits(48))
