"""The parties of a small run, with the test holding every key: it plays workers, validators, requester and trainer."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.settings import CoordinatorSettings
from protocol.chain.events import NodeRegistered, RunOpened
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Consumption, Role, RunTerms
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Wallet
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api, auth, rollout
from protocol.wire.assignments import Leaf, jobs_of, pack_leaves
from protocol.wire.pins import PinnedFile
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout
from protocol.wire.rules import EnvironmentRules, ModelRules, Rules, Sequential, Thresholds, encode_rules, rules_hash
from protocol.wire.votes import commitment, vote_on
from tests.conftest import TOKEN, Anvil

FOREVER = 2**40
PRICE, FEE, MAX_UNITS = 10**9, 10**15, 10**7
JOBS = 4
MANIFEST_ROOT = b"\x01" * 32
"""That of version 0."""
PINS = (PinnedFile("model.safetensors", 8, bytes(32)),)
"""Of a model that no party here ever fetches."""
RULES = Rules(
    model=ModelRules(dtype="float32", head_dtype="float32", checkpoint=PINS),
    environment=EnvironmentRules(name="arithmetic"),
    groups_per_job=1,
    samples_per_group=2,
    temperature=1.0,
    max_tokens=8,
    async_level=1,
    thresholds=Thresholds(
        sampling_void=0.1, sampling_fraud=1.0, logprob_median=0.1, logprob_tail=0.5, toploc=0.1, toploc_mean=0.05
    ),
    sequential=Sequential(sigma=1e-3),
)


@dataclass
class Party:
    """An owner, its node's session key, and the node."""

    owner: Wallet
    key: Wallet
    node: int = 0


@dataclass
class Swarm:
    """Everybody but the coordinator's processes."""

    chain: Chain
    anvil: Anvil
    make_wallet: Callable[[str], Wallet]
    redis_url: str
    directory: Path
    url: str = ""
    window: int = 600
    committee: int = 3
    appeal_seats: int = 0
    challenge: int = 0
    rules: Rules = RULES
    senders: dict[str, Sender] = field(default_factory=dict)
    clients: dict[int, CoordinatorClient] = field(default_factory=dict)
    intents: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.coordinator, self.trainer = self.make_wallet("coordinator"), self.make_wallet("trainer")
        self.requester = self.rich("requester", "Credits", 10_000 * TOKEN)
        self.workers = [self.register(f"worker-{index}", Role.WORKER, 64) for index in range(2)]
        self.validators = [
            self.register(f"validator-{index}", Role.VALIDATOR, 1)
            for index in range(max(3, self.committee + self.appeal_seats))
        ]
        self.run = self._open_run()
        for party in (*self.workers, *self.validators):
            self.join(party)

    def close(self) -> None:
        for closing in (*self.senders.values(), *self.clients.values()):
            closing.close()

    def settings(self, **changes: Any) -> CoordinatorSettings:
        """The coordinator's settings; the rules and address files are written beside its state."""
        rules, addresses = self.directory / "rules.json", self.directory / "addresses.json"
        rules.write_bytes(encode_rules(self.rules))
        self.chain.deployment.save(addresses)
        values: dict[str, Any] = {
            "rpc_url": self.anvil.url,
            "addresses": addresses,
            "keystore": "coordinator",
            "state_dir": self.directory / "coordinator",
            "run": self.run,
            "rules": rules,
            "redis_url": self.redis_url,
            "jobs_per_round": JOBS,
            "first_round_nodes": 2,
            "relay_wait_seconds": 0.0,
            "lease_seconds": 60.0,
        }
        (self.directory / "coordinator").mkdir(exist_ok=True)
        return CoordinatorSettings(**(values | changes))

    # What parties do on chain

    def send(self, wallet: Wallet, call: Call) -> Receipt:
        """Sends one call and waits until it is mined."""
        if wallet.address not in self.senders:
            journal = self.directory / f"{wallet.address}.sqlite"
            self.senders[wallet.address] = Sender(self.chain, wallet, journal, Fees(resend_seconds=0.2))
        return self.senders[wallet.address].send(str(next(self.intents)), call)

    def rich(self, name: str, contract: str, tokens: int = 1_000 * TOKEN) -> Wallet:
        """A wallet with tokens that ``contract`` may take."""
        wallet = self.make_wallet(name)
        self.send(wallet, calls.drip(self.chain.deployment, wallet.address, tokens))
        self.send(wallet, calls.approve(self.chain.deployment, contract, tokens))
        return wallet

    def register(self, name: str, role: Role, capacity: int) -> Party:
        """Registers one node."""
        party, deployment = Party(self.rich(name, "Registry"), self.make_wallet(f"{name}-key")), self.chain.deployment
        binding = auth.node_binding(
            deployment.chain_id,
            deployment.registry,
            party.owner.address,
            party.key.address,
            role,
            capacity,
            FOREVER,
        )
        signature = party.key.sign_typed(binding)
        call = calls.register(deployment, role, party.key.address, capacity, FOREVER, signature)
        party.node = _only(self.send(party.owner, call), NodeRegistered).node
        return party

    def join(self, worker: Party) -> None:
        """A worker consents to the run's rules."""
        call = calls.join(self.chain.deployment, self.run, worker.node, rules_hash(encode_rules(self.rules)))
        self.send(worker.owner, call)

    def _open_run(self) -> int:
        self.send(self.requester, calls.buy(self.chain.deployment, 1_000 * TOKEN))
        terms = RunTerms(
            coordinator=self.coordinator.address,
            trainer=self.trainer.address,
            rules_hash=rules_hash(encode_rules(self.rules)),
            price_per_unit=PRICE,
            juror_fee=FEE,
            max_units=MAX_UNITS,
            committee=self.committee,
            appeal_seats=self.appeal_seats,
            work_seconds=self.window,
            draw_seconds=self.window,
            commit_seconds=self.window,
            reveal_seconds=self.window,
            challenge_seconds=self.challenge,
        )
        opened = self.send(self.requester, calls.open_run(self.chain.deployment, terms, MANIFEST_ROOT, "rules"))
        run = _only(opened, RunOpened).run
        self.send(self.requester, calls.fund_run(self.chain.deployment, run, 500 * TOKEN))
        return run

    def publish(self, version: int, round_: int, jobs: int) -> None:
        """The trainer publishes a checkpoint made from ``jobs`` of a round."""
        consumed = [Consumption(round_, jobs)]
        self.send(self.trainer, calls.publish(self.chain.deployment, self.run, version, root_of(version), consumed))

    def vote(self, round_: int, judgements: Mapping[int, Reason]) -> None:
        """All seated validators commit to the same judgements and reveal them."""
        deployment, attempt = self.chain.deployment, self.chain.latest().round(round_).attempt
        vote = vote_on(judgements, bytes(32))
        seats = {seat.node for seat in self.chain.latest().seats(round_)}
        seated = [party for party in self.validators if party.node in seats]
        salts = {party.node: secrets.token_bytes(32) for party in seated}
        for party in seated:
            digest = commitment(
                deployment.chain_id, deployment.rounds, round_, attempt, party.node, vote, salts[party.node]
            )
            self.send(party.key, calls.commit(deployment, round_, digest))
        for party in seated:
            salt = salts[party.node]
            call = calls.reveal(deployment, round_, vote.accept, vote.fraud, vote.reasons, vote.evidence_root, salt)
            self.send(party.key, call)

    def first_verdict(self, tick: Callable[[], object], reasons: Mapping[int, Reason] | None = None) -> None:
        """Takes round 1 to its verdict, the driver making its passes by ``tick``; other jobs are accepted."""
        tick()
        self.beat()
        tick()
        for worker in self.workers:
            self.work(worker, self.client(worker).assignments(worker.node)[0])
        tick()
        self.vote(1, dict.fromkeys(range(JOBS), Reason.ACCEPTED) | dict(reasons or {}))
        tick()

    # What nodes ask of the coordinator

    def client(self, party: Party) -> CoordinatorClient:
        """The coordinator as this node sees it."""
        if party.node not in self.clients:
            deployment = self.chain.deployment
            made = CoordinatorClient(self.url, party.key, deployment.chain_id, deployment.rounds, self.run)
            self.clients[party.node] = made
        return self.clients[party.node]

    def beat(self, version: int = 0) -> None:
        """Every worker says it is up and holds ``version``."""
        for worker in self.workers:
            self.client(worker).heartbeat(api.Heartbeat(node=worker.node, version=version))

    def work(self, worker: Party, assignment: api.Assignment) -> list[Leaf]:
        """Uploads the worker's artifacts of one round and hands in its leaves; returns them."""
        leaves = []
        for job in assignment.jobs:
            root = bytes([assignment.policy_version + 1]) * 32
            data = rollout.encode(artifact(assignment.round, job, worker.node, root))
            leaves.append(Leaf(job, 1_000, self.client(worker).upload(assignment.round, job, data)))
        self.client(worker).submit(assignment.round, self.submission(worker, assignment, leaves))
        return leaves

    def submission(
        self,
        worker: Party,
        assignment: api.Assignment,
        leaves: list[Leaf],
        signer: Wallet | None = None,
        uri: str | None = None,
    ) -> api.SubmissionRequest:
        """Leaves signed by the worker, or by ``signer``."""
        deployment, packed = self.chain.deployment, pack_leaves(leaves)
        uri, beacon = f"{self.url}/artifacts/" if uri is None else uri, assignment.beacon
        message = auth.submission(
            deployment.chain_id, deployment.rounds, assignment.round, worker.node, beacon, packed, uri
        )
        return api.SubmissionRequest(
            node=worker.node,
            beacon=assignment.beacon,
            leaves=packed,
            uri=uri,
            signature=(signer or worker.key).sign_typed(message),
        )


def headers(
    swarm: Swarm, party: Party, method: str, path: str, body: bytes = b"", **changes: int | str
) -> dict[str, str]:
    """A signed request's headers; ``changes`` are other values under the signature."""
    values: dict[str, Any] = {
        "chain_id": swarm.chain.deployment.chain_id,
        "rounds": swarm.chain.deployment.rounds,
        "run": swarm.run,
        "nonce": secrets.randbits(256),
        "deadline": int(time.time()) + 60,
    } | changes
    audience = auth.Audience(values["chain_id"], values["rounds"], values["run"])
    return auth.sign_request(party.key, audience, method, path, body, values["nonce"], values["deadline"])


def write_settings(file: Path, settings: CoordinatorSettings) -> None:
    """Writes settings as the variables of a settings file."""
    values = settings.model_dump(mode="json", exclude_none=True)
    lines = [f"ASSIZE_COORDINATOR_{name.upper()}={_plain(value)}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def root_of(version: int) -> bytes:
    """The manifest root of a version that ``publish`` publishes."""
    return bytes([version + 1]) * 32


def artifact(round_: int, job: int, node: int, manifest_root: bytes = MANIFEST_ROOT) -> Artifact:
    """A small artifact of two rollouts."""
    made = Rollout(
        prompt_tokens=np.array([1, 2, 3]),
        output_tokens=np.array([4, 5, job % 7]),
        logprobs=np.array([-0.5, -0.25, -1.0]),
        proofs=(b"\x00" * 8,),
        finish_reason="stop",
    )
    return Artifact(round_, job, node, manifest_root, (made, made))


def own_jobs(assignments: bytes, node: int) -> tuple[int, ...]:
    """The jobs of a node in packed assignments."""
    return jobs_of(assignments, node)


def _only(receipt: Receipt, kind: type[Any]) -> Any:
    (found,) = [log.event for log in receipt.logs if isinstance(log.event, kind)]
    return found
