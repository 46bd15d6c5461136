"""Deltas between consecutive checkpoints of training, beside the codes of others and the entropy of what changed.

A Qwen3 of 6.3 million random weights in bfloat16 is trained by the trainer's own policy, AdamW on fp32 masters, one
optimizer step a version, first so far that the masters have left the bfloat16 grid. Ours are whole deltas, as a store
holds them. The bound: each change given the exponent of the weight before, plus the steps, coded alone.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.table import Table

from protocol.broadcast.deltas.applying import Applying
from protocol.broadcast.deltas.frames import Bytes, SharedRange, decode, encode
from protocol.broadcast.deltas.making import make_delta
from protocol.broadcast.version_store import VersionStore
from protocol.environments.arithmetic import Arithmetic
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Authority, SignedManifest
from tests.bench.shardcast.ours import MARKET, TRAINER, Trainer
from tests.protocol.evolving import EvolvingModel
from tests.trainer.movement import group_of, stepped
from tests.trainer.test_policy import BF16, policy_of
from trainer.batch import Group
from trainer.builtin import Warmup, make_builtin

RATES = (3e-7, 1e-6, 1e-5)
FIRST, PAIRS, SPAN = 30, 10, 8
"""Steps before the first pair, pairs whose median is shown, and steps that the longer delta leads over."""
SHAPE = Warmup(hidden=256, intermediate=768, layers=8, steps=0)
SYNTHETIC = {f"layers.{layer}.weight": (1024, 2048) for layer in range(16)}
AUTHORITY = Authority(31337, MARKET, TRAINER.address)
_Bits = NDArray[np.uint16]


@dataclass(frozen=True)
class Ratios:
    """Full bytes over the bytes of each code, for a pair of versions, and our bytes under the bound's."""

    ours: float
    trl: float
    grail: float
    of_bound: float


def trl(before: _Bits, after: _Bits) -> int:
    """Bytes of TRL's form: 32-bit indices and new values, in a safetensors file."""
    return 6 * int(np.count_nonzero(before != after))


def grail(before: _Bits, after: _Bits) -> int:
    """Bytes of grail's form: gaps between indices in the fewest whole bytes, and new values, both by zstd -1."""
    changed = np.flatnonzero(before != after)
    gaps = np.diff(changed, prepend=0)
    width = next(width for width in ("u1", "u2", "u4") if gaps.max(initial=0) <= np.iinfo(width).max)
    zstd = pa.Codec("zstd", compression_level=1)
    return sum(len(zstd.compress(part.tobytes())) for part in (gaps.astype(width), after[changed]))


def bound(before: _Bits, after: _Bits) -> float:
    """Bytes by the entropy of which values change given their exponents, plus that of the steps."""
    changed, classes = before != after, (before & 0x7FFF) >> 7
    total, moved = np.bincount(classes, minlength=256), np.bincount(classes[changed], minlength=256)
    share = moved / np.maximum(total, 1)
    inner = (share > 0) & (share < 1)
    p, n = share[inner], total[inner]
    bits = float((n * -(p * np.log2(p) + (1 - p) * np.log2(1 - p))).sum())
    steps = _ordered(after[changed]) - _ordered(before[changed])
    _, counts = np.unique(steps, return_counts=True)
    return (bits + float((counts * -np.log2(counts / counts.sum())).sum())) / 8 if len(steps) else 0.0


def _ordered(bits: _Bits) -> NDArray[np.int64]:
    values = bits.astype(np.int64)
    return np.where(values & 0x8000, -1 - (values & 0x7FFF), values)


class Measured:
    """Versions of one training, in a store, with their weights as bits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, VersionStore(folder / "store")
        self.signed: list[SignedManifest] = []

    def add(self, directory: Path) -> None:
        """Takes the next version."""
        manifest = manifests.from_directory(directory, len(self.signed))
        self.signed.append(manifests.sign(manifest, 1, AUTHORITY.chain_id, MARKET, Trainer()))
        self.store.take(self.signed[-1], directory)

    def ratios(self, first: int, second: int) -> Ratios:
        """Makes the delta from one version to another, applies it, and compares its size."""
        base, target = self.signed[first], self.signed[second]
        directory = self.store.folder(target)
        delta = make_delta(self.store, base, target, directory, AUTHORITY, Trainer())
        assert delta is not None, "versions that have little in common"
        elsewhere = VersionStore(Path(tempfile.mkdtemp(dir=self.folder)))
        elsewhere.take(base, self.store.folder(base))
        elsewhere.put_manifest(target)
        applying = Applying(delta, base, target, elsewhere)
        for frame in applying.needed():
            data = self.store.read(frame.hash)
            assert data is not None
            applying.take(frame, memoryview(data))
        assert elsewhere.verify(target) or not elsewhere.missing(target), "what comes out is the version"
        before, after = (_bits(self.store.folder(each)) for each in (base, target))
        size, made = after.nbytes, delta.delta.size
        return Ratios(size / made, size / trl(before, after), size / grail(before, after), bound(before, after) / made)


def _bits(directory: Path) -> _Bits:
    """The values of the file of weights, without its header."""
    data = (directory / "model.safetensors").read_bytes()
    return np.frombuffer(data, np.uint16, offset=8 + int.from_bytes(data[:8], "little")).copy()


def groups(step: int) -> list[Group]:
    """Returns one optimizer step's rollouts: random completions of random rewards, drawn by the step."""
    draw = random.Random(step)
    made = []
    for job in range(2):
        completions = tuple(tuple(draw.randrange(3, 15) for _ in range(6)) for _ in range(2))
        rewards = tuple(float(draw.random() < 0.5) for _ in completions)
        made.append(group_of(0, job, (5, 6 + job), completions, rewards, version=step))
    return made


def trained(folder: Path, rate: float, progress: Callable[[str], None]) -> Measured:
    """Trains at one learning rate, and returns its versions from the `FIRST` on."""
    model = folder / "model"
    if not model.exists():
        make_builtin(model, 1, Arithmetic(), SHAPE)
        _to_bfloat16(model)
    policy, measured = policy_of(model, BF16, learning_rate=rate, final_rate=1.0), Measured(folder / f"{rate}")
    for step in range(FIRST + PAIRS + SPAN):
        stepped(policy, groups(step), 1)
        if step >= FIRST - 1:
            policy.save_weights(folder / "next", {})
            measured.add(folder / "next")
            (folder / "next").rename(folder / f"{rate}-{step}")
        if step % 8 == 7:
            progress(f"learning rate {rate}: step {step + 1}/{FIRST + PAIRS + SPAN}")
    return measured


def _to_bfloat16(model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    network.save_pretrained(model)


def medians(pairs: Sequence[Ratios]) -> Ratios:
    """The median of each figure."""
    return Ratios(*(statistics.median(getattr(pair, name) for pair in pairs) for name in Ratios.__annotations__))


def speeds(before: Bytes, after: Bytes) -> tuple[float, float]:
    """Returns the GB of weights that one core encodes and decodes a second: medians of nine, processor time."""
    part, span = SharedRange(0, 16 << 20, 0, 0, 2, 7), 16 << 20
    encoding, decoding, made = [], [], np.zeros(span, np.uint8)
    for start in [0, *range(0, min(len(after), 9 * span), span)]:
        base, new = before[start : start + span].copy(), after[start : start + span].copy()

        def read(file: int, offset: int, size: int, base: Bytes = base) -> Bytes:
            return base[offset : offset + size]

        began = time.thread_time()
        frame = encode(new, 0, [part], read)
        middle = time.thread_time()
        decode(frame, made, [span], read)
        encoding.append(span / 1e9 / (middle - began))
        decoding.append(span / 1e9 / (time.thread_time() - middle))
        assert np.array_equal(made, new)
    return statistics.median(encoding[1:]), statistics.median(decoding[1:])


def pauses(folder: Path) -> tuple[float, float]:
    """Returns the seconds that an engine takes to swap a prepared version of 0.5 billion weights, and to load it.

    Medians of five; the model is a Qwen2.5-0.5B of random weights in bfloat16.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from trainer.builtin import character_tokenizer
    from worker.engines.transformers_engine import TransformersEngine

    shape = Qwen3Config(
        vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, head_dim=64, tie_word_embeddings=True, eos_token_id=1,
    )  # fmt: skip
    network = Qwen3ForCausalLM(shape).to(torch.bfloat16)
    for name in ("half-0", "half-1"):
        network.save_pretrained(folder / name)
        character_tokenizer(Arithmetic().alphabet).save_pretrained(folder / name)
    engine, swaps, loads = TransformersEngine("bfloat16"), [], []
    for _ in range(5):
        began = time.monotonic()
        engine.load(folder / "half-0")
        loads.append(time.monotonic() - began)
        engine.read_ahead(folder / "half-1")
        began = time.monotonic()
        engine.swap(folder / "half-1")
        swaps.append(time.monotonic() - began)
    return statistics.median(swaps), statistics.median(loads)


def table_of(report: dict[str, Any]) -> Table:
    """Returns the ratios for people."""
    table = Table(title="full bytes over delta bytes; trained: medians of ten pairs")
    for column in ("pair", "ours", "TRL", "grail", "bound over ours"):
        table.add_column(column, justify="right")
    for name, pairs in (
        ("synthetic, 3e-7", report["synthetic"]),
        *((f"trained, {r:g}", report[f"{r:g}"]) for r in RATES),
    ):
        for span, pair in pairs.items():
            ratios = (f"{pair[code]:.0f}" for code in ("ours", "trl", "grail"))
            table.add_row(f"{name}, {span} step{'' if span == '1' else 's'}", *ratios, f"{pair['of_bound']:.2f}")
    return table


def measure(folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Returns the figures: of a seeded synthetic model at 3e-7, of training at each rate, and of swaps."""
    synthetic, model = Measured(folder / "synthetic"), EvolvingModel(SYNTHETIC, rate=3e-7, seed=19)
    for version in range(SPAN + 1):
        synthetic.add(model.write(folder / f"s{version}"))
        model.step()
    one, eight = synthetic.ratios(0, 1), synthetic.ratios(0, SPAN)
    first, last = (_bits(synthetic.store.folder(synthetic.signed[at])).view(np.uint8) for at in (0, 1))
    encode_gb, decode_gb = speeds(first, last)
    report: dict[str, Any] = {
        "delta_1": one.ours,
        "delta_8": eight.ours,
        "behind_8_in_deltas": one.ours / eight.ours,
        "encode_gb_per_core_second": encode_gb,
        "decode_gb_per_core_second": decode_gb,
        "synthetic": {"1": one.__dict__, "8": eight.__dict__},
    }
    report["pause_s"], report["reload_s"] = pauses(folder)
    for rate in RATES:
        measured = trained(folder, rate, progress)
        report[f"{rate:g}"] = {
            str(span): medians([measured.ratios(at, at + span) for at in range(PAIRS)]).__dict__ for span in (1, SPAN)
        }
    trained_pairs = [report[f"{rate:g}"][span] for rate in RATES for span in ("1", str(SPAN))]
    report["delta_of_bound"] = min(pair["of_bound"] for pair in trained_pairs)
    report["vs_trl"] = min(pair["ours"] / pair["trl"] for pair in trained_pairs)
    report["vs_grail"] = min(pair["ours"] / pair["grail"] for pair in trained_pairs)
    return json.loads(json.dumps(report), parse_float=lambda text: round(float(text), 3))
