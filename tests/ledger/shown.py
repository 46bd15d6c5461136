"""A round with bytes: real rules, a real tokenizer, real artifacts and signed evidence, and servers that have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from protocol.broadcast.publishing import publish
from protocol.broadcast.server import create_app
from protocol.broadcast.version_store import VersionStore
from protocol.chain.events import RunOpened
from protocol.chain.structs import Consumption, SettledLeaves
from protocol.chain.writing import calls
from protocol.wire import rollout
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.evidence import Evidence, Finding, JobEvidence, Measurements, SignedEvidence, sign
from protocol.wire.manifest import from_directory
from protocol.wire.pins import REWARDS_FILE, pin_directory
from protocol.wire.reasons import Reason
from protocol.wire.rewards import JobRewards, Rewards
from protocol.wire.rollout import Artifact, Rollout
from protocol.wire.rules import Rules, encode_rules, rules_hash
from protocol.wire.votes import vote_on
from tests.artifacts import signed_head
from tests.checkpoints import smallest
from tests.conftest import TOKEN, serving
from tests.coordinator.swarm import RULES
from tests.ledger.coordinating import Keeping, coordinating
from tests.ledger.scenario import HOSTILE, Story, only, terms_of

SAID = {"end": "<end>", "hostile": HOSTILE[:60], "turned": "\u202etxet denrut", "long": "x" * 1000, "line": "\n"}
"""Tokens of more than a character."""
VOCABULARY = [*SAID.values(), *"0123456789+= "]
TRUE_SUM, FALSE_SUM = "12+30=42", "12+30=43"


@dataclass
class Shown:
    """The round, its jobs' roots, and the addresses that a ledger is started with."""

    story: Story
    run: int
    round: int
    roots: Sequence[bytes]
    seats: Sequence[int]
    coordinator: Keeping
    relay: str

    @property
    def options(self) -> tuple[str, ...]:
        """Options of ``assize ledger serve``."""
        return ("--coordinator", self.coordinator.url, "--relay", self.relay)


def tokens(text: str, *more: str) -> list[int]:
    """The ids of a text, and of tokens by name."""
    return [VOCABULARY.index(each) for each in (*text, *(SAID[name] for name in more))]


def rollout_of(prompt: str, completion: Sequence[int]) -> Rollout:
    logprobs = np.full(len(completion), -0.5, np.float32)
    return Rollout(np.array(tokens(prompt)), np.array(completion), logprobs, (bytes(8),), "stop")


def tokenizer() -> bytes:
    model = {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(VOCABULARY)}, "unk_token": "0"}
    return json.dumps({"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}, "model": model}).encode()


@contextmanager
def shown(
    story: Story, directory: Path, elsewhere: str = "http://example.org/artifacts/", versions: int = 0
) -> Iterator[Shown]:
    """Opens another run, tells one round of it, whose submissions name ``elsewhere``, and serves what it needs.

    As many ``versions`` follow, each trained on the round before it, and each with a round of its own.
    """
    market, deployment = story.market, story.market.deployment
    model = smallest(directory / "model", bytes(8))
    (model / "tokenizer.json").write_bytes(tokenizer())
    rules = RULES.model_copy(update={"model": RULES.model.model_copy(update={"checkpoint": pin_directory(model)})})
    before = market.run
    terms = replace(terms_of(story.coordinator, story.trainer), rules_hash=rules_hash(encode_rules(rules)))
    root = from_directory(model, 0).root
    market.send(story.requester, calls.buy(deployment, 20 * TOKEN))
    opened = market.send(story.requester, calls.open_run(deployment, terms, root, "https://example.org/rules"))
    run = market.run = only(opened, RunOpened).run
    market.send(story.requester, calls.fund_run(deployment, run, 10 * TOKEN))
    parties = (story.honest, story.cheat, *story.validators.values())
    for party in parties:
        market.send(party.owner, calls.top_up(deployment, party.node, 100 * TOKEN))
        market.send(party.owner, calls.join(deployment, run, party.node, terms.rules_hash))
    with ExitStack() as stack:
        for name in ("coordinator", "relay"):
            (directory / name).mkdir()
        keeping = stack.enter_context(coordinating(story, directory / "coordinator"))
        keeping.keep_rules(rules)
        store = VersionStore(directory / "relay")
        first = publish(model, run, 0, deployment.chain_id, deployment.market, story.trainer, store)
        relay = stack.enter_context(serving(create_app(store)))
        round_, roots, seats = _judged(story, run, root, rules, keeping, elsewhere)
        number = round_
        for version in range(1, versions + 1):
            root = _trained(story, run, version, number, directory, store)
            number, _, _ = _judged(story, run, root, rules, keeping, elsewhere, version)
        if versions:
            store.remove(first)  # as relays drop old versions
        market.run = before
        yield Shown(story, run, round_, roots, seats, keeping, relay)


def _trained(story: Story, run: int, version: int, round_: int, directory: Path, store: VersionStore) -> bytes:
    """Publishes a version that was trained on the accepted jobs of a round, with their rewards; returns its root."""
    market, deployment = story.market, story.market.deployment
    model = smallest(directory / f"version-{version}", bytes([version] * 8))
    (model / "tokenizer.json").write_bytes(tokenizer())
    rewards = np.array([1.0] * version + [0.0] * (4 - version), "<f4")
    jobs = tuple(JobRewards(round_, job, rewards) for job in range(4))
    (model / REWARDS_FILE).write_bytes(Rewards(jobs).canonical)
    signed = publish(model, run, version, deployment.chain_id, deployment.market, story.trainer, store)
    consumed = [Consumption(round_, 0b1111)]
    market.send(story.trainer, calls.publish(deployment, run, version, signed.manifest.root, consumed))
    return signed.manifest.root


def _judged(
    story: Story, run: int, policy: bytes, rules: Rules, keeping: Keeping, elsewhere: str, version: int = 0
) -> tuple[int, list[bytes], list[int]]:
    """A round of six jobs: job 0 is sound, jobs 1 to 3 say hostile things, jobs 4 and 5 are a cheat's."""
    market, deployment = story.market, story.market.deployment
    assignments = pack_assignments([Listing(story.honest.node, 4), Listing(story.cheat.node, 2)])
    round_ = market.open_round(story.coordinator, assignments, version + 1, version)
    true, false = tokens(TRUE_SUM[6:], "end"), tokens(FALSE_SUM[6:], "end")
    said = [
        [true, true],
        [tokens("4", "hostile", "turned", "line", "line", "end"), true],
        [tokens("", *["long"] * 1000), true],
        [true] * 20,
        [false, true],
        [false, false],
    ]
    roots = []
    for job, completions in enumerate(said):
        node = story.honest.node if job < 4 else story.cheat.node
        prompts = [TRUE_SUM[:6], "7+1="] if job == 3 else [TRUE_SUM[:6]]
        rollouts = tuple(
            rollout_of(prompts[at * len(prompts) // len(completions)], ids) for at, ids in enumerate(completions)
        )
        file = rollout.encode(Artifact(round_, job, node, policy, rollouts))
        head = signed_head(deployment.chain_id, deployment.rounds, file)
        keeping.keep_artifact(head.root, head.packed + file)
        roots.append(head.root)
    leaves = [Leaf(job, 1_000 + job, root) for job, root in enumerate(roots)]
    own = {story.honest.node: pack_leaves(leaves[:4]), story.cheat.node: pack_leaves(leaves[4:])}
    for party in (story.honest, story.cheat):
        submission = market.signed(round_, party, own[party.node], elsewhere)
        market.send(story.coordinator, calls.submit(deployment, round_, assignments, [submission]))
    market.send(story.coordinator, calls.draw(deployment, round_))
    seats = [seat.node for seat in market.chain.latest().seats(round_)]
    reasons = [Reason.ACCEPTED] * 4 + [Reason.SAMPLING_FRAUD] * 2
    votes = {}
    for place, juror in enumerate(seats):
        signed = _evidence(story, run, round_, juror, policy, rules, list(zip(reasons, roots, strict=True)), place)
        votes[juror] = vote_on(dict(enumerate(reasons)), signed.evidence.root)
        if place < 2:  # the third juror's bundle is nowhere to be had
            keeping.keep_evidence(signed.evidence.root, signed)
    for juror, vote in votes.items():
        market.commit(round_, story.validators[juror], vote)
    for juror, vote in votes.items():
        market.reveal(round_, story.validators[juror], vote)
    for batch, node in enumerate(own):
        part = [SettledLeaves(node, own[node])]
        market.send(story.coordinator, calls.settle(deployment, round_, batch, assignments, part))
    return round_, roots, seats


def _evidence(
    story: Story,
    run: int,
    round_: int,
    juror: int,
    policy: bytes,
    rules: Rules,
    judged: Sequence[tuple[Reason, bytes]],
    place: int,
) -> SignedEvidence:
    """One juror's bundle; the second one's contradicts its vote on job 1."""
    chain = story.market.chain
    jobs = []
    for job, (voted, root) in enumerate(judged):
        reason = Reason.LOGPROBS if (place, job) == (1, 1) else voted
        findings: tuple[Finding, ...] = ()
        if reason is Reason.SAMPLING_FRAUD:
            findings = (Finding(reason, "a token is not the seeded choice", 0, 6.25 + place, 1.0),)
        elif reason is Reason.LOGPROBS:
            findings = (Finding(reason, "median difference of logprobs <b>", None, 0.25, 0.1),)
        node = story.honest.node if job < 4 else story.cheat.node
        jobs.append(JobEvidence(job, node, root, reason, 1_000 + job, 1_000 + job, findings, _measured(job >= 4)))
    about = (chain.chain_id, chain.deployment.rounds, run, round_, 0, juror, 0, policy, rules_hash(encode_rules(rules)))
    bundle = Evidence(*about, rules.thresholds.bounds, tuple(jobs))
    return sign(bundle, story.validators[juror].key)


def _measured(edited: bool) -> Measurements:
    count, size = np.array([4, 4], np.uint32), np.array([1, 1], np.uint32)
    flips = np.array([1, 0], np.uint32) if edited else np.zeros(2, np.uint32)
    margins = np.array([6.25, 0.0] if edited else [0.004, 0.0], np.float32)
    some, llr = np.full(2, 0.01, np.float32), np.array([9.25, -0.01] if edited else [-0.02, -0.01], np.float32)
    rel = np.array([0.02, 0.03], np.float32)
    return Measurements(
        count, flips, np.zeros(2, np.uint32), margins, margins, some, llr, some, some, size, rel, rel * 9
    )


def pages_with_bytes(told: Shown) -> list[str]:
    """Every page that shows bytes, in each of its states."""
    return [f"/why/jobs/{told.round}/{job}" for job in (1, 4)] + [
        f"/why/jobs/{told.round}/3?first=16",
        f"/nodes/{told.story.cheat.node}",
        f"/nodes/{told.seats[0]}",
        f"/credits/{told.story.honest.owner.address}",
    ]
