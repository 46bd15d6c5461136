"""A check defined in this file alone, with a bound and a reason of its own, is judged, signed, reported and fitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.errors import Misconfigured, Rejected
from protocol.wire import evidence
from protocol.wire.evidence import Evidence, Finding, parse_signed
from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules, Thresholds, decode_rules, encode_rules, rules_hash
from protocol.wire.votes import reasons_of
from tests.validator.conftest import CHAIN_ID, MANIFEST_ROOT, ROUNDS, RULES, Court, fetched
from tests.validator.test_calibration_fitting import RULES_HERE, jobs
from validator.calibration.draft import draft
from validator.calibration.fitting import fit
from validator.calibration.power import reason_under
from validator.judging.check import Bound, Check, TokenMeasurements
from validator.judging.judge import examine
from validator.judging.registry import CHECKS, register, require_known
from validator.judging.verdict import ranking, vote_of
from validator.records.record import EvidenceState
from validator.review.inspection import Inspection
from validator.review.judgement_report import lines, rows, summary

TOY = Reason.register(0x90, "SURPRISE", "the completions are too surprising")


def surprise(measured: TokenMeasurements) -> Any:
    """Mean of −log p over the job's tokens, in nats."""
    return np.asarray(-measured.recomputed_S.mean(dtype=np.float64))


def check_surprise(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    seen, limit = float(surprise(measured)), thresholds.further["surprise"]
    return [Finding(TOY, "mean surprise of the job", None, seen, limit)] if seen > limit else []


CHECK = Check(
    name="toy surprise",
    sentence="the completions are not too surprising",
    reasons=(TOY,),
    compares=check_surprise,
    bounds=(Bound("surprise", "jobs", surprise),),
)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Registers the check for this file alone."""
    register(CHECK)
    yield
    CHECKS.remove(CHECK)


def bounded(rules: Rules, limit: float) -> Rules:
    """The rules with the toy's bound."""
    return rules.model_copy(
        update={"thresholds": Thresholds.from_bounds(rules.thresholds.bounds | {"surprise": limit})}
    )


def inspected(court: Court, limit: float) -> Inspection:
    rules, (claim, data) = bounded(court.rules, limit), court.sample
    (examined,) = examine(court.policy, rules, [fetched(claim, data)])
    return Inspection(examined.judgement, rules, court.policy, examined, EvidenceState(), True)


def test_a_toy_check_refuses_a_job_and_is_named_in_the_bundle_and_in_the_report(court: Court, make_wallet: Any) -> None:
    inspection = inspected(court, 1e-3)
    judgement, rules = inspection.judgement, inspection.rules
    assert judgement.reason is TOY
    bundle = Evidence(
        *(CHAIN_ID, ROUNDS, 1, 1, 0, 3, 0, MANIFEST_ROOT, rules_hash(encode_rules(rules))),
        thresholds=rules.thresholds.bounds,
        jobs=(judgement.evidence,),
    )
    key = make_wallet("juror")
    signed = parse_signed(evidence.sign(bundle, key).canonical, bundle.root)
    signed.verify(key.address)
    (job,) = signed.evidence.jobs
    assert (job.reason, job.reason.name) == (TOY, "SURPRISE")
    assert dict(signed.evidence.thresholds)["surprise"] == job.findings[0].limit == 1e-3
    vote = vote_of({0: job.reason}, bundle.root)
    assert (vote.accept, vote.fraud, vote.reasons) == (0, 0, b"\x90")
    assert reasons_of(vote, 1) == {0: TOY}
    told = {line["check"]: line for line in lines(inspection)}
    assert told["toy surprise"]["passed"] is False
    assert told["toy surprise"]["bound"] == "0.001"
    assert "mean surprise of the job; surprise " in told["toy surprise"]["measured"]
    assert {line["passed"] for name, line in told.items() if name != "toy surprise"} == {True}
    assert rows(judgement)[0]["reason"] == "surprise"
    assert summary(judgement)["reason"] == "the completions are too surprising"


def test_a_job_within_the_bound_is_accepted_and_other_runs_do_not_make_the_check(court: Court) -> None:
    inspection = inspected(court, 1e3)
    assert inspection.reason is Reason.ACCEPTED
    assert {line["check"]: line["passed"] for line in lines(inspection)}["toy surprise"] is True
    (judgement,) = court.judge(court.sample)
    assert judgement.reason is Reason.ACCEPTED
    unbounded = replace(inspection, rules=court.rules)
    assert "toy surprise" not in {line["check"] for line in lines(unbounded)}


def test_calibration_fits_the_bound_and_judges_by_it() -> None:
    honest = jobs(60)
    fitted = fit(honest, bounded(RULES_HERE, 1.0), 0.05, 1.5)
    limit = fitted.rules.thresholds.further["surprise"]
    assert limit >= 1.5 * max(float(surprise(job)) for job in honest)
    assert "surprise" in {law.what for law in fitted.fits}
    strange = replace(honest[0], reported_S=honest[0].reported_S - limit, recomputed_S=honest[0].recomputed_S - limit)
    assert reason_under(strange, fitted.rules) is TOY
    assert fit(honest, RULES_HERE, 0.05, 1.5).rules.thresholds.further == {}
    assert draft(None, None, None, ("transformers",)).thresholds.further == {"surprise": 1.0}


def test_rules_hold_further_bounds_in_their_canonical_form_only_where_there_are_any() -> None:
    rules = bounded(RULES, 0.5)
    assert decode_rules(encode_rules(rules)) == rules
    assert json.loads(encode_rules(rules))["thresholds"]["further"] == {"surprise": 0.5}
    plain = encode_rules(RULES)
    assert b"further" not in plain
    with pytest.raises(Rejected, match="canonical"):
        decode_rules(plain.replace(b'"thresholds":{', b'"thresholds":{"further":{},'))
    for further in (b'{"Surprise":0.5}', b'{"surprise":-1}', b'{"toploc":0.5}', b'{"surprise":NaN}'):
        with pytest.raises(Rejected, match="further"):
            decode_rules(plain.replace(b'"thresholds":{', b'"thresholds":{"further":' + further + b","))


def test_rules_with_a_bound_that_no_check_here_has_are_refused() -> None:
    require_known(bounded(RULES, 0.5).thresholds)
    with pytest.raises(Misconfigured, match="unheard_of"):
        require_known(Thresholds.from_bounds(RULES.thresholds.bounds | {"unheard_of": 0.5}))


def test_names_codes_and_bounds_are_taken_once() -> None:
    (toy,) = [check for check in CHECKS if check.name == "toy surprise"]
    assert ranking()[-1] is TOY
    with pytest.raises(ValueError, match="surprise"):
        register(toy)
    with pytest.raises(ValueError, match="bound"):
        register(replace(toy, name="another", reasons=(), bounds=()))
    for code in (0x90, int(Reason.UNITS), 0x7F, int(Reason.ABSTAIN)):
        with pytest.raises(ValueError, match="reason code"):
            Reason.register(code, "AGAIN", "")


def test_calibrated_rules_kept_on_disk_do_not_change_their_bytes() -> None:
    for path in sorted((Path(__file__).parents[2] / "deploy" / "runs").glob("*-rules.json")):
        encoded = path.read_bytes()
        assert encode_rules(decode_rules(encoded)) == encoded
