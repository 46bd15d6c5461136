"""A juror's own samples for the prompts of a settled job, and their rewards beside the owner's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from eth_utils import keccak
from numpy.typing import NDArray

from protocol.errors import Rejected, Unavailable
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.wire.evidence import Finding
from protocol.wire.rollout import Rollout
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from protocol.wire.seeds import prompt_seed
from validator.judging.artifact_checks import read_artifact
from validator.judging.claims import Claim
from validator.judging.judge import PolicyVersion, limits_of
from validator.records.rewards import SAMPLES_SHARE, SampledGroup


def sampled_groups(
    policy: PolicyVersion,
    rules: Rules,
    seed: bytes,
    rollouts: Sequence[Rollout],
    secret: bytes,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[SampledGroup]:
    """Returns the rewards of each group of the job with this ``seed``, and those that this juror samples.

    ``policy`` is the version that the job was generated with, and ``rollouts`` are those of the accepted artifact;
    without any the job is missing, and has no rewards. ``secret``, 32 bytes of this juror, fixes its noise, so
    that sampling again gives the same. Rewards are the task's, in [0, 1], without what a missed length takes off.

    Raises:
        Unavailable: ``cancelled`` returned true, or what judges answers does not run.
    """
    model, size = policy.model, rules.samples_per_group
    problems = [policy.tasks.problem(prompt_seed(seed, group)) for group in range(rules.groups_per_job)]
    own, count = keccak(b"assize/juror-samples/1" + secret + seed), SAMPLES_SHARE * size
    requests = [
        Request(
            model.prompt_tokens(problem.prompt, rules),
            noise_key(own, group * count + sample),
            rules.max_tokens,
            rules.temperature,
            model.stop_tokens(rules),
        )
        for group, problem in enumerate(problems)
        for sample in range(count)
    ]
    completions, stops = decode(model.network, requests, cancelled), model.stop_tokens(rules)

    def rewards(group: int, outputs: Iterable[Sequence[int] | NDArray[np.int32]]) -> tuple[float, ...]:
        found = []
        for tokens in outputs:
            if cancelled():  # judging one answer may take seconds
                raise Unavailable("sampling was broken off")
            found.append(policy.tasks.reward(problems[group], model.completion_text(tokens, stops)))
        return tuple(found)

    return [
        SampledGroup(
            rewards(group, (each.output_tokens for each in rollouts[group * size : (group + 1) * size])),
            rewards(group, (each.output_tokens for each in completions[group * count : (group + 1) * count])),
        )
        for group in range(len(problems))
    ]


def sampled_job(
    policy: PolicyVersion,
    rules: Rules,
    claim: Claim,
    data: bytes | Finding,
    secret: bytes,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[SampledGroup]:
    """Returns what ``sampled_groups`` does for a claim and its blob; one that cannot be read counts as missing.

    Raises:
        Unavailable: as ``sampled_groups``.
    """
    rollouts: Sequence[Rollout] = ()
    if isinstance(data, bytes):
        try:
            rollouts = read_artifact(claim, data, limits_of(rules, policy.tasks)).rollouts
        except Rejected:
            rollouts = ()
    complete = len(rollouts) == rules.rollouts_per_job
    return sampled_groups(policy, rules, claim.seed, rollouts if complete else (), secret, cancelled)
