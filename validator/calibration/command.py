"""``assize validator calibrate``: makes specimens, measures them, fits thresholds, and writes rules and report."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.errors import Misconfigured
from protocol.node.progress import CountBars
from protocol.tensor.chat import with_chat
from protocol.tensor.directory import check_model_directory, weights_hash
from protocol.tensor.model import check_device, load_tokenizer
from protocol.wire.rules import Rules, encode_rules, rules_hash
from protocol.wire.specimens import INDEX, Specimens
from validator.calibration.draft import draft
from validator.calibration.fitting import fit
from validator.calibration.measuring import MeasuredJob, measure, read_specimens
from validator.calibration.picture import draw
from validator.calibration.power import steering
from validator.calibration.report import Calibration
from validator.judging.judge import PolicyVersion
from validator.judging.weights import load_policy

MADE = re.compile(r".*: (\d+) of (\d+) rollouts")
"""A line that `assize worker generate` prints."""
HELD_OUT = 4
"""One honest job in this many is held out from fitting and only judged."""


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """Options of the command; see ``assize validator calibrate --help``."""

    models: tuple[Path, ...]
    engines: tuple[str, ...]
    rollouts: int
    batches: str
    out: Path
    run_file: Path | None = None
    dtype: str | None = None
    max_tokens: int | None = None
    made: tuple[Path, ...] = ()
    against: tuple[str, ...] = ()
    void_rate: float = 1e-3
    headroom: float = 2.0
    picture: Path | None = None
    raw: Path | None = None
    keep: Path | None = None
    seed: int = 1
    command: str = ""
    chat: bool = False
    short: bool = False
    device: str = "cpu"

    @property
    def report(self) -> Path:
        """File of the report, beside the rules."""
        return self.out.with_name(self.out.stem.removesuffix("-rules") + "-calibration.json")


@dataclass
class _Policies:
    """Policies by the hash of their weights; one is loaded at a time."""

    rules: Rules
    device: str
    bars: CountBars
    directories: dict[bytes, Path] = field(default_factory=dict)
    loaded: tuple[bytes, PolicyVersion] | None = None

    def add(self, directory: Path) -> None:
        check_model_directory(directory)
        self.directories[weights_hash(directory)] = directory

    def measure(self, folder: Path, name: str | None = None) -> list[MeasuredJob]:
        """Measures a folder of specimens with the policy it names."""
        specimens = read_specimens(folder)
        if specimens.weights not in self.directories:
            raise Misconfigured(f"the specimens in {folder} are of other weights: add their directory with --model")
        if self.loaded is None or self.loaded[0] != specimens.weights:
            policy = load_policy(self.directories[specimens.weights], self.rules, self.device)
            self.loaded = specimens.weights, policy
        title = f"measuring {folder.name}"
        progress = partial(self.bars.reached, title, unit="jobs")
        return measure(self.loaded[1], self.rules, folder, name, progress)


@torch.no_grad()
def calibrate(options: CalibrationOptions, bars: CountBars) -> Calibration:
    """Calibrates and writes rules, report and the other outputs; raises ``Misconfigured`` for invalid options."""
    torch.set_num_threads(1)
    _check(options)
    rules = draft(options.run_file, options.dtype, options.max_tokens, options.engines)
    if options.chat:
        rules = with_chat(rules, load_tokenizer(options.models[0]))
    policies = _Policies(rules, options.device, bars)
    for directory in options.models:
        policies.add(directory)
    specimens: list[Specimens] = []
    jobs: list[MeasuredJob] = []
    with tempfile.TemporaryDirectory(prefix="assize-specimens-") as made:
        for folder in (*_make(options, rules, options.keep or Path(made), bars), *options.made):
            specimens.append(read_specimens(folder))
            jobs += policies.measure(folder)
    against = {name: policies.measure(folder, name) for name, folder in map(_named, options.against)}
    if len(jobs) < HELD_OUT:
        raise Misconfigured(
            f"too few rollouts for a calibration: {len(jobs)} of the {HELD_OUT} jobs that it takes at least, each of "
            f"{rules.rollouts_per_job}; give --rollouts {HELD_OUT * rules.rollouts_per_job} or more"
        )
    bars.say("fitting")
    honest = [job for n, job in enumerate(jobs) if n % HELD_OUT != HELD_OUT - 1]
    held_out = [job for n, job in enumerate(jobs) if n % HELD_OUT == HELD_OUT - 1]
    fitted = fit(honest, rules, options.void_rate, options.headroom, options.short)
    result = Calibration(
        fitted, honest, held_out, against, specimens, options.void_rate, options.headroom, options.command
    )
    _write(options, result)
    return result


def _check(options: CalibrationOptions) -> None:
    """Checks options that would otherwise fail only after an hour."""
    if not options.models:
        raise Misconfigured("give at least one model directory, with --model")
    if not 0 < options.void_rate < 1:
        raise Misconfigured(f"invalid --void-rate {options.void_rate}: expected a number between 0 and 1")
    check_device(options.device)
    if options.headroom < 1:
        raise Misconfigured(f"invalid --headroom {options.headroom}: expected 1 or more")
    if options.rollouts == 0 and not options.made:
        raise Misconfigured("nothing to measure: give --rollouts, or specimens with --made")
    for path in (options.out, options.picture, options.raw):
        if path is not None and not path.absolute().parent.is_dir():
            raise Misconfigured(f"cannot write {path}: there is no folder {path.parent}")
    for text in options.against:
        read_specimens(_named(text)[1])
    _check_engines(options.engines)


def _check_engines(engines: Sequence[str]) -> None:
    """Refuses engines that the worker's registry lacks."""
    lines: list[str] = []
    _worker(["worker", "engines", "--json"], lines.append)
    known = [entry["name"] for entry in json.loads(lines[-1])]
    if unknown := [name for name in engines if name not in known]:
        raise Misconfigured(f"unknown engine {unknown[0]!r}: expected {', '.join(known)}, comma-separated")


def _named(text: str) -> tuple[str, Path]:
    name, separator, folder = text.partition("=")
    if not separator or not name:
        raise Misconfigured(f"invalid --against {text!r}: expected NAME=FOLDER")
    return name, Path(folder)


def _make(options: CalibrationOptions, rules: Rules, root: Path, bars: CountBars) -> Iterator[Path]:
    """Makes specimens of each model with each engine, and yields each folder once it is complete.

    A folder kept from an earlier run under the same rules is reused.
    """
    if options.rollouts == 0:
        return
    root.mkdir(parents=True, exist_ok=True)
    written = root / "rules.json"
    written.write_bytes(encode_rules(rules))
    for model in options.models:
        for engine in options.engines:
            folder = root / f"{model.name}-{engine}"
            if (folder / INDEX).is_file() and read_specimens(folder).rules_hash == rules_hash(encode_rules(rules)):
                bars.say(f"reusing {folder}")
                yield folder
                continue
            shutil.rmtree(folder, ignore_errors=True)
            seed = hashlib.sha256(f"{options.seed} {model.name} {engine}".encode()).digest()[:4]
            words = ["--rules", written, "--model", model, "--out", folder, "--engine", engine]
            words += ["--batches", options.batches, "--rollouts", options.rollouts]
            words += ["--seed", int.from_bytes(seed, "big"), "--device", options.device]
            title = f"generating {folder.name}"

            def told(line: str, title: str = title) -> None:
                if (made := MADE.fullmatch(line)) is not None:
                    bars.reached(title, int(made[1]), int(made[2]), "rollouts")

            _worker(["worker", "generate", *map(str, words)], told)
            yield folder


def _worker(words: Sequence[str], say: Callable[[str], None]) -> None:
    """Runs a command of the worker in a process of its own; services exchange files, not imports."""
    with tempfile.TemporaryFile("w+") as complaints:
        line = [sys.executable, "-m", "assize", *words]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=complaints, text=True) as child:
            assert child.stdout is not None
            for told in child.stdout:
                say(told.rstrip())
        if child.returncode:
            complaints.seek(0)
            last = ([text for text in complaints.read().splitlines() if text.strip()] or ["no output"])[-1]
            raise Misconfigured(f"assize {' '.join(words[:2])} failed: {last.removeprefix('assize: ')}")


def _write(options: CalibrationOptions, result: Calibration) -> None:
    options.out.write_bytes(encode_rules(result.rules))
    options.report.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    if options.raw is not None:
        np.savez_compressed(options.raw, **_columns(result))
    if options.picture is not None:
        draw(result, options.picture)


def _columns(result: Calibration) -> dict[str, Any]:
    """Every number behind the report by token and by chunk, with the job that each belongs to."""
    jobs = [*result.everything, *(job for each in result.against.values() for job in each)]
    tokens, chunks = ("margins_S", "gaps_S", "leads_S", "reported_S", "recomputed_S"), ("rel_C", "null_C")
    columns = {name: np.concatenate([getattr(job, name) for job in jobs]) for name in (*tokens, *chunks)}
    columns["lengths_JN"] = np.stack([job.lengths_N for job in jobs])
    columns["chunks_JN"] = np.stack([job.chunks_N for job in jobs])
    return columns | {name: np.array([getattr(job, name) for job in jobs]) for name in ("maker", "model", "batch")}


def summary(result: Calibration, options: CalibrationOptions) -> dict[str, Any]:
    """Returns the main results for display."""
    everything, held_out = result.verdicts()
    low, high = everything.void_interval
    sequential, room = result.sequential(), steering(result.everything, result.rules)
    return {
        "rules": str(options.out),
        "rules_hash": rules_hash(encode_rules(result.rules)),
        "report": str(options.report),
        **result.rules.thresholds.bounds,
        "sigma": result.rules.sequential.sigma,
        "centring": result.rules.sequential.centring,
        "clearing": result.rules.sequential.clearing,
        "mean exp(evidence), upper": sequential["mean_exp_evidence_upper"],
        "no fraud because": result.fitted.no_fraud_because,
        "fraud bound is wide because": result.fitted.wide_because,
        "honest rollouts": everything.rollouts,
        "honest tokens": everything.tokens,
        "honest jobs fraud": everything.fraud,
        "honest jobs void": f"{everything.void} of {everything.jobs} (95% interval {low:.2g} to {high:.2g})",
        "held-out jobs void": f"{held_out.void} of {held_out.jobs}",
        "steering, tokens of 1,000": f"{room.within_void:.3g}, {room.within_sequence:.3g} unnoticed",
    }


def table(result: Calibration) -> list[dict[str, str]]:
    """Returns one row per maker: how honest and cheating jobs look under the rules."""
    return [
        {
            "jobs": each.maker,
            "condemned": f"{each.condemned:.1%}",
            "flips/1000": f"{each.flips_per_1000:.3g}",
            "up": f"{each.upwards:.0%}" if each.flips_per_1000 else "-",
            "tokens to 99%": f"{each.tokens_to_99:,.0f}" if each.tokens_to_99 else "-",
            "jobs to 99%": f"{each.jobs_to_99:.3g}" if each.jobs_to_99 else "-",
            "entropy": f"{each.entropy:.3g}",
            "TV": f"{each.total_variation:.2g}",
        }
        for each in result.powers()
    ]


def typed(words: Sequence[str]) -> str:
    """Returns the command line for the report, with every path reduced to its last part."""
    shown = []
    for word in words:
        name, equals, path = word.partition("=") if "=" in word and not word.startswith("-") else ("", "", word)
        shown.append(name + equals + (Path(path).name if "/" in path else path))
    return "assize " + " ".join(f"'{word}'" if " " in word else word for word in shown)
