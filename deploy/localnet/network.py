"""The whole market on one machine, from an empty chain to an audited outcome."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from deploy.adversaries import ADVERSARIES
from deploy.localnet import services
from deploy.localnet.establish import Established, establish
from deploy.localnet.live import LiveView
from deploy.localnet.outcome import Metrics, Outcome, failures, write_page, write_report
from deploy.localnet.parties import Party, faulty_committee, parties
from deploy.localnet.processes import STATE, ProcessSpec, Supervisor, free_port, read_state, wait_until_listening
from deploy.localnet.scoreboard import Scoreboard
from deploy.localnet.services import NetworkLayout, Server
from deploy.localnet.watching import LEAST_STEPS, JurorWatch, share_rechecked
from deploy.runs.run_file import BUILTIN, RunFile, read_run_file
from ledger.audit import audit
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected, Unavailable, accessing
from protocol.node.activity import HEALTH_FILE, read_health
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.rules import DEFAULT_ENGINE
from worker.engines.registry import find_engine

LOOK_SECONDS = 1.0
STARTING_SECONDS = 180.0
SETTLING_SECONDS = 60.0
ROUNDS_AHEAD = 3
ROUNDS_UNSETTLED = 12
"""Rounds a worker may be in at once if verdicts wait out a challenge period."""


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Choices on the command line. ``steps`` defaults to the run file's, ports to free ones.

    With ``watch_jurors`` the requester plants a fault and a recheck compares bundles, if the run has appeals and is not
    too short.
    """

    root: Path
    seed: int = 1
    steps: int | None = None
    run_file: Path = BUILTIN
    adversary: str = "edited-answer"
    model: Path | None = None
    tasks: Path | None = None
    ports: Mapping[Server, int | None] = field(default_factory=dict)
    evaluate_every: int = 10
    target_accuracy: float | None = None
    faulty_committee: bool = False
    engine: str = DEFAULT_ENGINE
    watch_jurors: bool = False


class Localnet:
    """One network. Use it under a ``Supervisor``, which ends every process started."""

    def __init__(self, options: NetworkOptions, supervisor: Supervisor, view: LiveView) -> None:
        self.options, self.supervisor, self.view = options, supervisor, view
        self.started = time.monotonic()
        self.run_file: RunFile = read_run_file(options.run_file)
        self.steps = options.steps or self.run_file.recipe.steps
        ports = {server: free_port(options.ports.get(server)) for server in get_args(Server)}
        self.layout = NetworkLayout(options.root, ports, options.run_file, options.root / "rules.json")
        terms = self.run_file.terms
        jobs = terms.jobs_per_round * (ROUNDS_UNSETTLED if terms.challenge_seconds else ROUNDS_AHEAD)
        self.watches = options.watch_jurors and terms.appeal_seats > 0 and self.steps >= LEAST_STEPS
        self.watch_of_jurors: JurorWatch | None = None
        self.parties: tuple[Party, ...] = (
            faulty_committee(jobs)
            if options.faulty_committee
            # An appeal's committee is drawn without the first one's members.
            else parties(options.adversary, jobs, terms.committee + terms.appeal_seats, options.engine, self.watches)
        )
        self._check_engine()
        self._check_model()

    def _check_engine(self) -> None:
        """Raises `Misconfigured` before anything starts if the second worker's engine is missing or not allowed."""
        find_engine(self.options.engine).check_installed()
        if self.options.engine not in self.run_file.rules.model.worker_engines:
            raise Misconfigured(
                f"{self.options.run_file} does not allow the engine {self.options.engine}: see its worker_engines"
            )

    def _check_model(self) -> None:
        """Raises `Misconfigured` before anything starts if the given model cannot be trained here."""
        if (model := self.options.model) is None:
            return
        from protocol.tensor.model import check_model
        from trainer.memory import check_memory

        check_model(model)
        if self.options.tasks is not None:
            self._take_tasks(self.options.tasks, model)
        run, beside = self.run_file, len(self.parties)
        check_memory(model, run.recipe, run.rules, device="cpu", evaluated=True, beside=beside)

    def _take_tasks(self, path: Path, model: Path) -> None:
        """Puts the tasks of a file into the run's rules."""
        from deploy.tasks.in_rules import read_tasks, with_tasks

        rules = with_tasks(self.run_file.rules, read_tasks(path, model))
        self.run_file = replace(self.run_file, rules=rules)

    @property
    def stores(self) -> tuple[str, ...]:
        """URLs of the run's stores of artifacts; the first is also where its coordinator is announced."""
        return (self.layout.url("coordinator"),)

    def start(self, endless: bool) -> None:
        """Starts everything; an ``endless`` run has no last version."""
        self.supervisor.start(services.anvil(self.layout))
        self.supervisor.start(services.redis(self.layout))
        self._bring_model()
        self._wait_until_listening("chain")
        self._wait_until_listening("redis")
        self.established: Established = establish(self.layout, self.run_file, self.parties, self.stores, self.view.say)
        (self.layout.root / "parties.json").write_text(json.dumps(asdict(self.established), indent=1))
        self.chain = Chain.connect(self.layout.url("chain"), self.layout.addresses)
        if self.watches:
            self._set_traps()
        self._start_services(None if endless else self.steps)
        rollouts = self.run_file.rules.rollouts_per_job
        self.scoreboard = Scoreboard(self.chain, self.layout.run, self.parties, self.established.nodes, rollouts)

    def _set_traps(self) -> None:
        self.view.say("announcing the requester's traps")
        (node,) = (self.established.nodes[party.name] for party in self.parties if party.plants)
        self.watch_of_jurors = JurorWatch(self.layout, self.chain, node, self.steps, self.run_file.rules, self.view.say)
        self.watch_of_jurors.set()

    def _bring_model(self) -> None:
        """Provides version 0: a copy of the given directory, or the built-in model, made by ``assize trainer make``."""
        if self.options.model is not None:
            shutil.copytree(self.options.model, self.layout.model)
        else:
            self._make_model()
        if self.options.tasks is not None:
            from deploy.tasks.in_rules import bring_tasks

            if self.options.model is None:
                self._take_tasks(self.options.tasks, self.layout.model)
            bring_tasks(self.options.tasks, self.layout.model)

    def _make_model(self) -> None:
        self.view.say("training the built-in model to imitate flawed working")
        words = services.assize("trainer", "make", str(self.layout.model), "--seed", str(self.options.seed))
        making, said = ProcessSpec("model", words), 0
        self.supervisor.start(making)
        status = None
        while status is None:
            time.sleep(LOOK_SECONDS)
            status, lines = self.supervisor.status(making), self.supervisor.output(making.name)
            for line in lines[said:]:
                self.view.say(line)
            said = len(lines)
        self.supervisor.end(making.name)
        if status != 0:
            raise Misconfigured(f"cannot make the model: {self.supervisor.log_tail(making.name, 1)}")

    def _start_services(self, last_version: int | None) -> None:
        layout, start = self.layout, self.supervisor.start
        workers = [party for party in self.parties if party.role == "worker"]
        self.view.say("starting coordinator, relay, ledger, trainer, workers and validators")
        terms = self.run_file.terms
        api, driver = services.coordinator(layout, terms.jobs_per_round, len(workers), last_version)
        start(api)
        self._wait_until_listening("coordinator")
        start(driver)
        start(services.relay(layout, self.established.trainer))
        start(services.ledger(layout))
        self.view.say(f"look at it in a browser: {layout.url('ledger')}")
        for party in self.parties:
            start(services.node(layout, party))
        # The trainer starts the clock of the run, so that start-up is not in it.
        self._wait_until_heard()
        more: dict[str, object] = {}
        if self.options.target_accuracy is not None:
            more["target_accuracy"] = self.options.target_accuracy
        if self.watches:
            more["traps"] = layout.traps
            start(services.recheck(layout, share_rechecked(self.steps, terms.jobs_per_round)))
        last = 1 << 31 if last_version is None else last_version
        every = self.options.evaluate_every
        more |= {"evaluate_every": every, "evaluation_problems": self.run_file.goal.problems}
        start(services.trainer(layout, self.options.seed, last_version=last, **more))

    def _wait_until_heard(self) -> None:
        """Waits until the coordinator has heard from every node; raises `Unavailable` if one ends before."""
        deadline = time.monotonic() + STARTING_SECONDS
        with closing(CoordinatorClient(self.layout.url("coordinator"))) as coordinator:
            while missing := set(self.established.nodes.values()) - _heard(coordinator):
                self.insist_on_services()
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"nothing heard from nodes {sorted(missing)} in {STARTING_SECONDS:.0f} s: see the logs"
                    )
                time.sleep(LOOK_SECONDS)

    def _wait_until_listening(self, server: Server) -> None:
        wait_until_listening(self.supervisor.services[server], self.layout.ports[server], self.supervisor)

    def metrics(self) -> Metrics:
        """Returns the trainer's metrics so far."""
        return Metrics.read(self.layout.state("trainer") / "metrics.jsonl")

    def watch(self) -> None:
        """Updates the display once, reports services that ended, and restarts those requested."""
        self.scoreboard.refresh()
        self.view.update(self.metrics(), self.scoreboard.figures())
        if self.watch_of_jurors is not None:
            self.watch_of_jurors.look(self.scoreboard.book)
        for name in self.supervisor.serve_requests():
            self.view.say(f"restarted {name}")
        for name, status in self.supervisor.fallen():
            self.view.say(f"{name} ended with status {status}; restart it with: assize localnet start {name}")

    def finished(self) -> bool:
        """Returns whether the trainer has evaluated its last version, or a trained one that reached the target."""
        return self.metrics().concluding(self.steps, self.options.target_accuracy) is not None

    def run_to_end(self) -> tuple[Outcome, list[str]]:
        """Runs until the schedule is complete and every round has ended; audits and writes the report.

        Returns the outcome, and a sentence for each expectation that was not met.
        """
        started_with = self.supervisor.cpu_seconds()
        while not self.finished():
            self.watch()
            self.insist_on_services()
            time.sleep(LOOK_SECONDS)
        used = self.supervisor.cpu_seconds()
        self._let_rounds_end()
        self.view.say("auditing the ledger against the chain")
        verdict = self.audit()
        outcome = self.outcome(verdict)
        wanted = self.steps if self.options.target_accuracy is None else 1
        cheat = ADVERSARIES[self.options.adversary]
        watched = None if self.watch_of_jurors is None else self.watch_of_jurors.watched(self.scoreboard.book)
        goal = self.run_file.goal
        broken = failures(outcome, wanted, self.steps >= self.run_file.recipe.steps, cheat, goal)
        broken += watched.broken() if watched else []
        cpu_seconds = {name: round(used[name] - started_with.get(name, 0.0), 2) for name in used}
        write_report(self.layout.root / "report", outcome, self.metrics(), broken, cpu_seconds, watched, goal)
        write_page(self.layout.root / "report", self.layout, self.chain)
        return outcome, broken

    def insist_on_services(self) -> None:
        """Raises `Unavailable` if a service has ended: an unattended run has no one to restart it."""
        fallen = [name for name, child in self.supervisor.children.items() if child.poll() is not None]
        if fallen:
            raise Unavailable(f"{fallen[0]} ended unexpectedly:\n{self.supervisor.log_tail(fallen[0])}")

    def _let_rounds_end(self) -> None:
        self.view.say("letting the last rounds settle")
        deadline = time.monotonic() + SETTLING_SECONDS
        while self.scoreboard.rounds_unsettled() and time.monotonic() < deadline:
            self.watch()
            time.sleep(LOOK_SECONDS)

    def audit(self) -> str:
        """Rebuilds a ledger from the chain in a new database and audits it; returns "ok" or the first finding."""
        database = Database(services.ledger_database(self.layout.root / "audit"), self.chain.deployment)
        sync(self.chain, database)
        report = audit(self.chain, database)
        if report.ok:
            return "ok"
        return str(next(check.findings[0] for check in report.checks if check.findings))

    def outcome(self, verdict: str) -> Outcome:
        """Returns the figures of the run."""
        metrics, figures = self.metrics(), self.scoreboard.run_figures()
        last = metrics.concluding(self.steps, self.options.target_accuracy) or metrics.evaluations[-1]
        wall = last["time"] - metrics.began
        return Outcome(
            **asdict(figures),
            accuracy_before=metrics.evaluations[0]["accuracy"],
            accuracy_after=last["accuracy"],
            audit=verdict,
            **self._weights(),
            rollouts_per_second=round(self.scoreboard.rollouts_submitted() / max(wall, 1e-9), 1),
            wall_seconds=round(time.monotonic() - self.started, 1),
            seed=self.options.seed,
        )

    def _weights(self) -> dict[str, Any]:
        """Returns the outcome's figures of weights, from the health files of the honest workers."""
        told = []
        for party in self.scoreboard.parties:
            if party.honest and party.role == "worker" and (self.layout.state(party.name) / HEALTH_FILE).exists():
                told.append(read_health(self.layout.state(party.name), "worker")["activity"].get("weights"))
        records = [record for record in told if record]
        return {
            "weights_received": sum(record["received"] for record in records),
            "weights_whole": sum(record["whole"] for record in records),
            "weights_seconds": statistics.median([record.get("seconds", 0.0) for record in records] or [0.0]),
        }


def _heard(coordinator: CoordinatorClient) -> set[int]:
    """Returns the nodes that sent a heartbeat; none while the coordinator has not read the run from the chain."""
    try:
        return {node.node for node in coordinator.status().nodes if node.last_seen_seconds is not None}
    except (Rejected, Unavailable):
        return set()


MARK = ".assize-localnet"
"""File by which a state folder is known: it is emptied for the next network."""


def fresh(root: Path) -> None:
    """Empties the state folder for a new network.

    Raises:
        Misconfigured: a network is running in it, it holds what is none of a network's, or it cannot be made.
    """
    if read_state(root) is not None:
        raise Misconfigured(f"a local network is running in {root}; end it with: assize localnet down")
    with accessing(f"make the state folder {root}"):
        if root.exists() and any(root.iterdir()) and not any((root / name).exists() for name in (MARK, STATE)):
            raise Misconfigured(f"{root} holds files that no local network made, and would be emptied: give another")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        (root / MARK).touch()
