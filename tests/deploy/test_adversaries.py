"""The cheat changes what it says it changes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deploy.adversaries import ADVERSARIES, FAULTY_VALIDATORS, adversary, faulty_validator
from deploy.adversaries.condemns_honest import condemn
from deploy.adversaries.edited_answer import edited
from deploy.localnet.commands import BUILTIN, options_of
from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured
from protocol.tensor.completions import Completion
from protocol.tensor.model import Model, load_model
from protocol.wire.evidence import JobEvidence
from protocol.wire.reasons import Reason
from trainer.builtin import Warmup, make_builtin
from validator.daemon import Validator
from validator.judging.claims import Claim
from validator.judging.judge import Judgement
from validator.judging.verdict import vote_of
from worker.producer import Producer

ENVIRONMENT = Arithmetic(3)
MODELS: list[Model] = []


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tokenizer with a network that nobody asks."""
    if not MODELS:
        torch.set_num_threads(1)
        directory: Path = tmp_path_factory.mktemp("model") / "v0"
        make_builtin(directory, 3, ENVIRONMENT, Warmup(hidden=32, intermediate=32, steps=0))
        MODELS.append(load_model(directory, torch.float32))
    return MODELS[0]


def completion(model: Model, text: str, ends: bool = True) -> Completion:
    tokens = (*model.text_tokens(text), *([model.stop_token] if ends else []))
    return Completion(tokens, torch.zeros(len(tokens)), torch.ones(len(tokens), 4), "stop" if ends else "length")


def test_a_faulty_validator_votes_fraud_and_says_so_in_its_evidence() -> None:
    assert all(issubclass(faulty_validator(name), Validator) for name in FAULTY_VALIDATORS)
    honest = JobEvidence(3, 7, b"\x01" * 32, Reason.ACCEPTED, 10, 10, (), None)
    claim = Claim(1, "", 2, 3, 7, b"", b"", b"", 10, 10, b"\x01" * 32, "", False)
    found = condemn(Judgement(claim, honest))
    assert found.reason is Reason.SAMPLING_FRAUD
    assert found.evidence.findings
    assert vote_of({3: found.reason}, bytes(32)).fraud == 1 << 3


def test_every_adversary_is_a_producer_and_an_unknown_one_is_told_the_names() -> None:
    assert all(issubclass(adversary(name), Producer) for name in ADVERSARIES)
    with pytest.raises(Misconfigured, match=r"unknown adversary .* expected one of .*edited-answer"):
        adversary("honest")


@given(seed=st.binary(min_size=32, max_size=32), slips=st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3))
def test_a_wrong_answer_becomes_right_at_the_same_length_and_nothing_else_changes(
    model: Model, seed: bytes, slips: list[int]
) -> None:
    problem = ENVIRONMENT.problem(seed)
    made = completion(model, ENVIRONMENT.working(problem, slips))
    changed = edited(model, ENVIRONMENT, problem, made)
    before, after = (model.completion_text(each.output_tokens, (model.stop_token,)) for each in (made, changed))
    assert ENVIRONMENT.reward(problem, after) == 1.0
    assert len(changed.output_tokens) == len(made.output_tokens)
    assert changed.output_tokens[-1] == model.stop_token
    assert after[: -len(problem.answer)] == before[: -len(problem.answer)]
    assert changed.logprobs_T is made.logprobs_T
    assert changed.hidden_TH is made.hidden_TH
    if ENVIRONMENT.reward(problem, before) == 1.0:
        assert changed is made


@given(seed=st.binary(min_size=32, max_size=32), text=st.text(st.sampled_from(ENVIRONMENT.alphabet), max_size=40))
def test_a_completion_without_an_answer_is_left_alone_and_none_grows(model: Model, seed: bytes, text: str) -> None:
    problem = ENVIRONMENT.problem(seed)
    made = completion(model, text, ends=False)
    changed = edited(model, ENVIRONMENT, problem, made)
    assert len(changed.output_tokens) == len(made.output_tokens)
    if "answer" not in text:
        assert changed is made


@pytest.mark.parametrize(
    ("typed", "tasks", "runs"),
    [
        (None, None, "edited-answer"),
        (None, "t.parquet", "random-tokens"),
        ("edited-answer", "t.parquet", "edited-answer"),
    ],
)
def test_the_local_networks_cheat_follows_from_its_tasks_unless_it_is_named(
    typed: str | None, tasks: str | None, runs: str, tmp_path: Path
) -> None:
    options = options_of(tmp_path, BUILTIN, None, typed, tasks=tasks and Path(tasks))
    assert options.adversary == runs
