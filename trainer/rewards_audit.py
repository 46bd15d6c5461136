"""``assize ledger rewards``: the rewards of a version computed again, from artifacts that the chain names.

The chain says which jobs a version consumed, under which policy each was made, and the root of its artifact; the
version's manifest, whose root is on chain, binds the rewards that the trainer published.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.chain.events import CheckpointPublished
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.round_state import RoundState, fold
from protocol.environments.environment import Environment, Problem
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, RpcUrl, connected
from protocol.node.commands.weights import CoordinatorUrl, SourceUrls, coordinator_url, offered
from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.assignments import jobs_in
from protocol.wire.pins import REWARDS_FILE
from protocol.wire.rewards import JobRewards, Rewards, parse_rewards
from protocol.wire.rules import Rules
from protocol.wire.seeds import job_seed

if TYPE_CHECKING:
    from protocol.wire.rollout import Artifact

app = typer.Typer()

SHOWN = 20
"""Differing rewards that are shown, of what may be many."""


@dataclass(frozen=True, slots=True)
class DifferingReward:
    """A reward that does not come out as published; None where one side has no such rollout."""

    round: int
    job: int
    rollout: int
    published: float | None
    recomputed: float | None


@dataclass(frozen=True, slots=True)
class ConsumedJob:
    """A job that a version was trained on, and the policy version that made it."""

    round: RoundState
    job: int


def consumed_by(chain: Chain, run: int, version: int) -> list[ConsumedJob]:
    """Returns the jobs that the chain says a version consumed, in (round, job) order.

    Raises:
        Rejected: the chain has no such version.
    """
    tail, rounds, found = Tail(chain), dict[int, RoundState](), None
    while blocks := tail.poll():
        if isinstance(blocks, Rollback):
            tail, rounds, found = Tail(chain), {}, None
            continue
        for log in (log for block in blocks for log in block.logs):
            fold(rounds, log)
            event = log.event
            if isinstance(event, CheckpointPublished) and (event.run, event.version) == (run, version):
                found = event.consumed
    if found is None:
        raise Rejected(f"run {run} has no version {version} on this chain")
    jobs = [ConsumedJob(rounds[entry.round], job) for entry in found for job in jobs_in(entry.jobs)]
    return sorted(jobs, key=lambda each: (each.round.number, each.job))


def differing(published: Rewards, recomputed: Sequence[JobRewards]) -> list[DifferingReward]:
    """Returns every reward in which two computations differ. PURE."""
    ours, theirs = (
        {(each.round, each.job): each.rewards.tolist() for each in jobs} for jobs in (recomputed, published.jobs)
    )
    found = []
    for round_, job in sorted(ours.keys() | theirs.keys()):
        mine, stated = ours.get((round_, job), []), theirs.get((round_, job), [])
        for index in range(max(len(mine), len(stated))):
            pair = (stated[index] if index < len(stated) else None, mine[index] if index < len(mine) else None)
            if pair[0] != pair[1]:
                found.append(DifferingReward(round_, job, index, *pair))
    return found


@app.command("rewards")
@guard
def rewards(
    addresses: Addresses,
    run: Annotated[int, typer.Argument(min=1, help="Id of the run.")],
    version: Annotated[int, typer.Argument(min=1, help="Version whose rewards to compute again.")],
    source: SourceUrls = None,
    coordinator: CoordinatorUrl = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Compute the rewards of a version again, from artifacts and tasks that the chain names; exit 1 if one differs."""
    _require_tokenizers()
    with connected(rpc, addresses) as chain, TemporaryDirectory() as folder:
        jobs, directory = consumed_by(chain, run, version), Path(folder) / "version"
        with offered(chain, run, version, coordinator, source) as offer:
            offer.fetch_without_tensors(directory)
        path = directory / REWARDS_FILE
        if not path.exists():
            raise Rejected(f"version {version} of run {run} publishes no rewards: its manifest has no {REWARDS_FILE}")
        published = parse_rewards(path.read_bytes())
        trusted = coordinator or coordinator_url(chain, run)
        recomputed = recompute(chain, offer.rules, published, jobs, directory, trusted)
    found = differing(published, recomputed)
    rollouts = [reward for each in recomputed for reward in each.rewards.tolist()]
    row: dict[str, object] = {"run": run, "version": version, "jobs": len(jobs), "rollouts": len(rollouts)}
    row |= {"mean_reward": round(fmean(rollouts), 6) if rollouts else None, "differing": len(found)}
    if found and not as_json:
        for each in found[:SHOWN]:
            print(
                f"round {each.round}, job {each.job}, rollout {each.rollout}: published {each.published}, "
                f"recomputed {each.recomputed}"
            )
    show(row, as_json)
    if found:
        raise SystemExit(EXIT_REFUSED)


def _require_tokenizers() -> None:
    try:
        import protocol.tensor.model  # noqa: F401
    except ImportError as error:
        raise Misconfigured(
            f"computing rewards takes a tokenizer, and {error.name} is not installed: pip install 'assize[trainer]'"
        ) from error


def recompute(
    chain: Chain, rules: Rules, published: Rewards, jobs: Sequence[ConsumedJob], directory: Path, coordinator: str
) -> list[JobRewards]:
    """Returns the rewards of jobs, whose artifacts are fetched from their holders.

    Args:
        chain: with the deployment that seeds and roots are bound to.
        rules: of the run.
        published: names the tasks of each job, if they are from a file; their prompts must be the artifact's.
        jobs: to compute the rewards of.
        directory: a version's files, tensors left out.
        coordinator: URL that may be on a private network.

    Raises:
        Unavailable: an artifact cannot be fetched, or what judges answers does not run.
        Misconfigured: this machine lacks what judges answers.
        Rejected: an artifact is not the one that was signed, or a prompt is not the task's.
    """
    from protocol.environments.environment import at_version, check_machine
    from protocol.environments.registry import environment
    from protocol.tensor.model import Model, load_tokenizer
    from protocol.transport.artifacts import fetch_artifact
    from protocol.transport.blobs import BlobStores
    from protocol.wire.receipts import holders_of, ports_of
    from protocol.wire.rollout import DEFAULT_LIMITS
    from trainer.rewarding import rewards_of

    tasks = at_version(environment(rules.environment.name, rules.environment.params), directory)
    check_machine(tasks)
    tokenizer = load_tokenizer(directory)
    model = Model(None, tokenizer, tokenizer.eos_token_id)
    text = partial(model.completion_text, stop_tokens=model.stop_tokens(rules))
    rows = {(each.round, each.job): each.rows for each in published.jobs}
    ports, made = ports_of(store.place for store in rules.stores), []
    with closing(BlobStores(trusted=lambda: [coordinator])) as stores:
        for each in jobs:
            submitted, number = each.round.leaves[each.job], each.round.number
            holders = holders_of(submitted.uri, rules.stores)
            data = fetch_artifact(stores, holders, submitted.leaf.root, DEFAULT_LIMITS.file_bytes, ports)
            artifact = _signed_artifact(chain, data, submitted.leaf.root)
            named = rows.get((number, each.job), ())
            problems = _problems(chain, rules, tasks, each, artifact, named)
            found = rewards_of(tasks, problems, artifact.rollouts, text)
            made.append(JobRewards(number, each.job, found, named))
    return made


def _signed_artifact(chain: Chain, data: bytes, root: bytes) -> Artifact:
    from protocol.wire.rollout import decode, rollouts_root

    head, file = parse_blob(data, root)
    artifact, deployment = decode(file), chain.deployment
    if rollouts_root(deployment.chain_id, deployment.address_of("Rounds"), artifact) != head.rollouts_root:
        raise Rejected(f"the artifact of job {artifact.job} in round {artifact.round} does not match its signed root")
    return artifact


def _problems(
    chain: Chain, rules: Rules, tasks: Environment, job: ConsumedJob, artifact: Artifact, rows: Sequence[int]
) -> list[Problem]:
    """Returns the problems of a job's groups: by the beacon, or the rows of a file whose prompts the artifact has."""
    from protocol.environments.task_set import TaskSet
    from trainer.rewarding import problems_of

    if not isinstance(tasks, TaskSet):
        rounds = chain.deployment.address_of("Rounds")
        seed = job_seed(chain.deployment.chain_id, rounds, job.round.number, job.round.beacon, job.job)
        return problems_of(tasks, rules, seed)
    prompts = [rollout.prompt_tokens.tolist() for rollout in artifact.rollouts[:: rules.samples_per_group]]
    if len(rows) != len(prompts):
        raise Rejected(f"the rewards name {len(rows)} tasks of job {job.job} in round {job.round.number}")
    found = [tasks.opened.of_prompt(row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    if None in found:
        place = found.index(None)
        raise Rejected(
            f"the rewards name task {rows[place]} for group {place} of job {job.job} in round {job.round.number}, "
            "whose prompt is another"
        )
    return [problem for problem in found if problem is not None]
