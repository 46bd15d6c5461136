"""Changing what an artifact says, as a hostile worker would who then signs it: its encoding is flawless. PURE."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from protocol.wire.rollout import Artifact, Rollout
from protocol.wire.toploc.codec import ENTRIES, PRIME, PROOF_BYTES, Proof

TOKENS = (0, 1, 2, 17, 18, 19, 255, (1 << 24) + 1, (1 << 31) - 1)
LOGPROBS = (0.0, -0.0, -1e-45, -1e-3, -100.0, -3.4028235e38)
PROOFS = (
    b"",
    b"\x00",
    bytes(PROOF_BYTES),
    b"\xff" * PROOF_BYTES,
    bytes(2 * PROOF_BYTES),
    Proof(PRIME, (0,) * ENTRIES).encode(),
    Proof(PRIME, (0x7F80, *[0] * (ENTRIES - 1))).encode(),
    Proof(PRIME, (0x3F80, *[0] * (ENTRIES - 1))).encode(),
    Proof(32769, (1,) * ENTRIES).encode(),
)
"""Nothing, no modulus, too long, zeros, infinities, a constant, the least modulus."""


def change_artifact(artifact: Artifact, chance: random.Random) -> Artifact:
    """Changes one to three things, in one rollout or in what binds the artifact to its job."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        rollouts = list(artifact.rollouts)
        n = chance.randrange(len(rollouts))
        match chance.randrange(12):
            case 0:
                artifact = replace(artifact, **chance.choice(({"round": 1 << 255}, {"job": 255}, {"node": 0})))
                continue
            case 1:
                artifact = replace(artifact, **{chance.choice(("manifest_root", "canary")): chance.randbytes(32)})
                continue
            case 2 if len(rollouts) > 1:
                del rollouts[n]
            case 3:
                rollouts[n:n] = [rollouts[n]] * chance.choice((1, 2))
            case _:
                rollouts[n] = _rollout(rollouts[n], chance)
        artifact = replace(artifact, rollouts=tuple(rollouts))
    return artifact


def _rollout(rollout: Rollout, chance: random.Random) -> Rollout:
    match chance.randrange(7):
        case 0:
            return replace(rollout, prompt_tokens=_one(rollout.prompt_tokens, chance, TOKENS))
        case 1:
            return replace(rollout, output_tokens=_one(rollout.output_tokens, chance, TOKENS))
        case 2:
            return replace(rollout, logprobs=_one(rollout.logprobs, chance, LOGPROBS))
        case 3:
            return replace(rollout, finish_reason="stop" if rollout.finish_reason == "length" else "length")
        case 4:
            size = chance.choice((1, 2, 8, 12, 40))
            tokens, logprobs = (np.resize(column, size) for column in (rollout.output_tokens, rollout.logprobs))
            return replace(rollout, output_tokens=tokens, logprobs=logprobs)
        case 5:
            return replace(rollout, prompt_tokens=np.resize(rollout.prompt_tokens, chance.choice((1, 2, 9, 60))))
        case _:
            proofs = list(rollout.proofs)
            at = chance.randrange(len(proofs) + 1)
            proofs[at : at + chance.choice((0, 1))] = [chance.choice(PROOFS)] * chance.choice((0, 1, 1, 2))
            return replace(rollout, proofs=tuple(proofs))


def _one(column: np.ndarray, chance: random.Random, values: tuple[float, ...]) -> np.ndarray:
    changed = column.copy()
    changed[chance.randrange(len(changed))] = chance.choice(values)
    return changed
