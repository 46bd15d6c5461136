"""A determinism class against itself: jobs made in one process are run again in another, and differing bits counted.

Cases vary whatever is not part of the class: rollouts of a job, rows that run side by side, lengths around the ends of
windows and chunks, and lengths far apart, of which the longest row ends alone. Groups of cases are made by a process of
their own. What a worker would settle by windows is left as it was guessed, so that every job shows what kernels do.

Axes: N rollouts of all jobs of a case, S sampled tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from protocol.environments.environment import at_version
from protocol.environments.registry import environment
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.determinism import ExactShape, canary_of
from protocol.tensor.model import DTYPES, Model, load_model
from protocol.tensor.proofs import hash_chunks
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from protocol.wire.seeds import prompt_seed
from validator.judging.prefill import Completed, prefill_exactly

ROWS = (1, 8, 64, 512)
LENGTHS = (1, 31, 32, 33, 255, 256, 257)
RAGGED = 1_100
"""Tokens of the longest rollout of a ragged case; the others are shorter, down to 1."""
CASE_SHARE = 1 / 16
"""Share of all tokens that a case of one length may have; the rest is made as the rules say."""
PROCESSES = 4
"""Processes that make what the rules say."""
NEVER = -1
"""No token."""


@dataclass(frozen=True, slots=True)
class ExactCase:
    """Jobs of ``rollouts`` each, ``rows`` rollouts at once, all of ``length`` tokens, or as long as the rules say.

    If ``ragged``, ``length`` is that of the first rollout, and those of the others fall from there to 1.
    """

    rollouts: int
    rows: int
    length: int | None
    jobs: int
    ragged: bool = False

    def most_tokens(self, job: int, rollout: int, max_tokens: int) -> int:
        """Returns the tokens at which a rollout ends, the first job of the case being job 0."""
        if not self.ragged or self.length is None:
            return self.length or max_tokens
        return max(1, self.length // (1 + job * self.rollouts + rollout))


@dataclass(frozen=True, slots=True)
class ExactCount:
    """Tokens and chunks of one case, and how many of them differed."""

    case: ExactCase
    tokens: int
    differing_tokens: int
    chunks: int
    differing_chunks: int


@dataclass(frozen=True, slots=True)
class MadeJobs:
    """The tokens of each rollout (N), and the hash of each of their chunks."""

    tokens: list[tuple[int, ...]]
    hashes: list[list[bytes]]


def cases(rules: Rules, tokens: int) -> Iterator[list[ExactCase]]:
    """Yields groups of cases that one process makes: those of one length first, then as the rules say, without end."""
    whole = rules.rollouts_per_job
    for rows in ROWS:
        rollouts = min(rows, whole)
        lengths = [length for length in LENGTHS if rows * length <= CASE_SHARE * tokens]
        if lengths:
            yield [ExactCase(rollouts, rows, length, rows // rollouts) for length in lengths]
    if CASE_SHARE * tokens >= RAGGED:
        yield [ExactCase(whole, rows, RAGGED, max(1, rows // whole), True) for rows in (whole, max(ROWS))]
    jobs = max(1, tokens // PROCESSES // (whole * rules.max_tokens))
    while True:
        yield [ExactCase(whole, max(ROWS), None, jobs)]


def compare(
    rules: Rules,
    directory: Path,
    tokens: int,
    threads: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[ExactCount]:
    """Makes at least ``tokens`` tokens on so many ``threads`` and runs them again on one, as validators do.

    ``progress`` is called with the tokens compared and all.

    Raises:
        Misconfigured: ``directory`` holds no model that loads.
    """
    torch.set_num_threads(1)
    model, counts, done, number = load_model(directory, DTYPES[rules.model.dtype]), list[ExactCount](), 0, 0
    for group in cases(rules, tokens):
        numbers = [number + sum(case.jobs for case in group[:place]) for place in range(len(group))]
        with ProcessPoolExecutor(1, get_context("spawn")) as child:
            made = child.submit(make, rules, directory, group, numbers, threads).result()
        for case, first, jobs in zip(group, numbers, made, strict=True):
            counts.append(_run_again(rules, directory, model, case, first, jobs))
            done += counts[-1].tokens
            progress(min(done, tokens), tokens)
        if done >= tokens:
            return counts
        number += sum(case.jobs for case in group)
    raise AssertionError


def canaries(rules: Rules, directory: Path, threads: Sequence[int]) -> dict[int, str]:
    """Returns this machine's canary for each number of threads, in hex."""
    shape = ExactShape.of(rules)
    assert shape is not None
    found = {}
    for number in threads:
        torch.set_num_threads(number)
        found[number] = canary_of(directory, rules.model.dtype, "cpu", shape).hex()
    return found


def _run_again(rules: Rules, directory: Path, model: Model, case: ExactCase, number: int, made: MadeJobs) -> ExactCount:
    sequences = [
        Completed(np.array(request.prompt_tokens, np.int32), np.array(tokens, np.int32), request.noise_key)
        for request, tokens in zip(requests_of(rules, directory, model, case, number), made.tokens, strict=True)
    ]
    jobs = [sequences[start : start + case.rollouts] for start in range(0, len(sequences), case.rollouts)]
    assert rules.model.exact is not None
    head_dtype = DTYPES[rules.model.head_dtype]
    again = prefill_exactly(model, jobs, rules.model.exact.window, rules.temperature, head_dtype)
    hashes = hash_chunks(again.hidden_SH, again.lengths_N.tolist())
    differ = [one != other for pair in zip(made.hashes, hashes, strict=True) for one, other in zip(*pair, strict=True)]
    tokens, flips = int(again.lengths_N.sum()), int(np.count_nonzero(again.margins_S))
    return ExactCount(case, tokens, flips, len(differ), sum(differ))


def make(
    rules: Rules, directory: Path, group: Sequence[ExactCase], numbers: Sequence[int], threads: int
) -> list[MadeJobs]:
    """Guesses the jobs of each case as a worker does. Runs in a process of its own."""
    torch.set_num_threads(threads)
    model, found = load_model(directory, DTYPES[rules.model.dtype]), []
    for case, number in zip(group, numbers, strict=True):
        requests = requests_of(rules, directory, model, case, number)
        made = decode(model.network, requests, max_rows=case.rows, aligned=True)
        lengths = [len(one.output_tokens) for one in made]
        hashes = hash_chunks(torch.cat([one.hidden_TH for one in made]), lengths)
        found.append(MadeJobs([one.output_tokens for one in made], hashes))
    return found


def requests_of(rules: Rules, directory: Path, model: Model, case: ExactCase, number: int) -> list[Request]:
    """Returns the requests of the jobs of a case, of which the first is job ``number``."""
    tasks = at_version(environment(rules.environment.name, rules.environment.params), directory)
    stops = model.stop_tokens(rules) if case.length is None else (NEVER,)
    requests = []
    for job in range(number, number + case.jobs):
        seed = hashlib.sha256(b"assize/class/1" + job.to_bytes(8, "big")).digest()
        for rollout in range(case.rollouts):
            problem = tasks.problem(prompt_seed(seed, rollout // rules.samples_per_group))
            prompt, most = (
                model.prompt_tokens(problem.prompt, rules),
                case.most_tokens(job - number, rollout, rules.max_tokens),
            )
            requests.append(Request(prompt, noise_key(seed, rollout), most, rules.temperature, stops))
    return requests
