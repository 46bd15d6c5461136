"""Specimens: rollouts outside any round, generated as a worker does, for ``assize validator calibrate``."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import torch

from protocol.environments.registry import environment as environment_of
from protocol.errors import Misconfigured, Rejected
from protocol.tensor.completions import Completion, Request
from protocol.tensor.determinism import ExactShape
from protocol.tensor.directory import check_model_directory, weights_hash
from protocol.tensor.model import Model
from protocol.wire.rules import Rules, decode_rules, encode_rules, rules_hash
from protocol.wire.specimens import FORMAT, INDEX, ROUNDS, Batch, Specimens, beacon_of, encode_index, file_of
from worker.engines.engine import Engine
from worker.engines.registry import engine_packages, installed_versions, make_engine
from worker.producer import Producer
from worker.prover import Deployed, Work

NOWHERE = Deployed(0, ROUNDS)
ENOUGH_UNITS = 1 << 62


class InBatches:
    """Wraps an engine and passes it at most ``size`` requests at a time."""

    def __init__(self, engine: Engine, size: int) -> None:
        self.engine, self.size = engine, size

    @property
    def model(self) -> Model:
        """The loaded model."""
        return self.engine.model

    @property
    def canary(self) -> bytes:
        """The determinism class that the engine measured."""
        return self.engine.canary

    def load(self, directory: Path) -> None:
        """Loads a model directory."""
        self.engine.load(directory)

    def read_ahead(self, directory: Path) -> None:
        """Reads another version ahead."""
        self.engine.read_ahead(directory)

    def swap(self, directory: Path) -> None:
        """Loads the weights of another version in place."""
        self.engine.swap(directory)

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """Completes every request, in their order."""
        parts = [requests[start : start + self.size] for start in range(0, len(requests), self.size)]
        return [completion for part in parts for completion in self.engine.generate(part, cancel)]


def make_specimens(
    producer: Producer,
    model: Path,
    maker: str,
    batches: Sequence[int],
    rollouts: int,
    seed: int,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Specimens:
    """Writes about ``rollouts`` to ``out``, in whole jobs of every batch size, and the index that describes them.

    Args:
        producer: with its weights loaded.
        model: directory of the weights that the specimens claim to come from.
        maker: name of the engine or the cheat.
        batches: batch sizes.
        rollouts: number wanted in all.
        seed: seed of prompts and noise.
        out: folder to write to, empty or new.
        progress: called with rollouts made and wanted.

    Raises:
        Misconfigured: ``out`` is not empty.
    """
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise Misconfigured(f"{out} is not empty: give an empty or a new folder")
    weights, rules = weights_hash(model), producer.rules
    made = _plan(batches, rollouts, rules.rollouts_per_job)
    done, of = 0, sum(len(batch.jobs) for batch in made) * rules.rollouts_per_job
    engine = producer.engine
    for batch in made:
        producer.engine = InBatches(engine, batch.size)
        for jobs in _at_once(batch, rules.rollouts_per_job):
            work = Work(0, 0, jobs, beacon_of(seed), 0, weights, ENOUGH_UNITS)
            for finished in producer.make(work):
                (out / file_of(finished.job)).write_bytes(finished.file)
            done += len(jobs) * rules.rollouts_per_job
            progress(done, of)
    producer.engine = engine
    digest = rules_hash(encode_rules(rules))
    specimens = Specimens(maker, model.name, weights, digest, seed, machine(), tuple(made), FORMAT)
    (out / INDEX).write_text(encode_index(specimens))
    return specimens


def machine() -> dict[str, str]:
    """Returns what may change the last bits of a result: processor, kernels, threads and libraries."""
    found = {"processor": platform.machine(), "kernels": torch.backends.cpu.get_cpu_capability()}
    found |= {"threads": str(torch.get_num_threads())}
    limit = os.environ.get("MKL_ENABLE_INSTRUCTIONS")
    found |= {"mkl": limit} if limit else {}
    if torch.cuda.is_available():
        found["accelerator"] = torch.cuda.get_device_name()
    return found | installed_versions(("torch", *engine_packages()))


def _plan(batches: Sequence[int], rollouts: int, per_job: int) -> list[Batch]:
    """Returns distinct jobs for every batch size; larger batches are faster and get more (squared logarithm)."""
    shares = [size.bit_length() ** 2 for size in batches]
    plan, first = [], 0
    for size, share in zip(batches, shares, strict=True):
        jobs = max(1, round(rollouts * share / (sum(shares) * per_job)))
        plan.append(Batch(size, tuple(range(first, first + jobs))))
        first += jobs
    return plan


def _at_once(batch: Batch, per_job: int) -> list[tuple[int, ...]]:
    """Returns the jobs in groups that fill one batch each."""
    count = max(1, batch.size // per_job)
    return [batch.jobs[start : start + count] for start in range(0, len(batch.jobs), count)]


@torch.no_grad()
def generate_specimens(
    rules_file: Path, model: Path, out: Path, engine: str, batches: Sequence[int], rollouts: int, seed: int, device: str
) -> None:
    """Makes honest specimens and prints a line for each tenth of them: ``assize worker generate``."""
    torch.set_num_threads(1)
    check_model_directory(model)
    rules = _read_rules(rules_file)
    environment = environment_of(rules.environment.name, rules.environment.params)
    made_by = make_engine(engine, rules.model.dtype, device, ExactShape.of(rules))
    producer = Producer(made_by, rules, environment, NOWHERE)
    producer.load(0, model)
    told = [0]

    def tell(done: int, of: int) -> None:
        if 10 * done // of > told[0]:
            told[0] = 10 * done // of
            print(f"{engine}: {done} of {of} rollouts", flush=True)

    make_specimens(producer, model, engine, batches, rollouts, seed, out, tell)


def sizes(text: str) -> list[int]:
    """Returns comma-separated batch sizes as numbers.

    Raises:
        Misconfigured: one of them is not a positive integer.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise Misconfigured(f"invalid batch sizes {text!r}: expected comma-separated positive integers")
    return [int(part) for part in parts]


def _read_rules(path: Path) -> Rules:
    try:
        return decode_rules(path.read_bytes())
    except (OSError, Rejected) as error:
        raise Misconfigured(f"cannot read the rules {path}: {error}") from error
