"""Every adversary is caught, or its evidence adds up; honest work before the same judge is neither."""

from __future__ import annotations

import numpy as np
import pytest

from deploy.adversaries import ADVERSARIES, FAULTY_VALIDATORS
from deploy.zoo import waiting
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from tests.zoo.asking import Said
from tests.zoo.honest import honest
from tests.zoo.jurors import juror_rows
from tests.zoo.rows import Row, conclude, ratios_of_job
from tests.zoo.stage import Judged, Stage, passed
from tests.zoo.withholders import WITHHOLDERS, withholder_rows
from worker.engines.transformers_engine import TransformersEngine

GROSS_JOBS = 8
SLIGHT_JOBS = 24
FRAUDULENT = {
    "random-tokens": Reason.SAMPLING_FRAUD,
    "cached-answers": Reason.SAMPLING_FRAUD,
    "anothers-artifact": Reason.DUPLICATE,
    "anothers-rollouts": Reason.WRONG_PROMPT,
    "anothers-answers": Reason.SAMPLING_FRAUD,
    "earlier-round": Reason.WRONG_PROMPT,
    "best-of-n": Reason.SAMPLING_FRAUD,
    "edited-answer": Reason.SAMPLING_FRAUD,
    "edited-token": Reason.SAMPLING_FRAUD,
    "early-stop": Reason.SAMPLING_FRAUD,
    "refuses-to-stop": Reason.SAMPLING_FRAUD,
    "smaller-prefilled": Reason.SAMPLING_FRAUD,
    "sibling-prefilled": Reason.SAMPLING_FRAUD,
    "wrong-environment": Reason.WRONG_PROMPT,
    "other-prompts": Reason.WRONG_PROMPT,
}
VOID = {
    "constant-polynomial": Reason.ACTIVATIONS,
    "channel-template": Reason.ACTIVATIONS,
    "other-prompts-proof": Reason.ACTIVATIONS,
    "negated-activations": Reason.ACTIVATIONS,
    "chosen-modulus": Reason.SHAPE,
    "another-modulus": Reason.SHAPE,
    "null-proofs": Reason.SHAPE,
    "no-proofs": Reason.SHAPE,
    "coefficient-free": Reason.SHAPE,
    "extra-proof": Reason.SHAPE,
    "cut-short": Reason.ENDING,
    "inflated-units": Reason.UNITS,
    "wrong-logprobs": Reason.LOGPROBS,
    "other-policy": Reason.WRONG_POLICY,
    "oversized": Reason.SHAPE,
    "zstd-bomb": Reason.SHAPE,
    "snappy-bomb": Reason.SHAPE,
    "dictionary-bomb": Reason.SHAPE,
    "thrift-bomb": Reason.SHAPE,
    "lying-footer": Reason.SHAPE,
}


def jobs_of(stage: Stage, name: str, count: int) -> list[Judged]:
    return [one for part in stage.run(name, count) for one in part]


def row(stage: Stage, name: str, judged: list[Judged]) -> Row:
    return conclude(name, ADVERSARIES[name].kind, judged, stage, Said())


@pytest.mark.parametrize("name", [name for name, entry in ADVERSARIES.items() if entry.kind != "slight"])
def test_no_job_of_a_plain_cheat_passes(stage: Stage, name: str) -> None:
    judged = jobs_of(stage, name, GROSS_JOBS)
    assert judged, "it never cheated"
    assert [one.judgement.reason for one in judged if passed(one)] == []
    found = {one.judgement.reason for one in judged}
    if name in FRAUDULENT:
        assert found == {FRAUDULENT[name]}
    if name in VOID:
        assert found == {VOID[name]}


SLIGHT = [name for name, entry in ADVERSARIES.items() if entry.kind == "slight" and not name.startswith("steering")]
SLOWEST = {name for name in SLIGHT if name.endswith("-prefilled")}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in SLOWEST else ()) for one in SLIGHT]
)
def test_evidence_against_a_slight_cheat_adds_up(stage: Stage, name: str) -> None:
    judged = jobs_of(stage, name, SLIGHT_JOBS)
    total = sum(ratios_of_job(one, stage).choices for one in judged)
    caught = sum(not passed(one) for one in judged)
    assert caught or total > stage.rules.sequential.bound / 10


def test_every_adversary_says_in_a_sentence_what_it_does() -> None:
    for name, entry in ADVERSARIES.items():
        first = (entry.producer().__doc__ or "").strip().splitlines()[0]
        assert first, name


def test_steering_gets_no_further_than_single_jobs_let_it(stage: Stage) -> None:
    for one in jobs_of(stage, "steering", SLIGHT_JOBS):
        measured = one.judgement.evidence.measurements
        assert measured is not None
        assert passed(one)
        assert measured.margin_max_N.max() <= stage.rules.thresholds.sampling_void


@pytest.mark.parametrize(("batch", "jobs"), [(1, 1), (8, 4), (64, 8)])
def test_honest_work_is_accepted_at_any_batch_size_and_leaves_no_record(stage: Stage, batch: int, jobs: int) -> None:
    found = honest(stage, "transformers", TransformersEngine(), batch, 16 * jobs)
    assert (found.jobs, found.fraud, found.void) == (jobs, 0, 0)
    assert found.highest < found.bound / 2


def test_an_edited_token_is_exactly_one_choice_beyond_the_bound(stage: Stage) -> None:
    limit = stage.rules.thresholds.sampling_fraud
    assert limit is not None
    for one in jobs_of(stage, "edited-token", GROSS_JOBS):
        measured = one.judgement.evidence.measurements
        assert measured is not None
        assert measured.flips_N.sum() == 1
        assert limit < measured.margin_max_N.max()


def test_what_makes_the_reference_crash_is_a_finding_here(stage: Stage) -> None:
    for name in ("null-proofs", "coefficient-free", "extra-proof", "half-precision"):
        for one in jobs_of(stage, name, 2):
            findings: tuple[Finding, ...] = one.judgement.evidence.findings
            assert findings
            assert not one.judgement.reason.fraud
            assert np.isfinite([finding.observed for finding in findings]).all()


def test_lazy_jurors_are_found_by_every_job_and_honest_ones_by_none(stage: Stage) -> None:
    rows = {row.name: row for row in juror_rows(stage, 1)}
    honest_ones = [row for name, row in rows.items() if name.startswith("honest")]
    assert [(row.found, row.rounds_to_99) for row in honest_ones] == [(0, None), (0, None)]
    lazy = {name for name in rows if not name.startswith("honest")}
    unlooking = {name for name, place in FAULTY_VALIDATORS.items() if place.startswith("lazy_jurors.")}
    assert lazy - {"reads-the-proofs"} == unlooking
    for name in ("accepts-unread", "hides-bundle"):
        assert (rows[name].unprefilled, rows[name].rounds_to_99) == (rows[name].jobs, 1)
    for name in ("copies-evidence", "reads-the-proofs", "invents-evidence"):
        assert (rows[name].found, rows[name].unprefilled) == (rows[name].jobs, 0)
        assert rows[name].furthest[0] > 10 * max(row.furthest[0] for row in honest_ones)


def test_a_worker_that_does_not_serve_what_it_signed_gains_nothing() -> None:
    rows = withholder_rows(8, 1)
    assert [row.name for row in rows] == list(WITHHOLDERS)
    assert all(row.gained.mean <= 0 for row in rows)
    assert {row.name for row in rows if row.refused < row.rounds} == {
        "junk then truth, with the stores",
        "withhold, with the stores",
    }


@pytest.mark.parametrize("name", ["steering", "steering-in-balance", "steering-within-groups"])
def test_a_record_in_bfloat16_says_who_steers_however_it_pays_for_it(half: Stage, name: str) -> None:
    judged = jobs_of(half, name, SLIGHT_JOBS // 2)
    assert sum(map(passed, judged)) >= len(judged) - 1
    found = waiting.predicted([ratios_of_job(one, half) for one in judged], half.rules.sequential.bound)
    assert found is not None
    assert found < 60
