"""Writes sampling.json, which pins the noise: ``python -m tests.vectors.make_sampling`` from the repository root.

"philox" is not made here: these are the known answers that Random123 publishes for philox4x32_R 10 (its kat_vectors).
fp32 numbers are given by their bits.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from protocol.wire import sampling

PHILOX = [
    {"counter": [0] * 4, "key": [0] * 2, "words": [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]},
    {"counter": [2**32 - 1] * 4, "key": [2**32 - 1] * 2, "words": [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]},
    {
        "counter": [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        "key": [0xA4093822, 0x299F31D0],
        "words": [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    },
]
WORDS = [0, 1, 2, 511, 512, 65535, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 0xC0000000, 0xFFFFFFFE, 0xFFFFFFFF]


def main() -> None:
    seed, rollouts, positions, vocab = bytes(range(32)), [0, 1, 2**32 - 1], [0, 7], 6
    keys = sampling.noise_keys(seed, rollouts)
    noise = sampling.gumbel_noise(keys, np.broadcast_to(np.array(positions), (3, 2)), vocab)
    vectors = {
        "philox": PHILOX,
        "gumbel": {"words": WORDS, "fp32": bits(sampling.gumbel(np.array(WORDS, dtype=np.uint32)))},
        "noise": {
            "job_seed": seed.hex(),
            "rollouts": rollouts,
            "keys": keys.tolist(),
            "positions": positions,
            "vocab": vocab,
            "fp32": bits(noise),
        },
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in vectors.items())
    Path(__file__).with_name("sampling.json").write_text(f"{{\n{lines}\n}}\n")


def bits(values: sampling.F32) -> list[int]:
    """fp32 bits as nested lists."""
    return np.ascontiguousarray(values).view(np.uint32).tolist()


if __name__ == "__main__":
    main()
