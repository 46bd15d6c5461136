"""A tiny policy with random weights, honest jobs made with it, a judge for them, and all of it on a real chain."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from protocol.broadcast.publishing import publish
from protocol.broadcast.server import create_app
from protocol.broadcast.version_store import VersionStore
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.node.wallet import Wallet
from protocol.tensor.decode import decode
from protocol.wire import manifest
from protocol.wire.api import Health
from protocol.wire.rollout import Artifact, encode
from protocol.wire.rollout import decode as decode_artifact
from protocol.wire.rules import (
    EnvironmentRules,
    ModelRules,
    Rules,
    Sequential,
    Thresholds,
    encode_rules,
    rules_hash,
    with_checkpoint,
)
from tests.artifacts import blob_of, signed_head
from tests.conftest import Anvil, serving
from tests.validator.scene import Cast, Scene
from tests.worker.finishing import finish
from trainer.builtin import character_tokenizer
from validator.daemon import Validator
from validator.judging.claims import Claim
from validator.judging.judge import FetchedJob, Judgement, PolicyVersion, judge
from validator.judging.weights import load_policy
from worker.prover import Deployed, Work, tasks_of

ROUNDS = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
CHAIN_ID = 31337
BEACON = b"\x0b" * 32
MANIFEST_ROOT = b"\x3a" * 32
MAX_UNITS = 1 << 40
THRESHOLDS = Thresholds(
    sampling_void=0.01, sampling_fraud=0.5, logprob_median=1e-3, logprob_tail=1e-2, toploc=0.01, toploc_mean=0.005
)
RULES = Rules(
    model=ModelRules(dtype="float32", head_dtype="float32"),
    environment=EnvironmentRules(name="arithmetic", params={"digits": 2}),
    groups_per_job=4,
    samples_per_group=4,
    temperature=1.0,
    max_tokens=44,
    async_level=1,
    thresholds=THRESHOLDS,
    sequential=Sequential(sigma=1e-4),
)


SAMPLE: list[tuple[Claim, bytes]] = []


@dataclass(frozen=True, slots=True)
class Court:
    """One policy under one set of rules."""

    policy: PolicyVersion
    rules: Rules
    environment: Environment

    @property
    def sample(self) -> tuple[Claim, bytes]:
        """An honest job made once."""
        if not SAMPLE:
            SAMPLE.append(self.honest())
        return SAMPLE[0]

    def honest(self, job: int = 0, round_: int = 1, batch: int = 64) -> tuple[Claim, bytes]:
        """Makes a job as an honest worker does, decoding ``batch`` rollouts at a time."""
        work = Work(round_, 7, (job,), BEACON, 0, MANIFEST_ROOT, MAX_UNITS)
        deployed = Deployed(CHAIN_ID, ROUNDS)
        tasks = tasks_of(work, deployed, self.rules, self.environment, self.policy.model)
        completions = []
        for start in range(0, len(tasks), batch):
            requests = [task.request for task in tasks[start : start + batch]]
            completions += decode(self.policy.model.network, requests)
        (finished,) = finish(work, deployed, self.policy.shape, tasks, completions)
        claim = Claim(
            chain_id=CHAIN_ID,
            rounds=ROUNDS,
            round=round_,
            job=job,
            node=7,
            beacon=BEACON,
            signed_beacon=BEACON,
            manifest_root=MANIFEST_ROOT,
            units=finished.units,
            max_units=MAX_UNITS,
            root=finished.root,
            uri="http://127.0.0.1:1/artifacts/",
            claimed_before=False,
        )
        return claim, finished.file

    @staticmethod
    def make_model(directory: Path, seed: int) -> None:
        """Writes another policy of the same shape."""
        make_model(directory, seed)

    def judge(self, *jobs: tuple[Claim, bytes]) -> list[Judgement]:
        """Judges jobs together."""
        return judge(self.policy, self.rules, [fetched(claim, file) for claim, file in jobs])

    def cheat(self, tamper: Callable[[Artifact], Artifact], job: int = 0) -> Judgement:
        """Makes an honest job, changes its artifact, signs that instead, and judges it."""
        claim, data = self.honest(job)
        artifact = tamper(decode_artifact(data))
        (judgement,) = self.judge(signed(claim, artifact))
        return judgement


def signed(claim: Claim, artifact: Artifact) -> tuple[Claim, bytes]:
    """The claim of someone who signed ``artifact`` in its place."""
    file = encode(artifact)
    return replace(claim, root=signed_head(CHAIN_ID, ROUNDS, file).root), file


def fetched(claim: Claim, file: bytes) -> FetchedJob:
    """A claim and the blob of a file, which may be another than the signed one."""
    return FetchedJob(claim, blob_of(CHAIN_ID, ROUNDS, file))


def make_model(directory: Path, seed: int = 5) -> None:
    """A random Qwen3 whose distributions have the spread of a trained model's, far from uniform."""
    torch.manual_seed(seed)
    tokenizer = character_tokenizer(Arithmetic().alphabet)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.15,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy on disk."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("policy")
    make_model(directory)
    return directory


@pytest.fixture(scope="session")
def court(model_directory: Path) -> Court:
    """The tiny policy and its rules."""
    rules = with_checkpoint(RULES, model_directory)
    return Court(load_policy(model_directory, rules), rules, Arithmetic(2))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files without a word; what is put there is kept."""

    def do_PUT(self) -> None:
        """Keeps a file and says under which root."""
        data = self.rfile.read(int(self.headers["Content-Length"]))
        Path(self.translate_path(self.path)).write_bytes(data)
        answer = json.dumps({"root": self.path.rsplit("/", 1)[1]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and the URL it is served under."""
    directory = tmp_path / "files"
    for name in ("rules", "artifacts", "evidence"):
        (directory / name).mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield directory, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[tuple[VersionStore, str]]:
    """A store of weights and the URL it is served under."""
    store = VersionStore(tmp_path / "origin")
    with serving(create_app(store)) as url:
        yield store, url


@pytest.fixture
def cast(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Cast]:
    """Registers parties; closes what they hold."""
    closing: list[Callable[[], None]] = []
    yield Cast(chain, anvil.url, make_wallet, tmp_path, closing)
    for close in closing:
        close()


@pytest.fixture
def make_scene(
    cast: Cast,
    court: Court,
    model_directory: Path,
    file_server: tuple[Path, str],
    origin: tuple[VersionStore, str],
) -> Callable[..., Scene]:
    """Opens a run; ``rules`` and ``offered`` replace rules and terms.

    With a ``queue_url`` others judge for every validator but the last. ``kinds`` are those of the first validators.
    With ``one_key`` validators' owners have no session keys apart.
    """
    chain = cast.chain

    def make(
        validators: int = 3,
        rules: Rules | None = None,
        queue_url: str = "",
        kinds: Sequence[type[Validator]] = (),
        one_key: bool = False,
        **offered: int,
    ) -> Scene:
        judging = court if rules is None else replace(court, rules=with_checkpoint(rules, model_directory))
        encoded, (files, url), (store, origin_url) = encode_rules(judging.rules), file_server, origin
        (files / "rules" / f"0x{rules_hash(encoded).hex()}").write_bytes(encoded)
        trainer, coordinator = cast.sender("trainer"), cast.sender("coordinator")
        owner, worker, worker_node = cast.node("worker", Role.WORKER)
        queues = [queue_url] * (validators - 1) + [""]
        of_kinds = [*kinds, *([Validator] * (validators - len(kinds)))]
        jurors = [
            cast.juror(f"juror-{index}", origin_url, queue, kind, one_key=one_key)
            for index, (queue, kind) in enumerate(zip(queues, of_kinds, strict=True))
        ]
        root = manifest.from_directory(model_directory, 0).root
        run = cast.run(judging, trainer.signer, coordinator, root, url, **offered)
        (files / "health").write_text(Health(ok=True, run=run, head=0).model_dump_json())
        publish(model_directory, run, 0, chain.chain_id, chain.deployment.market, trainer.signer, store)
        for member, node in ((owner, worker_node), *((juror.owner, juror.node) for juror in jurors)):
            member.send("join", calls.join(chain.deployment, run, node, rules_hash(encoded)))
        cast.closing.extend((lambda juror=juror: juror.close()) for juror in jurors)
        return Scene(
            chain, judging, coordinator, worker, worker_node, run, root, jurors, files, url, origin_url, trainer, owner
        )

    return make
