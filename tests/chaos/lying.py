"""Those who have a part in the market and lie: a store that hides, a requester, a trainer and two validators."""

from __future__ import annotations

import json
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from deploy.localnet import services
from deploy.localnet.establish import SCRYPT_N
from ledger import facts
from protocol.chain.events import RoundOpened
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Role, RunTerms, State, Submission
from protocol.chain.writing import actions, calls
from protocol.chain.writing.faucet import give_gas
from protocol.chain.writing.plans import event_in
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Keystores, Wallet, read_password
from protocol.transport.blobs import DirectoryBlobs
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.auth import submission
from protocol.wire.receipts import write_uri
from tests.chaos.between import Answer, Asked, Forward
from tests.chaos.fault import MOMENT_SECONDS, fault
from tests.chaos.invariants import broken
from tests.chaos.network import Network
from tests.chaos.watching import Held, Uploads, any_judged, fines_since, jobs_since, newest_round
from tests.e2e.conftest import assize

TOKEN = 10**18
VICTIM = "worker-2"
HIDDEN_VERSIONS = 2
WARM_VERSIONS = 4
"""Versions after which a process that was started again holds the memory that it works with."""
ABSENT_SECONDS = 200.0
"""Longest until a round has a verdict though a juror is away, which only the end of its windows shows."""
CONTRADICTED = "evidence_contradicted"
"""A validator's log entry on a statement that it has measured otherwise."""
POISONED_SECONDS = 150.0
"""Longer than two draws of the poison run take, which nobody can vote in."""


@fault(27, "a hiding coordinator")
def hiding_coordinator(network: Network) -> list[str]:
    """It answers that it has no artifact of one worker: first while another store has them, then nobody has.

    What another holder serves is accepted; nobody loses anything by the rest, and what it signed proves the lie.
    """
    with _both_trusted(network):
        return _hidden_here_then_everywhere(network)


@contextmanager
def _both_trusted(network: Network) -> Iterator[None]:
    """Has validators and trainer trust the second store too, as operators may: it is not of the public internet."""
    _, second = network.stores
    validators = [party.name for party in network.parties if party.role == "validator"]
    names = [*validators, "trainer"]
    for name in validators:
        network.supervisor.more[name] = {"ASSIZE_VALIDATOR_COORDINATOR_URLS": json.dumps(network.stores)}
    network.supervisor.more["trainer"] = {"ASSIZE_TRAINER_COORDINATOR_URL": second}
    for name in names:
        network.restart(name)
    network.goes_on(WARM_VERSIONS)
    try:
        yield
    finally:
        for name in names:
            del network.supervisor.more[name]
            network.restart(name)
        network.goes_on(WARM_VERSIONS)


def _hidden_here_then_everywhere(network: Network) -> list[str]:
    node, first, before = network.established.nodes[VICTIM], newest_round(network), Held.by(network)
    hiding = _Hiding(Uploads.by(network, node), network)
    with network.api_between.interfering(hiding):
        network.goes_on(HIDDEN_VERSIONS)
        network.wait_for("a hidden job judged", lambda: bool(_judged(network, first, hiding.hidden)), MOMENT_SECONDS)
        hidden = _judged(network, first, hiding.hidden)
    found = [] if hiding.hidden else ["nobody asked for what was hidden"]
    found += [
        f"M: job {job.job} of round {job.round} is {job.verdict} though another store had its artifact"
        for job in hidden
        if job.verdict != "accepted"
    ]
    begun = newest_round(network)
    hiding.everywhere = True
    with network.api_between.interfering(hiding), network.second_between.interfering(hiding):
        network.goes_on(HIDDEN_VERSIONS)
        network.wait_for("a lost job judged", lambda: bool(_judged(network, begun, hiding.gone)), MOMENT_SECONDS)
        lost = _judged(network, begun, hiding.gone)
        found += _not_proven(network, lost[0])
    network.forget_acknowledged(hiding.gone)
    found += [
        f"M: job {job.job} of round {job.round} is {job.verdict}, though its bytes were there for nobody"
        for job in lost
        if job.verdict in ("fraud", "void")
    ]
    after = Held.by(network)
    found += [sentence for name in after for sentence in after[name].beyond(before[name], name)]
    return found + list(fines_since(network, first))


class _Hiding:
    """Hides the artifacts of one node: their names are denied, or ``everywhere`` the files are gone before the answer.

    ``hidden`` are the roots that somebody asked for, ``gone`` those whose file is away.
    """

    def __init__(self, uploads: Uploads, network: Network) -> None:
        self._uploads, self._lock = uploads, Lock()
        self._blobs = DirectoryBlobs(network.layout.state("coordinator") / "artifacts")
        self.hidden, self.gone = set[str](), set[str]()
        self.everywhere = False

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        root = self._uploads.asked_for(asked)
        if root is None:
            answer = forward(asked)
            self._uploads.note(asked, answer)
            return answer
        with self._lock:
            self.hidden.add(root)
            if not self.everywhere:
                return Answer(404, {"content-type": "application/json"}, b'{"detail":"no such artifact"}')
            self.gone.add(root)
            self._blobs.path(bytes.fromhex(root[2:])).unlink(missing_ok=True)
            return forward(asked)


def _judged(network: Network, first: int, roots: set[str]) -> list[facts.Job]:
    """Returns the jobs of rounds after the ``first`` that have a verdict and whose artifacts are among ``roots``."""
    decided = [job for job in jobs_since(network, first) if job.verdict != "submitted"]
    return [job for job in decided if f"0x{bytes(job.root).hex()}" in roots]


def _not_proven(network: Network, job: facts.Job) -> list[str]:
    """Collects what the store signed about a job, as anyone can, and checks that its answers contradict each other."""
    layout = network.layout
    place = ("--rpc", layout.url("chain"), "--addresses", str(layout.addresses))
    with TemporaryDirectory() as folder:
        words = (str(job.round), str(job.job), folder, "--rules", str(layout.rules), *place)
        collected = assize("receipts", "collect", *words)
        if collected.returncode:
            return [f"the receipts of job {job.job} of round {job.round} were not collected: {collected.stderr}"]
        (answers,) = Path(folder).glob("*.json")
        checked = assize("receipts", "check", str(answers), "--json")
    if checked.returncode or not json.loads(checked.stdout)["contradiction"]:
        return [f"what the store signed about job {job.job} of round {job.round} proves nothing: {checked.stderr}"]
    return []


@fault(28, "a poison run")
def poison_run(network: Network) -> list[str]:
    """A requester opens a run whose rules nobody can read and whose windows are the shortest, and seats its jurors.

    Windows of a second are refused, and so are rounds without the validators' consent. With it the rounds cost nobody
    a bond, and the other run goes on.
    """
    first, before = newest_round(network), Held.by(network)
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        poison = _PoisonRun(network, f"http://127.0.0.1:{silent.getsockname()[1]}", stack)
        found = poison.opened_without_consent()
        poison.consent()
        round_ = poison.seat_jurors()
        attempt = poison.attempt(round_)
        network.goes_on(2)
        network.wait_for("another draw", lambda: poison.attempt(round_) > attempt, POISONED_SECONDS)
        poison.close()
    after = Held.by(network)
    found += [sentence for name in after for sentence in after[name].beyond(before[name], name)]
    return found + list(fines_since(network, first))


class _PoisonRun:
    """A run of an outsider, who is requester, coordinator, trainer and worker of it, at a server that never answers."""

    def __init__(self, network: Network, url: str, stack: ExitStack) -> None:
        self._network, self._url, self._stack = network, url, stack
        self._name = f"poisoner-{secrets.token_hex(3)}"
        self._owner, self._key = self._outsider(self._name), self._wallet(f"{self._name}-key")
        self._assignments = b""
        actions.drip(self._owner, 1_000 * TOKEN).carry_out("drip")
        self._node = actions.register_node(self._owner, self._key, Role.WORKER, 2).carry_out("register").node
        shortest = network.chain.latest().market_terms()
        windows = (2, 10, shortest.min_commit_seconds, shortest.min_reveal_seconds, 0)
        who = (self._owner.address, self._owner.address, secrets.token_bytes(32))
        self._terms = RunTerms(*who, 1, shortest.min_juror_fee, 1_000, 3, 0, *windows)

    def opened_without_consent(self) -> list[str]:
        """Opens the run; returns what should have been refused."""
        root, found = secrets.token_bytes(32), []
        for what, terms in (
            ("a commit window of a second", replace(self._terms, commit_seconds=1)),
            ("a reveal window of a second", replace(self._terms, reveal_seconds=1)),
            ("a juror fee of nothing", replace(self._terms, juror_fee=0)),
        ):
            try:
                actions.open_run(self._owner, terms, root, self._url).carry_out(what)
            except Reverted:
                continue
            found.append(f"a run with {what} was opened")
        self.run = actions.open_run(self._owner, self._terms, root, self._url).carry_out("open").run
        actions.fund_run(self._owner, self.run, 100 * TOKEN).carry_out("fund")
        actions.join_run(self._owner, self.run, self._node, self._terms.rules_hash).carry_out("join")
        self._assignments = pack_assignments([Listing(self._node, 2)])
        listable = partial(self._network.chain.latest().view, "Registry", "isListable", self._node)
        self._network.wait_for("a node in service", lambda: bool(listable()), MOMENT_SECONDS)
        try:
            self._open_round("without consent")
        except Reverted:
            return found
        return [*found, "a round was opened that no validator has consented to judge"]

    def consent(self) -> None:
        """Has every validator's owner join the run."""
        for party in self._network.parties:
            if party.role == "validator":
                owner, node = self._sender(self._open(party.owner)), self._network.established.nodes[party.name]
                joining = actions.join_run(owner, self.run, node, self._terms.rules_hash)
                joining.carry_out(f"join/{self.run}/{node}")

    def seat_jurors(self) -> int:
        """Opens a round, hands in work that nobody can read, and has a committee drawn; returns the round."""
        chain, deployment = self._network.chain, self._network.chain.deployment
        opened, beacon = self._open_round("with consent")
        leaves = pack_leaves([Leaf(job, 1, secrets.token_bytes(32)) for job in (0, 1)])
        uri = write_uri([f"{self._url}/artifacts/"])
        place = (deployment.chain_id, deployment.rounds, opened.round, self._node, beacon, leaves, uri)
        signed = Submission(self._node, beacon, leaves, uri, self._key.sign_typed(submission(*place)))
        self._owner.send("submit", calls.submit(deployment, opened.round, self._assignments, [signed]))
        if chain.latest().round(opened.round).state is State.OPEN:
            self._owner.send("close", calls.close_round(deployment, opened.round, self._assignments))
        self._network.wait_for("a committee", lambda: self._is_drawn(opened.round), MOMENT_SECONDS)
        return opened.round

    def attempt(self, round_: int) -> int:
        """Returns the number of a round's present draw."""
        return int(self._network.chain.latest().round(round_).attempt)

    def close(self) -> None:
        """Closes the run: its validators leave it by themselves."""
        self._owner.send("close run", calls.close_run(self._network.chain.deployment, self.run))

    def _open_round(self, intent: str) -> tuple[RoundOpened, bytes]:
        call = calls.open_round(self._network.chain.deployment, self.run, 0, 0, self._assignments)
        receipt = self._owner.send(intent, call)
        return event_in(receipt, RoundOpened), receipt.block_hash

    def _is_drawn(self, round_: int) -> bool:
        if self._network.chain.latest().round(round_).state is State.VOTING:
            return True
        try:
            self._owner.send(f"draw/{round_}/{time.time()}", calls.draw(self._network.chain.deployment, round_))
        except Reverted:
            return False  # the block that seeds it is not there yet, or a validator was first
        return True

    def _wallet(self, name: str) -> Wallet:
        layout = self._network.layout
        wallet = Keystores(layout.keystores).create(name, read_password(layout.password_file), SCRYPT_N)
        give_gas(self._network.rpc, wallet.address)
        return wallet

    def _open(self, name: str) -> Wallet:
        layout = self._network.layout
        return Keystores(layout.keystores).open(name, read_password(layout.password_file))

    def _outsider(self, name: str) -> Sender:
        return self._sender(self._wallet(name))

    def _sender(self, wallet: Wallet) -> Sender:
        journal = self._network.layout.root / "outsiders" / f"{wallet.name}.db"
        journal.parent.mkdir(exist_ok=True)
        return self._stack.enter_context(closing(Sender(self._network.chain, wallet, journal)))


@fault(29, "an ambiguous checkpoint", fatal=True)
def ambiguous_checkpoint(network: Network) -> list[str]:
    """The trainer publishes one version with another tokenizer: nobody works or votes by it, and nobody pays.

    Where too few rollouts of earlier versions are left for the next one, its run ends by its own trainer.
    """
    first, before = newest_round(network), Held.by(network)
    honest = network.supervisor.services["trainer"]
    network.supervisor.end("trainer")
    ambiguous = network.version() + 1
    faulty = (sys.executable, "-m", "deploy.adversaries", "ambiguous-checkpoint")
    network.supervisor.start(replace(honest, argv=faulty))
    try:
        network.goes_on(3)
    finally:
        network.supervisor.end("trainer")
        network.supervisor.start(honest)
    network.scoreboard.refresh()
    rounds = [each.round for each in network.scoreboard.book.all(facts.Round) if each.policy_version == ambiguous]
    honest_nodes = {network.established.nodes[party.name] for party in network.parties if party.honest}
    found = [] if rounds else [f"no round was opened under the ambiguous version {ambiguous}"]
    found += [
        f"M: job {job.job} of round {job.round}, under the ambiguous version {ambiguous}, is {job.verdict}"
        for job in jobs_since(network, first)
        if job.verdict in ("fraud", "accepted") and job.round in rounds and job.node in honest_nodes
    ]
    after = Held.by(network)
    found += [sentence for name in after if name != "trainer" for sentence in after[name].beyond(before[name], name)]
    return [*found, *fines_since(network, first), *broken(network)]


@fault(30, "a planted record", fatal=True)
def planted_record(network: Network) -> list[str]:
    """Two validators of three vote rightly and state evidence against everybody, also while the third is away.

    The third measures what it has not seen before it condemns by it, and finds nothing. The two believe their own
    bundles from then on, so that they are not to be trusted again.
    """
    first, before = newest_round(network), Held.by(network)
    for name in ("validator-2", "validator-3"):
        party = next(party for party in network.parties if party.name == name)
        network.supervisor.end(name)
        network.supervisor.start(services.node(network.layout, replace(party, adversary="plants-record")))
    network.goes_on(1)
    with network.stopped("validator-1"):
        away = newest_round(network)
        network.wait_for("a round judged by the liars", lambda: any_judged(network, away), ABSENT_SECONDS)
    back = newest_round(network)
    network.goes_on(2)
    network.wait_for("a round judged by all three", lambda: any_judged(network, back), ABSENT_SECONDS)
    honest = {network.established.nodes[party.name] for party in network.parties if party.honest}
    found = [
        f"M: job {job.job} of round {job.round}, of node {job.node}, is {job.verdict} by a planted record"
        for job in jobs_since(network, first)
        if job.node in honest and job.verdict in ("fraud", "void")
    ]
    condemning = [
        seat.round
        for seat in network.scoreboard.book.all(facts.Seat)
        if seat.juror == network.established.nodes["validator-1"] and seat.round > first and _condemns(network, seat)
    ]
    if CONTRADICTED not in network.log("validator-1"):
        found.append("validator-1 has not measured what the liars stated")
    found += [f"M: validator-1 condemns honest work in round {round_}" for round_ in condemning]
    after = Held.by(network)
    found += [sentence for name in after if name != "trainer" for sentence in after[name].beyond(before[name], name)]
    return found + broken(network)


def _condemns(network: Network, seat: facts.Seat) -> bool:
    """Returns whether a vote finds a job of an honest node fraudulent."""
    honest = {network.established.nodes[party.name] for party in network.parties if party.honest}
    jobs = [job for job in network.scoreboard.book.all(facts.Job) if job.round == seat.round and job.node in honest]
    return seat.state == "revealed" and any((seat.fraud & ~seat.accept) >> job.job & 1 for job in jobs)
