"""The faults, each with the alerts that it must fire, and at which process."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace

from coordinator.tables import ClockRow
from deploy.localnet import services
from deploy.localnet.parties import ETHER, REQUESTER
from deploy.localnet.processes import ProcessSpec, free_port
from protocol.chain.structs import RunTerms
from protocol.chain.writing import actions
from protocol.chain.writing.faucet import give_gas
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Keystores, read_password
from protocol.wire.rules import Rules, encode_rules, rules_hash
from tests.alerts.prometheus import Prometheus
from tests.alerts.watched import Watched
from tests.chaos.between import Answer, Asked, Forward, error_answer
from tests.chaos.killing import is_chunk
from tests.conftest import mining_halted

SMALL_DISK = "1g"
ROUNDS_FUNDED = 10
STEPS_BEFORE_ALARMS = 10
PHASE_SECONDS = 65.0
"""Somewhat longer than a phase of a round on the local network."""

Break = Callable[[Watched, Prometheus], AbstractContextManager[None]]
"""Does the harm while it is open, and mends it afterwards."""


@dataclass(frozen=True, slots=True)
class AlertFault:
    """A fault. ``alerts`` is the alert to the target that it must name; "" for any."""

    what: str
    alerts: dict[str, str]
    breaks: Break


FAULTS: list[AlertFault] = []
"""In the order in which they strike."""


def fault(what: str, **alerts: str) -> Callable[[Callable[[Watched, Prometheus], Iterator[None]]], None]:
    """Puts a function on the list."""

    def listed(breaks: Callable[[Watched, Prometheus], Iterator[None]]) -> None:
        FAULTS.append(AlertFault(what, alerts, contextmanager(breaks)))

    return listed


@fault("two of three validators are frozen, so that the trainer waits", TrainerAlarm="trainer")
def _starved(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    for _ in range(STEPS_BEFORE_ALARMS):  # none is raised before
        network.goes_on()
    with network.stopped("validator-2", "validator-3"):
        time.sleep(PHASE_SECONDS)
    yield


@fault("the relay is killed", RoleDown="relay")
def _killed(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    network.kill("relay")
    yield
    network.restart("relay")


@fault("Prometheus has no targets", NothingScraped="")
def _no_targets(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    prometheus.scrape({})
    yield
    prometheus.scrape(network.targets)


@fault("mining halts", IntentsStuck="")
def _halted(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    with mining_halted(network.rpc):
        yield


@fault("a worker's key is nearly empty", GasLow="worker-1")
def _no_gas(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    address = Keystores(network.layout.keystores).address_of("worker-1-key")
    network.rpc.call("anvil_setBalance", address, hex(ETHER // 2000))
    yield
    network.rpc.call("anvil_setBalance", address, hex(100 * ETHER))


@fault("a disk of a gigabyte", DiskLow="relay-2")
def _small_disk(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    folder = network.layout.state("relay-2")
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "assize", str(folder)], check=True)
    relay = services.relay(network.layout, network.established.trainer)
    own = {"ASSIZE_RELAY_STATE_DIR": str(folder), "ASSIZE_RELAY_PORT": str(free_port())}
    small = replace(relay, name="relay-2", environment={**relay.environment, **own}, url=None)
    try:
        network.add(small, "relay", prometheus)
        yield
    finally:
        network.drop("relay-2", prometheus)
        subprocess.run(["umount", str(folder)], check=True)


@fault("another process takes the clock and does not drive", NobodyDrives="")
def _clock_taken(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    take = f"UPDATE {ClockRow.__tablename__} SET epoch = epoch + 1, place = '', ends_at = ?"
    path = network.layout.state("coordinator") / "coordinator.db"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as database:
        database.execute(take, (time.time() + 3600,))
        yield
        database.execute(take, (0,))


@fault("a run funded for ten rounds", EscrowShort="driver-2")
def _short_escrow(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    layout, reader = network.layout, network.chain.latest()
    password, keys = read_password(layout.password_file), Keystores(layout.keystores)
    wallet = keys.create("coordinator-2", password, 1 << 12)
    give_gas(network.rpc, wallet.address, 100 * ETHER)
    terms: RunTerms = reader.run(layout.run).terms
    owner = keys.open(REQUESTER, password)
    with closing(Sender(network.chain, owner, layout.root / "state" / "setup" / "second.db")) as sender:
        plan = actions.open_run(
            sender,
            replace(terms, coordinator=wallet.address),
            reader.manifest_root(layout.run, 0),
            "http://127.0.0.1:9",
        )
        run = plan.carry_out("open-2").run
        need = network.run_file.terms.jobs_per_round * terms.max_units * terms.price_per_unit
        amount = ROUNDS_FUNDED * (need + terms.committee * terms.juror_fee)
        actions.drip(sender, amount).carry_out("drip-2")
        actions.fund_run(sender, run, amount).carry_out("fund-2")
    _, driver = services.coordinator(layout, network.run_file.terms.jobs_per_round, 1, None)
    own = {"RUN": str(run), "KEYSTORE": "coordinator-2", "STATE_DIR": str(layout.state("driver-2"))}
    settings = {**driver.environment, **{f"ASSIZE_COORDINATOR_{name}": value for name, value in own.items()}}
    network.add(replace(driver, name="driver-2", environment=settings), "coordinator", prometheus)
    yield
    network.drop("driver-2", prometheus)


@fault("the chain's finalized tag stands still", FinalityStalled="ledger-2")
def _no_finality(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    addresses = network.layout.root / "by-tag.json"
    addresses.write_text(json.dumps(json.loads(network.layout.addresses.read_text()) | {"finality": "finalized"}))
    url = f"{network.rpc_between.url}/as/ledger-2/1"
    words = ("ledger", "serve", "--rpc", url, "--addresses", str(addresses), "--port", str(free_port()))
    spec = ProcessSpec("ledger-2", services.assize(*words, "--db", str(network.layout.root / "ledger-2.db")))
    frozen = network.rpc.call("eth_getBlockByNumber", "finalized", False)

    def freeze(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if asked.who != "ledger-2":
            return answer
        ids = {call["id"] for call in asked.calls if call["params"][:1] == ["finalized"]}
        return answer.with_results(lambda one: {**one, "result": frozen} if one["id"] in ids else one)

    with network.rpc_between.interfering(freeze):
        network.add(spec, "ledger", prometheus)
        yield
        network.drop("ledger-2", prometheus)


@fault("a worker cheats", FraudFound="cheat", BondLow="cheat")
def _cheat(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    party = next(party for party in network.parties if party.name == "cheat")
    honest = network.supervisor.services["cheat"]
    network.supervisor.end("cheat")
    network.supervisor.start(services.node(network.layout, replace(party, adversary="edited-answer")))
    yield
    network.supervisor.end("cheat")
    network.supervisor.start(honest)


@fault("a worker's sources of weights are dead", WeightsBehind="worker-2")
def _no_weights(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def dead_sources(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if asked.method != "GET" or asked.path != f"/runs/{network.layout.run}":
            return answer
        return answer.with_results(lambda one: {**one, "sources": ["http://127.0.0.1:9"], "origin": None})

    with network.api_between.interfering(dead_sources):
        network.restart("worker-2")
        network.wait_for("the worker to start", lambda: "not_listed" in network.log("worker-2"), 60)
        yield
    network.restart("worker-2")


@fault("one of two RPC endpoints leaves events out", RpcDisagreement="ledger")
def _omitting(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def omit(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if (asked.who, asked.endpoint) != ("ledger", 2):
            return answer
        ids = {call["id"] for call in asked.calls if call["method"] == "eth_getLogs"}
        return answer.with_results(lambda one: {**one, "result": []} if one["id"] in ids else one)

    with network.rpc_between.interfering(omit):
        yield


@fault("an RPC endpoint refuses logs", ChainBehind="ledger", LedgerBehind="ledger")
def _no_logs(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def refuse(asked: Asked, forward: Forward) -> Answer | None:
        wanted = asked.who == "ledger" and "eth_getLogs" in asked.methods
        return error_answer(asked, -32005, "query returned too many results") if wanted else forward(asked)

    with network.rpc_between.interfering(refuse):
        yield


@fault("the origin serves no chunks", RelayBehind="relay")
def _no_chunks(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def refuse(asked: Asked, forward: Forward) -> Answer | None:
        return Answer(503, {}, b"") if is_chunk(asked) else forward(asked)

    with network.origin_between.interfering(refuse):
        yield


@fault("the origin hangs up", UpstreamDown="relay")
def _no_origin(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    with network.origin_between.interfering(lambda asked, forward: None):
        yield


@fault("a validator's transactions are refused", VotesMissed="validator-1")
def _no_votes(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def refuse(asked: Asked, forward: Forward) -> Answer | None:
        wanted = asked.who == "validator-1" and "eth_sendRawTransaction" in asked.methods
        return error_answer(asked, -32000, "txpool is full") if wanted else forward(asked)

    with network.rpc_between.interfering(refuse):
        yield


@fault(
    "RPC endpoints of driver and worker hang up",
    LoopStuck="coordinator-driver",
    RpcFailing="worker-1",
    ChainStale="coordinator-driver",
    NoRounds="coordinator-driver",
    NoJobs="worker-1",
    TrainerStalled="trainer",
)
def _no_chain(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def hang_up(asked: Asked, forward: Forward) -> Answer | None:
        return None if asked.who in ("coordinator-driver", "worker-1") else forward(asked)

    with network.rpc_between.interfering(hang_up):
        yield


@fault("the coordinator hides artifacts", ArtifactsUnavailable="", VoidRate="", RunVoidRate="coordinator-driver")
def _hidden(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    def hide(asked: Asked, forward: Forward) -> Answer | None:
        hidden = asked.method == "GET" and asked.path.startswith("/artifacts/")
        return (
            Answer(404, {"content-type": "application/json"}, b'{"error":"no artifact"}') if hidden else forward(asked)
        )

    with network.api_between.interfering(hide), network.second_between.interfering(hide):
        yield


@fault("new rules ask for a version that nobody has", VersionBehind="worker-1")
def _old_version(network: Watched, prometheus: Prometheus) -> Iterator[None]:
    """The last one: with rules that nobody has joined, no round is opened any more."""
    layout = network.layout
    rules = Rules.model_validate_json(layout.rules.read_bytes()).model_copy(update={"least_version": "99.0.0"})
    coming = layout.root / "coming.json"
    coming.write_bytes(encoded := encode_rules(rules))
    network.supervisor.more["coordinator"]["ASSIZE_COORDINATOR_COMING_RULES"] = str(coming)
    network.restart("coordinator")
    owner = Keystores(layout.keystores).open(REQUESTER, read_password(layout.password_file))
    terms: RunTerms = network.chain.latest().run(layout.run).terms
    with closing(Sender(network.chain, owner, layout.root / "state" / "setup" / "third.db")) as sender:
        new = replace(terms, rules_hash=rules_hash(encoded))
        actions.announce_terms(sender, layout.run, new).carry_out("announce-3")
    yield
