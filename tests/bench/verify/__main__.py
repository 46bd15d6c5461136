"""What checking costs beside generating, and what seeding the choice of tokens costs beside leaving it to chance.

Both for an engine by name, on this machine, with models of random weights that stop at their token limit alone. The
processor's time of this one process is what is counted, so that other work on the machine does not enter; the two that
are compared take turns. Verification is a prefill of all that was generated, distances of all proofs, and every check
that follows from them; building the proofs is the worker's and counts on neither side.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen3Config, Qwen3ForCausalLM

from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import Model, load_model
from protocol.tensor.proofs import build_proofs_batch, distances_batch
from protocol.wire.rules import Thresholds
from tests.bench.verify.own_sampling import own_sampling
from trainer.builtin import character_tokenizer
from validator.judging.check import TokenMeasurements
from validator.judging.prefill import Completed, prefill
from validator.judging.registry import CHECKS
from worker.engines.engine import Engine
from worker.engines.registry import ENGINES, make_engine

GROUP = 8
PROMPT_TOKENS = 8
STOP = 1
BATCHES = {"transformers": (64, 256, 512), "vllm": (64, 256)}
COMPLETION_TOKENS = 256
SAMPLING_ROWS = {64: 256, 151_936: 8}
SAMPLING_TOKENS = {64: 128, 151_936: 24}


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3 of random weights."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2


BUILTIN, WIDE = Shape(64, 128, 256), Shape(151_936, 64, 128)


@dataclass(frozen=True, slots=True)
class Checked:
    """Tokens per second of one batch size, medians."""

    rows: int
    generated: float
    verified: float

    @property
    def ratio(self) -> float:
        """How many times as fast checking is."""
        return self.verified / self.generated


@dataclass(frozen=True, slots=True)
class Seeded:
    """Seconds for the same tokens, seeded and by the engine's own chance, medians."""

    vocabulary: int
    seeded: float
    own: float

    @property
    def cost(self) -> float:
        """What seeding adds, as a share; negative where it saves."""
        return self.seeded / self.own - 1


def make_model(directory: Path, shape: Shape) -> None:
    """Writes a model of random weights, with the built-in run's tokenizer, that never stops by itself.

    One channel of the residual stream holds the same for every token, and end-of-text is what it speaks against.
    """
    torch.manual_seed(0)
    tokenizer = character_tokenizer(Arithmetic().alphabet)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    network = Qwen3ForCausalLM(config)
    with torch.no_grad():
        network.get_input_embeddings().weight[:, 0] = 1.0
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
        network.lm_head.weight[tokenizer.eos_token_id, 0] = -1e4
    network.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def requests_of(shape: Shape, rows: int, tokens: int, run: int) -> list[Request]:
    """Groups of one prompt, other ones each run."""
    chance = np.random.default_rng(run)
    prompts = [tuple(chance.integers(3, shape.vocabulary, PROMPT_TOKENS).tolist()) for _ in range(-(-rows // GROUP))]
    return [Request(prompts[n // GROUP], (run, n), tokens, 1.0, (STOP,)) for n in range(rows)]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Returns processor seconds and what ``work`` returned."""
    gc.collect()
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def verify(model: Model, requests: Sequence[Request], completions: Sequence[Completion], proofs: list[Any]) -> int:
    """Does what a validator does with an artifact once it is read. Returns how many findings there are."""
    sequences = [
        Completed(np.array(one.prompt_tokens, np.int32), np.array(done.output_tokens, np.int32), one.noise_key)
        for one, done in zip(requests, completions, strict=True)
    ]
    found = prefill(model, sequences, 1.0, torch.float32)
    others = [(n + GROUP) % len(requests) for n in range(len(requests))]
    distances = distances_batch(found.hidden_SH, found.lengths_N.tolist(), proofs, previous=others)
    reported_S = np.concatenate([done.logprobs_T.numpy() for done in completions])
    chunks = [distance for one in distances for distance in one]
    measured = TokenMeasurements(
        *(found.lengths_N, found.margins_S, found.gaps_S, found.leads_S, reported_S, found.logprobs_S),
        *(np.array([chunk.rel for chunk in chunks]), np.array([chunk.null for chunk in chunks])),
        np.array([chunk.modulus_canonical for chunk in chunks], np.bool_),
        np.array([len(one) for one in distances], np.int64),
    )
    findings = [finding for check in CHECKS if check.compares for finding in check.compares(measured, LIMITS)]
    return len(findings)


LIMITS = Thresholds(
    sampling_void=0.01, sampling_fraud=0.25, logprob_median=1e-3, logprob_tail=1e-2, toploc=1 / 32, toploc_mean=0.005
)


def checked(name: str, engine: Engine, model: Model, shape: Shape, rows: int, runs: int) -> Checked:
    """Generates and verifies, one after the other, ``runs`` times after one that does not count."""
    seconds: list[tuple[float, float]] = []
    for run in range(runs + 1):
        requests = requests_of(shape, rows, COMPLETION_TOKENS, run)
        generating, completions = timed(lambda requests=requests: engine.generate(requests))
        lengths = [len(done.output_tokens) for done in completions]
        proofs = build_proofs_batch(torch.cat([done.hidden_TH for done in completions]), lengths)
        verifying, findings = timed(lambda r=requests, c=completions, p=proofs: verify(model, r, c, p))
        if findings:
            raise SystemExit(f"{name} at {rows} rows: {findings} findings against honest work")
        if set(lengths) != {COMPLETION_TOKENS}:
            raise SystemExit(f"{name} at {rows} rows: a completion stopped before its limit")
        seconds.append((generating, verifying))
    tokens = rows * COMPLETION_TOKENS
    return Checked(rows, *(tokens / statistics.median(part) for part in zip(*seconds[1:], strict=True)))


def seeded(name: str, engine: Engine, directory: Path, shape: Shape, runs: int) -> Seeded:
    """Completes the same requests seeded and by chance, in turns."""
    rows, tokens = SAMPLING_ROWS[shape.vocabulary], SAMPLING_TOKENS[shape.vocabulary]
    own = own_sampling(name, engine, directory, rows)
    seconds: list[tuple[float, float]] = []
    for run in range(runs + 1):
        requests = requests_of(shape, rows, tokens, run)
        ours, _ = timed(lambda requests=requests: engine.generate(requests))
        theirs, count = timed(lambda requests=requests: own(requests))
        if count != rows * tokens:
            raise SystemExit(f"{name} gave {count} tokens by chance, {rows * tokens} were asked for")
        seconds.append((ours, theirs))
    return Seeded(shape.vocabulary, *(statistics.median(part) for part in zip(*seconds[1:], strict=True)))


def bench(name: str, folder: Path, runs: int, console: Console) -> dict[str, Any]:
    """Measures one engine, prints its tables, and returns its part of the JSON."""
    rates, costs = [], []
    for shape in (BUILTIN, WIDE):
        directory = folder / str(shape.vocabulary)
        if not directory.exists():
            make_model(directory, shape)
        engine = make_engine(name, "float32")
        engine.load(directory)
        if shape is BUILTIN:
            model = load_model(directory, torch.float32)
            for rows in BATCHES[name]:
                rates.append(checked(name, engine, model, shape, rows, runs))
                console.print(f"{name}: {rows} rows, checked {rates[-1].ratio:.2f} times as fast as generated")
        costs.append(seeded(name, engine, directory, shape, runs))
        console.print(f"{name}: vocabulary {shape.vocabulary:,}, seeding costs {costs[-1].cost:+.1%}")
    best = max(rates, key=lambda one: one.generated)
    _show(name, rates, best, costs, runs, console)
    return {
        "verify_to_generate": round(best.ratio, 2),
        "seeded_cost": {str(one.vocabulary): round(one.cost, 3) for one in costs},
    }


def _show(
    name: str, rates: Sequence[Checked], best: Checked, costs: Sequence[Seeded], runs: int, console: Console
) -> None:
    title = f"{name}: tokens a processor second, {COMPLETION_TOKENS}-token completions, medians of {runs}"
    table = Table("rows", "generated", "checked", "ratio", title=title)
    for one in rates:
        mark = " *" if one is best else ""
        table.add_row(f"{one.rows}{mark}", f"{one.generated:,.0f}", f"{one.verified:,.0f}", f"{one.ratio:.2f}")
    console.print(table)
    table = Table("vocabulary", "seeded s", "own chance s", "cost", title=f"{name}: seeding, medians of {runs}")
    for cost in costs:
        table.add_row(f"{cost.vocabulary:,}", f"{cost.seeded:.3f}", f"{cost.own:.3f}", f"{cost.cost:+.1%}")
    console.print(table)


def main() -> None:
    """Measures the engines asked for and ends with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="assize-verify-") as folder:
        found = {name: bench(name, Path(folder), options.runs, console) for name in options.engines.split(",")}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

# BATCHES: the batch at which the engine generates fastest, marked in the table, is the worker's best.
# STOP: the built-in tokenizer's end-of-text.
# SAMPLING_ROWS: at a vocabulary of 151,936 a row of logits is 0.6 MB.
