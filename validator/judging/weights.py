"""The policy that a validator judges with: each version's weights are swapped into one network in place."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import structlog

from protocol.broadcast.checkpoints import Checkpoints
from protocol.environments.environment import at_version
from protocol.environments.registry import environment
from protocol.errors import Unavailable
from protocol.node.progress import progress_line
from protocol.tensor.determinism import AnotherClass, ExactShape
from protocol.tensor.directory import shape_of
from protocol.tensor.model import DTYPES, Model, load_model
from protocol.wire.pins import REWARDS_FILE, UnfitCheckpoint
from protocol.wire.rewards import Rewards, parse_rewards
from protocol.wire.rules import Rules
from validator.judging.judge import PolicyVersion
from validator.judging.prefill import numerics_of, probe

RETRY_SECONDS = 0.5
"""Pause after a failed fetch."""


MOST_REWARDS_BYTES = 2 << 20
"""Most bytes of published rewards that are read: those of more than 300,000 rollouts."""

log = structlog.get_logger()


def load_policy(directory: Path, rules: Rules, device: str = "cpu") -> PolicyVersion:
    """Loads a model directory as a policy in the number format of ``rules``.

    Raises:
        Misconfigured: it does not load, changes its logits after the LM head, or this machine is not of the class
            of a run that compares bits.
        UnfitCheckpoint: its tensors are not those of its configuration.
    """
    shape = shape_of(directory)
    if (exact := ExactShape.of(rules)) is not None:
        exact.check(directory, rules.model.dtype, device)
    model: Model = load_model(directory, DTYPES[rules.model.dtype])
    model.network.to(device)
    probe(model)
    tasks = environment(rules.environment.name, rules.environment.params)
    return PolicyVersion(model, shape, numerics_of(model), at_version(tasks, directory))


class Weights:
    """The policy of one run: waits for versions that a thread fetches, and swaps them into one network.

    A version is identified by its manifest root too: after a reorganisation the same number may mean other weights.
    ``foreign`` is set once this machine is known to be of another determinism class than the run.
    """

    def __init__(self, checkpoints: Checkpoints, rules: Rules, device: str) -> None:
        self._checkpoints, self._rules, self._device = checkpoints, rules, device
        self._tasks = environment(rules.environment.name, rules.environment.params)
        self._pool = ThreadPoolExecutor(1, "weights")
        self._fetches: dict[tuple[int, bytes], Future[Path]] = {}
        self._policy: PolicyVersion | None = None
        self._loaded: tuple[int, bytes] | None = None
        self._unfit: dict[tuple[int, bytes], UnfitCheckpoint] = {}
        self.foreign: AnotherClass | None = None
        self._again_at = 0.0
        self._preparing = threading.Lock()
        self._warm = False
        self._fetching = ""
        checkpoints.progress = self._note_progress

    @property
    def fetching(self) -> str:
        """Progress of the fetch under way in words: bytes, rate and time left. Empty if nothing arrives."""
        return self._fetching

    def _note_progress(self, version: int, done: int, total: int, seconds: float) -> None:
        self._fetching = progress_line(f"version {version}", done, total, seconds) if done < total else ""

    @property
    def loaded(self) -> int | None:
        """The version loaded into the network, or None."""
        return None if self._loaded is None else self._loaded[0]

    def prepare(self, version: int, root: bytes) -> bool:
        """Starts fetching ``version`` unless it is on disk; returns whether it is. Retries a failed fetch.

        A version that is not what the rules pin is never there; ``refusal`` says so.
        """
        with self._preparing:
            return self._prepare(version, root)

    def _prepare(self, version: int, root: bytes) -> bool:
        if (version, root) in self._unfit:
            return False
        fetch = self._fetches.get((version, root))
        if fetch is None:
            if time.monotonic() >= self._again_at:
                self._fetches[version, root] = self._pool.submit(self._checkpoints.directory, version, root)
            return False
        if not fetch.done():
            return False
        error = fetch.exception()
        if error is None and not fetch.result().is_dir():
            # Removed in favour of newer versions and needed again, for an appeal: fetch it again.
            del self._fetches[version, root]
            return False
        if isinstance(error, UnfitCheckpoint):
            self._refuse(version, root, error)
        elif error is not None:
            log.warning("weights_not_there", run=self._checkpoints.run, version=version, error=str(error))
            del self._fetches[version, root]
            self._again_at = time.monotonic() + RETRY_SECONDS
        return error is None

    def refusal(self, version: int, root: bytes) -> UnfitCheckpoint | None:
        """Returns the reason for which the version cannot be judged with by anyone, once that is known."""
        return self._unfit.get((version, root))

    def _refuse(self, version: int, root: bytes, error: UnfitCheckpoint) -> None:
        log.warning("checkpoint_refused", run=self._checkpoints.run, version=version, error=str(error))
        self._unfit[version, root] = error

    def policy(self, version: int, root: bytes) -> PolicyVersion:
        """Returns the policy with the weights of a prepared version swapped in; the previous ones are overwritten.

        Raises:
            UnfitCheckpoint: the tensors are not those of the configuration; ``refusal`` says so from then on.
            AnotherClass: this machine cannot judge in the run; ``foreign`` says so from then on.
        """
        if self.foreign is not None:
            raise self.foreign
        directory = self._fetches[version, root].result()
        try:
            if self._policy is None:
                self._policy = load_policy(directory, self._rules, self._device)
            elif self._loaded != (version, root):
                tasks = at_version(self._tasks, directory)
                self._loaded = None  # a copy that fails half-way leaves no version loaded
                self._policy.model.load_weights(directory)
                self._policy = replace(self._policy, numerics=numerics_of(self._policy.model), tasks=tasks)
        except UnfitCheckpoint as error:
            self._refuse(version, root, error)
            raise
        except AnotherClass as error:
            self.foreign = error
            raise
        self._loaded = (version, root)
        return self._policy

    def published_rewards(self, version: int, root: bytes) -> Rewards | None:
        """Returns the rewards that a version was published with, None if it has none. Any thread may call it.

        Raises:
            Unavailable: no source has them.
            Rejected: they are not what ``root`` promises, or no rewards.
        """
        data = self._checkpoints.file(version, root, REWARDS_FILE, MOST_REWARDS_BYTES)
        return None if data is None else parse_rewards(data)

    def warm_up(self, version: int, root: bytes) -> None:
        """Loads a prepared version unless one was loaded before, so that the first vote does not wait for it.

        Raises:
            UnfitCheckpoint: as ``policy``.
        """
        if self._warm or self._loaded is not None:
            return
        self._warm = True  # a failure is not repeated here: judging meets it again, and abstains
        self.policy(version, root)

    def wait_for(self, version: int, root: bytes, seconds: float) -> PolicyVersion:
        """Returns the policy of ``version`` once it has been fetched.

        Raises:
            UnfitCheckpoint: it is not what the rules pin.
            Unavailable: it was not fetched within ``seconds``.
        """
        give_up = time.monotonic() + seconds
        while not self.prepare(version, root):
            if (refusal := self.refusal(version, root)) is not None:
                raise refusal
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"version {version} of run {self._checkpoints.run} could not be fetched in {seconds:.0f} s"
                )
            time.sleep(0.05)
        return self.policy(version, root)

    def close(self) -> None:
        """Ends the fetches."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._checkpoints.sources.close()
