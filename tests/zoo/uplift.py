"""What steering gains: the mean reward of a cheat's accepted jobs beyond that of honest work on the same jobs."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.zoo.trial import rewards_of
from protocol.wire.rollout import decode
from protocol.wire.seeds import job_seed
from tests.zoo.stage import DEPLOYED, Judged, Stage, passed


def uplift(stage: Stage, judged: Sequence[Judged]) -> float | None:
    """The difference in mean reward; None where no job was accepted."""
    accepted = [one for one in judged if passed(one)]
    if not accepted:
        return None
    producer, cheated, honest = stage.honest(), list[float](), list[float]()
    for one in accepted:
        cheated += rewards_of(stage.policy, stage.rules, decode(one.file), one.claim.seed)
        (made,) = producer.make(stage.work(one.claim.round, [one.claim.job]))
        seed = job_seed(DEPLOYED.chain_id, DEPLOYED.rounds, one.claim.round, stage.beacon(one.claim.round), made.job)
        honest += rewards_of(stage.policy, stage.rules, decode(made.file), seed)
    return sum(cheated) / len(cheated) - sum(honest) / len(honest)
