"""What ``assize validator check`` does: one artifact, by hand, as the daemon would."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from protocol.chain.client import Chain
from protocol.chain.tail import Rollback, Tail
from protocol.errors import Rejected, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.rollout import DEFAULT_LIMITS, decode
from validator.desk import Docket, Trial
from validator.judge import Judgement, Submitted, judge
from validator.rounds import FollowedRound, Rounds
from validator.runs import Runs
from validator.settings import ValidatorSettings
from validator.weights import load_policy

WAIT_SECONDS = 120.0


def inspect(
    settings: ValidatorSettings, data: bytes, round_: int, job: int | None = None, model: Path | None = None
) -> Judgement:
    """Judges ``data`` as the artifact of ``job`` (None: the one it names) of a round, whatever state that is in.

    ``model`` is a directory that holds the round's weights; None fetches them as the daemon does. Raises ``Rejected``
    where the round or the job was never submitted, ``Unavailable`` where something is out of reach.
    """
    with ExitStack() as stack:
        chain = stack.enter_context(closing(Chain.connect(settings.rpc_url, settings.addresses)))
        rounds = _all_rounds(chain)
        followed = rounds.live.get(round_)
        if followed is None:
            raise Rejected(f"the chain has no round {round_}")
        client = stack.enter_context(closing(CoordinatorClient(settings.coordinator_url)))
        directory = settings.state_dir / "weights"
        runs = stack.enter_context(
            closing(Runs(client, chain.deployment, directory, settings.sources, settings.device))
        )
        wanted, run, version = _job(followed, data, job), followed.opened.run, followed.opened.policy_version
        context = runs.context(run, followed.terms)
        trial = Trial(followed, context, rounds.manifest_roots[run, version], Docket())
        if model is not None:
            policy = load_policy(model, context.rules, settings.device)
        else:
            policy = context.weights.wait_for(version, trial.manifest_root, WAIT_SECONDS)
        (judgement,) = judge(policy, context.rules, context.environment, [Submitted(trial.claim(wanted), data)])
        return judgement


def _all_rounds(chain: Chain) -> Rounds:
    tail, rounds = Tail(chain), Rounds(keep_ended=True)
    while answer := tail.poll():
        if isinstance(answer, Rollback):
            raise Unavailable("the chain was reorganised meanwhile: try again")
        for found in answer:
            rounds.fold(found.logs)
    return rounds


def _job(followed: FollowedRound, data: bytes, job: int | None) -> int:
    """The job that was asked for, or else the one the artifact names, or else the only one there is."""
    if job is None:
        try:
            job = decode(data, DEFAULT_LIMITS).job
        except Rejected:
            if len(followed.leaves) != 1:
                raise
            (job,) = followed.leaves
    if job not in followed.leaves:
        raise Rejected(f"nobody submitted job {job} of round {followed.opened.round}; name one with --job")
    return job
