"""A trial: a stranger's jobs and honest ones of the same prompts, judged as a juror does, and what comes of both."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.zoo import waiting
from deploy.zoo.making import MADE, NODE, RULES, TRIAL
from protocol.environments.registry import environment
from protocol.errors import Misconfigured, Rejected, Unavailable, accessing
from protocol.tensor.determinism import ExactShape
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, decode
from protocol.wire.rules import Rules, decode_rules, encode_rules
from protocol.wire.seeds import prompt_seed
from validator.judging.claims import Claim
from validator.judging.judge import FetchedJob, Judgement, PolicyVersion, judge
from validator.judging.weights import load_policy
from validator.records.record import bounded, ratios_of
from worker.engines.registry import make_engine
from worker.producer import Producer
from worker.prover import Work
from worker.specimens import ENOUGH_UNITS, NOWHERE

JOBS_AT_ONCE = 8
MOST_BYTES = 1 << 28
"""Bytes of a blob that are read: more than any rules allow."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """Outcome of the jobs of one worker.

    caught            jobs that were not accepted, ``fraud`` of them condemned
    jobs_to_99        jobs until 99 of 100 such nodes are found out by single jobs, or by their record; None: more
    flips_per_1000    tokens of accepted jobs that were not the seeded choice
    reward            mean reward of the rollouts of accepted jobs; None if there are none
    """

    jobs: int
    caught: int
    fraud: int
    reasons: dict[str, int]
    jobs_to_99: int | None
    evidence: float
    flips_per_1000: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """Rules, weights and rounds of a trial; its files lie in ``folder``."""

    folder: Path
    rules: Rules
    weights: Path
    rounds: tuple[tuple[bytes, int], ...]

    @classmethod
    def prepare(cls, folder: Path, rules: Rules, weights: Path, jobs: int, seed: int) -> Trial:
        """Writes what the stranger's process reads."""
        sizes = [min(JOBS_AT_ONCE, jobs - start) for start in range(0, jobs, JOBS_AT_ONCE)]
        label = b"assize/zoo/try/1" + seed.to_bytes(8, "big")
        beacons = [hashlib.sha256(label + number.to_bytes(8, "big")).digest() for number in range(len(sizes))]
        rounds = tuple(zip(beacons, sizes, strict=True))
        told = {"weights": str(weights), "rounds": [[beacon.hex(), size] for beacon, size in rounds]}
        (folder / TRIAL).write_text(json.dumps(told))
        (folder / RULES).write_bytes(encode_rules(rules))
        return cls(folder, rules, weights, rounds)

    def run_stranger(self, file: Path, seconds: float) -> None:
        """Makes the stranger's jobs in a process of its own.

        Raises:
            Misconfigured: its file defines no worker, raised an error or ended the process.
            Unavailable: it took longer than ``seconds``.
        """
        command = [sys.executable, "-m", "deploy.zoo.making", str(self.folder), str(file.absolute())]
        root = Path(__file__).parents[2]
        try:
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"the worker took longer than {seconds:g} s and was ended: ask for fewer jobs, or more --seconds"
            ) from error
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["it says nothing"]
            raise Misconfigured(f"the worker ended with exit code {done.returncode}: {last[0]}")

    def strangers(self) -> Iterator[tuple[Claim, bytes]]:
        """Yields claim and blob of each job that the stranger handed in."""
        path, seen = self.folder / MADE, set[tuple[int, int]]()
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                told = json.loads(line)
                number, job, units, root = (told[name] for name in ("round", "job", "units", "root"))
                claim, size = self.claim(number, job, int(units), bytes.fromhex(root)), self.rounds[number][1]
                blob = self.folder / f"{number:d}-{job:d}.blob"
                if (number, job) not in seen and 0 <= job < size and blob.is_file():
                    seen.add((number, job))
                    with blob.open("rb") as stream:
                        yield claim, stream.read(MOST_BYTES)
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise Misconfigured(f"the worker handed in no claim: {line[:80]!r}") from error

    def honest(self) -> Iterator[tuple[Claim, bytes]]:
        """Yields claim and blob of each job as an honest worker makes it."""
        tasks = environment(self.rules.environment.name, self.rules.environment.params)
        engine = make_engine("transformers", self.rules.model.dtype, exact=ExactShape.of(self.rules))
        producer = Producer(engine, self.rules, tasks, NOWHERE)
        producer.load(1, self.weights)
        for number, (beacon, jobs) in enumerate(self.rounds):
            work = Work(number, NODE, tuple(range(jobs)), beacon, 1, bytes(32), ENOUGH_UNITS)
            for done in producer.make(work):
                yield self.claim(number, done.job, done.units, done.root), done.blob

    def claim(self, number: int, job: int, units: int, root: bytes) -> Claim:
        """Returns the claim of a job as it would stand on chain."""
        beacon, _ = self.rounds[number]
        return Claim(
            chain_id=NOWHERE.chain_id,
            rounds=NOWHERE.rounds,
            round=number,
            job=job,
            node=NODE,
            beacon=beacon,
            signed_beacon=beacon,
            manifest_root=bytes(32),
            units=units,
            max_units=ENOUGH_UNITS,
            root=root,
            uri="",
            claimed_before=False,
        )

    def judged(self, policy: PolicyVersion, handed_in: Iterator[tuple[Claim, bytes]]) -> TrialRow:
        """Judges jobs as they come, some together, and sums up."""
        judgements, rewards, part = list[Judgement](), list[float](), list[FetchedJob]()
        for claim, blob in handed_in:
            part.append(FetchedJob(claim, blob))
            if len(part) == JOBS_AT_ONCE:
                judgements += self._judge(policy, part, rewards)
                part = []
        judgements += self._judge(policy, part, rewards)
        return self._row(judgements, rewards)

    def _judge(self, policy: PolicyVersion, part: Sequence[FetchedJob], rewards: list[float]) -> list[Judgement]:
        found = judge(policy, self.rules, part)
        for job, judgement in zip(part, found, strict=True):
            if judgement.reason is Reason.ACCEPTED and isinstance(job.data, bytes):
                _, file = parse_blob(job.data, job.claim.root)
                rewards += rewards_of(policy, self.rules, decode(file), job.claim.seed)
        return found

    def _row(self, judgements: Sequence[Judgement], rewards: Sequence[float]) -> TrialRow:
        sequential, accepted = self.rules.sequential, [one for one in judgements if one.reason is Reason.ACCEPTED]
        ratios = [bounded(ratios_of(one.evidence.measurements), sequential) for one in judgements]
        caught = len(judgements) - len(accepted)
        found = (waiting.by_single_jobs(caught, len(judgements)), waiting.measured(ratios, sequential.bound))
        measured = [one.evidence.measurements for one in accepted if one.evidence.measurements is not None]
        tokens, flips = (sum(int(getattr(one, name).sum()) for one in measured) for name in ("tokens_N", "flips_N"))
        return TrialRow(
            jobs=len(judgements),
            caught=caught,
            fraud=sum(one.reason.fraud for one in judgements),
            reasons=dict(Counter(one.reason.name.lower() for one in judgements).most_common()),
            jobs_to_99=min((n for n in found if n is not None and n <= len(judgements)), default=None),
            evidence=sum(one.choices for one in ratios) / max(1, len(ratios)),
            flips_per_1000=1000 * flips / max(1, tokens),
            reward=sum(rewards) / len(rewards) if rewards else None,
        )


def rewards_of(policy: PolicyVersion, rules: Rules, artifact: Artifact, seed: bytes) -> Iterator[float]:
    """Yields the reward of each rollout of the job with this seed."""
    model, tasks = policy.model, policy.tasks
    problems = [tasks.problem(prompt_seed(seed, group)) for group in range(rules.groups_per_job)]
    for n, rollout in enumerate(artifact.rollouts):
        text = model.completion_text(rollout.output_tokens, model.stop_tokens(rules))
        yield tasks.reward(problems[n // rules.samples_per_group], text)


def rules_in(path: Path) -> Rules:
    """Returns the rules of a run file, or of a file of rules.

    Raises:
        Misconfigured: it holds neither.
    """
    from deploy.runs.run_file import read_run_file

    if path.suffix == ".toml":
        return read_run_file(path).rules
    try:
        with accessing(f"read the rules {path}"):
            return decode_rules(path.read_bytes())
    except Rejected as error:
        raise Misconfigured(f"{path} holds no canonical rules: {error}") from error


def tried(
    folder: Path, file: Path, rules: Rules, weights: Path, jobs: int, seed: int, seconds: float
) -> dict[str, Any]:
    """Runs a trial; returns the rows of the stranger's worker and of honest work."""
    if not file.is_file():
        raise Misconfigured(f"file not found: {file}")
    trial = Trial.prepare(folder, rules, weights, jobs, seed)
    trial.run_stranger(file, seconds)
    policy = load_policy(weights, rules)
    return {"stranger": trial.judged(policy, trial.strangers()), "honest": trial.judged(policy, trial.honest())}
