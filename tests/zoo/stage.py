"""Real producers before the real judge: work is set, done, claimed and judged as in the market, without a chain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np
import torch

from deploy.adversaries import ADVERSARIES
from deploy.adversaries.models import Kind, other_model
from deploy.adversaries.replaying import Overheard, Thief
from deploy.adversaries.sampling import Speculative
from deploy.adversaries.swapped import Swapped
from protocol.environments.environment import Environment
from protocol.environments.registry import environment
from protocol.errors import Rejected
from protocol.tensor.completions import Completion, Request
from protocol.tensor.determinism import ExactShape
from protocol.tensor.model import DTYPES, Model
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, decode
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from validator.judging.claims import Claim
from validator.judging.judge import FetchedJob, Judgement, PolicyVersion, judge
from validator.judging.prefill import Completed, Prefill, prefill
from validator.judging.weights import load_policy
from worker.engines.engine import Engine
from worker.engines.transformers_engine import TransformersEngine
from worker.producer import Producer
from worker.prover import Deployed, Finished, Work

DEPLOYED = Deployed(31337, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
MANIFEST_ROOT = b"\x3a" * 32
MAX_UNITS = 1 << 60
CHEAT, HONEST = 7, 9
JOBS_AT_ONCE = 8
WARM_UP = 1 << 32
"""Number of the round in which adversaries that need one see honest work, and which is not judged."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One job as it was handed in, and what the judge made of it."""

    claim: Claim
    file: bytes
    judgement: Judgement

    @property
    def evidence(self) -> float:
        """What it adds to its node's record, in nats; nothing where the artifact could not be measured."""
        measured = self.judgement.evidence.measurements
        return 0.0 if measured is None else float(measured.llr_N.sum(dtype=np.float64))

    @property
    def flips(self) -> tuple[int, int, int]:
        """Tokens; those that were not the seeded choice; and those of them that were likelier than it."""
        measured = self.judgement.evidence.measurements
        if measured is None:
            return 0, 0, 0
        return int(measured.tokens_N.sum()), int(measured.flips_N.sum()), int(measured.up_N.sum())


class Remembering:
    """An engine that makes each request once: bytes are cheated with over and over, on the same honest work."""

    def __init__(self, engine: Engine, known: dict[Request, Completion]) -> None:
        self._engine, self._known = engine, known
        self.load, self.swap, self.read_ahead = engine.load, engine.swap, engine.read_ahead

    @property
    def model(self) -> Model:
        """The model that is loaded."""
        return self._engine.model

    @property
    def canary(self) -> bytes:
        """The class that the engine measured."""
        return self._engine.canary

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """The completions of ``requests``, those of before where there are any."""
        new = [request for request in dict.fromkeys(requests) if request not in self._known]
        self._known.update(zip(new, self._engine.generate(new, cancel), strict=True))
        return [self._known[request] for request in requests]


@dataclass(frozen=True, slots=True)
class Stage:
    """A policy under its rules, and the version before it; ``seed`` fixes every prompt and every noise."""

    rules: Rules
    environment: Environment
    policy: PolicyVersion
    directory: Path
    older: Path
    seed: int = 1
    models: Callable[[Kind, Environment], Path] = other_model
    remembered: dict[Request, Completion] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Rules, older: Path, directory: Path, seed: int = 1) -> Stage:
        """The stage for the policy in ``directory``."""
        tasks = environment(rules.environment.name, rules.environment.params)
        return cls(rules, tasks, load_policy(directory, rules), directory, older, seed)

    @property
    def label(self) -> str:
        """The rules' dtype, and whether bits are compared."""
        return self.rules.model.dtype + (" exact" if self.rules.model.exact else "")

    def work(self, round_: int, jobs: Sequence[int] = range(JOBS_AT_ONCE), node: int = CHEAT) -> Work:
        """Jobs of a round."""
        return Work(round_, node, tuple(jobs), self.beacon(round_), 1, MANIFEST_ROOT, MAX_UNITS)

    def beacon(self, round_: int) -> bytes:
        """What prompts and noise of a round follow from."""
        return hashlib.sha256(b"assize/zoo/1" + self.seed.to_bytes(8, "big") + round_.to_bytes(8, "big")).digest()

    def honest(self, engine: Engine | None = None) -> Producer:
        """An honest producer with the policy loaded."""
        producer = Producer(engine or self.engine(), self.rules, self.environment, DEPLOYED)
        producer.load(1, self.directory)
        return producer

    def engine(self) -> Engine:
        """A transformers engine in the rules' dtype."""
        return TransformersEngine(self.rules.model.dtype, exact=ExactShape.of(self.rules))

    def producer(self, name: str) -> Producer:
        """An adversary that has seen the version before, and one round."""
        entry = ADVERSARIES[name]
        kind = entry.producer()
        engine: Engine = self.engine()
        if entry.kind == "bytes":
            engine = Remembering(engine, self.remembered)
        producer = kind(engine, self.rules, self.environment, DEPLOYED)
        if isinstance(producer, Thief):
            producer.patience_seconds = 0.0
        if isinstance(producer, Swapped | Speculative):
            producer.models = self.models  # type: ignore[method-assign]
        if name.startswith("stale"):
            producer.load(0, self.older)
        producer.load(1, self.directory)
        producer.make(self.work(WARM_UP, range(1)))
        return producer

    def run(self, name: str, jobs: int, rounds: int | None = None) -> Iterator[list[Judged]]:
        """Yields ``jobs`` jobs of an adversary, some at a time, without those in which it had nothing to cheat at.

        They are of ``rounds`` different rounds at most, as many as it takes where that is None.
        """
        producer, seen = self.producer(name), dict[bytes, tuple[int, int]]()
        honest = self.honest(Remembering(self.engine(), self.remembered)) if isinstance(producer, Thief) else None
        for start in range(0, jobs, JOBS_AT_ONCE):
            turn = start // JOBS_AT_ONCE
            round_ = turn if rounds is None else turn % rounds
            if honest is not None:
                self._let_overhear(producer, honest, round_, seen)
            work = self.work(round_, range(min(JOBS_AT_ONCE, jobs - start)))
            judged = self.judge(work, producer.make(work), seen)
            untouched = getattr(producer, "untouched", frozenset())
            yield [one for place, one in enumerate(judged) if place not in untouched]

    def _let_overhear(self, thief: Producer, honest: Producer, round_: int, seen: dict[bytes, tuple[int, int]]) -> None:
        """Another node does its share of the round and hands it in first."""
        assert isinstance(thief, Thief)
        others = self.work(round_, range(JOBS_AT_ONCE, 2 * JOBS_AT_ONCE), HONEST)
        made = honest.make(others)
        for one in made:
            seen.setdefault(one.root, (round_, one.job))
        overheard = [Overheard(round_, one.job, HONEST, one.file, one.head) for one in made]
        thief.overheard = lambda: overheard

    def judge(
        self, work: Work, made: Sequence[Finished], seen: dict[bytes, tuple[int, int]] | None = None
    ) -> list[Judged]:
        """Judges jobs of a round together; ``seen`` remembers which roots were claimed for which job."""
        claims = [self.claim(work, one, {} if seen is None else seen) for one in made]
        submitted = [FetchedJob(claim, one.blob) for claim, one in zip(claims, made, strict=True)]
        found = judge(self.policy, self.rules, submitted)
        return [Judged(claim, one.file, each) for claim, one, each in zip(claims, made, found, strict=True)]

    def claim(self, work: Work, made: Finished, seen: dict[bytes, tuple[int, int]]) -> Claim:
        """What would stand on chain."""
        place = (work.round, made.job)
        return Claim(
            chain_id=DEPLOYED.chain_id,
            rounds=DEPLOYED.rounds,
            round=work.round,
            job=made.job,
            node=work.node,
            beacon=work.beacon,
            signed_beacon=work.beacon,
            manifest_root=work.manifest_root,
            units=made.units,
            max_units=work.max_units,
            root=made.root,
            uri="http://127.0.0.1:1/artifacts/",
            claimed_before=seen.setdefault(made.root, place) != place,
        )

    def read(self, judged: Judged) -> tuple[Artifact, Prefill] | None:
        """A job's artifact and what the policy says of it, whatever else is wrong; None where it cannot be read."""
        try:
            artifact = decode(judged.file)
        except Rejected:
            return None
        tokens = [part for rollout in artifact.rollouts for part in (rollout.prompt_tokens, rollout.output_tokens)]
        if any(int(part.max(initial=0)) >= self.policy.vocabulary for part in tokens):
            return None
        sequences = [
            Completed(rollout.prompt_tokens, rollout.output_tokens, noise_key(judged.claim.seed, n))
            for n, rollout in enumerate(artifact.rollouts)
        ]
        dtype = DTYPES[self.rules.model.head_dtype]
        return artifact, prefill(self.policy.model, sequences, self.rules.temperature, dtype)


def passed(judged: Judged) -> bool:
    """Whether the job was accepted."""
    return judged.judgement.reason is Reason.ACCEPTED


def one_thread() -> None:
    """So small a model gains nothing from more."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
