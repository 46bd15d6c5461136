"""Report of a calibration: bands, laws, intervals, power, machine and command."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
import transformers

from protocol.node.console import picked
from protocol.wire.rules import Rules, encode_rules, rules_hash
from protocol.wire.specimens import Specimens
from validator.calibration.fitting import FRAUD_RATE, Fitted
from validator.calibration.intervals import CONFIDENCE, interval
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import carried, evidence_of, mean_upper, noise
from validator.calibration.power import Power, Verdicts, power, steering, verdicts
from validator.judging.numeric_checks import TAIL

FORMAT = "assize/calibration/1"
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Band:
    """Measurements of honest rollouts of one ``kind``: maker, model and batch, or maker and length."""

    kind: dict[str, str | int]
    rollouts: int
    tokens: int
    flips: int
    upwards: int
    margin_max: float
    noise_max: float
    logprob_median: float
    logprob_tail: float
    logprob_max: float
    toploc_max: float
    toploc_mean: float
    null_least: float
    null_ratio_max: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration: fitted rules, honest jobs, held-out honest jobs, and cheating jobs by name."""

    fitted: Fitted
    honest: list[MeasuredJob]
    held_out: list[MeasuredJob]
    against: dict[str, list[MeasuredJob]]
    specimens: list[Specimens]
    void_rate: float
    headroom: float
    command: str

    @property
    def rules(self) -> Rules:
        """The calibrated rules."""
        return self.fitted.rules

    @property
    def everything(self) -> list[MeasuredJob]:
        """All honest jobs, fitted and held out."""
        return [*self.honest, *self.held_out]

    def verdicts(self) -> tuple[Verdicts, Verdicts]:
        """Returns the verdicts on all honest jobs, and on those held out."""
        return verdicts(self.everything, self.rules), verdicts(self.held_out, self.rules)

    def powers(self) -> list[Power]:
        """Returns the power of the rules on honest jobs, then on each cheat's."""
        return [power(name, jobs, self.rules) for name, jobs in {"honest": self.everything, **self.against}.items()]

    def to_json(self) -> dict[str, Any]:
        """Returns the report, with numbers rounded to ``DIGITS`` digits."""
        everything, held_out = self.verdicts()
        document: dict[str, Any] = {
            "format": FORMAT,
            "command": self.command,
            "rules_hash": "0x" + rules_hash(encode_rules(self.rules)).hex(),
            "rules": self.rules.model_dump(mode="json"),
            "verifier": machine(),
            "specimens": [_described(each) for each in self.specimens],
            "stated": {
                "confidence": CONFIDENCE,
                "void_rate_a_job": self.void_rate,
                "fraud_rate_a_job": FRAUD_RATE if self.rules.thresholds.sampling_fraud else 0.0,
                "no_fraud_because": self.fitted.no_fraud_because,
                "wide_because": self.fitted.wide_because,
                "headroom": self.headroom,
            },
            "laws": [
                {"what": one.what, "maker": one.maker, **asdict(one.tail), "lead": one.lead} for one in self.fitted.fits
            ],
            "sequential": self.sequential(),
            "honest": asdict(everything),
            "held_out": asdict(held_out),
            "steering_per_1000": asdict(steering(self.everything, self.rules)),
            "power": [asdict(each) for each in self.powers()],
            "bands": [asdict(band) for band in bands(self.everything, self.rules)],
        }
        return cast(dict[str, Any], _rounded(document))

    def sequential(self) -> dict[str, Any]:
        """Returns the statistics behind the sequential test."""
        mean, upper = mean_upper(evidence_of(self.everything, self.rules.sequential))
        flips, up = _flips(self.everything)
        return {
            "sigma_measured": self.fitted.sigma_measured,
            "sigma": self.rules.sequential.sigma,
            "mean_exp_evidence": mean,
            "mean_exp_evidence_upper": upper,
            "holds": upper <= 1.0,
            "centring": self.rules.sequential.centring,
            "clearing": self.rules.sequential.clearing,
            "drift": self._drift(),
            "flips": flips,
            "upwards": up,
            "upwards_interval": interval(up, flips) if flips else None,
            "carried": carried(self.everything, self.rules.sequential.sigma),
        }

    def _drift(self) -> dict[str, float]:
        """Returns the mean evidence of an honest job by maker, in nats."""
        makers = sorted({job.maker for job in self.everything})
        jobs = {maker: [job for job in self.everything if job.maker == maker] for maker in makers}
        return {maker: float(evidence_of(jobs[maker], self.rules.sequential).mean()) for maker in makers}


def bands(jobs: Sequence[MeasuredJob], rules: Rules) -> list[Band]:
    """Returns bands by maker, model and batch size, then by maker and length."""
    kinds = sorted({(job.maker, job.model, job.batch) for job in jobs})
    found = []
    for maker, model, batch in kinds:
        part = [job for job in jobs if (job.maker, job.model, job.batch) == (maker, model, batch)]
        everything = [np.ones(len(job.lengths_N), bool) for job in part]
        found.append(_band({"maker": maker, "model": model, "batch": batch}, part, everything, rules))
    for maker in sorted({job.maker for job in jobs}):
        part = [job for job in jobs if job.maker == maker]
        longest = max(int(job.lengths_N.max()) for job in part)
        for power_ in range(3, longest.bit_length() + 1):
            low, high = (1 << power_ - 1) if power_ > 3 else 1, (1 << power_) - 1
            inside = [(job.lengths_N >= low) & (job.lengths_N <= high) for job in part]
            if any(each.any() for each in inside):
                found.append(_band({"maker": maker, "tokens": f"{low}-{high}"}, part, inside, rules))
    return found


def _band(
    kind: dict[str, str | int], jobs: Sequence[MeasuredJob], inside: Sequence[np.ndarray[Any, Any]], rules: Rules
) -> Band:
    pairs = list(zip(jobs, inside, strict=True))
    tokens = [np.repeat(inside_N, job.lengths_N) for job, inside_N in pairs]
    chunks = [np.repeat(inside_N, job.chunks_N) for job, inside_N in pairs]

    def joined(name: str, kept: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        return np.concatenate([getattr(job, name)[inside] for job, inside in zip(jobs, kept, strict=True)])

    margins_S, apart_S, leads_S = (joined(name, tokens) for name in ("margins_S", "apart_S", "leads_S"))
    rel_C, null_C = joined("rel_C", chunks), joined("null_C", chunks)
    noises_S = np.concatenate([noise(job, rules.temperature)[kept] for job, kept in zip(jobs, tokens, strict=True)])
    return Band(
        kind=kind,
        rollouts=int(sum(each.sum() for each in inside)),
        tokens=len(margins_S),
        flips=int((margins_S > 0).sum()),
        upwards=int((leads_S > 0).sum()),
        margin_max=float(margins_S.max()),
        noise_max=float(noises_S.max()),
        logprob_median=float(np.median(apart_S)),
        logprob_tail=float(np.percentile(apart_S, TAIL)),
        logprob_max=float(apart_S.max()),
        toploc_max=float(rel_C.max()),
        toploc_mean=float(rel_C.mean()),
        null_least=float(null_C.min()),
        null_ratio_max=float((rel_C / null_C).max()),
    )


def machine() -> dict[str, str]:
    """Returns processor and library versions of the verifier."""
    return {
        "processor": platform.machine(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _flips(jobs: Sequence[MeasuredJob]) -> tuple[int, int]:
    return sum(int((job.margins_S > 0).sum()) for job in jobs), sum(int((job.leads_S > 0).sum()) for job in jobs)


def _described(specimens: Specimens) -> dict[str, Any]:
    """Describes specimens without their jobs."""
    row = picked(specimens, "maker", "model", "seed", "machine") | {"weights_sha256": specimens.weights.hex()}
    return row | {"jobs_by_batch": {str(batch.size): len(batch.jobs) for batch in specimens.batches}}


def _rounded(value: Any) -> Any:
    """Rounds numbers to ``DIGITS`` digits; values that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
