"""A market in miniature on a real chain: owners, nodes, a run, and rounds driven verb by verb."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.chain.deployment import Deployment
from protocol.chain.events import NodeRegistered, RoundOpened, RunOpened
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Consumption, Role, RunTerms, SettledLeaves, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, abstention, commitment, vote_on
from tests.conftest import TOKEN, Anvil

FOREVER = 2**40
RULES = b"\x11" * 32
COLD = "0xc01dc01DC01dc01dC01dC01DC01DC01dc01DC01d"
"""Address that the honest worker's owner has its credits redeemed to."""
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x00\x1b[31m\u202egnirts\u2066&amp;" + "x" * 10_000
"""Markup, quotes, controls, turned direction, and more than anyone reads."""
ROOTS = {1: b"\x02" * 32, 3: b"\x03" * 32}
"""Manifest roots of the versions of a story, where nothing is published with them."""
PRICE, FEE, MAX_UNITS = 10**9, 10**15, 10**7
WINDOW = 600


@dataclass
class Party:
    """An owner with its node's session key."""

    owner: Wallet
    key: Wallet
    node: int = 0


@dataclass
class Market:
    """Sends every verb of one small market."""

    chain: Chain
    anvil: Anvil
    make_wallet: Callable[[str], Wallet]
    directory: Path
    senders: dict[str, Sender] = field(default_factory=dict)
    intents: itertools.count = field(default_factory=itertools.count)
    run: int = 0

    @property
    def deployment(self) -> Deployment:
        return self.chain.deployment

    def send(self, wallet: Wallet, call: Call) -> Receipt:
        """Sends one call and waits until it is mined."""
        if wallet.address not in self.senders:
            journal = self.directory / f"{wallet.address}.sqlite"
            self.senders[wallet.address] = Sender(self.chain, wallet, journal, Fees(resend_seconds=0.2))
        return self.senders[wallet.address].send(str(next(self.intents)), call)

    def close(self) -> None:
        for sender in self.senders.values():
            sender.close()

    def pass_time(self, seconds: int) -> None:
        """Moves the chain's clock."""
        self.anvil.rpc.call("evm_increaseTime", hex(seconds))
        self.anvil.rpc.call("evm_mine")

    def rich(self, name: str, contract: str, tokens: int = 1_000 * TOKEN) -> Wallet:
        """A wallet with tokens that ``contract`` may take."""
        wallet = self.make_wallet(name)
        self.send(wallet, calls.drip(self.deployment, wallet.address, tokens))
        self.send(wallet, calls.approve(self.deployment, contract, tokens))
        return wallet

    def register(self, name: str, role: Role, capacity: int) -> Party:
        """Registers one node."""
        party = Party(self.rich(name, "Registry"), self.make_wallet(f"{name}-key"))
        binding = auth.node_binding(
            self.deployment.chain_id,
            self.deployment.registry,
            party.owner.address,
            party.key.address,
            role,
            capacity,
            FOREVER,
        )
        signature = party.key.sign_typed(binding)
        receipt = self.send(
            party.owner, calls.register(self.deployment, role, party.key.address, capacity, FOREVER, signature)
        )
        party.node = only(receipt, NodeRegistered).node
        return party

    def open_run(self, requester: Wallet, terms: RunTerms, credits: int) -> int:
        """Buys credits, opens a run and funds it with half of them."""
        self.send(requester, calls.buy(self.deployment, credits))
        receipt = self.send(requester, calls.open_run(self.deployment, terms, b"\x01" * 32, "http://example.org/rules"))
        self.run = only(receipt, RunOpened).run
        self.send(requester, calls.fund_run(self.deployment, self.run, credits // 2))
        return self.run

    def open_round(self, coordinator: Wallet, assignments: bytes, step: int = 1, policy: int = 0) -> int:
        """Opens a round of the run."""
        receipt = self.send(coordinator, calls.open_round(self.deployment, self.run, step, policy, assignments))
        return only(receipt, RoundOpened).round

    def signed(
        self, round_: int, party: Party, leaves: bytes, uri: str = "http://example.org/artifacts/"
    ) -> Submission:
        """A worker's signed submission under the canonical beacon."""
        beacon = self.chain.block(self.chain.latest().round(round_).open_block).hash
        message = auth.submission(
            self.deployment.chain_id, self.deployment.rounds, round_, party.node, beacon, leaves, uri
        )
        return Submission(party.node, beacon, leaves, uri, party.key.sign_typed(message))

    def commit(self, round_: int, party: Party, vote: Vote, attempt: int = 0) -> None:
        """Commits to a vote under a salt that follows from the node."""
        word = commitment(
            self.deployment.chain_id, self.deployment.rounds, round_, attempt, party.node, vote, salt_of(party)
        )
        self.send(party.key, calls.commit(self.deployment, round_, word))

    def reveal(self, round_: int, party: Party, vote: Vote) -> None:
        """Reveals a vote that was committed."""
        self.send(
            party.key,
            calls.reveal(
                self.deployment, round_, vote.accept, vote.fraud, vote.reasons, vote.evidence_root, salt_of(party)
            ),
        )


def terms_of(coordinator: Wallet, trainer: Wallet) -> RunTerms:
    """A committee of three, no appeals, the same window for every phase."""
    return RunTerms(
        coordinator=coordinator.address,
        trainer=trainer.address,
        rules_hash=RULES,
        price_per_unit=PRICE,
        juror_fee=FEE,
        max_units=MAX_UNITS,
        committee=3,
        appeal_seats=0,
        work_seconds=WINDOW,
        draw_seconds=WINDOW,
        commit_seconds=WINDOW,
        reveal_seconds=WINDOW,
        challenge_seconds=0,
    )


@dataclass
class Story:
    """What a whole life of a round left behind."""

    market: Market
    requester: Wallet
    coordinator: Wallet
    trainer: Wallet
    honest: Party
    cheat: Party
    validators: dict[int, Party]
    silent: int
    rounds: list[int]
    root_of: Callable[[Story, int, int, int], bytes] = lambda story, version, round_, jobs: ROOTS[version]
    """Manifest root of a version, from the round and the bitmap of the jobs that it is trained on."""


def tell(market: Market, **more: Any) -> Story:
    """One run and three rounds: one judged, one in which nobody works, one in which nobody judges."""
    requester, coordinator = market.rich("requester", "Credits"), market.make_wallet("coordinator")
    trainer = market.make_wallet("trainer")
    honest = market.register("honest", Role.WORKER, 8)
    cheat = market.register("cheat", Role.WORKER, 8)
    judges = [market.register(f"validator{index}", Role.VALIDATOR, 1) for index in range(3)]
    for judge in judges:
        market.send(judge.owner, calls.top_up(market.deployment, judge.node, TOKEN))
    market.open_run(requester, terms_of(coordinator, trainer), 100 * TOKEN)
    for party in (honest, cheat, *judges):
        market.send(party.owner, calls.join(market.deployment, market.run, party.node, RULES))
    story = Story(
        market, requester, coordinator, trainer, honest, cheat, {judge.node: judge for judge in judges}, 0, [], **more
    )
    judged(story)
    without_work(story)
    without_jurors(story)
    market.send(honest.owner, calls.redeem(market.deployment, COLD, MAX_UNITS * PRICE))
    market.send(requester, calls.call(market.deployment, "Registry", "sweep"))
    return story


def submit_and_close(story: Story, round_: int, assignments: bytes, leaves: Mapping[int, bytes]) -> None:
    """Submits each node's leaves in a batch of its own, and closes past the deadline."""
    market = story.market
    for party in (story.honest, story.cheat):
        if party.node in leaves:
            submission = market.signed(round_, party, leaves[party.node])
            market.send(story.coordinator, calls.submit(market.deployment, round_, assignments, [submission]))
    market.pass_time(WINDOW + 1)
    market.send(story.coordinator, calls.close_round(market.deployment, round_, assignments))


def judged(story: Story) -> None:
    """A round through to a checkpoint: the cheat's jobs are fraud, one juror never reveals."""
    market = story.market
    assignments = pack_assignments([Listing(story.honest.node, 3), Listing(story.cheat.node, 2)])
    round_ = market.open_round(story.coordinator, assignments)
    # Job 2 stays missing.
    leaves = {
        story.honest.node: pack_leaves([Leaf(0, MAX_UNITS - 5, b"\x20" * 32), Leaf(1, MAX_UNITS + 9, b"\x21" * 32)]),
        story.cheat.node: pack_leaves([Leaf(3, 77, b"\x23" * 32), Leaf(4, 78, b"\x24" * 32)]),
    }
    submit_and_close(story, round_, assignments, leaves)
    market.send(story.coordinator, calls.draw(market.deployment, round_))
    votes = _votes([seat.node for seat in market.chain.latest().seats(round_)])
    for node, vote in votes.items():
        market.commit(round_, story.validators[node], vote)
    *revealing, story.silent = votes
    for node in revealing:
        market.reveal(round_, story.validators[node], votes[node])
    market.pass_time(WINDOW + 1)
    market.send(story.coordinator, calls.tally(market.deployment, round_))
    publish(story, 1, round_, 0b01)
    for batch, node in enumerate(leaves):
        part = [SettledLeaves(node, leaves[node])]
        market.send(story.coordinator, calls.settle(market.deployment, round_, batch, assignments, part))
    publish(story, 3, round_, 0b10)
    story.rounds.append(round_)


def publish(story: Story, version: int, round_: int, jobs: int) -> None:
    """A version that is trained on jobs of a round."""
    market, root = story.market, story.root_of(story, version, round_, jobs)
    consumed = [Consumption(round_, jobs)]
    market.send(story.trainer, calls.publish(market.deployment, market.run, version, root, consumed))


def _votes(jurors: list[int]) -> Mapping[int, Vote]:
    sound, fraud = Reason.ACCEPTED, Reason.SAMPLING_FRAUD
    verdict = vote_on({0: sound, 1: sound, 3: fraud, 4: fraud}, b"\x05" * 32)
    return dict.fromkeys(jurors, verdict)


def without_work(story: Story) -> None:
    """A round in which nothing is submitted: void at its close."""
    market, assignments = story.market, pack_assignments([Listing(story.honest.node, 2)])
    round_ = market.open_round(story.coordinator, assignments, step=2)
    market.pass_time(WINDOW + 1)
    market.send(story.coordinator, calls.close_round(market.deployment, round_, assignments))
    story.rounds.append(round_)


def without_jurors(story: Story) -> None:
    """A round whose first committee abstains or stays away, and whose next three stay away: redrawn, then void."""
    market, assignments = story.market, pack_assignments([Listing(story.honest.node, 2)])
    round_ = market.open_round(story.coordinator, assignments, step=3)
    submit_and_close(story, round_, assignments, {story.honest.node: pack_leaves([Leaf(1, 9, b"\x30" * 32)])})
    market.send(story.coordinator, calls.draw(market.deployment, round_))
    first = story.validators[market.chain.latest().seats(round_)[0].node]
    market.commit(round_, first, abstention())
    market.pass_time(WINDOW + 1)
    market.reveal(round_, first, abstention())
    for _ in range(3):
        market.send(story.coordinator, calls.draw(market.deployment, round_))
        market.pass_time(2 * WINDOW + 2)
        market.send(story.coordinator, calls.tally(market.deployment, round_))
    market.send(story.coordinator, calls.call(market.deployment, "Rounds", "free", round_, assignments))
    story.rounds.append(round_)


def salt_of(party: Party) -> bytes:
    return party.node.to_bytes(32, "big")


def only(receipt: Receipt, kind: type) -> object:
    """The receipt's one event of this type."""
    (event,) = [log.event for log in receipt.logs if isinstance(log.event, kind)]
    return event


def pages_of(story: Story) -> list[str]:
    """Every kind of page, for the things of the story."""
    market, round_ = story.market, story.rounds[0]
    owner = story.honest.owner.address
    lists = ("/", "/runs", "/rounds", "/nodes", "/validators", "/credits", "/checkpoints", "/slashes", "/appeals")
    more = ("/fairness", "/treasury", "/detection", "/events", f"/rounds?run={market.run}", "/nodes/1", "/audit")
    things = (f"/runs/{market.run}", "/runs/2", "/runs/3", *(f"/rounds/{number}" for number in story.rounds))
    things += (f"/rounds/{story.rounds[-1] + 1}", f"/rounds/{story.rounds[-1] + 2}", f"/nodes/{story.silent}")
    things += (f"/credits/{owner}", f"/credits/{owner}/entries", f"/nodes/{story.cheat.node}/verdicts")
    things += (f"/why/jobs/{round_}/0", f"/why/jobs/{round_}/2", f"/why/jobs/{round_}/3", "/slashes?node=2")
    things += (f"/checkpoints/{market.run}/3", f"/lineage/{market.run}/3", f"/search?q={round_}/0", "/checkpoints/2/2")
    return [*lists, *more, *things]


def checks_of(story: Story) -> list[str]:
    """Every kind of page that is checked in the browser, before a node is named; the API has none."""
    things = (
        "rounds/1",
        "jobs/1/0",
        f"entries/{story.market.chain.head().number}/0",
        f"checkpoints/{story.market.run}/1",
    )
    return [f"/check/{thing}" for thing in things]
