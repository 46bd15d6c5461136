"""A pretrained model under its committed rules; `make demo MODEL=smollm2` trains it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.environments.registry import environment
from protocol.wire.reasons import Reason
from protocol.wire.rollout import decode
from protocol.wire.rules import with_checkpoint
from tests.conftest import ROOT
from tests.validator.conftest import Court, signed
from validator.judging.weights import load_policy

MODEL = ROOT / "models" / "smollm2"
"""Made by `make model-smollm2`, as `make test` does first."""


@pytest.fixture(scope="module")
def smollm2() -> Court:
    torch.set_num_threads(1)
    rules = with_checkpoint(read_run_file(BUILTIN.with_name("smollm2.toml")).rules, MODEL)
    tasks = environment(rules.environment.name, rules.environment.params)
    return Court(load_policy(MODEL, rules), rules, tasks)


def test_a_pretrained_model_s_answers_are_accepted_and_an_edited_one_is_fraud(smollm2: Court) -> None:
    claim, file = smollm2.honest()
    (honest,) = smollm2.judge((claim, file))
    assert (honest.reason, honest.evidence.findings) == (Reason.ACCEPTED, ())
    artifact = decode(file)
    model = smollm2.policy.model
    stops = model.stop_tokens(smollm2.rules)
    answers = [model.completion_text(rollout.output_tokens, stops) for rollout in artifact.rollouts]
    assert sum(any(letter.isdigit() for letter in answer) for answer in answers) >= len(answers) / 2, answers
    first, *rest = artifact.rollouts
    tokens = (*((token + 1) % 1000 for token in first.output_tokens[:4]), *first.output_tokens[4:])
    (edited,) = smollm2.judge(signed(claim, replace(artifact, rollouts=(replace(first, output_tokens=tokens), *rest))))
    assert edited.reason.fraud
