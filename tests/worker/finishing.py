"""All jobs of some work finished at once: what the producer must give step by step."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.tensor.completions import Completion
from protocol.wire.artifact_blob import head_of
from protocol.wire.rollout import Artifact, encode
from protocol.wire.rules import Rules
from protocol.wire.units import ModelShape
from tests.coordinator.swarm import RULES
from worker.prover import Deployed, Finished, Task, Work, claim, prove


def finish(
    work: Work,
    deployed: Deployed,
    shape: ModelShape,
    tasks: Sequence[Task],
    completions: Sequence[Completion],
    rules: Rules = RULES,
) -> list[Finished]:
    """Proves all completions at once and makes an artifact of each job's share of them."""
    rollouts = prove(tasks, completions, rules)
    per_job = len(rollouts) // len(work.jobs)
    finished = []
    for place, job in enumerate(work.jobs):
        part = tuple(rollouts[place * per_job : (place + 1) * per_job])
        artifact = Artifact(work.round, job, work.node, work.manifest_root, part)
        file, (root, units) = encode(artifact), claim(work, deployed, shape, artifact)
        finished.append(Finished(job, file, head_of(root, file), units))
    return finished
