"""Every round of a deployment, with the rules, weights and records for judging it by hand."""

from __future__ import annotations

import time
from pathlib import Path

from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.errors import Rejected, Unavailable
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.pins import check_directory
from validator.judging.judge import PolicyVersion
from validator.judging.runs import Runs
from validator.judging.weights import load_policy
from validator.queue.judged_round import JudgedRound, JudgingProgress
from validator.records.bundles import Bundles
from validator.records.history import History
from validator.records.record import RecordPoint
from validator.records.reward_store import RewardStore
from validator.records.steering import Steering
from validator.rounds import Rounds
from validator.settings import ValidatorSettings

WEIGHTS_SECONDS, RECORD_SECONDS = 120.0, 120.0
"""Longest wait for weights, and for the bundles of earlier rounds."""


class Archive:
    """A deployment read once from its first block to its last; must be closed."""

    def __init__(self, settings: ValidatorSettings, model: Path | None = None) -> None:
        """Reads the chain. ``model`` is a directory of weights; None fetches them as the daemon does.

        Raises:
            Unavailable: chain or coordinator do not answer.
            Misconfigured: the settings are invalid.
        """
        self._settings, self._model = settings, model
        self._chain = Chain.connect(settings.rpc_url, settings.addresses)
        self.rounds, deployment = _all_rounds(self._chain), self._chain.deployment
        self.coordinators = RunCoordinators(settings.coordinator_urls)
        directory = settings.state_dir
        self._runs = Runs(self.coordinators, deployment, directory / "weights", settings.sources, settings.device)

        def bundle(run: int, root: bytes) -> bytes:
            return self.coordinators.of(run).evidence(root)

        self._bundles = Bundles(bundle, deployment.chain_id, deployment.rounds, directory)
        self._steering = Steering(RewardStore(None))

    def judged_round(self, number: int) -> JudgedRound:
        """Returns a round or an appeal as a juror sees it; raises ``Rejected`` if it does not exist."""
        followed = self.rounds.live.get(number)
        if followed is None:
            raise Rejected(f"there is no round {number} on chain")
        run, version = followed.run, followed.policy_version
        # Not every run ever opened: anyone may open one, and name any place.
        self.coordinators.keep({run: self.rounds.uris[run]})
        context = self._runs.context(run, followed.terms)
        return JudgedRound(followed, context, self.rounds.manifest_roots[run, version], JudgingProgress())

    def policy(self, round_: JudgedRound) -> PolicyVersion:
        """Returns the policy of the round.

        Raises:
            Unavailable: its weights cannot be fetched.
            UnfitCheckpoint: they, or those given by hand, are not what the run's rules pin.
        """
        if self._model is not None:
            check_directory(self._model, round_.context.rules.pins)
            return load_policy(self._model, round_.context.rules, self._settings.device)
        version = round_.followed.policy_version
        return round_.context.weights.wait_for(version, round_.manifest_root, WEIGHTS_SECONDS)

    def history(self, point: RecordPoint, juror: int | None = None) -> tuple[History, bool]:
        """Returns the records up to ``point`` before ``juror``, and whether every bundle that counts was fetched."""
        history, give_up = History(self._bundles, juror, self._steering), time.monotonic() + RECORD_SECONDS
        history.follow(self.rounds.settled)
        while not history.complete(point) and time.monotonic() < give_up:
            time.sleep(0.02)
            history.follow(self.rounds.settled)
        return history, history.whole(point)

    def close(self) -> None:
        """Ends the fetches and closes the connections."""
        for part in (self._bundles, self._steering, self._runs, self.coordinators, self._chain):
            part.close()


def _all_rounds(chain: Chain) -> Rounds:
    tail, rounds = Tail(chain), Rounds(keep_ended=True)
    while answer := tail.poll():
        if isinstance(answer, Rollback):
            raise Unavailable("the chain was reorganised while it was read: try again")
        for found in answer:
            rounds.fold(found.logs)
    return rounds
