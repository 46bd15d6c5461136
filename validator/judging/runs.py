"""Runs as a validator needs them: rules, environment and weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from protocol.broadcast.checkpoints import Checkpoints
from protocol.broadcast.sources import Sources
from protocol.chain.deployment import Deployment
from protocol.chain.structs import RunTerms
from protocol.environments.environment import Environment
from protocol.environments.registry import environment
from protocol.errors import AssizeError
from protocol.node.release import behind
from protocol.tensor.determinism import AnotherClass
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.manifest import Authority
from protocol.wire.rules import Rules
from validator.judging.registry import require_known
from validator.judging.weights import Weights

RETRY_SECONDS, IDLE_RETRY_SECONDS = 0.5, 10.0
"""Pause after a failed request to a coordinator whose run has a round to judge, or has none."""
RUNS_AT_ONCE = 4
"""Runs that are fetched at the same time."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """Rules whose hash is on chain, the environment they name, the weights, and the coordinator that named them."""

    rules: Rules
    environment: Environment
    weights: Weights
    coordinator: str


def learn_context(
    coordinators: RunCoordinators,
    run: int,
    rules_hash: bytes,
    authority: Authority,
    directory: Path,
    sources: tuple[str, ...],
    device: str,
) -> JudgingContext:
    """Fetches the rules of ``run`` from its coordinator; ``sources`` take precedence over the relays it names.

    Raises:
        Unavailable: the coordinator does not answer.
        Rejected: the rules have another hash than ``rules_hash``.
        Misconfigured: this version lacks the environment or a check that the rules name.
    """
    client = coordinators.of(run)
    rules = client.rules(rules_hash)
    require_known(rules.thresholds)
    tasks = environment(rules.environment.name, rules.environment.params)
    named = Sources(sources or client.run(run).weights_from)
    checkpoints = Checkpoints(named, run, authority, directory, rules)
    return JudgingContext(rules, tasks, Weights(checkpoints, rules, device), client.base_url)


@dataclass(frozen=True, slots=True)
class RunContext(JudgingContext):
    """A run under its rules; ``rules_hash`` is the one on chain, ``max_units`` the most it pays for a job."""

    chain_id: int
    rounds_address: str
    run: int
    max_units: int
    rules_hash: bytes
    authority: Authority


class Runs:
    """The runs seen so far; each is fetched once. ``sources`` take precedence over the coordinator's relays."""

    def __init__(
        self,
        coordinators: RunCoordinators,
        deployment: Deployment,
        directory: Path,
        sources: tuple[str, ...] = (),
        device: str = "cpu",
        announce: Callable[[RunContext, int, bytes], None] | None = None,
    ) -> None:
        """``announce`` is called with the newest version of a run if other processes need its weights."""
        self._announce = announce
        self._coordinators, self._deployment, self._directory = coordinators, deployment, directory
        self._sources, self._device = sources, device
        self._known: dict[tuple[int, bytes], RunContext] = {}
        self._pool = ThreadPoolExecutor(RUNS_AT_ONCE, "runs")
        self._learning: dict[tuple[int, bytes], Future[RunContext]] = {}
        self._asked_at: dict[tuple[int, bytes], float] = {}

    def context(self, run: int, terms: RunTerms) -> RunContext:
        """Returns ``run`` under ``terms``, fetched from the coordinator the first time; raises as ``learn_context``."""
        key = (run, terms.rules_hash)
        if key not in self._known:
            self._known[key] = self._learn(run, terms)
        return self._known[key]

    def find(self, run: int, terms: RunTerms) -> RunContext | None:
        """Returns what ``context`` does, or None while a thread is fetching it: a slow coordinator delays no vote."""
        return self._look(run, terms, RETRY_SECONDS)

    def serve(self, named: Mapping[int, str], terms: Mapping[int, RunTerms]) -> None:
        """Sets the runs that the node serves, with the coordinator's URL that each names on chain, and its terms.

        Their rules are fetched before their first round.
        """
        self._coordinators.keep(named)
        for run in named:
            with suppress(AssizeError):  # whoever judges a round of the run is told
                self._look(run, terms[run], IDLE_RETRY_SECONDS)

    def _look(self, run: int, terms: RunTerms, pause: float) -> RunContext | None:
        key, now = (run, terms.rules_hash), time.monotonic()
        learning = self._learning.get(key)
        if learning is not None and learning.done():
            del self._learning[key]
            self._known[key] = learning.result()
        elif learning is None and key not in self._known and now - self._asked_at.get(key, -pause) >= pause:
            self._asked_at[key] = now
            self._learning[key] = self._pool.submit(self._learn, run, terms)
        return self._known.get(key)

    def foreign(self, terms: Mapping[int, RunTerms]) -> dict[int, str]:
        """Returns the runs of another determinism class than this machine's under their present ``terms``, and why."""
        return {
            run: str(known.weights.foreign)
            for (run, _), known in self._known.items()
            if known.weights.foreign is not None and _holds(known, terms)
        }

    def behind(self, terms: Mapping[int, RunTerms]) -> dict[int, str]:
        """Returns the runs whose rules, under their present ``terms``, ask for a newer version than this, and why."""
        found = {run: behind(run, known.rules) for (run, _), known in self._known.items() if _holds(known, terms)}
        return {run: why for run, why in found.items() if why}

    @property
    def known(self) -> list[RunContext]:
        """The runs that were fetched, under each of their rules."""
        return list(self._known.values())

    @property
    def loaded_version(self) -> int | None:
        """The newest version loaded for any run."""
        versions = [known.weights.loaded for known in self._known.values() if known.weights.loaded is not None]
        return max(versions, default=None)

    @property
    def loaded_versions(self) -> dict[int, int]:
        """The version loaded for each run."""
        loaded = {run: known.weights.loaded for (run, _), known in self._known.items()}
        return {run: version for run, version in loaded.items() if version is not None}

    @property
    def fetching(self) -> dict[int, str]:
        """Progress in words for each run of which weights arrive."""
        return {run: known.weights.fetching for (run, _), known in self._known.items() if known.weights.fetching}

    def prefetch(self, manifest_roots: Mapping[tuple[int, int], bytes]) -> None:
        """Starts fetching the newest version of each run, and loads the first: both before its first round."""
        for (run, _), known in self._known.items():
            if known.weights.foreign is not None:
                continue
            newest = max((version for of_run, version in manifest_roots if of_run == run), default=None)
            if newest is None:
                continue  # the run was opened in blocks that a reorganisation took back
            if self._announce is not None:
                self._announce(known, newest, manifest_roots[run, newest])
            elif known.weights.prepare(newest, manifest_roots[run, newest]):
                self._warm_up(known, newest, manifest_roots[run, newest])

    def _warm_up(self, known: RunContext, version: int, root: bytes) -> None:
        try:
            known.weights.warm_up(version, root)
        except AnotherClass:
            return  # ``foreign`` says so to whoever serves the run
        except AssizeError as error:
            log.warning("weights_not_loaded", run=known.run, version=version, error=str(error))

    def close(self) -> None:
        """Ends the fetches."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for known in self._known.values():
            known.weights.close()

    def _learn(self, run: int, terms: RunTerms) -> RunContext:
        deployment = self._deployment
        authority = Authority(deployment.chain_id, deployment.market, terms.trainer)
        context = learn_context(
            self._coordinators, run, terms.rules_hash, authority, self._directory, self._sources, self._device
        )
        return RunContext(
            chain_id=deployment.chain_id,
            rounds_address=deployment.rounds,
            run=run,
            max_units=terms.max_units,
            rules_hash=terms.rules_hash,
            rules=context.rules,
            environment=context.environment,
            weights=context.weights,
            coordinator=context.coordinator,
            authority=authority,
        )


def _holds(known: RunContext, terms: Mapping[int, RunTerms]) -> bool:
    """Returns whether these are the rules of the run under its present ``terms``."""
    return known.run in terms and terms[known.run].rules_hash == known.rules_hash
