"""A short measurement of honest work: how far the same policy is from itself at other batch sizes.

Rollouts are decoded as a worker decodes them, in batches of several sizes, and prefilled as a validator does. What
differs is numerical noise; the proposed thresholds lie a generous factor above the largest seen, because other
processors round otherwise and weights move while they are trained. This is no calibration: it states no error rate.

Axes: N rollouts, S sampled tokens, C chunks.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from protocol.environments.environment import Environment
from protocol.tensor.decode import Completion, Request, decode
from protocol.tensor.model import Model, load_model
from protocol.tensor.proofs import build_proofs_batch, distances_batch
from protocol.wire.proof import ENTRIES
from protocol.wire.rules import Thresholds
from protocol.wire.sampling import noise_key
from protocol.wire.seeds import prompt_seed
from validator.prefill import DTYPES, Completed, prefill, probe

FACTOR = 10.0
"""How far above the largest honest value a void threshold lies."""

SWAP = 1 / ENTRIES
"""Distance that one entry adds which rounding has carried into, or out of, the top 128."""

HIGHEST_NULL_RATIO = 0.6
"""A forgery lies at 1 or above; this is as near to it as an honest chunk is allowed."""

FLOORS = Thresholds(
    sampling_void=0.01, sampling_fraud=0.25, logprob_median=1e-3, logprob_tail=1e-2, toploc=4 * SWAP, toploc_mean=0.005
)
"""Below these no threshold is proposed, however quiet this machine is."""

SAMPLES_PER_GROUP = 8


@dataclass(frozen=True, slots=True)
class Band:
    """What honest rollouts decoded ``batch`` at a time measured."""

    batch: int
    rollouts: int
    tokens: int
    flips: int
    margin_max: float
    logprob_median: float
    logprob_p99: float
    logprob_max: float
    rel_max: float
    rel_mean: float
    null_min: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Bands by batch size, and the thresholds they propose."""

    command: str
    machine: dict[str, str]
    weights_sha256: str
    dtype: str
    temperature: float
    max_tokens: int
    bands: list[Band]
    thresholds: Thresholds

    def to_json(self) -> dict[str, object]:
        """The document that is committed next to a run's rules."""
        return asdict(self) | {"thresholds": self.thresholds.model_dump()}


def measure(
    directory: Path,
    environment: Environment,
    rollouts: int,
    batches: Sequence[int],
    temperature: float,
    max_tokens: int,
    dtype: str,
    command: str,
) -> Measurement:
    """Measures the model in ``directory``. Raises ``Misconfigured`` where it does not load."""
    model = load_model(directory, DTYPES[dtype])
    probe(model)
    bands = []
    for batch in batches:
        requests = _requests(model, environment, rollouts, temperature, max_tokens, batch)
        bands.append(_band(model, requests, batch, temperature, DTYPES[dtype]))
    weights = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(directory.glob("*.safetensors"))))
    machine = {
        "processor": platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": str(torch.get_num_threads()),
    }
    return Measurement(command, machine, weights.hexdigest(), dtype, temperature, max_tokens, bands, propose(bands))


def propose(bands: Sequence[Band]) -> Thresholds:
    """Returns thresholds a factor above the largest honest values, and no lower than ``FLOORS``.

    Fraud needs a factor more than void. Distances come in steps of one swapped entry, so they get room for steps, not a
    factor, and so does the share of the null where entries are so equal that a constant comes near.
    """
    largest = max(band.margin_max for band in bands)
    furthest, null = max(band.rel_max for band in bands), min(band.null_min for band in bands)
    assert FLOORS.sampling_fraud is not None
    return Thresholds(
        sampling_void=max(FLOORS.sampling_void, FACTOR * largest),
        sampling_fraud=max(FLOORS.sampling_fraud, FACTOR**2 * largest),
        logprob_median=max(FLOORS.logprob_median, FACTOR * max(band.logprob_median for band in bands)),
        logprob_tail=max(FLOORS.logprob_tail, FACTOR * max(band.logprob_p99 for band in bands)),
        toploc=max(FLOORS.toploc, furthest + 2 * SWAP),
        toploc_mean=max(FLOORS.toploc_mean, FACTOR * max(band.rel_mean for band in bands)),
        toploc_null_ratio=min(HIGHEST_NULL_RATIO, max(FLOORS.toploc_null_ratio, (furthest + SWAP) / null)),
    )


def _requests(
    model: Model, environment: Environment, rollouts: int, temperature: float, max_tokens: int, batch: int
) -> list[Request]:
    """Other prompts and other noise for each batch size."""
    seed = hashlib.sha256(b"assize/measure/1" + batch.to_bytes(4, "big")).digest()
    prompts = [
        model.prompt_tokens(environment.problem(prompt_seed(seed, group)).prompt)
        for group in range(-(-rollouts // SAMPLES_PER_GROUP))
    ]
    return [
        Request(prompts[n // SAMPLES_PER_GROUP], noise_key(seed, n), max_tokens, temperature, model.stop_token)
        for n in range(rollouts)
    ]


def _band(model: Model, requests: Sequence[Request], batch: int, temperature: float, dtype: torch.dtype) -> Band:
    parts = [requests[start : start + batch] for start in range(0, len(requests), batch)]
    completions = [completion for part in parts for completion in decode(model.network, part)]
    sequences = [
        Completed(np.array(request.prompt_tokens, np.int32), np.array(done.output_tokens, np.int32), request.noise_key)
        for request, done in zip(requests, completions, strict=True)
    ]
    checked = prefill(model, sequences, temperature, dtype)
    difference_S = np.abs(np.concatenate([done.logprobs_T.numpy() for done in completions]) - checked.logprobs_S)
    rel_C, null_C = _distances(completions, checked.hidden_SH)
    return Band(
        batch=batch,
        rollouts=len(requests),
        tokens=len(difference_S),
        flips=int((checked.margins_S > 0).sum()),
        margin_max=float(checked.margins_S.max()),
        logprob_median=float(np.median(difference_S)),
        logprob_p99=float(np.percentile(difference_S, 99)),
        logprob_max=float(difference_S.max()),
        rel_max=float(rel_C.max()),
        rel_mean=float(rel_C.mean()),
        null_min=float(null_C.min()),
    )


def _distances(
    completions: Sequence[Completion], hidden_SH: torch.Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    lengths = [len(done.output_tokens) for done in completions]
    proofs = build_proofs_batch(torch.cat([done.hidden_TH for done in completions]), lengths)
    others = [(n + SAMPLES_PER_GROUP) % len(lengths) for n in range(len(lengths))]
    found = distances_batch(hidden_SH, lengths, proofs, previous=others if len(lengths) > SAMPLES_PER_GROUP else None)
    flat = [distance for chunks in found for distance in chunks]
    return np.array([distance.rel for distance in flat]), np.array([distance.null for distance in flat])
