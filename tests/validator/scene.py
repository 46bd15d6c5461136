"""A run on a real chain with one worker and three validators; the test is coordinator, worker and trainer."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.broadcast.publishing import publish
from protocol.broadcast.version_store import VersionStore
from protocol.chain.events import RoundOpened, VoteRevealed
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import Role, RunTerms, SettledLeaves, State, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.actions import buy_credits, drip, fund_run, open_run, register_node
from protocol.chain.writing.plans import event_in
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Wallet
from protocol.tensor.decode import decode
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.auth import submission
from protocol.wire.receipts import CarriedReceipt, Part, write_uri
from protocol.wire.rollout import decode as decode_artifact
from protocol.wire.rollout import encode
from protocol.wire.rules import encode_rules, rules_hash
from tests.artifacts import signed_head
from tests.conftest import TOKEN
from tests.worker.finishing import finish
from validator.daemon import Validator
from validator.deliveries import Deliveries
from validator.journal import VoteJournal
from validator.judging.claims import Claim
from validator.judging.runs import Runs
from validator.queue.orders import Order
from validator.restoring import Restoring
from validator.rounds import FollowedRound
from validator.sampling import Sampling
from validator.service import history_of, judge_of
from validator.settings import ValidatorSettings
from worker.prover import Deployed, Finished, Work, tasks_of

if TYPE_CHECKING:
    from tests.validator.conftest import Court

JOBS, MAX_UNITS = 2, 1 << 40
COMMIT_SECONDS, RESERVE_SECONDS = 600, 150
"""How long votes may take to be committed, and how much of that validators keep back."""


@dataclass
class Juror:
    """One validator with a state of its own; ``revive`` builds it anew over that state, as a restart would."""

    owner: Sender
    key: Wallet
    node: int
    build: Callable[[], tuple[Validator, Callable[[], None]]]
    directory: Path

    def __post_init__(self) -> None:
        self.validator, self.close = self.build()


@dataclass
class Scene:
    """A run with one worker and three validators; the test is coordinator, worker and trainer."""

    chain: Chain
    court: Court
    coordinator: Sender
    worker: Wallet
    worker_node: int
    run: int
    manifest_root: bytes
    jurors: list[Juror]
    files: Path
    url: str
    origin_url: str
    trainer: Sender
    owner: Sender
    followed: dict[int, FollowedRound] = field(default_factory=dict)

    def change_node(self, key: Wallet) -> None:
        """Gives the worker's owner another node, which has the jobs from now on."""
        self.worker, node = key, register_node(self.owner, key, Role.WORKER, JOBS).carry_out("register again").node
        self.worker_node = node
        rules = rules_hash(encode_rules(self.court.rules))
        self.owner.send("join again", calls.join(self.chain.deployment, self.run, node, rules))

    def open(self, version: int = 0) -> RoundOpened:
        """Opens a round of a version in which the worker has every job."""
        self.assignments = pack_assignments([Listing(self.worker_node, JOBS)])
        call = calls.open_round(self.chain.deployment, self.run, version, version, self.assignments)
        receipt = self.coordinator.send(f"open-{secrets.token_hex(4)}", call)
        self.beacon = receipt.block_hash
        return event_in(receipt, RoundOpened)

    def publish(self, version: int, directory: Path, store: VersionStore) -> None:
        """The trainer publishes a version by hand, as one that minds no rules would."""
        deployment = self.chain.deployment
        place = (self.run, version, deployment.chain_id, deployment.market)
        signed = publish(directory, *place, self.trainer.signer, store, versions_kept=99)
        self.manifest_root = signed.manifest.root
        self.trainer.send(f"publish-{version}", calls.publish(deployment, self.run, version, self.manifest_root, []))

    def work(self, opened: RoundOpened, network: Any = None) -> list[Finished]:
        """The worker's jobs, honest unless it decodes with another ``network`` than the policy's."""
        court, deployment = self.court, self.chain.deployment
        work = Work(opened.round, self.worker_node, (0, 1), self.beacon, 0, self.manifest_root, MAX_UNITS)
        deployed = Deployed(deployment.chain_id, deployment.rounds)
        tasks = tasks_of(work, deployed, court.rules, court.environment, court.policy.model)
        completions = decode(network or court.policy.model.network, [task.request for task in tasks])
        return finish(work, deployed, court.policy.shape, tasks, completions)

    def edit(self, job: Finished) -> Finished:
        """The same job with a few tokens exchanged, signed as if it were honest.

        One alone may by chance be nearly what the seed would choose.
        """
        artifact = decode_artifact(job.file)
        n = max(range(len(artifact.rollouts)), key=lambda n: len(artifact.rollouts[n].output_tokens))
        tokens = artifact.rollouts[n].output_tokens.copy()
        for place in range(2, min(6, len(tokens) - 1)):
            tokens[place] = 3 + (tokens[place] - 2) % 15
        return self.forge(job, n, output_tokens=tokens)

    def forge(self, job: Finished, n: int, **changes: Any) -> Finished:
        """The same job with other contents of its ``n``-th rollout, signed as if it were honest."""
        artifact, deployment = decode_artifact(job.file), self.chain.deployment
        rollouts = list(artifact.rollouts)
        rollouts[n] = replace(rollouts[n], **changes)
        forged = replace(artifact, rollouts=tuple(rollouts))
        file = encode(forged)
        return replace(job, file=file, head=signed_head(deployment.chain_id, deployment.rounds, file))

    def submit(
        self,
        opened: RoundOpened,
        jobs: list[Finished],
        kept: set[int],
        stores: Sequence[Wallet] = (),
        places: Sequence[str] | None = None,
    ) -> None:
        """Serves the files of the jobs in ``kept``, submits all of them and closes the round.

        The submission carries receipts by the keys ``stores``, and names ``places`` if they are not where it serves.
        """
        deployment = self.chain.deployment
        for job in jobs:
            if job.job in kept:
                (self.files / "artifacts" / f"0x{job.root.hex()}").write_bytes(job.blob)
        self.leaves = leaves = pack_leaves([Leaf(job.job, job.units, job.root) for job in jobs])
        place, now = (self.run, opened.round, self.worker_node, leaves, ""), int(time.time())
        part = Part(deployment.chain_id, deployment.rounds, *place, now).signed(now)
        receipts = [CarriedReceipt(index, now, key.sign_typed(part)) for index, key in enumerate(stores)]
        uri = write_uri([f"{self.url}/artifacts/"] if places is None else places, receipts)
        message = submission(
            deployment.chain_id, deployment.rounds, opened.round, self.worker_node, self.beacon, leaves, uri
        )
        signed = Submission(self.worker_node, self.beacon, leaves, uri, self.worker.sign_typed(message))
        self.coordinator.send(
            f"submit-{opened.round}", calls.submit(deployment, opened.round, self.assignments, [signed])
        )
        if self.chain.latest().round(opened.round).state is State.OPEN:
            call = calls.close_round(deployment, opened.round, self.assignments)
            self.coordinator.send(f"close-{opened.round}", call)

    def settle(self, opened: RoundOpened) -> None:
        """Settles the round last opened, once every juror's evidence is published."""
        roots = [revealed.evidence_root for revealed in self.reveals() if revealed.round == opened.round]
        while not all((self.files / "evidence" / f"0x{root.hex()}").is_file() for root in roots):
            self.tick()
        leaves = [SettledLeaves(self.worker_node, self.leaves)]
        call = calls.settle(self.chain.deployment, opened.round, 0, self.assignments, leaves)
        self.coordinator.send(f"settle-{opened.round}", call)

    def tick(self) -> None:
        """Every validator works once."""
        for juror in self.jurors:
            juror.validator.tick()
        time.sleep(0.01)

    def order(self, version: int, claims: tuple[Claim, ...]) -> Order:
        """An order for the first juror's background workers."""
        deployment = self.chain.deployment
        return Order(
            run=self.run,
            version=version,
            manifest_root=self.manifest_root,
            rules_hash=rules_hash(encode_rules(self.court.rules)),
            chain_id=deployment.chain_id,
            market=deployment.market,
            trainer=self.trainer.address,
            juror=self.jurors[0].node,
            coordinator=self.url,
            claims=claims,
        )

    def settings(self, directory: Path) -> ValidatorSettings:
        """Settings of a validator whose key nobody made."""
        addresses = directory / "addresses.json"
        self.chain.deployment.save(addresses)
        return ValidatorSettings(
            rpc_url=self.chain.rpc.url,
            addresses=addresses,
            keystore="juror",
            keystore_directory=directory / "keystores",
            password_file=addresses,
            state_dir=directory / "state",
            coordinator_urls=(self.url,),
            sources=(self.origin_url,),
        )

    def environment(self, directory: Path) -> dict[str, str]:
        """The same as variables, for a command."""
        values = self.settings(directory).model_dump(exclude_defaults=True, mode="json")
        shown = {name: json.dumps(value) if isinstance(value, list) else str(value) for name, value in values.items()}
        return {f"ASSIZE_VALIDATOR_{name.upper()}": value for name, value in shown.items()}

    def tick_until(self, round_: int, state: State, seconds: float = 120.0, late: bool = False) -> None:
        """Lets the validators work until the round is in ``state``.

        Where ``late``, the time to commit is nearly over as soon as a committee sits: what is not judged then never is.
        """
        hurried = set[int]()
        give_up = time.monotonic() + seconds
        while (seen := self.chain.latest().round(round_)).state < state:
            assert time.monotonic() < give_up, f"round {round_} is {seen.state.name}"
            if late and seen.state is State.VOTING and seen.attempt not in hurried:
                hurried.add(seen.attempt)
                self.let_pass(COMMIT_SECONDS - RESERVE_SECONDS)
            self.tick()

    def let_pass(self, seconds: int) -> None:
        """Moves the chain's clock on."""
        self.chain.rpc.call("evm_increaseTime", hex(seconds))
        self.chain.rpc.call("evm_mine")

    def reveals(self) -> list[VoteRevealed]:
        """Every vote revealed so far."""
        tail, found = Tail(self.chain), []
        while blocks := tail.poll():
            assert not isinstance(blocks, Rollback)
            found += [log.event for block in blocks for log in block.logs if isinstance(log.event, VoteRevealed)]
        return found


@dataclass
class Cast:
    """Registers the parties of a scene on ``chain``; each has a wallet with gas and a sender."""

    chain: Chain
    rpc_url: str
    make_wallet: Callable[[str], Wallet]
    directory: Path
    closing: list[Callable[[], None]]

    def sender(self, name: str, wallet: Wallet | None = None) -> Sender:
        """A party's sender."""
        sender = Sender(self.chain, wallet or self.make_wallet(name), self.directory / f"{name}.sqlite")
        self.closing.append(sender.close)
        return sender

    def node(self, name: str, role: Role, one_key: bool = False) -> tuple[Sender, Wallet, int]:
        """A registered node: its owner, its key and its id. With ``one_key`` the owner's is the session key too."""
        wallet = self.make_wallet(name)
        owner, key = self.sender(name, wallet), wallet if one_key else self.make_wallet(f"{name}-key")
        drip(owner, 100 * TOKEN).carry_out("drip")
        registering = register_node(owner, key, role, JOBS if role is Role.WORKER else 1)
        return owner, key, registering.carry_out("register").node

    def juror(
        self,
        name: str,
        origin_url: str,
        queue_url: str = "",
        kind: type[Validator] = Validator,
        coordinator_urls: tuple[str, ...] = (),
        one_key: bool = False,
    ) -> Juror:
        """A validator over a directory of its own, which gets weights from ``origin_url``.

        With a ``queue_url`` others judge for it, one job an order.
        """
        owner, key, node = self.node(name, Role.VALIDATOR, one_key)
        directory, deployment = self.directory / name, self.chain.deployment

        def build() -> tuple[Validator, Callable[[], None]]:
            client = RunCoordinators(coordinator_urls, key, deployment.chain_id, deployment.rounds)
            own, journal = Chain(self.rpc_url, deployment), VoteJournal(directory)
            deliveries = Deliveries(client, journal, node, heartbeat_seconds=3600)
            restoring = Restoring(client)
            judge, announce = judge_of(queue_url, node, client, restoring, jobs_per_order=1)
            runs = Runs(client, deployment, directory / "weights", (origin_url,), announce=announce)
            sender = owner if one_key else Sender(own, key, directory / "sender.sqlite")
            history = history_of(client, journal, deployment, directory, node)
            made = kind(
                own,
                node,
                key,
                sender,
                journal,
                runs,
                judge,
                deliveries,
                history,
                sampling := Sampling(history.steering, judge),
                reserve_seconds=RESERVE_SECONDS,
                patience_seconds=4,
                nudge_seconds=0.1,
            )

            def close() -> None:
                for part in (sender, deliveries, restoring, sampling, history, runs, journal, client, own, judge):
                    part.close()

            return made, close

        return Juror(owner, key, node, build, directory)

    def run(self, court: Court, trainer: Wallet, coordinator: Sender, root: bytes, url: str, **offered: int) -> int:
        """An open, funded run under the court's rules with its coordinator at ``url``; ``offered`` replaces terms."""
        requester = self.sender("requester")
        rules = rules_hash(encode_rules(court.rules))
        windows = (600, 600, COMMIT_SECONDS, 600, 0)
        plain = RunTerms(coordinator.address, trainer.address, rules, 1, 1000, MAX_UNITS, 3, 0, *windows)
        terms = replace(plain, **offered)
        drip(requester, 1_000 * TOKEN).carry_out("drip")
        buy_credits(requester, 1_000 * TOKEN).carry_out("buy")
        opened = open_run(requester, terms, root, url).carry_out("open")
        fund_run(requester, opened.run, 900 * TOKEN).carry_out("fund")
        return opened.run
