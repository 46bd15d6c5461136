"""Makes ``artifact.json``: roots from struct and keccak alone, as drawn in ``rollout.py`` and ``artifact_blob.py``.

Run as ``python tests/vectors/make_artifact.py > tests/vectors/artifact.json``. Shares no code with what it checks.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from eth_utils import keccak

DOMAIN = b"assize/artifact/2"
FILE_DOMAIN = b"assize/file/1"


def a_rollout(k: int) -> dict[str, Any]:
    return {
        "prompt_tokens": [k + 1, 2, 3][: 1 + k % 3],
        "output_tokens": [7 * k + i for i in range(1 + k)],
        "logprob_bits": [struct.pack(">f", -0.125 * (i + k)).hex() for i in range(1 + k)],
        "proofs": [f"{k + 1:02x}" * 258] * (k % 3),
        "finish_reason": "length" if k % 2 else "stop",
    }


def canonical(index: int, rollout: dict[str, Any]) -> bytes:
    tokens = rollout["prompt_tokens"] + rollout["output_tokens"]
    counts = (len(rollout[name]) for name in ("prompt_tokens", "output_tokens", "proofs"))
    data = struct.pack(">IIII", index, *counts) + b"".join(struct.pack(">I", token) for token in tokens)
    data += bytes.fromhex("".join(rollout["logprob_bits"]))
    for proof in rollout["proofs"]:
        data += struct.pack(">I", len(proof) // 2) + bytes.fromhex(proof)
    return data + (b"\x00" if rollout["finish_reason"] == "stop" else b"\x01")


def word(value: int | str) -> bytes:
    return int(value).to_bytes(32, "big")


def rollouts_root(vector: dict[str, Any]) -> bytes:
    level = [keccak(b"\x00" + bytes.fromhex(rollout)) for rollout in vector["canonical"]]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [keccak(b"\x01" + b"".join(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    head = word(10 * 32) + word(vector["chain_id"]) + bytes(12) + bytes.fromhex(vector["rounds"][2:])
    body = b"".join(word(vector[name]) for name in ("round", "job", "node"))
    body += bytes.fromhex(vector["manifest_root"] + vector["canary"])
    tail = word(len(vector["rollouts"])) + level[0] + word(len(DOMAIN)) + DOMAIN.ljust(32, b"\x00")
    return keccak(head + body + tail)


def artifact_root(rollouts: bytes, file: bytes) -> bytes:
    head = word(4 * 32) + rollouts + keccak(file) + word(len(file))
    return keccak(head + word(len(FILE_DOMAIN)) + FILE_DOMAIN.ljust(32, b"\x00"))


def a_vector(chain_id: int, round_: int, job: int, node: int, count: int) -> dict[str, Any]:
    vector: dict[str, Any] = {
        "chain_id": chain_id,
        "rounds": "0x" + "5a" * 20,
        "round": str(round_),
        "job": job,
        "node": node,
        "manifest_root": f"{job:02x}" * 32,
        "canary": f"{node & 0xFF:02x}" * 32,
        "rollouts": [a_rollout(k) for k in range(count)],
    }
    vector["canonical"] = [canonical(index, rollout).hex() for index, rollout in enumerate(vector["rollouts"])]
    rollouts, file = rollouts_root(vector), b"any bytes " * job
    roots = {"rollouts_root": rollouts.hex(), "file": file.hex(), "artifact_root": artifact_root(rollouts, file).hex()}
    return vector | roots


VECTORS = [
    a_vector(1, 0, 0, 0, 1),
    a_vector(31337, 12, 255, 7, 2),
    a_vector(31337, 2**256 - 1, 3, 2**32 - 1, 5),
    a_vector(8453, 99, 17, 4, 8),
]

if __name__ == "__main__":
    print(json.dumps({"vectors": VECTORS}, indent=1))
