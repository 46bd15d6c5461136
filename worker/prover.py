"""Requests that an assignment implies, and the proofs, roots and units of their completions.

Everything is determined: prompts and noise by the beacon, proofs by the hidden states. An exception fails the job
before it is signed; null proofs do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from protocol.environments.environment import Environment, Problem
from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import Model
from protocol.tensor.proofs import build_proofs_batch, hash_chunks
from protocol.wire.artifact_blob import ArtifactHead
from protocol.wire.rollout import Artifact, Rollout, rollouts_root
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from protocol.wire.seeds import job_seed, prompt_seed
from protocol.wire.units import ModelShape, capped, units


@dataclass(frozen=True, slots=True)
class Task:
    """One rollout to make: its problem and the seeded request."""

    problem: Problem
    request: Request


@dataclass(frozen=True, slots=True)
class Work:
    """A node's jobs of one round. ``beacon`` and ``manifest_root`` are 32 bytes; ``max_units`` caps a job's pay."""

    round: int
    node: int
    jobs: tuple[int, ...]
    beacon: bytes
    policy_version: int
    manifest_root: bytes
    max_units: int


@dataclass(frozen=True, slots=True)
class Finished:
    """One job done: the artifact's file, its head and the units claimed for it."""

    job: int
    file: bytes
    head: ArtifactHead
    units: int

    @property
    def root(self) -> bytes:
        """The root to sign."""
        return self.head.root

    @property
    def blob(self) -> bytes:
        """The bytes that anyone can check by the root."""
        return self.head.packed + self.file


@dataclass(frozen=True, slots=True)
class Deployed:
    """Chain and Rounds contract that every seed and root is bound to."""

    chain_id: int
    rounds: str


def tasks_of(work: Work, deployed: Deployed, rules: Rules, environment: Environment, model: Model) -> list[Task]:
    """Returns the tasks of every job, in (job, rollout) order. Samples of a group share the prompt, not the noise."""
    tasks: list[Task] = []
    for job in work.jobs:
        seed = job_seed(deployed.chain_id, deployed.rounds, work.round, work.beacon, job)
        for group in range(rules.groups_per_job):
            problem = environment.problem(prompt_seed(seed, group))
            prompt = model.prompt_tokens(problem.prompt, rules)
            first = group * rules.samples_per_group
            for rollout in range(first, first + rules.samples_per_group):
                request = Request(
                    prompt, noise_key(seed, rollout), rules.max_tokens, rules.temperature, model.stop_tokens(rules)
                )
                tasks.append(Task(problem, request))
    return tasks


def prove(tasks: Sequence[Task], completions: Sequence[Completion], rules: Rules) -> list[Rollout]:
    """Returns the rollouts of ``completions``; proofs are built in one batch."""
    hidden_NH = torch.cat([completion.hidden_TH for completion in completions])
    return [
        Rollout(
            prompt_tokens=np.array(task.request.prompt_tokens, np.int32),
            output_tokens=np.array(completion.output_tokens, np.int32),
            logprobs=completion.logprobs_T.numpy().clip(max=0.0),
            proofs=tuple(chunks),
            finish_reason=completion.finish_reason,
        )
        for task, completion, chunks in zip(tasks, completions, _proofs(hidden_NH, completions, rules), strict=True)
    ]


def _proofs(hidden_NH: torch.Tensor, completions: Sequence[Completion], rules: Rules) -> list[list[bytes]]:
    """Returns the proof of each chunk in the form that the rules ask for."""
    lengths = [len(completion.hidden_TH) for completion in completions]
    if not rules.chunks_hashed:
        return build_proofs_batch(hidden_NH, lengths)
    hashes = hash_chunks(hidden_NH, lengths)
    if not rules.chunks_interpolated:
        return hashes
    built = build_proofs_batch(hidden_NH, lengths)
    return [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(built, hashes, strict=True)]


def claim(work: Work, deployed: Deployed, shape: ModelShape, artifact: Artifact) -> tuple[bytes, int]:
    """Returns the rollouts' root and the units to claim: those of the tokens, capped at what a job pays."""
    done = sum(units(shape, len(rollout.prompt_tokens), len(rollout.output_tokens)) for rollout in artifact.rollouts)
    return rollouts_root(deployed.chain_id, deployed.rounds, artifact), capped(done, work.max_units)
