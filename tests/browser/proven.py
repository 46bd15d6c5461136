"""A round whose bytes are all there: real artifacts, signed leaves and evidence, and a checkpoint with its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from eth_hash.auto import keccak

from protocol.chain.events import RunOpened
from protocol.chain.structs import Consumption, SettledLeaves
from protocol.chain.writing import calls
from protocol.wire import evidence, manifest
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.evidence import Evidence, Finding, JobEvidence
from protocol.wire.manifest import Manifest, ManifestFile
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout, encode
from protocol.wire.votes import Vote, vote_on
from tests.artifacts import blob_of, signed_head
from tests.conftest import TOKEN
from tests.ledger.scenario import MAX_UNITS, RULES, Party, Story, only, terms_of

REASONS = {0: Reason.ACCEPTED, 1: Reason.SAMPLING_FRAUD}


@dataclass
class Proven:
    """The round of ``run``, judged and settled, and the bytes that a ledger serves, by their address."""

    story: Story
    run: int
    round: int
    blobs: dict[str, bytes]
    jurors: tuple[int, ...]


def prove(story: Story) -> Proven:
    """Opens a run, and takes its first round through to a checkpoint."""
    market, told_in = story.market, story.market.run
    first, second = (a_manifest(version) for version in (0, 1))
    terms = terms_of(story.coordinator, story.trainer)
    market.send(story.requester, calls.buy(market.deployment, 60 * TOKEN))
    opening = calls.open_run(market.deployment, terms, first.root, "http://example.org/rules")
    market.run = only(market.send(story.requester, opening), RunOpened).run  # type: ignore[attr-defined]
    market.send(story.requester, calls.fund_run(market.deployment, market.run, 60 * TOKEN))
    for party in (story.honest, story.cheat, *story.validators.values()):
        market.send(party.owner, calls.top_up(market.deployment, party.node, 5 * TOKEN))
        market.send(party.owner, calls.join(market.deployment, market.run, party.node, RULES))
    made = Proven(story, market.run, 0, {}, ())
    _judged(made, first)
    _published(made, (first, second))
    market.run = told_in
    return made


def a_manifest(version: int) -> Manifest:
    """A version of one small file."""
    return Manifest(
        version, 1 << 10, (ManifestFile("model.safetensors", 1500, (keccak(b"a"), keccak(bytes([version])))),)
    )


def an_artifact(round_: int, job: int, node: int, root: bytes) -> Artifact:
    """Rollouts of several lengths: one without proofs, one with two."""
    made = tuple(
        Rollout(
            prompt_tokens=np.arange(1, 4 + job + index),
            output_tokens=np.arange(7, 9 + 300 * index),
            logprobs=-np.linspace(0, 2, 2 + 300 * index, dtype=np.float32),
            proofs=(bytes([job, index]) * 129, b"\x05" * 32)[: 2 * index],
            finish_reason="length" if index else "stop",
        )
        for index in range(3)
    )
    return Artifact(round_, job, node, root, made)


def _judged(made: Proven, policy: Manifest) -> None:
    story, market = made.story, made.story.market
    deployment, workers = market.deployment, (story.honest, story.cheat)
    assignments = pack_assignments([Listing(worker.node, 1) for worker in workers])
    made.round = market.open_round(story.coordinator, assignments)
    leaves = dict[int, bytes]()
    for job, worker in enumerate(workers):
        file = encode(an_artifact(made.round, job, worker.node, policy.root))
        root = signed_head(deployment.chain_id, deployment.rounds, file).root
        made.blobs[f"/blobs/artifacts/0x{root.hex()}"] = blob_of(deployment.chain_id, deployment.rounds, file)
        leaves[worker.node] = pack_leaves([Leaf(job, MAX_UNITS - job, root)])
        part = market.signed(made.round, worker, leaves[worker.node])
        market.send(story.coordinator, calls.submit(deployment, made.round, assignments, [part]))
    market.send(story.coordinator, calls.draw(deployment, made.round))
    seats = [story.validators[seat.node] for seat in market.chain.latest().seats(made.round)]
    votes = {seat.node: _vote(made, seat, leaves) for seat in seats}
    for seat in seats:
        market.commit(made.round, seat, votes[seat.node])
    for seat in seats:
        market.reveal(made.round, seat, votes[seat.node])
    made.jurors = tuple(votes)
    for batch, worker in enumerate(workers):
        part = [SettledLeaves(worker.node, leaves[worker.node])]
        market.send(story.coordinator, calls.settle(deployment, made.round, batch, assignments, part))  # type: ignore[arg-type]


def _vote(made: Proven, juror: Party, leaves: Mapping[int, bytes]) -> Vote:
    deployment = made.story.market.deployment
    jobs = tuple(
        JobEvidence(job, node, packed[9:], REASONS[job], MAX_UNITS - job, None, _findings(job), None)
        for job, (node, packed) in enumerate(leaves.items())
    )
    bundle = Evidence(
        chain_id=deployment.chain_id,
        rounds=deployment.rounds,
        run=made.run,
        round=made.round,
        attempt=0,
        juror=juror.node,
        policy_version=0,
        manifest_root=a_manifest(0).root,
        rules_hash=RULES,
        thresholds={"sampling_fraud": 8.0},
        jobs=jobs,
    )
    made.blobs[f"/blobs/evidence/0x{bundle.root.hex()}"] = evidence.sign(bundle, juror.key).canonical
    return vote_on(REASONS, bundle.root)


def _findings(job: int) -> tuple[Finding, ...]:
    return (Finding(Reason.SAMPLING_FRAUD, "sampling margin", 1, 11.5, 8.0),) if job else ()


def _published(made: Proven, versions: tuple[Manifest, Manifest]) -> None:
    story, deployment = made.story, made.story.market.deployment
    for each in versions:
        signed = manifest.sign(each, made.run, deployment.chain_id, deployment.market, story.trainer)
        made.blobs[f"/blobs/manifests/{made.run}/{each.version}"] = signed.canonical
    consumed = [Consumption(made.round, 1)]
    publishing = calls.publish(deployment, made.run, 1, versions[1].root, consumed)
    story.market.send(story.trainer, publishing)


def forged(made: Proven) -> dict[str, bytes]:
    """The bytes with another rollout in the first artifact, and a head that commits to it."""
    deployment, story = made.story.market.deployment, made.story
    artifact = an_artifact(made.round, 0, story.honest.node, a_manifest(0).root)
    better = replace(artifact, rollouts=(*artifact.rollouts[:-1], artifact.rollouts[0]))
    address = next(path for path in made.blobs if path.startswith("/blobs/artifacts/"))
    return made.blobs | {address: blob_of(deployment.chain_id, deployment.rounds, encode(better))}
