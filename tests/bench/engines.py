"""Who generates, who verifies, and how far apart they are: vLLM and transformers both ways, and each with itself.

Two models: the built-in one, imitated to the end, and a wider one of random weights, whose choices are as close as
choices get. Whoever verifies runs every sequence once more as a prefill of its own, and all are scored by the same code
the validators use. Rollouts never stop, so that every length is as long as it says.

Axes: S sampled tokens of all rollouts one after another, T those of one, H hidden size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen3Config, Qwen3ForCausalLM

from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import DTYPES, Model, load_model, logits_of
from protocol.tensor.proofs import build_proofs_batch, distances_batch
from trainer.builtin import character_tokenizer, make_builtin
from validator.judging.prefill import MAX_LOGITS, Completed, Prefill, Scores, prefill
from worker.engines.engine import Engine
from worker.engines.transformers_engine import TransformersEngine
from worker.engines.vllm_engine import VllmEngine

Dtype = Literal["float32", "bfloat16"]
Verify = Callable[[Sequence[Request], Sequence[Completion]], Prefill]

LENGTHS = (64, 256, 512)
ROLLOUTS = {64: 128, 256: 64, 512: 32}
GROUP = 8
POSITIONS = 1024
LARGE_MARGIN = 0.3
DTYPE_NAMES: tuple[Dtype, ...] = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Row:
    """One pair of engines at one dtype and length. ``matches`` is the share of rollouts without a flip.

    ``flips_per_1000`` counts tokens that the verifier's numbers would have chosen otherwise, margins are in logits,
    ``logprob_…`` are absolute differences in nats, ``toploc_…`` relative distances of chunks.
    """

    model: str
    dtype: str
    generates: str
    verifies: str
    length: int
    tokens: int
    matches: float
    flips_per_1000: float
    margin_max: float
    margins_above: int
    logprob_median: float
    logprob_p99: float
    logprob_max: float
    toploc_mean: float
    toploc_max: float


def main() -> None:
    """Prints the table and one line of JSON."""
    options = _options()
    console = Console(stderr=not sys.stdout.isatty(), width=170)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, directory in models(Path(scratch), options, console):
            for dtype in DTYPE_NAMES:
                rows += measure(name, directory, dtype, options, console)
    console.print(_table(rows))
    print(json.dumps({"rows": [asdict(row) for row in rows]}), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, help="built-in model made before, by assize trainer make")
    parser.add_argument("--share", type=float, default=1.0, help="of the rollouts a full run makes")
    return parser.parse_args()


def models(scratch: Path, options: argparse.Namespace, console: Console) -> Iterator[tuple[str, Path]]:
    """The models with their names, each with room for the longest rollouts."""
    torch.set_num_threads(1)
    builtin = scratch / "builtin"
    if options.model is None:
        console.print("making the built-in model")
        make_builtin(builtin, options.seed, Arithmetic(3))
    else:
        shutil.copytree(options.model, builtin)
    _lengthen(builtin)
    yield "builtin", builtin
    yield "wide", make_wide(scratch / "wide", builtin, options.seed)


def _lengthen(directory: Path) -> None:
    """Its positions are rotations: nothing but this number bounds them."""
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": POSITIONS}))


def make_wide(directory: Path, beside: Path, seed: int) -> Path:
    """A Qwen3 of 11 million random weights and 8,192 tokens."""
    torch.manual_seed(seed)
    tokenizer = character_tokenizer(Arithmetic(3).alphabet)
    config = Qwen3Config(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(beside / name, directory / name)
    return directory


def measure(name: str, directory: Path, dtype: Dtype, options: argparse.Namespace, console: Console) -> Iterator[Row]:
    """Every pair of engines at every length."""
    model = load_model(directory, DTYPES[dtype])
    vllm = VllmEngine(dtype)
    transformers = TransformersEngine(dtype)
    engines: dict[str, Engine] = {"transformers": transformers, "vllm": vllm}
    verifiers = {"transformers": _by_transformers(model), "vllm": _by_vllm(model, vllm)}
    for engine in engines.values():
        engine.load(directory)
    for length in options.lengths:
        requests = requests_of(model, max(GROUP, int(ROLLOUTS.get(length, 32) * options.share)), length)
        for generates, engine in engines.items():
            completions = engine.generate(requests)
            for verifies, verify in verifiers.items():
                row = compare(name, dtype, (generates, verifies), completions, verify(requests, completions))
                console.print(
                    f"{name} {dtype} {generates} -> {verifies}, {length} tokens: {row.flips_per_1000:.2f} flips"
                )
                yield row
    vllm.close()


def requests_of(model: Model, rollouts: int, length: int) -> list[Request]:
    """Groups of one problem each. The stop token is none of the vocabulary."""
    environment, nowhere = Arithmetic(3), int(model.network.config.vocab_size)
    prompts = [
        model.text_tokens(environment.problem(group.to_bytes(32, "big")).prompt) for group in range(rollouts // GROUP)
    ]
    return [Request(prompts[n // GROUP], (length, n), length, 1.0, (nowhere,)) for n in range(len(prompts) * GROUP)]


def _scored(model: Model, sequences: Sequence[Completed], hidden_SH: torch.Tensor) -> Prefill:
    """Scores as ``prefill`` does, from another engine's LM head inputs of every sampled token, in the model's dtype."""
    lengths_N = np.array([len(sequence.output_tokens) for sequence in sequences], dtype=np.int64)
    scores = Scores(model, sequences, lengths_N, 1.0, model.network.dtype)
    scores.hidden_SH.copy_(hidden_SH)
    step = max(1, MAX_LOGITS[scores.device.type] // scores.head.weight.shape[0])
    with torch.inference_mode():
        for places in np.split(np.arange(len(hidden_SH)), range(step, len(hidden_SH), step)):
            rows = hidden_SH[torch.from_numpy(places).to(scores.device)]
            scores.score(places, logits_of(scores.head, rows, scores.head_dtype), None)
    return scores.result()


def _sequences(requests: Sequence[Request], completions: Sequence[Completion]) -> list[Completed]:
    return [
        Completed(
            np.array(request.prompt_tokens, np.int32), np.array(completion.output_tokens, np.int32), request.noise_key
        )
        for request, completion in zip(requests, completions, strict=True)
    ]


def _by_transformers(model: Model) -> Verify:
    def verify(requests: Sequence[Request], completions: Sequence[Completion]) -> Prefill:
        return prefill(model, _sequences(requests, completions), 1.0, model.network.dtype)

    return verify


def _by_vllm(model: Model, engine: VllmEngine) -> Verify:
    """vLLM's hidden states under the LM head of ``model``: the one matrix product that both engines share."""

    def verify(requests: Sequence[Request], completions: Sequence[Completion]) -> Prefill:
        pairs = zip(requests, completions, strict=True)
        hidden_SH = torch.cat([engine.hidden_states(request, made.output_tokens) for request, made in pairs])
        return _scored(model, _sequences(requests, completions), hidden_SH)

    return verify


def compare(name: str, dtype: str, pair: tuple[str, str], completions: Sequence[Completion], found: Prefill) -> Row:
    """What the verifier's numbers say of the generator's rollouts."""
    lengths = [len(completion.output_tokens) for completion in completions]
    apart_S = np.abs(found.logprobs_S - torch.cat([completion.logprobs_T for completion in completions]).numpy())
    proofs = build_proofs_batch(torch.cat([completion.hidden_TH for completion in completions]), lengths)
    rel = [chunk.rel for rollout in distances_batch(found.hidden_SH, lengths, proofs) for chunk in rollout]
    flipped_S = found.margins_S > 0
    equal = [not part.any() for part in np.split(flipped_S, np.cumsum(lengths)[:-1])]
    return Row(
        name,
        dtype,
        *pair,
        length=max(lengths),
        tokens=sum(lengths),
        matches=float(np.mean(equal)),
        flips_per_1000=float(1000 * flipped_S.mean()),
        margin_max=float(found.margins_S.max()),
        margins_above=int((found.margins_S > LARGE_MARGIN).sum()),
        logprob_median=float(np.median(apart_S)),
        logprob_p99=float(np.percentile(apart_S, 99)),
        logprob_max=float(apart_S.max()),
        toploc_mean=float(np.mean(rel)),
        toploc_max=float(np.max(rel)),
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="One run. Flips per 1,000 tokens; margins in logits; logprobs apart, in nats; TOPLOC distances")
    heads = ("model", "dtype", "generates", "verifies", "length", "tokens", "matches", "flips", "margin max", "> 0.3")
    for head in (*heads, "logprob median", "p99", "max", "TOPLOC mean", "max"):
        table.add_column(head, justify="left" if head in heads[:4] else "right")
    for row in rows:
        values = list(asdict(row).values())
        cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in values]
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    main()

# ROLLOUTS: 8,192 to 16,384 tokens a row of the table.
