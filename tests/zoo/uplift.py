"""What steering gains: the mean reward of a cheat's accepted jobs beyond that of honest work on the same jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.wire.rollout import Artifact, decode
from protocol.wire.seeds import job_seed, prompt_seed
from tests.zoo.stage import DEPLOYED, Judged, Stage, passed


def uplift(stage: Stage, judged: Sequence[Judged]) -> float | None:
    """The difference in mean reward; None where no job was accepted."""
    accepted = [one for one in judged if passed(one)]
    if not accepted:
        return None
    producer, cheated, honest = stage.honest(), list[float](), list[float]()
    for one in accepted:
        cheated += rewards(stage, decode(one.file), one.claim.seed)
        (made,) = producer.make(stage.work(one.claim.round, [one.claim.job]))
        seed = job_seed(DEPLOYED.chain_id, DEPLOYED.rounds, one.claim.round, stage.beacon(one.claim.round), made.job)
        honest += rewards(stage, decode(made.file), seed)
    return sum(cheated) / len(cheated) - sum(honest) / len(honest)


def rewards(stage: Stage, artifact: Artifact, seed: bytes) -> Iterator[float]:
    """The reward of each rollout of a job."""
    model, size = stage.policy.model, stage.rules.samples_per_group
    problems = [stage.environment.problem(prompt_seed(seed, group)) for group in range(stage.rules.groups_per_job)]
    for n, rollout in enumerate(artifact.rollouts):
        text = model.completion_text(rollout.output_tokens, model.stop_tokens(stage.rules))
        yield stage.environment.reward(problems[n // size], text)
