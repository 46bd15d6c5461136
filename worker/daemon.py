"""The worker's loop: poll for assignments, generate, prove, upload and sign; heartbeats and prefetching run beside it.

The coordinator is not trusted. Its rules must have the hash on chain, its beacon must be the hash of the block that
opened the round, and its policy version must be the one on chain. If it does not relay a submission in time, the
worker sends its own transaction.

Nor is the trainer: jobs of a version that is not what the rules pin are left undone, until it publishes another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog
from eth_utils import keccak
from prometheus_client import Counter, Gauge

from protocol.amounts import WEI, tokens
from protocol.broadcast.checkpoints import Checkpoints
from protocol.broadcast.peer import serve_beside
from protocol.broadcast.sources import Sources
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import RunRules, rules_in_view
from protocol.chain.structs import Role, Round, State, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.environments.environment import Environment
from protocol.environments.registry import environment
from protocol.errors import AssizeError, Misconfigured, Rejected, Unavailable
from protocol.node.activity import WAITING, Activity
from protocol.node.commands.doctor import node_of
from protocol.node.progress import progress_line
from protocol.node.release import ReleaseWatch, behind
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.uploading import Uploader
from protocol.wire import auth
from protocol.wire.api import Assignment, Heartbeat, SubmissionRequest
from protocol.wire.assignments import MAX_LEAVES_PER_BATCH, Leaf, bitmap_of, jobs_of, pack_leaves, unpack_leaves
from protocol.wire.manifest import Authority
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.receipts import CLOCK_SECONDS, CarriedReceipt, Part, check_receipt, write_uri
from protocol.wire.rules import ArtifactStore, Rules
from worker.availability import Drain, QuietHours, recent_block_seconds
from worker.doctor import check_joined, describe
from worker.earnings import EARNINGS_FILE, OUTCOMES, Earnings, RefusedJob, outcome_of, refused_jobs, waits_for
from worker.engines.engine import Engine
from worker.offering import offer_of
from worker.outbox import Outbox
from worker.producer import SECONDS, Producer
from worker.prover import Deployed, Work
from worker.settings import WorkerSettings
from worker.weights_record import WeightsRecord

ROLLOUTS = Counter("assize_worker_rollouts", "Rollouts generated and proved")
TAKEN = Counter("assize_worker_jobs_taken", "Jobs handed in")
ENDED = Counter(
    "assize_worker_jobs_ended", "Jobs of ended rounds by outcome; missing are those not handed in", ["outcome"]
)
for _outcome in OUTCOMES:
    ENDED.labels(_outcome)  # 0 from the start, so that the first one shows as an increase
EARNED = Counter("assize_worker_earned_tokens", "Credits that ended rounds paid, appeals aside")
LAST_JOB = Gauge("assize_worker_last_job_timestamp_seconds", "When jobs were last handed in; before, when it started")
LOADED = Gauge("assize_worker_version", "Version of the weights that it works with; -1 before any")
SPEED = Gauge("assize_worker_tokens_per_second", "Tokens a second of the last jobs")
LISTED = Gauge("assize_worker_listed", "1 while the coordinator lists the node for jobs")

PREFETCH_SECONDS = 0.5
PROGRESS_SECONDS = 0.5
HOUSEKEEPING_SECONDS = 5.0
FIRST_HEARTBEAT_SECONDS, FIRST_HEARTBEAT_GROWTH = 0.5, 1.1
CLOSE_SECONDS = 5.0
OWN_SUBMISSION_SHARE = 0.25
DRAIN_SECONDS, DRAIN_BLOCKS, LONGEST_DRAIN_SECONDS = 10.0, 5, 120.0
"""Time after the coordinator knows of a drain until no round opens any more that was prepared before: at least these
seconds, and so many of the chain's recent blocks, though not for longer than the last."""
REFUSED_SECONDS = 0.5
"""Pause while the only jobs to do are of a version that the worker refuses."""

Produce = Callable[[Engine, Rules, Environment, Deployed], Producer]
"""Makes a worker's producer once rules and deployment are known: ``Producer``, or an adversary's subclass."""


class Worker:
    """One node of one run. ``engine`` generates; ``produce`` makes the producer of artifacts."""

    def __init__(
        self,
        settings: WorkerSettings,
        signer: auth.Signer,
        chain: Chain,
        client: CoordinatorClient,
        sender: Sender,
        engine: Engine,
        produce: Produce = Producer,
    ) -> None:
        self.settings, self.signer, self.chain, self.client = settings, signer, chain, client
        self.sender = sender
        self.log = structlog.get_logger("worker")
        self.outbox = Outbox(settings.state_dir / "rounds")
        self.deployed = Deployed(chain.chain_id, chain.deployment.address_of("Rounds"))
        self.earnings = Earnings(settings.state_dir / EARNINGS_FILE)
        self.hardware = describe()
        self.activity = Activity()
        self.made_in: dict[int, float] = {}
        self.reasons: list[str] = []
        self.weights = WeightsRecord()
        self._appeared: dict[int, float] = {}
        self._progress_again_at = 0.0
        self.stopped = threading.Event()
        self.threads: list[threading.Thread] = []
        self.next_housekeeping = 0.0
        self.refused: set[str] = set()
        self.quiet_hours = QuietHours.parse(settings.quiet_hours)
        self.drain = Drain(settings.state_dir)
        self.unlisted_since: float | None = None
        self.wait_seconds = settings.wait_seconds
        self._take_part()
        tasks = environment(self.rules.environment.name, self.rules.environment.params)
        self.producer = produce(engine, self.rules, tasks, self.deployed)
        self.activity.note(node=self.node, run=settings.run, version=None)
        LAST_JOB.set_to_current_time()
        LOADED.set(-1)
        self.releases = ReleaseWatch(self._rules_in_view, self._rules_of, self._note_behind)

    def _take_part(self) -> None:
        """Reads this node, its run and the rules it joined from the chain."""
        self.node = node_of(self.chain, self.signer.address, Role.WORKER)
        self.terms = check_joined(self.chain, self.settings.run, self.node)
        self.rules = self.client.rules(self.terms.rules_hash)
        self.too_old = behind(self.settings.run, self.rules)
        authority = Authority(self.chain.chain_id, self.chain.deployment.address_of("Market"), self.terms.trainer)
        most = int(self.settings.weights_mib_per_second * 2**20)
        named = [*self.client.run(self.settings.run).weights_from, *self.settings.weights_from]
        sources = Sources(named, most_bytes_per_second=most)
        room = int(self.settings.weights_disk_gib * 2**30)
        folder = self.settings.state_dir / "checkpoints"
        self.stores = [self.client, *self._other_stores()]
        self.uploaders = [Uploader(store, self.settings.uploads_to) for store in self.stores]
        self.checkpoints = Checkpoints(sources, self.settings.run, authority, folder, self.rules, room)
        self.checkpoints.progress = self._note_progress
        if self.settings.serve_weights:
            port = serve_beside(self.checkpoints.store, self.settings.serve_weights, most)
            self.log.info("serving_weights", port=port)

    def _other_stores(self) -> list[CoordinatorClient]:
        """Returns clients of the run's stores besides the coordinator."""
        where = (self.signer, self.chain.chain_id, self.chain.deployment.address_of("Rounds"), self.settings.run)
        urls = [store.url.rstrip("/") for store in self.rules.stores]
        return [CoordinatorClient(url, *where) for url in urls if url != self.client.base_url]

    def start_background(self) -> None:
        """Starts the threads that send heartbeats and fetch new versions while the current one generates."""
        for task in (self._beat, self._prefetch):
            self.threads.append(threading.Thread(target=task, name=task.__name__.strip("_"), daemon=True))
            self.threads[-1].start()
        self.releases.start()

    def _rules_in_view(self) -> tuple[RunRules, ...]:
        return rules_in_view(self.chain.latest(), self.settings.run, time.time())

    def _rules_of(self, _: int, digest: bytes) -> Rules:
        return self.client.rules(digest)

    def _note_behind(self, sentences: Sequence[str]) -> None:
        self.activity.note(behind=list(sentences))

    def close(self) -> None:
        """Ends the background threads and closes the connections, which frees the key for another process."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        self.releases.close()
        for thread in self.threads:
            thread.join(CLOSE_SECONDS)
        for uploader in self.uploaders:
            uploader.close()
            uploader.client.close()
        for held in (self.sender, self.checkpoints.sources, self.chain):
            held.close()

    @property
    def available(self) -> bool:
        """True unless it drains, has its quiet hours, or is older than the rules ask for: it takes no new jobs then."""
        quiet = self.quiet_hours is not None and self.quiet_hours.include(datetime.now().time())
        return not (quiet or self.drain.asked or self.too_old)

    def drained(self) -> bool:
        """Returns whether a drain is done: not listed any more, and all its jobs are on the chain or too late."""
        since = self.unlisted_since
        if not self.drain.asked or since is None or time.monotonic() - since < self._drain_seconds():
            return False
        if self._assignments():
            return False
        reader = self.chain.latest()
        return not any(self._owes(round_, reader.round(round_)) for round_ in self.outbox.rounds())

    def _assignments(self, wait_seconds: int = 0) -> list[Assignment]:
        """Returns the rounds that wait for this node; a node that is banned and has none left may drain all the same.

        Raises:
            Rejected: the coordinator refuses to say, and no drain is asked for.
        """
        try:
            return self.client.assignments(self.node, wait_seconds)
        except Rejected:
            if self.drain.asked:
                return []
            raise

    def _drain_seconds(self) -> float:
        return max(DRAIN_SECONDS, min(DRAIN_BLOCKS * recent_block_seconds(self.chain), LONGEST_DRAIN_SECONDS))

    def _owes(self, round_: int, standing: Round) -> bool:
        """Returns whether the round still takes submissions and lacks jobs that this node signed."""
        return standing.state is State.OPEN and bool(bitmap_of(self.outbox.signed_jobs(round_)) & ~standing.submitted)

    def tick(self) -> bool:
        """Works through the current assignments. Returns whether any of them could be done."""
        self._keep_house_if_due()
        self.sender.tend()
        if self.producer.loaded is None:
            with self._refusing_unfit():
                if not self._load_newest():
                    return False
        self.activity.doing(WAITING, f"for an update: {self.too_old}" if self.too_old else waits_for(self.reasons))
        self.activity.note(rounds=self.outbox.rounds())
        assignments = self._assignments(int(self.wait_seconds))
        done = 0
        for assignment in assignments:
            with self._refusing_unfit():
                self._work_on(assignment)
                done += 1
        if assignments and not done:
            self.stopped.wait(REFUSED_SECONDS)
        return bool(done)

    @contextmanager
    def _refusing_unfit(self) -> Iterator[None]:
        """Skips what needs a version that is not what the rules pin; says so once."""
        try:
            yield
        except UnfitCheckpoint as error:
            if str(error) not in self.refused:
                self.refused.add(str(error))
                self.log.warning("checkpoint_refused", error=f"{error}; waiting for the next version")
                self.activity.doing(WAITING, f"for another version: {error}")

    def _work_on(self, assignment: Assignment) -> None:
        work = self._checked(assignment)
        log = self.log.bind(round=work.round, step=assignment.step)
        self.outbox.remember(assignment)
        # Leaves are kept last: an artifact without one was left by a crash and is made again.
        unsigned = {leaf.job for leaf in self.outbox.unsigned_leaves(work.round)}
        missing = tuple(sorted(set(work.jobs) - self.outbox.signed_jobs(work.round) - unsigned))
        if missing:
            started = time.monotonic()
            self._make(work, missing)
            self.made_in[work.round] = round(time.monotonic() - started, 3)
            log.info("generated", jobs=len(missing), seconds=self.made_in[work.round])
        self.activity.doing("uploading", f"round {work.round}, {len(work.jobs)} jobs")
        with SECONDS.labels("upload").time():
            for job in assignment.jobs:
                self._upload(work.round, job, self.outbox.artifact(work.round, job) or b"")
            self._sign(work)
            self._hand_in(work.round, set(assignment.jobs))
        TAKEN.inc(len(assignment.jobs))
        LAST_JOB.set_to_current_time()
        log.info("submitted", jobs=len(work.jobs))

    def _checked(self, assignment: Assignment) -> Work:
        """Returns the work of an assignment, verified against the chain.

        Raises:
            Unavailable: this node's RPC lags behind and does not know the round.
            Rejected: the assignment differs from the chain.
            Misconfigured: the owner has joined at other rules since this worker was started.
        """
        reader = self.chain.latest()
        standing = reader.round(assignment.round)
        if standing.state is State.NONE:
            raise Unavailable(f"this node's RPC does not know round {assignment.round} yet")
        beacon = self.chain.block(standing.open_block).hash
        if beacon != assignment.beacon:
            raise Rejected(f"round {assignment.round}: the coordinator's beacon is not the hash of the opening block")
        if (standing.run, standing.policy_version) != (self.settings.run, assignment.policy_version):
            raise Rejected(f"round {assignment.round}: the coordinator names another run or policy than the chain")
        if keccak(assignment.assignments) != standing.assignments_hash:
            raise Rejected(f"round {assignment.round}: the coordinator's assignments are not those on chain")
        if reader.joined_at(standing.run, self.node) not in (self.terms.rules_hash, bytes(32)):
            raise Misconfigured(f"node {self.node} has joined run {standing.run} at new rules: start the worker again")
        root = reader.manifest_root(standing.run, standing.policy_version)
        return Work(
            round=assignment.round,
            node=self.node,
            jobs=jobs_of(assignment.assignments, self.node),
            beacon=beacon,
            policy_version=assignment.policy_version,
            manifest_root=root,
            max_units=self.terms.max_units,
        )

    def _make(self, work: Work, missing: tuple[int, ...]) -> None:
        """Generates and proves the ``missing`` jobs, and keeps artifacts and leaves."""
        self._load(work.policy_version, work.manifest_root)
        self.producer.tell = lambda part: self.activity.doing(part, f"round {work.round}, {len(missing)} jobs")
        finished = self.producer.make(replace(work, jobs=missing), self.stopped)
        if self.producer.tokens_per_second is not None:
            self.activity.note(tokens_per_second=round(self.producer.tokens_per_second, 1))
            SPEED.set(self.producer.tokens_per_second)
        for job in finished:
            self.outbox.put_artifact(work.round, job.job, job.file)
            self.outbox.put_leaf(work.round, Leaf(job.job, job.units, job.root))
        ROLLOUTS.inc(len(finished) * self.rules.rollouts_per_job)

    def _sign(self, work: Work) -> None:
        """Signs the leaves of uploaded artifacts, with the receipts that the run's rules ask for."""
        leaves = self.outbox.unsigned_leaves(work.round)
        for start in range(0, len(leaves), MAX_LEAVES_PER_BATCH):
            part = leaves[start : start + MAX_LEAVES_PER_BATCH]
            packed = pack_leaves(part)
            uri = write_uri((self.client.artifacts_uri,), self._receipts(work, packed))
            message = auth.submission(
                self.deployed.chain_id, self.deployed.rounds, work.round, work.node, work.beacon, packed, uri
            )
            signed = SubmissionRequest(
                node=work.node, beacon=work.beacon, leaves=packed, uri=uri, signature=self.signer.sign_typed(message)
            )
            self.outbox.put_submission(work.round, part[0].job, signed)

    def _upload(self, round_: int, job: int, artifact: bytes) -> None:
        """Uploads an artifact to the coordinator, and to the run's other stores as far as they take it."""
        first, *others = self.uploaders
        first.upload(round_, job, self.node, artifact)
        for store in others:
            try:
                store.upload(round_, job, self.node, artifact)
            except (Unavailable, Rejected) as error:
                self.log.warning("not_stored", store=store.client.base_url, round=round_, job=job, error=str(error))

    def _receipts(self, work: Work, packed: bytes) -> list[CarriedReceipt]:
        """Returns receipts of as many of the run's stores as its rules ask for, each checked as a juror does.

        Raises:
            Unavailable: too few stores give one.
        """
        availability, found, problem = self.rules.availability, list[CarriedReceipt](), ""
        if availability is None:
            return []
        place, now = (self.settings.run, work.round, work.node, packed, ""), int(time.time())
        part = Part(self.deployed.chain_id, self.deployed.rounds, *place, now)
        for index, named in enumerate(availability.stores):
            try:
                given = self._store(named).receipt(work.round, work.node, packed)
                receipt = CarriedReceipt(index, given.time, given.signature)
                check_receipt(receipt, availability.stores, part)
                if receipt.time < now - CLOCK_SECONDS:
                    raise Rejected(f"the receipt is of {now - receipt.time} s ago: check this machine's clock")
            except (Unavailable, Rejected) as error:
                problem = f"{named.url}: {error}"
            else:
                found.append(receipt)
            if len(found) == availability.receipts:
                return found
        raise Unavailable(f"{len(found)} of {availability.receipts} receipts for round {work.round}: {problem}")

    def _store(self, named: ArtifactStore) -> CoordinatorClient:
        return next(store for store in self.stores if store.base_url == named.url.rstrip("/"))

    def _hand_in(self, round_: int, asked: set[int]) -> None:
        """Sends the signatures of the jobs ``asked`` for; the coordinator lists a job until it holds its signature."""
        for submission in self.outbox.submissions(round_):
            if asked & {leaf.job for leaf in unpack_leaves(submission.leaves)}:
                self.client.submit(round_, submission)

    def _load(self, version: int, root: bytes) -> None:
        if version != self.producer.loaded:
            self.activity.doing("fetching weights", f"version {version}")
            directory = self.checkpoints.directory(version, root)
            self.activity.doing("loading weights", f"version {version}")
            began = time.monotonic()
            self.producer.load(version, directory)
            loaded = time.monotonic()
            LOADED.set(version)
            self.weights.loaded(loaded - self._appeared.get(version, began), loaded - began)
            self.activity.note(version=version, weights=self.weights.figures(self.checkpoints.fetched))
            threading.Thread(target=self._check_loaded, args=(version, root, directory), daemon=True).start()

    def _note_progress(self, version: int, done: int, total: int, seconds: float) -> None:
        """Keeps the words on a fetch current for people who watch, a few times a second."""
        now = time.monotonic()
        if done < total and now < self._progress_again_at:
            return
        self._progress_again_at = now + PROGRESS_SECONDS
        words = progress_line(f"version {version}", done, total, seconds)
        self.activity.note(fetching=words if done < total else "")

    def _check_loaded(self, version: int, root: bytes, directory: Path) -> None:
        """Notes whether the weights in memory hash to the manifest, once, while the worker works with them."""
        manifest = self.checkpoints.store.manifest(self.settings.run, version, root)
        try:
            if manifest is None or self.producer.engine.model.network is None:
                return  # an engine that keeps them in a process of its own
            differing = self.producer.engine.model.differing(manifest.manifest, directory)
        except Exception as error:  # the version was dropped meanwhile, or the engine holds another model
            self.log.warning("weights_not_checked", version=version, error=repr(error))
            return
        if version != self.producer.loaded:
            return
        self.activity.note(loaded={"version": version, "manifest_root": "0x" + root.hex(), "differing": differing})
        if differing:
            self.log.error("weights_differ", version=version, files=differing)

    def _load_newest(self) -> bool:
        """Loads the newest version before any assignment: nodes are listed once loaded, and engines start slowly.

        Returns:
            Whether it is loaded; a new run's first version may not be served yet.
        """
        reader = self.chain.latest()
        version = reader.run(self.settings.run).version
        root = reader.manifest_root(self.settings.run, version)
        self.activity.doing("fetching weights", f"version {version}")
        try:
            self.checkpoints.directory(version, root)
        except Unavailable as error:  # the prefetch logs why
            self.activity.doing(WAITING, f"for the weights of version {version}: {error}")
            self.stopped.wait(PREFETCH_SECONDS)
            return False
        self._load(version, root)
        return True

    def _prefetch(self) -> None:
        held = -1
        while not self.stopped.wait(PREFETCH_SECONDS):
            try:
                reader = self.chain.latest()
                version = reader.run(self.settings.run).version
                if version > held:
                    if version not in self._appeared:
                        self._appeared = {version: time.monotonic()}
                    with self._refusing_unfit():
                        root = reader.manifest_root(self.settings.run, version)
                        self.producer.read_ahead(version, self.checkpoints.directory(version, root))
                    held = version
            except Exception as error:  # the outermost loop of this thread: any failure is retried
                self.log.warning("prefetch_failed", error=str(error) if isinstance(error, AssizeError) else repr(error))
                self.stopped.wait(1.0)

    def _beat(self) -> None:
        """Sends heartbeats, at first more often, until a version is loaded; logs once why the node is not listed."""
        told: list[str] = []
        longest = self.settings.heartbeat_seconds
        pause = min(FIRST_HEARTBEAT_SECONDS, longest)
        while not self.stopped.is_set():
            version = None if self.producer.loaded is None else self.checkpoints.newest()
            try:
                available = self.available
                offer = offer_of(self.settings, self.hardware, self.producer)
                beat = Heartbeat(
                    node=self.node, version=version, hardware=self.hardware, available=available, offer=offer
                )
                reply = self.client.heartbeat(beat)
                longest = reply.heartbeat_seconds or longest
                self._take_wait(reply.wait_seconds)
                self._note_listing(available)
                LISTED.set(available and not reply.reasons)
                if reply.reasons != told:
                    self.log.info("listed" if not reply.reasons else "not_listed", why=reply.reasons)
                    told = self.reasons = reply.reasons
            except AssizeError as error:
                self.log.warning("heartbeat_failed", error=str(error))
            # A node may be without a version for ever: retired, or called on for traps alone.
            pause = longest if version is not None else min(FIRST_HEARTBEAT_GROWTH * pause, longest)
            self.stopped.wait(pause)

    def _take_wait(self, told: float | None) -> None:
        """Takes the coordinator's time for requests that wait, less where rounds must be looked at sooner."""
        if told is not None:
            most = OWN_SUBMISSION_SHARE * self.terms.work_seconds / 2
            self.wait_seconds = max(self.settings.wait_seconds, min(told, most))

    def _note_listing(self, available: bool) -> None:
        """Notes since when the coordinator knows that the node takes no new jobs."""
        if available:
            self.unlisted_since = None
        elif self.unlisted_since is None:
            self.unlisted_since = time.monotonic()

    def _keep_house_if_due(self) -> None:
        """Drops rounds that have ended; submits what the chain still lacks shortly before the deadline."""
        if time.monotonic() < self.next_housekeeping:
            return
        self.next_housekeeping = time.monotonic() + HOUSEKEEPING_SECONDS
        # An idle chain's newest block may be old: use the later of chain time and wall clock.
        now, reader = max(self.chain.head().timestamp, int(time.time())), self.chain.latest()
        for round_ in self.outbox.rounds():
            standing = reader.round(round_)
            if standing.state in (State.SETTLED, State.VOID):
                self._tell_outcome(round_, standing)
                self.outbox.drop(round_)
            elif standing.state is State.OPEN:
                remaining = standing.deadline - now
                if 0 <= remaining < OWN_SUBMISSION_SHARE * self.terms.work_seconds:
                    self._submit_for_itself(round_, standing.submitted)

    def _tell_outcome(self, round_: int, standing: Round) -> None:
        """Logs what became of this node's jobs in a round that has ended, and what it earned."""
        assignment = self.outbox.assignment(round_)
        if assignment is None:
            return
        signed = [unpack_leaves(submission.leaves) for submission in self.outbox.submissions(round_)]
        units = {leaf.job: leaf.units for leaves in signed for leaf in leaves}
        jobs = len(jobs_of(assignment.assignments, self.node))
        outcome = outcome_of(standing, jobs, units, self.terms)
        today = self.earnings.add(outcome)
        for name, number in outcome.counts().items():
            ENDED.labels(name).inc(number)
        EARNED.inc(outcome.earned / WEI)
        money = {"earned": tokens(outcome.earned), "today": tokens(today)}
        seconds = self.made_in.pop(round_, None)
        timed = {} if seconds is None else {"seconds": seconds}
        self.log.info("round_ended", round=round_, jobs=jobs, **timed, **outcome.counts(), **money)
        for job, verdict in refused_jobs(standing, units):
            self.earnings.refuse(RefusedJob(round_, job, verdict, assignment.open_block, int(time.time())))

    def _submit_for_itself(self, round_: int, submitted: int) -> None:
        assignment = self.outbox.assignment(round_)
        if assignment is None:
            return
        for request in self.outbox.submissions(round_):
            if bitmap_of(leaf.job for leaf in unpack_leaves(request.leaves)) & submitted:
                continue
            own = Submission(request.node, request.beacon, request.leaves, request.uri, request.signature)
            call = calls.submit(self.chain.deployment, round_, assignment.assignments, (own,))
            self.sender.send(f"submit/{round_}", call)
            self.log.warning("submitted_for_itself", round=round_)
