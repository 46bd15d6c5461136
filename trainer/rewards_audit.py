"""``assize ledger rewards``: the rewards of a version computed again, from artifacts that the chain names.

The chain says which jobs a version consumed, under which policy each was made, and the root of its artifact; the
version's manifest, whose root is on chain, binds the rewards that the trainer published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from protocol.chain.events import CheckpointPublished
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.round_state import RoundState, fold
from protocol.errors import Rejected
from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, RpcUrl, connected
from protocol.node.commands.weights import CoordinatorUrl, SourceUrls, coordinator_url, offered
from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.wire.assignments import jobs_in
from protocol.wire.rewards import REWARDS_FILE, JobRewards, Rewards, parse_rewards
from protocol.wire.rules import Rules

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
    with connected(rpc, addresses) as chain, TemporaryDirectory() as folder:

        def files(of: int) -> tuple[Path, Rules]:
            place = Path(folder) / str(of)
            with offered(chain, run, of, coordinator, source) as offer:
                if not place.exists():
                    offer.fetch_without_tensors(place)
                return place, offer.rules

        jobs = consumed_by(chain, run, version)
        directory, rules = files(version)
        path = directory / REWARDS_FILE
        if not path.exists():
            raise Rejected(f"version {version} of run {run} publishes no rewards: its manifest has no {REWARDS_FILE}")
        published = parse_rewards(path.read_bytes())
        trusted = coordinator or coordinator_url(chain, run)
        recomputed = recompute(chain, rules, jobs, lambda of: files(of)[0], trusted)
    found = differing(published, recomputed)
    row = {
        "run": run,
        "version": version,
        "jobs": len(jobs),
        "rollouts": sum(len(each.rewards) for each in recomputed),
        "mean_reward": round(sum(float(each.rewards.sum()) for each in recomputed), 6)
        / max(1, sum(len(each.rewards) for each in recomputed)),
        "differing": len(found),
    }
    if found and not as_json:
        for each in found[:SHOWN]:
            print(
                f"round {each.round}, job {each.job}, rollout {each.rollout}: published {each.published}, "
                f"recomputed {each.recomputed}"
            )
    show(row, as_json)
    if found:
        raise SystemExit(EXIT_REFUSED)


def recompute(
    chain: Chain, rules: Rules, jobs: Sequence[ConsumedJob], files: Callable[[int], Path], coordinator: str
) -> list[JobRewards]:
    """Returns the rewards of jobs, whose artifacts are fetched from their holders.

    Args:
        chain: with the deployment that seeds and roots are bound to.
        rules: of the run.
        jobs: to compute the rewards of.
        files: gives a directory with a version's files, tensors left out.
        coordinator: URL that may be on a private network.

    Raises:
        Unavailable: an artifact cannot be fetched, or what judges answers does not run.
        Misconfigured: this machine lacks what judges answers.
        Rejected: an artifact is not the one that was signed.
    """
    from contextlib import closing

    from protocol.environments.environment import at_version, check_machine
    from protocol.environments.registry import environment
    from protocol.tensor.model import Model, load_tokenizer
    from protocol.transport.artifacts import fetch_artifact
    from protocol.transport.blobs import BlobStores
    from protocol.wire.artifact_blob import parse_blob
    from protocol.wire.receipts import holders_of, ports_of
    from protocol.wire.rollout import DEFAULT_LIMITS, decode, rollouts_root
    from protocol.wire.seeds import job_seed
    from trainer.rewarding import problems_of, rewards_of

    unopened = environment(rules.environment.name, rules.environment.params)
    tasks = {of: at_version(unopened, files(of)) for of in {each.round.policy_version for each in jobs}}
    for each_version in tasks.values():
        check_machine(each_version)
    some = files(jobs[0].round.policy_version) if jobs else None
    tokenizer = None if some is None else load_tokenizer(some)
    model = Model(None, tokenizer, -1)
    chain_id, address = chain.deployment.chain_id, chain.deployment.address_of("Rounds")
    made = []
    with closing(BlobStores(trusted=lambda: [coordinator])) as stores:
        for each in jobs:
            submitted, number = each.round.leaves[each.job], each.round.number
            holders = holders_of(submitted.uri, rules.stores)
            ports = ports_of(store.place for store in rules.stores)
            data = fetch_artifact(stores, holders, submitted.leaf.root, DEFAULT_LIMITS.file_bytes, ports)
            head, file = parse_blob(data, submitted.leaf.root)
            artifact = decode(file)
            if rollouts_root(chain_id, address, artifact) != head.rollouts_root:
                raise Rejected(f"the artifact of job {each.job} in round {number} does not match its signed root")
            environment_ = tasks[each.round.policy_version]
            problems = problems_of(
                environment_, rules, job_seed(chain_id, address, number, each.round.beacon, each.job)
            )
            found = rewards_of(environment_, problems, artifact.rollouts, model.completion_text)
            made.append(JobRewards(number, each.job, found))
    return made
