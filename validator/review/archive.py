"""What judging by hand needs: every round there was, the rules, weights and records that go with it."""

from __future__ import annotations

import time
from pathlib import Path

from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.errors import Rejected, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from validator.judging.judge import PolicyVersion
from validator.judging.runs import Runs
from validator.judging.weights import load_policy
from validator.queue.judged_round import JudgedRound, JudgingProgress
from validator.records.bundles import Bundles
from validator.records.history import History
from validator.records.record import RecordPoint
from validator.rounds import Rounds
from validator.settings import ValidatorSettings

WEIGHTS_SECONDS, RECORD_SECONDS = 120.0, 120.0
"""How long weights, and the bundles of earlier rounds, are waited for at most."""


class Archive:
    """A deployment from its first block to its last, read once. Close it."""

    def __init__(self, settings: ValidatorSettings, model: Path | None = None) -> None:
        """``model`` is a directory that holds the weights asked for; None fetches them as the daemon does.

        Raises ``Unavailable`` where chain or coordinator do not answer, ``Misconfigured`` for settings that are wrong.
        """
        self._settings, self._model = settings, model
        self._chain = Chain.connect(settings.rpc_url, settings.addresses)
        self.rounds, deployment = _all_rounds(self._chain), self._chain.deployment
        self._client = CoordinatorClient(settings.coordinator_url)
        directory = settings.state_dir
        self._runs = Runs(self._client, deployment, directory / "weights", settings.sources, settings.device)
        self._history = History(Bundles(self._client.evidence, deployment.chain_id, deployment.rounds, directory))

    def judged_round(self, number: int) -> JudgedRound:
        """Returns a round, or an appeal, as a juror would try it; raises ``Rejected`` where there is none."""
        followed = self.rounds.live.get(number)
        if followed is None:
            raise Rejected(f"the chain has no round {number}")
        run, version = followed.run, followed.policy_version
        context = self._runs.context(run, followed.terms)
        return JudgedRound(followed, context, self.rounds.manifest_roots[run, version], JudgingProgress())

    def policy(self, round_: JudgedRound) -> PolicyVersion:
        """Returns the weights of the round's version; raises ``Unavailable`` where they cannot be had."""
        if self._model is not None:
            return load_policy(self._model, round_.context.rules, self._settings.device)
        version = round_.followed.policy_version
        return round_.context.weights.wait_for(version, round_.manifest_root, WEIGHTS_SECONDS)

    def history(self, point: RecordPoint) -> tuple[History, bool]:
        """Returns the records of all nodes up to a round's opening, and whether every bundle they rest on was had."""
        give_up = time.monotonic() + RECORD_SECONDS
        self._history.follow(self.rounds.settled)
        while not self._history.complete(point) and time.monotonic() < give_up:
            time.sleep(0.02)
            self._history.follow(self.rounds.settled)
        return self._history, self._history.whole(point)

    def close(self) -> None:
        """Ends what is under way."""
        for part in (self._history, self._runs, self._client, self._chain):
            part.close()


def _all_rounds(chain: Chain) -> Rounds:
    tail, rounds = Tail(chain), Rounds(keep_ended=True)
    while answer := tail.poll():
        if isinstance(answer, Rollback):
            raise Unavailable("the chain was reorganised meanwhile: try again")
        for found in answer:
            rounds.fold(found.logs)
    return rounds
