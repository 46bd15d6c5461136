"""Any bytes as an artifact give a verdict with a reason, and cost the honest job beside them nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from protocol.wire.reasons import Reason
from protocol.wire.rollout import Limits, decode, encode
from tests.artifacts import signed_head
from tests.fuzz.changes import shuffled
from tests.fuzz.changing_artifact import change_artifact
from tests.fuzz.changing_parquet import change_parquet
from tests.validator.conftest import CHAIN_ID, ROUNDS, Court
from validator.judging.claims import Claim

INPUTS, TOGETHER = 2000, 50
WIDE = Limits(proof_bytes=1 << 10)
SMALL = {"groups_per_job": 2, "samples_per_group": 1, "max_tokens": 12}


@pytest.fixture(scope="module")
def small_court(court: Court) -> Court:
    """The tiny policy under rules that make a job of two short rollouts."""
    return replace(court, rules=court.rules.model_copy(update=SMALL))


def hostile(court: Court, claim: Claim, file: bytes, chance: random.Random) -> tuple[Claim, bytes]:
    """A changed artifact, nearly always with the claim of a worker who signed just that."""
    if chance.random() < 0.5:
        data = encode(change_artifact(decode(file), chance), WIDE)
    else:
        data = change_parquet(file, chance, shuffled(chance))
    root = claim.root if chance.random() < 0.1 else signed_head(CHAIN_ID, ROUNDS, data, WIDE).root
    claimed_before, units = chance.random() < 0.1, chance.choice((claim.units, 0, 1 << 63))
    return replace(claim, root=root, claimed_before=claimed_before, units=units), data


@pytest.mark.slow
def test_every_input_gets_a_reason_and_the_honest_job_beside_them_is_accepted(small_court: Court) -> None:
    chance, honest, reasons = random.Random(4), small_court.honest(), Counter[Reason]()
    for _ in range(INPUTS // TOGETHER):
        jobs = [hostile(small_court, *honest, chance) for _ in range(TOGETHER)]
        *judgements, beside = small_court.judge(*jobs, honest)
        assert beside.reason is Reason.ACCEPTED
        for judgement in judgements:
            assert judgement.reason.sentence
            assert judgement.reason is Reason.ACCEPTED or judgement.evidence.findings[0].detail
            reasons[judgement.reason] += 1
    assert sum(reasons.values()) == INPUTS
    wanted = {
        Reason.SHAPE,
        Reason.WRONG_ROOT,
        Reason.WRONG_POLICY,
        Reason.WRONG_PROMPT,
        Reason.SAMPLING_FRAUD,
        Reason.ENDING,
        Reason.UNITS,
    }
    assert wanted <= set(reasons), reasons


def test_bytes_of_no_form_are_not_the_signed_ones(small_court: Court) -> None:
    claim, _ = small_court.honest()
    chance = random.Random(5)
    judgements = small_court.judge(*((claim, chance.randbytes(chance.randrange(400))) for _ in range(300)))
    assert {judgement.reason for judgement in judgements} == {Reason.WRONG_ROOT}
