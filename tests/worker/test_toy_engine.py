"""An engine registered from this file alone works through the real producer, and only where the rules list it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured
from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.rollout import decode, rollouts_root
from protocol.wire.rules import Rules, decode_rules, encode_rules
from tests.coordinator.swarm import RULES
from worker.engines.registry import ENGINES, EngineEntry, find_engine, make_engine
from worker.producer import Producer
from worker.prover import Deployed, Work
from worker.service import engine_of
from worker.settings import WorkerSettings

DEPLOYED = Deployed(31337, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
WORK = Work(5, 7, (2, 9), b"\x0b" * 32, 1, b"\x3a" * 32, max_units=1 << 60)
HIDDEN = 32


class ToyEngine:
    """Repeats the prompt's first token. It has a tokenizer and no network."""

    def __init__(self, dtype: str, device: str) -> None:
        self.made_for, self.version, self.canary = (dtype, device), 0, bytes(32)

    def load(self, directory: Path) -> None:
        tokenizer = load_tokenizer(directory)
        self.model = Model(None, tokenizer, tokenizer.eos_token_id)

    def read_ahead(self, directory: Path) -> None:
        """It reads nothing ahead."""

    def swap(self, directory: Path) -> None:
        self.version += 1

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        return [self._complete(request) for request in requests]

    def _complete(self, request: Request) -> Completion:
        length = request.max_tokens
        hidden_TH = torch.arange(length * HIDDEN).reshape(length, HIDDEN).bfloat16() + self.version
        return Completion((request.prompt_tokens[0],) * length, torch.full((length,), -0.5), hidden_TH, "length")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(ENGINES, "toy", EngineEntry("toy", f"{__name__}:ToyEngine"))
    return "toy"


def rules_for(*engines: str) -> Rules:
    given = RULES.model_dump(mode="json") | {"groups_per_job": 2, "samples_per_group": 3, "max_tokens": 12}
    return Rules.model_validate(given | {"model": RULES.model.model_dump(mode="json") | {"worker_engines": engines}})


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[str], WorkerSettings]:
    def made(engine: str) -> WorkerSettings:
        given = {"addresses": tmp_path, "keystore": "worker", "state_dir": tmp_path, "coordinator_url": "http://c"}
        return WorkerSettings.read(None, run=1, engine=engine, **given)

    return made


def test_the_toy_generates_through_the_producer_into_a_readable_artifact(toy: str, small_model: Path) -> None:
    rules = rules_for(toy)
    producer = Producer(make_engine(toy, rules.model.dtype), rules, Arithmetic(3), DEPLOYED)
    producer.load(0, small_model)
    finished = producer.make(WORK)
    assert [job.job for job in finished] == [2, 9]
    for job in finished:
        artifact = decode(job.file)
        assert (artifact.round, artifact.job, artifact.node) == (5, job.job, 7)
        assert rollouts_root(DEPLOYED.chain_id, DEPLOYED.rounds, artifact) == job.head.rollouts_root
        assert job.units > 0
        for rollout in artifact.rollouts:
            assert rollout.output_tokens.tolist() == [int(rollout.prompt_tokens[0])] * rules.max_tokens
            assert rollout.proofs
    producer.load(1, small_model)
    assert [job.root for job in producer.make(WORK)] != [job.root for job in finished]


def test_rules_that_list_the_toy_are_canonical_and_keep_the_bytes_of_others(toy: str) -> None:
    rules = rules_for(toy)
    assert decode_rules(encode_rules(rules)) == rules
    assert encode_rules(rules_for("transformers")) == encode_rules(rules).replace(b'"toy"', b'"transformers"')


@pytest.mark.parametrize("name", ["", "Toy", "two words", "-toy", "toy\n"])
def test_rules_refuse_what_is_not_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="worker_engines"):
        rules_for(name)


def test_a_worker_runs_the_toy_where_the_rules_list_it(toy: str, settings: Callable[[str], WorkerSettings]) -> None:
    made = engine_of(settings(toy), rules_for("transformers", toy))
    assert isinstance(made, ToyEngine)
    assert made.made_for == ("float32", "cpu")


def test_the_toy_is_refused_by_name_where_the_rules_do_not_list_it(
    toy: str, settings: Callable[[str], WorkerSettings]
) -> None:
    with pytest.raises(Misconfigured, match=r"run 1 does not allow engine 'toy': .* one of transformers"):
        engine_of(settings(toy), rules_for("transformers"))


def test_an_engine_that_is_not_registered_is_refused_with_the_list(
    settings: Callable[[str], WorkerSettings],
) -> None:
    with pytest.raises(Misconfigured, match="unknown engine 'toy': expected one of transformers, vllm"):
        find_engine("toy")
    with pytest.raises(Misconfigured, match=r"ASSIZE_WORKER_ENGINE: .*unknown engine 'toy': expected one of"):
        settings("toy")


def test_an_engine_whose_packages_are_missing_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EngineEntry("toy", f"{__name__}:ToyEngine", ("no-such-distribution",), "run `make toy`")
    monkeypatch.setitem(ENGINES, "toy", entry)
    with pytest.raises(Misconfigured, match="engine toy is not installed: run `make toy`"):
        make_engine("toy", "float32")
