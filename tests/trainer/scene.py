"""A run on a real chain whose rounds the test drives from opening to tally, with artifacts served over HTTP."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np

from protocol.broadcast.version_store import VersionStore
from protocol.chain.events import CheckpointPublished, RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.plantings import Plantings
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import State, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.environments.environment import Problem, at_version
from protocol.environments.registry import environment
from protocol.transport.artifacts import fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves, unpack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout, encode
from protocol.wire.seeds import job_seed, prompt_seed
from tests.artifacts import signed_head
from tests.coordinator.swarm import Swarm
from tests.dripping import drip
from tests.worker.farm import open_run_with
from trainer.config import Recipe
from trainer.curriculum import Curriculum
from trainer.evaluator import EvaluationPlan, Evaluator
from trainer.inbox import Inbox
from trainer.loop import Schedule, Trainer
from trainer.policy import Policy
from trainer.publish import Publisher

RECIPE = Recipe.builtin(steps=4, groups_per_step=8, groups_to_start=2, optimizer_steps=1)
RIGHT, WRONG = "right", "wrong"


class _Quiet(SimpleHTTPRequestHandler):
    dripped: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        """Drips what is to be dripped."""
        if self.path in self.dripped:
            self.send_response(200)
            self.end_headers()
            drip(self.wfile.write)
            self.close_connection = True
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass
class Scene:
    """A swarm whose second run has real weights. ``close`` it."""

    swarm: Swarm
    model: Path
    directory: Path
    closing: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        tasks = self.swarm.rules.environment
        self.environment = at_version(environment(tasks.name, tasks.params), self.model)
        self.root = open_run_with(self.swarm, self.model)
        self.files = self.directory / "served" / "artifacts"
        self.files.mkdir(parents=True)
        self.dripped = _Quiet.dripped
        self.dripped.clear()
        handler = functools.partial(_Quiet, directory=str(self.files.parent))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.closing.callback(server.server_close)
        self.closing.callback(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    @property
    def chain(self) -> Chain:
        return self.swarm.chain

    def close(self) -> None:
        self.closing.close()

    def policy(self) -> Policy:
        """The model of version 0."""
        return Policy(self.model, RECIPE, self.swarm.rules)

    def inbox(self, policy: Policy, plantings: Plantings | None = None, publisher: Publisher | None = None) -> Inbox:
        """An inbox that has seen nothing yet. It finds the tasks of versions where a ``publisher`` has them."""
        coordinator = self.url
        blobs = BlobStores(trusted=lambda: [coordinator])
        self.closing.callback(blobs.close)

        def fetch(holders: Sequence[str], root: bytes) -> bytes:
            return fetch_artifact(blobs, holders, root, 1 << 20)

        directory = None if publisher is None else publisher.stored
        where = self.chain, self.swarm.run, self.swarm.rules, self.environment
        made = Inbox(*where, policy.model, fetch, plantings, directory)
        self.closing.callback(made.close)
        return made

    def publisher(self, state: Path) -> tuple[Publisher, ExitStack]:
        """A publisher over ``state``, and what ends its hold on the key."""
        stack = ExitStack()
        state.mkdir(parents=True, exist_ok=True)
        sender = Sender(self.chain, self.swarm.trainer, state / "sender.db")
        stack.callback(sender.close)
        store = VersionStore(state / "origin")
        run, trainer, pins = self.swarm.run, self.swarm.trainer, self.swarm.rules.pins
        return Publisher(self.chain, sender, trainer, run, pins, store, self.model, state / "versions"), stack

    def trainer(self, state: Path, last_version: int = 4, evaluated: int = 0) -> tuple[Trainer, ExitStack]:
        """A trainer over ``state``: asking twice is starting it again, once the stack of the first is closed.

        Its versions are ``evaluated`` on so many problems.
        """
        policy = self.policy()
        publisher, stack = self.publisher(state)
        schedule = Schedule(last_version)
        evaluator = Evaluator(self.swarm.rules, EvaluationPlan(evaluated), state / "evaluating") if evaluated else None
        inbox, curriculum = (
            self.inbox(policy, publisher=publisher),
            Curriculum.of(self.environment, RECIPE.groups_to_start),
        )
        trainer = Trainer(policy, inbox, publisher, schedule, state, evaluator, curriculum=curriculum)
        stack.callback(trainer.close)
        return trainer, stack

    def round(self, reasons: Mapping[int, Reason], version: int = 0, answers: Sequence[str] = (RIGHT, WRONG)) -> int:
        """A round judged as said, one job for each reason; its tally is mined. Every group has these answers."""
        round_ = self.unjudged(len(reasons), version, answers)
        self.judge(round_, reasons)
        return round_

    def unjudged(
        self, jobs: int, version: int = 0, answers: Sequence[str] = (RIGHT, WRONG), by: int = 0, dripped: bool = False
    ) -> int:
        """A round whose work is done ``by`` a worker: all of it is in, which closes it. It is not judged.

        Its artifacts are ``dripped``, or served as fast as they are taken.
        """
        swarm, deployment, worker = self.swarm, self.chain.deployment, self.swarm.workers[by]
        assignments = pack_assignments([Listing(worker.node, jobs)])
        opening = calls.open_round(deployment, swarm.run, 1, version, assignments)
        receipt = swarm.send(swarm.coordinator, opening)
        (opened,) = [log.event for log in receipt.logs if isinstance(log.event, RoundOpened)]
        made = [self.artifact(opened.round, job, receipt.block_hash, answers) for job in range(jobs)]
        leaves = pack_leaves([Leaf(job, 1_000, self.keep(artifact)) for job, artifact in enumerate(made)])
        uri = f"{self.url}/artifacts/"
        if dripped:
            self.dripped |= {f"/artifacts/0x{leaf.root.hex()}" for leaf in unpack_leaves(leaves)}
        message = auth.submission(
            deployment.chain_id, deployment.rounds, opened.round, worker.node, receipt.block_hash, leaves, uri
        )
        signed = Submission(worker.node, receipt.block_hash, leaves, uri, worker.key.sign_typed(message))
        swarm.send(swarm.coordinator, calls.submit(deployment, opened.round, assignments, [signed]))
        return opened.round

    def judge(self, round_: int, reasons: Mapping[int, Reason]) -> None:
        """Draws a committee, which votes as said; tallies an appeal, which its last reveal does not."""
        swarm, deployment = self.swarm, self.chain.deployment
        swarm.send(swarm.coordinator, calls.draw(deployment, round_))
        swarm.vote(round_, reasons)
        if self.chain.latest().round(round_).state is State.VOTING:
            swarm.send(swarm.coordinator, calls.tally(deployment, round_))

    def artifact(self, round_: int, job: int, beacon: bytes, answers: Sequence[str]) -> Artifact:
        """One group's completions: answers only, right and wrong ones."""
        deployment, model = self.chain.deployment, self.policy().model
        problem = self.environment.problem(
            prompt_seed(job_seed(deployment.chain_id, deployment.rounds, round_, beacon, job), 0)
        )
        prompt = model.prompt_tokens(problem.prompt, self.swarm.rules)
        rollouts = []
        for answer in answers:
            tokens = (*model.text_tokens(text_of(problem, answer)), model.stop_token)
            logprobs = np.full(len(tokens), -0.5, np.float32)
            rollouts.append(Rollout(np.array(prompt), np.array(tokens), logprobs, (b"\x00" * 8,), "stop"))
        return Artifact(round_, job, self.swarm.workers[0].node, self.root, tuple(rollouts))

    def keep(self, artifact: Artifact) -> bytes:
        """Serves an artifact and returns its root."""
        deployment = self.chain.deployment
        file = encode(artifact)
        head = signed_head(deployment.chain_id, deployment.rounds, file)
        (self.files / f"0x{head.root.hex()}").write_bytes(head.packed + file)
        return head.root

    def published(self) -> list[CheckpointPublished]:
        """Every checkpoint of this run that the chain was told of after the first."""
        tail, found = Tail(self.chain), []
        while blocks := tail.poll():
            assert not isinstance(blocks, Rollback)
            events = [log.event for block in blocks for log in block.logs]
            found += [e for e in events if isinstance(e, CheckpointPublished) and e.run == self.swarm.run and e.version]
        return found


def text_of(problem: Problem, answer: str) -> str:
    """A completion that is the answer, right or wrong."""
    if answer == RIGHT:
        return f"answer {problem.answer}"
    return f"answer {(int(problem.answer) + 1) % 10_000:0{len(problem.answer)}d}"
