"""Determinism classes: machines whose kernels give the same bits in windows of the same shapes.

The class of a machine is its canary: BLAKE3-256 of hidden states and logits of a pinned job in the windows of a run.

    network   the run's architecture and number format, with at most ``LAYERS`` layers
    weights   of each parameter from Philox under a key of its name: with 16 bits b for a value, (b/2^16 - 1/2) times
              2/sqrt(fan in) in matrices, 1 + (b/2^16 - 1/2)/4 in vectors
    job       the run's number of rollouts: prompts, lengths and tokens by formula, the first one ``LONGEST`` long

So the canary needs no version of the run's weights and is the same for all of them. It changes with whatever changes
the order of a sum: instruction set, library, number of threads where they matter. That it changes with everything that
does is not proved: classes are measured against themselves (`make bench-exact`), and a mismatch is no more than void.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from blake3 import blake3
from numpy.typing import NDArray
from transformers.initialization import no_init_weights

from protocol.errors import Misconfigured, accessing
from protocol.tensor.measured_canary import kept_canary, machine, measured_canary
from protocol.tensor.model import DTYPES, build
from protocol.tensor.windows import JobWindows
from protocol.wire.rules import Rules

LAYERS = 2
"""Layers of the canary's network: others repeat their shapes."""

CONFIGURATION = "config.json"
"""File that describes a model's architecture."""

LONGEST = 1_100
"""Tokens of the pinned job's longest rollout: beyond two blocks of columns that attention takes at a time."""


class AnotherClass(Misconfigured):
    """This machine is of another determinism class than a run."""


@dataclass(frozen=True, slots=True)
class ExactShape:
    """Conditions of exact decoding: ``rollouts`` of a job, ``window`` positions, the LM head's format, the class.

    Without a ``canary`` no machine is refused. ``made_by`` says for people what gave the class its canary.
    """

    rollouts: int
    window: int
    head_dtype: str
    canary: bytes | None
    made_by: str = ""

    @classmethod
    def of(cls, rules: Rules) -> ExactShape | None:
        """Returns the conditions of a run; None if it does not compare bits."""
        exact = rules.model.exact
        if exact is None:
            return None
        canary = None if exact.canary is None else rules.canary
        return cls(rules.rollouts_per_job, exact.window, rules.model.head_dtype, canary, exact.made_by)

    def check(self, directory: Path, dtype: str, device: str) -> bytes:
        """Returns the canary that this machine was measured to have; zeros, unmeasured, where no class is named.

        Measures once for each machine and class (``protocol.tensor.measured_canary``). ``directory`` holds a model of
        the run's architecture.

        Raises:
            AnotherClass: this machine is not of the class.
        """
        if self.canary is None:
            return bytes(32)
        path = directory / CONFIGURATION
        with accessing(f"read {path}"):
            conditions = self._conditions(blake3(path.read_bytes()).digest(), dtype, device)
        own = measured_canary(conditions, lambda: canary_of(directory, dtype, device, self), self.canary)
        if own != self.canary:
            raise AnotherClass(
                f"this machine is of the determinism class 0x{own.hex()[:16]}… ({made_by(device)}), the run of "
                f"0x{self.canary.hex()[:16]}… ({self.made_by or 'made by nothing that its rules name'}): serve another "
                "run, or use the software and the number of threads that the run's rules name"
            )
        return own

    def known(self, rules: Rules, device: str) -> bool:
        """Returns whether this machine is known to be of the class of ``rules``, by what it measured before."""
        pinned = (file.hash for file in rules.model.checkpoint or () if file.name == CONFIGURATION)
        return any(kept_canary(self._conditions(each, rules.model.dtype, device)) == self.canary for each in pinned)

    def _conditions(self, configuration: bytes, dtype: str, device: str) -> dict[str, Any]:
        """Returns everything that the canary depends on; ``configuration`` is BLAKE3-256 of the model's."""
        formats = {"dtype": dtype, "head_dtype": self.head_dtype}
        job = {"rollouts": self.rollouts, "window": self.window, "layers": LAYERS, "longest": LONGEST}
        return {"architecture": configuration.hex(), **formats, **job, "machine": machine(device)}


def with_canary(rules: Rules, directory: Path, device: str = "cpu") -> Rules:
    """Returns rules for the class of this machine on one thread, unless they name a class or compare no bits.

    ``directory`` holds a model of the run's architecture.
    """
    shape = ExactShape.of(rules)
    if shape is None or shape.canary is not None or rules.model.exact is None:
        return rules
    with _threads(1):
        canary = canary_of(directory, rules.model.dtype, device, shape)
        named = {"canary": "0x" + canary.hex(), "made_by": made_by(device)}
    exact = rules.model.exact.model_copy(update=named)
    return rules.model_copy(update={"model": rules.model.model_copy(update={"exact": exact})})


def class_in_words(rules: Rules, fetch: Callable[[Path], object], device: str, threads: int | None = None) -> str:
    """Returns the class of this machine in words, once it is known to be the run's.

    Args:
        rules: the run's.
        fetch: makes the new folder it is given a model of the run's architecture; its weights are not needed. Called
            if this machine has not measured the class before.
        device: computes.
        threads: number of them that will serve the run; None is what this process has.

    Raises:
        AnotherClass: this machine is not of the class.
    """
    shape = ExactShape.of(rules)
    if shape is None or shape.canary is None:
        return "the rules name no determinism class: any machine will do"
    with TemporaryDirectory() as folder, _threads(threads):
        if not shape.known(rules, device):
            fetch(Path(folder) / "model")
            shape.check(Path(folder) / "model", rules.model.dtype, device)
        return f"of the run's determinism class 0x{rules.canary.hex()[:16]}… ({made_by(device)})"


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Computes with so many threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def made_by(device: str) -> str:
    """Returns the software and hardware that a canary of this machine depends on, in words."""
    if device == "cuda":
        kind = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    else:
        kind = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    limits = [
        f"{name}={os.environ[name]}" for name in ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS") if name in os.environ
    ]
    threads = torch.get_num_threads()
    parts = [
        f"transformers {transformers.__version__}",
        f"torch {torch.__version__}",
        kind,
        f"{threads} threads",
        *limits,
    ]
    return ", ".join(parts)


@torch.inference_mode()
def canary_of(directory: Path, dtype: str, device: str, shape: ExactShape) -> bytes:
    """Returns the 32-byte canary of this machine for the architecture in ``directory``."""
    with no_init_weights():  # every parameter is overwritten below
        network = build(directory, DTYPES[dtype], LAYERS).eval().to(device)
    network.tie_weights()
    for name, parameter in network.named_parameters():
        parameter.copy_(torch.from_numpy(_values(name, tuple(parameter.shape))))
    prompts, fed = _job(shape, int(network.config.vocab_size))
    hasher, head = blake3(), network.get_output_embeddings()
    for sampled in JobWindows(network, prompts, shape.window, max(map(len, fed))).run_all(fed):
        hasher.update(_bytes(sampled.hidden_UH))
        for _, logits_UV, _ in sampled.logits(head, DTYPES[shape.head_dtype]):
            hasher.update(_bytes(logits_UV))
    return hasher.digest()


def _values(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    key = int.from_bytes(blake3(b"assize/canary/1" + name.encode()).digest()[:16], "big")
    count = math.prod(shape)
    words = np.random.Philox(key=key).random_raw(-(-count // 4)).view("<u2")[:count]
    values = words.astype(np.float32) / np.float32(1 << 16) - np.float32(0.5)
    if len(shape) == 1:
        return np.float32(1) + values / np.float32(4)
    return (values * np.float32(2 / math.sqrt(shape[-1]))).reshape(shape)


def _job(shape: ExactShape, vocabulary: int) -> tuple[list[int], list[NDArray[np.int32]]]:
    """Returns the lengths of the prompts of the pinned job, and each rollout's fed tokens."""
    longest, prompts, fed = max(LONGEST, 5 * shape.window // 2), list[int](), list[NDArray[np.int32]]()
    for rollout in range(shape.rollouts):
        prompt = max(1, shape.window * (1 + rollout % 3) // 4)
        length = max(prompt, longest // (1 + rollout))
        positions = np.arange(length, dtype=np.int64)
        shared = positions < prompt
        tokens = (positions * 7919 + np.where(shared, rollout % 3, 104729 * (rollout + 1))) % vocabulary
        prompts.append(prompt)
        fed.append(tokens.astype(np.int32))
    return prompts, fed


def _bytes(tensor: Any) -> memoryview:
    data: memoryview = tensor.contiguous().cpu().view(torch.uint8).numpy().data
    return data
