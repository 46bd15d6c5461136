"""A training step's memory and time: the LM head in chunks against all logits at once, packed against padded rows.

The head alone: vocabulary 151,936, hidden size 1,024, exact KL and entropy, as of a Qwen3. Each measurement is a
process of its own; its peak is what the step adds to memory, over weights and inputs. The rows: groups of unlike
prompts and lengths through a small Qwen3, with every gradient compared; and again with its activations checkpointed.
The state: SmolLM2 after a step, saved as it is now and as it was, with the versions that were kept in memory. TRL: its
GRPOTrainer with its fused LM head over the same rows of SmolLM2, fp32, without checkpointed activations.

Axes: K completion tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from deploy.localnet.services import ROOT
from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.model import load_model
from tests.bench.step.measuring import Peak, status_mib, timed
from tests.coordinator.swarm import RULES
from tests.trainer.movement import group_of, stepped
from tests.trainer.padded import padded_loss, padded_parts, rows_of, whole_loss
from trainer import checkpoint, grpo, head
from trainer.batch import Group, micro_batches
from trainer.builtin import Warmup, make_builtin
from trainer.config import Recipe
from trainer.losses import Tokens
from trainer.policy import Policy

VOCABULARY, HIDDEN, TOKENS = 151_936, 1_024, 2_048
FEWER, MORE = 1_024, 4_096
RUNS = 3
SAMPLES = 16
RECIPE = Recipe(microbatch_tokens=2_048, groups_per_step=12)
"""INTELLECT-2's, with KL and entropy."""
GRADIENTS = 4_096
"""Rows of the LM head's gradient, evenly spread, that are compared; and all of its inputs'."""


def measure_head(way: str, tokens: int, kept: Path | None) -> dict[str, float]:
    """Makes one step of the LM head in this process; returns its peak in MiB and its seconds, and keeps gradients."""
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    module, reference = (torch.nn.Linear(HIDDEN, VOCABULARY, bias=False) for _ in range(2))
    with torch.no_grad():
        module.weight.normal_(0, 0.02, generator=generator)
        reference.weight.copy_(module.weight).add_(torch.randn(VOCABULARY, 1, generator=generator), alpha=1e-3)
    hidden_KH = torch.randn(tokens, HIDDEN, generator=generator).requires_grad_()
    frozen_KH = torch.randn(tokens, HIDDEN, generator=generator)
    targets_K = torch.randint(VOCABULARY, (tokens,), generator=generator)
    inputs = Tokens(torch.randn(tokens, generator=generator), torch.full((tokens,), -11.9))
    cpu, wall = time.process_time(), time.perf_counter()
    with Peak() as peak:
        if way == "chunked":
            policy, other = (head.Head(each, torch.float32, 1.0) for each in (module, reference))
            loss = head.loss(policy, hidden_KH, targets_K, inputs, RECIPE, tokens, head.Reference(other, frozen_KH))
        else:
            with torch.no_grad():
                reference_KV = reference(frozen_KH)
            loss = whole_loss(module(hidden_KH), targets_K, inputs, RECIPE, tokens, reference_KV)
        loss.total.backward()  # type: ignore[no-untyped-call]
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "peak": peak.added}
    if kept is not None:
        assert module.weight.grad is not None
        rows = slice(None, None, VOCABULARY // GRADIENTS)
        torch.save({"hidden": hidden_KH.grad, "weight": module.weight.grad[rows], "loss": loss.total.detach()}, kept)
    return taken


def in_a_process(way: str, tokens: int, kept: Path | None = None) -> dict[str, float]:
    """Measures the head in a process of its own."""
    words = [sys.executable, "-m", "tests.bench.step", "--head", way, "--tokens", str(tokens)]
    return _measured(words + ([] if kept is None else ["--keep", str(kept)]))


def _measured(words: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, float]:
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a measurement failed: {' '.join(words)}\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def heads(folder: Path, runs: int) -> dict[str, Any]:
    """Compares the chunked head with all logits at once."""
    found: dict[str, list[dict[str, float]]] = {"chunked": [], "whole": []}
    for run in range(runs):
        for way, measured in found.items():
            measured.append(in_a_process(way, TOKENS, folder / f"{way}.pt" if run == 0 else None))
            print(f"head, {way} logits, run {run + 1} of {runs}: {measured[-1]}", flush=True)
    ours, theirs = ({key: statistics.median(m[key] for m in found[way]) for key in found[way][0]} for way in found)
    first, second = (torch.load(folder / f"{way}.pt") for way in found)
    growth = [in_a_process("chunked", tokens)["peak"] for tokens in (FEWER, MORE)]
    return {
        "head_mib": round(ours["peak"], 1),
        "head_whole_mib": round(theirs["peak"], 1),
        "head_peak": round(ours["peak"] / theirs["peak"], 4),
        "head_cpu": round(ours["cpu"] / theirs["cpu"], 3),
        "head_wall": round(ours["wall"] / theirs["wall"], 3),
        "head_gradient": max(float((first[key] - second[key]).abs().max()) for key in first),
        "head_growth": round(growth[1] / growth[0], 3),
    }


def ragged(vocabulary: int) -> list[Group]:
    """Groups as of reasoning problems: prompts of 24 to 160 tokens, completions of 1 to 96, some beginning alike."""
    draw = random.Random(5)
    made = []
    for job in range(RECIPE.groups_per_step):
        prompt = [draw.randrange(3, vocabulary) for _ in range(draw.randrange(24, 160))]
        begins = [draw.randrange(3, vocabulary) for _ in range(8)]
        completions = []
        for sample in range(8):
            rest = [draw.randrange(3, vocabulary) for _ in range(draw.randrange(1, 88))]
            completions.append([*begins, *rest] if sample % 2 else rest)
        rewards = [float(draw.random() < 0.5) for _ in completions]
        made.append(group_of(job // 4, job, prompt, [*completions[:-1], completions[-1][:1]], rewards, version=job % 3))
    return made


def packing(folder: Path, runs: int) -> dict[str, Any]:
    """Compares packed rollouts with padded rows, and checkpointed activations with kept ones."""
    torch.set_num_threads(2)
    directory = folder / "model"
    make_builtin(directory, 3, Arithmetic(1), Warmup(hidden=256, intermediate=768, layers=4, heads=4, steps=0))
    reference = load_model(directory, torch.float32).network
    policies = {
        kept: Policy(directory, RECIPE.model_copy(update={"checkpoint_activations": not kept}), RULES)
        for kept in (True, False)
    }
    groups = policies[True].weigh(ragged(policies[True].head.module.weight.shape[0]))
    (batches,) = micro_batches(groups, RECIPE.model_copy(update={"optimizer_steps": 1}))
    count = sum(batch.completion_tokens for batch in batches)
    padded = padded_parts(rows_of(groups), RECIPE.microbatch_tokens)
    found: dict[str, tuple[float, list[torch.Tensor]]] = {}
    seconds: dict[str, list[float]] = {"packed": [], "checkpointed": [], "padded": []}
    for _ in range(runs):
        for name, policy in (("packed", policies[True]), ("checkpointed", policies[False])):
            policy.optimizer.zero_grad()
            began = time.process_time()
            total = sum(policy._backward(batch, batch.tokens, count).total.item() for batch in batches)
            seconds[name].append(time.process_time() - began)
            found[name] = total, _gradients(policy.network)
        network = load_model(directory, torch.float32).network
        began, total = time.process_time(), 0.0
        for part in padded:
            loss = padded_loss(network, part, RECIPE, RULES.temperature, count, reference)
            loss.total.backward()  # type: ignore[no-untyped-call]
            total += loss.total.item()
        seconds["padded"].append(time.process_time() - began)
        found["padded"] = total, _gradients(network)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    nodes = sum(len(batch.packed.pack.tokens_N) for batch in batches)
    return {
        "packed_tokens": round(nodes / sum(len(part) * len(part[-1].tokens) for part in padded), 3),
        "packed_cpu": round(medians["packed"] / medians["padded"], 3),
        "packed_loss": abs(found["packed"][0] - found["padded"][0]),
        "packed_gradient": _apart(found["packed"][1], found["padded"][1]),
        "checkpointed_cpu": round(medians["checkpointed"] / medians["packed"], 3),
        "checkpointed_gradient": _apart(found["checkpointed"][1], found["packed"][1]),
    }


def measure_state(directory: Path, runs: int) -> dict[str, float]:
    """Makes a step of a model in this process; returns copies of it in memory and in the state, and seconds of a save.

    The state of before had three versions and the reference beside masters and moments, was copied to be written, and
    went through the library of safetensors.
    """
    torch.set_num_threads(2)
    before = status_mib("RssAnon")
    policy = Policy(directory, RECIPE, RULES)
    model = sum(parameter.numel() * 4 for parameter in policy.network.parameters()) / 2**20
    stepped(policy, [group_of(0, 0, (5, 6, 7), ((8, 9, 10), (11, 12)), (1.0, 0.0))], 1, most=256)
    resident = status_mib("RssAnon") - before
    state = {"policy": policy.state_dict(), "consumed": []}
    path = directory / "state"
    saved = [_seconds(lambda: checkpoint.save(path, state)) for _ in range(runs)]
    size = path.stat().st_size / 2**20
    kept = {version: policy.weights() for version in range(3)}
    old = {"policy": policy.state_dict() | {"masters": {}, "kept": kept, "reference": policy.weights()}}
    resident_before = status_mib("RssAnon") - before
    written = [_seconds(lambda: save_file(_copied(old), path)) for _ in range(runs)]
    size_before = path.stat().st_size / 2**20
    path.unlink()
    return {
        "resident": resident / model,
        "resident_before": resident_before / model,
        "models": size / model,
        "models_before": size_before / model,
        "save_s": statistics.median(saved),
        "save_before_s": statistics.median(written),
    }


def _seconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _copied(tree: Any, path: str = "") -> dict[str, torch.Tensor]:
    """A copy of every tensor of a tree, by its path: what a save began with before."""
    if isinstance(tree, torch.Tensor):
        return {path: tree.clone()}
    if not isinstance(tree, dict):
        return {}
    return {name: held for key, value in tree.items() for name, held in _copied(value, f"{path}/{key}").items()}


def state(model: Path, folder: Path, runs: int) -> dict[str, Any]:
    """Measures the state of a model in a process of its own."""
    for path in model.iterdir():
        (folder / "smollm2").mkdir(exist_ok=True)
        (folder / "smollm2" / path.name).symlink_to(path.resolve())
    words = [sys.executable, "-m", "tests.bench.step", "--state", str(folder / "smollm2"), "--runs", str(runs)]
    measured = _measured(words)
    report = {f"state_{name}": round(value, 2) for name, value in measured.items()}
    return report | {"state_save": round(measured["save_s"] / measured["save_before_s"], 3)}


def measure_beside(directory: Path, rows: Path, runs: int) -> dict[str, float]:
    """Measures our step over the rows that TRL is given, in this process."""
    torch.set_num_threads(2)
    given = json.loads(rows.read_text())
    with Peak() as peak:
        policy = Policy(directory, RECIPE, RULES)
        group = group_of(0, 0, given["prompt"], given["completions"], given["rewards"])
        (batches,) = micro_batches(policy.weigh([group]), RECIPE.model_copy(update={"optimizer_steps": 1}))
        count = sum(batch.completion_tokens for batch in batches)

        def step() -> None:
            policy.network.zero_grad()
            for batch in batches:
                policy._backward(batch, batch.tokens, count)

        taken = timed(step, runs)
    return taken | {"peak": peak.added}


def beside_trl(model: Path, folder: Path, runs: int) -> dict[str, Any]:
    """Compares our step with TRL's over the same rows: tokens a second, and peak memory with model and reference."""
    draw, report = random.Random(3), dict[str, Any]()
    for name, length in (("long", 256), ("short", 48)):
        completions = [[draw.randrange(3, 49_000) for _ in range(draw.randrange(24, 49))] for _ in range(SAMPLES)]
        rewards = [float(draw.random() < 0.5) for _ in completions]
        values = grpo.advantages(torch.tensor([rewards]))[0].tolist()
        rows = {"prompt": [draw.randrange(3, 49_000) for _ in range(length)], "completions": completions}
        (folder / f"{name}.json").write_text(json.dumps(rows | {"rewards": rewards, "advantages": values}))
        place = str(folder / f"{name}.json")
        ours = _measured(
            [sys.executable, "-m", "tests.bench.step", "--beside", place, "--model", str(model), "--runs", str(runs)]
        )
        words = [sys.executable, "-m", "tests.bench.step.theirs", str(model), place, str(runs)]
        theirs = _measured(words, os.environ | {"PYTHONPATH": str(ROOT / ".venv" / "trl"), "HF_HUB_OFFLINE": "1"})
        print(f"{SAMPLES} completions of a prompt of {length} tokens: ours {ours}, TRL {theirs}", flush=True)
        report[f"vs_trl_{name}"] = round(theirs["wall"] / ours["wall"], 2)
        report[f"trl_peak_{name}"] = round(ours["peak"] / theirs["peak"], 3)
    return report | {"trl_peak": max(report["trl_peak_long"], report["trl_peak_short"])}


def _gradients(network: Any) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in network.parameters()]


def _apart(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))


def main() -> None:
    """Measures, and shows a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each way, of which the median counts")
    parser.add_argument("--head", choices=["chunked", "whole"], help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2", help="SmolLM2's directory")
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--beside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.beside:
        print(json.dumps(measure_beside(given.model, given.beside, given.runs)))
        return
    if given.state:
        print(json.dumps(measure_state(given.state, given.runs)))
        return
    if given.head:
        print(json.dumps(measure_head(given.head, given.tokens, given.keep)))
        return
    with tempfile.TemporaryDirectory(prefix="assize-step-") as name:
        folder = Path(name)
        report = heads(folder, given.runs) | packing(folder, given.runs) | state(given.model, folder, given.runs)
        report |= beside_trl(given.model, folder, given.runs)
    table = Table(title=f"A training step: medians of {given.runs}, on 2 threads", show_header=False)
    for key, value in report.items():
        table.add_row(WORDS[key], f"{value:.2g}" if key.endswith(("gradient", "loss")) else f"{value:,}")
    Console().print(table)
    print(json.dumps(report))


WORDS = {
    "head_mib": f"LM head in chunks, {TOKENS:,} tokens × {VOCABULARY:,}: peak, MiB",
    "head_whole_mib": "all logits at once: peak, MiB",
    "head_peak": "peak, in chunks ÷ at once",
    "head_cpu": "processor time, in chunks ÷ at once",
    "head_wall": "wall time, in chunks ÷ at once",
    "head_gradient": "largest difference of loss and gradients",
    "head_growth": f"peak in chunks, {MORE:,} ÷ {FEWER:,} tokens",
    "packed_tokens": "tokens run, packed ÷ padded",
    "packed_cpu": "processor time, packed ÷ padded",
    "packed_loss": "difference of the loss, packed and padded",
    "packed_gradient": "largest difference of any gradient, packed and padded",
    "checkpointed_cpu": "processor time, activations checkpointed ÷ kept",
    "checkpointed_gradient": "largest difference of any gradient, checkpointed and kept",
    "state_resident": "SmolLM2 after a step: copies of it in memory",
    "state_resident_before": "with the versions that were kept",
    "state_models": "copies of it in the saved state",
    "state_models_before": "as it was",
    "state_save_s": "seconds of a save",
    "state_save_before_s": "as it was",
    "state_save": "seconds, now ÷ before",
    "vs_trl_long": f"tokens a second over TRL's: {SAMPLES} completions of 256 tokens of prompt",
    "trl_peak_long": "peak memory, ours ÷ TRL's",
    "vs_trl_short": f"tokens a second over TRL's: {SAMPLES} completions of 48 tokens of prompt",
    "trl_peak_short": "peak memory, ours ÷ TRL's",
    "trl_peak": "the larger of both",
}


if __name__ == "__main__":
    main()
