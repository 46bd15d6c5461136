"""The test over a node's settled jobs: what it condemns, how soon, and whom it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.evidence import Measurements
from protocol.wire.reasons import Reason
from protocol.wire.rules import Sequential
from validator.judging.statistics import log_likelihood_ratios
from validator.records.record import (
    CLEARING_SHARE,
    RAISING_SHARE,
    Bundle,
    EvidenceState,
    NamedBundle,
    OwnerRecord,
    Ratios,
    Records,
    RoundFigures,
    SettledRound,
    excursion,
    finding_on,
    lopsidedness,
    ratios_of,
    record_after,
)

OWNER, OTHER = "0x7", "0x8"
JURORS = (1, 2, 3)
SEQUENTIAL = Sequential(sigma=0.01)
BOUND = SEQUENTIAL.bound


def settled(number: int, jobs: int = 1, owner: str = OWNER, condemned: bool = False) -> SettledRound:
    """A round of ``jobs`` jobs, each of another node of one owner, that settled in block 10 × ``number``."""
    return SettledRound(
        round=number,
        beacon=b"\x0b" * 32,
        run=1,
        rules_hash=b"\x01" * 32,
        attempt=0,
        settled_in=10 * number,
        bundles=tuple(NamedBundle(juror, "0x", bytes([juror]) * 32) for juror in JURORS),
        nodes=dict(enumerate(range(jobs))),
        owners=dict.fromkeys(range(jobs), owner),
        condemned=frozenset({owner} if condemned else ()),
    )


def view(*choices: float, seated: bool = True, stated: Sequence[Bundle] = ()) -> RoundFigures:
    """A round before a juror that measured jobs 0, 1, ... itself."""
    return RoundFigures({job: Ratios(x, 0.0, 0.0) for job, x in enumerate(choices)}, seated, stated)


def stating(x: float) -> Bundle:
    """Another juror's bundle on job 0."""
    return {0: Ratios(x, x, x)}


def before(records: Records, owner: str, block: int) -> EvidenceState:
    """What the juror has derived of ``owner`` from rounds that settled before ``block``."""
    past = records.before(owner, block)
    return past[-1][1].derived if past else EvidenceState()


def ratios() -> st.SearchStrategy[float]:
    """What a job may say, in nats."""
    return st.floats(-50, 50, allow_nan=False)


@given(st.lists(ratios(), max_size=30))
def test_a_standing_is_the_best_case_over_all_runs_of_jobs_that_end_now(xs: list[float]) -> None:
    state = EvidenceState()
    for x in xs:
        state = state.after(Ratios(x, 0.0, 0.0))
    best = max((sum(xs[start:]) for start in range(len(xs))), default=0.0)
    assert state.choices == pytest.approx(max(0.0, best), abs=1e-6)


@given(st.lists(st.lists(ratios(), min_size=1, max_size=3), max_size=8))
def test_rounds_and_the_jobs_in_them_count_in_their_order(rounds: list[list[float]]) -> None:
    records, one_by_one = Records(SEQUENTIAL), EvidenceState()
    for number, jobs in enumerate(rounds, 1):
        records.settle(settled(number, len(jobs)), view(*jobs))
        for x in jobs:
            one_by_one = one_by_one.after(Ratios(x, 0.0, 0.0))
    assert before(records, OWNER, 10 * len(rounds) + 1) == one_by_one


@given(st.lists(ratios(), min_size=1, max_size=8), st.integers(0, 100))
def test_only_rounds_settled_in_an_earlier_block_count(xs: list[float], block: int) -> None:
    records, state = Records(SEQUENTIAL), EvidenceState()
    for number, x in enumerate(xs, 1):
        records.settle(settled(number), view(x))
        if 10 * number < block:
            state = state.after(Ratios(x, 0.0, 0.0))
    assert before(records, OWNER, block) == state
    assert before(records, OTHER, block) == EvidenceState()


@given(st.lists(ratios(), min_size=1, max_size=6), st.data())
def test_a_restart_with_the_same_bundles_comes_to_the_same(xs: list[float], data: st.DataObject) -> None:
    def fold() -> Records:
        records = Records(SEQUENTIAL)
        for number, x in enumerate(xs, 1):
            records.settle(settled(number), view(x))
        return records

    block = data.draw(st.integers(0, 10 * len(xs) + 5))
    assert before(fold(), OWNER, block) == before(fold(), OWNER, block)


def test_after_a_condemnation_the_record_starts_anew() -> None:
    records = Records(SEQUENTIAL)
    for number, (x, condemned) in enumerate([(30.0, False), (30.0, True), (2.0, False)], 1):
        records.settle(settled(number, condemned=condemned), view(x))
    assert [before(records, OWNER, 10 * number + 1).choices for number in (1, 2, 3)] == [30.0, 0.0, 2.0]


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), ratios())
def test_the_others_of_a_committee_change_nothing_for_a_juror_that_measured_itself(
    lie: float, other: float, own: float
) -> None:
    before = OwnerRecord(EvidenceState(3.0), EvidenceState(2.0))
    alone = record_after(before, OWNER, settled(1), view(own), SEQUENTIAL)
    assert (
        record_after(before, OWNER, settled(1), view(own, stated=[stating(lie), stating(other)]), SEQUENTIAL) == alone
    )
    assert alone.derived.choices == max(0.0, 2.0 + own)


@given(st.lists(st.tuples(st.booleans(), st.floats(allow_nan=False, allow_infinity=False), ratios()), max_size=30))
def test_no_statement_of_others_ever_raises_what_a_juror_derived(rounds: list[tuple[bool, float, float]]) -> None:
    record, all_seen = OwnerRecord(), EvidenceState()
    for number, (measured, lie, x) in enumerate(rounds, 1):
        figures = view(x) if measured else view(seated=False, stated=[stating(lie), stating(lie)])
        record = record_after(record, OWNER, settled(number), figures, SEQUENTIAL)
        all_seen = all_seen.after(Ratios(x, 0.0, 0.0))
        assert record.derived.choices <= all_seen.choices, "never more than measuring every job would give"
        assert record.derived.choices <= record.suspected.choices


@pytest.mark.parametrize("lie", [1e6, 1e300, SEQUENTIAL.bound])
def test_a_planted_statement_has_a_job_replayed_and_no_number_of_them_condemns(lie: float) -> None:
    record, planted = OwnerRecord(), view(seated=False, stated=[stating(lie), stating(lie), stating(-1.0)])
    once = record_after(record, OWNER, settled(1), planted, SEQUENTIAL)
    assert once.suspected.choices == min(lie, RAISING_SHARE * BOUND)
    for number in range(1, 100):
        record = record_after(record, OWNER, settled(number), planted, SEQUENTIAL)
    assert record.derived == EvidenceState()
    assert finding_on(record.derived, BOUND) is None


@pytest.mark.parametrize("lie", [-1e6, -1e300])
def test_no_single_bundle_clears_a_suspicion_and_none_clears_what_was_derived(lie: float) -> None:
    bound = BOUND
    washed = view(seated=False, stated=[stating(lie), stating(lie), stating(lie)])
    record = record_after(OwnerRecord(EvidenceState(bound)), OWNER, settled(1), washed, SEQUENTIAL)
    assert record.suspected.choices == pytest.approx(bound * (1 + CLEARING_SHARE))
    honest = view(seated=False, stated=[stating(lie), stating(lie), stating(2.0)])
    record = record_after(OwnerRecord(EvidenceState(bound)), OWNER, settled(1), honest, SEQUENTIAL)
    assert record.suspected.choices == bound + 2.0, "where they disagree, the job is replayed"
    own = view(2.0, stated=[stating(lie), stating(lie)])
    record = record_after(OwnerRecord(EvidenceState(bound), EvidenceState(bound)), OWNER, settled(1), own, SEQUENTIAL)
    assert record.derived.choices == record.suspected.choices == bound + 2.0


def test_a_job_that_a_juror_could_not_measure_counts_nothing_and_one_it_did_not_measure_ends_the_run() -> None:
    before = OwnerRecord(EvidenceState(3.0), EvidenceState(3.0))
    assert record_after(before, OWNER, settled(1), view(), SEQUENTIAL) == before, "in its seat: refused by everybody"
    unseen = record_after(before, OWNER, settled(1), view(seated=False), SEQUENTIAL)
    assert unseen == OwnerRecord(EvidenceState(3.0), EvidenceState())
    replayed = record_after(before, OWNER, settled(1), view(2.0, seated=False, stated=[stating(1e6)]), SEQUENTIAL)
    assert replayed == OwnerRecord(EvidenceState(5.0), EvidenceState(5.0)), "a replay outweighs any statement"


@given(st.lists(ratios(), max_size=20), st.floats(0.01, 1.0))
def test_no_job_clears_more_than_its_share_of_the_bound(xs: list[float], clearing: float) -> None:
    bounding, record = SEQUENTIAL.model_copy(update={"clearing": clearing}), OwnerRecord()
    for number, x in enumerate(xs, 1):
        after = record_after(record, OWNER, settled(number), view(x), bounding)
        raised = max(record.derived.choices, record.derived.choices + x)
        assert record.derived.choices - clearing * BOUND - 1e-9 <= after.derived.choices <= raised
        record = after


def test_a_replay_of_an_earlier_round_changes_the_record_from_there_on() -> None:
    records, rounds = Records(SEQUENTIAL), [settled(number) for number in (1, 2, 3)]
    planted = view(seated=False, stated=[{0: Ratios(BOUND, 0.0, 0.0)}])
    for one in rounds:
        records.settle(one, planted)
    assert [one.round for one in excursion(records.before(OWNER, 1000), 2 * BOUND)] == [3, 2, 1]
    records.refold(OWNER, rounds[1], lambda one: view(-1.0, seated=False) if one is rounds[1] else planted)
    assert [each.suspected.choices for _, each in records.before(OWNER, 1000)] == [BOUND, BOUND - 1.0, 2 * BOUND - 1.0]
    for one in rounds:
        records.refold(OWNER, one, lambda one: view(-1.0, seated=False))
    assert not excursion(records.before(OWNER, 1000), BOUND)


def test_what_condemns_before_one_juror_is_suspected_by_all_also_where_fair_jobs_follow() -> None:
    seen, told = OwnerRecord(), OwnerRecord()
    for number, x in enumerate([3 * BOUND, -1.0, -2.0], 1):
        seen = record_after(seen, OWNER, settled(number), view(x), SEQUENTIAL)
        told = record_after(told, OWNER, settled(number), view(seated=False, stated=[stating(x)]), SEQUENTIAL)
    assert seen.derived == seen.suspected
    assert told.suspected.choices == seen.derived.choices > BOUND


def test_nothing_is_replayed_once_it_is_derived() -> None:
    records = Records(SEQUENTIAL)
    records.settle(settled(1), view(100.0, stated=[stating(1e6)]))
    assert not excursion(records.before(OWNER, 1000), SEQUENTIAL.bound)
    assert not excursion([], SEQUENTIAL.bound)
    assert view(seated=False).missing(settled(1, 2), OWNER) == (0, 1)
    assert view(1.0, seated=False).missing(settled(1, 2), OWNER) == (1,)
    assert view().missing(settled(1, 2), OWNER) == ()


def test_what_is_held_against_a_node_names_its_test_and_the_bound() -> None:
    bound = SEQUENTIAL.bound
    assert bound == pytest.approx(math.log(3e12))
    assert finding_on(EvidenceState(bound - 0.01, bound - 1, 0.0), bound) is None
    finding = finding_on(EvidenceState(1.0, bound, 0.0), bound)
    assert finding is not None
    assert (finding.reason, finding.observed, finding.limit) == (Reason.SEQUENCE, bound, bound)
    assert "likelier" in finding.detail


def test_a_bundle_says_what_its_columns_add_up_to() -> None:
    counts, zeros = np.array([3, 1], np.uint32), np.zeros(2, np.float32)
    measured = Measurements(
        **dict.fromkeys(Measurements.__slots__, zeros)
        | {
            "tokens_N": counts,
            "chunks_N": counts,
            "flips_N": counts,
            "up_N": np.array([2, 0], np.uint32),
            "llr_N": np.array([1.5, -0.25], np.float32),
        }
    )
    said = ratios_of(measured)
    assert said.choices == 1.25
    assert said.upward == said.downward == pytest.approx(2 * math.log(1.8) + 2 * math.log(0.2))


def honest_job(rng: np.random.Generator, tokens: int, sigma: float) -> Ratios:
    """One job of an engine whose scores differ from the verifier's by ``sigma`` on each choice."""
    gaps = rng.exponential(1.0, tokens).astype(np.float32)
    shift = rng.normal(0.0, sigma, tokens).astype(np.float32)
    flipped = shift > gaps
    margins = np.where(flipped, np.maximum(shift - gaps, 1e-6), 0.0).astype(np.float32)
    llr = float(log_likelihood_ratios(margins, gaps, SEQUENTIAL).sum())
    flips = int(flipped.sum())
    up = int(rng.binomial(flips, 0.5))
    return Ratios(llr, lopsidedness(up, flips - up), lopsidedness(flips - up, up))


def jobs_until(rng: np.random.Generator, bound: float, most: int, sigma: float, tokens: int = 200) -> int | None:
    state = EvidenceState()
    for number in range(1, most + 1):
        state = state.after(honest_job(rng, tokens, sigma))
        if state.foremost[1] >= bound:
            return number
    return None


def test_honest_nodes_are_condemned_no_more_often_than_the_budget_says() -> None:
    """At a budget large enough to be measured: 0.2 within 30 jobs, 100 nodes."""
    loose = Sequential(sigma=SEQUENTIAL.sigma, false_alarm=0.2, horizon_jobs=30)
    alarms = [jobs_until(np.random.default_rng(seed), loose.bound, 30, SEQUENTIAL.sigma) for seed in range(100)]
    condemned = sum(alarm is not None for alarm in alarms)
    assert condemned <= 0.2 * 100


def test_a_sign_test_alone_keeps_its_budget_where_flips_are_even() -> None:
    rng, bound, alarms = np.random.default_rng(3), math.log(100 / 0.1), 0
    for _ in range(300):
        state = EvidenceState()
        for _ in range(100):
            up, flips = int(rng.binomial(2, 0.5)), 2
            state = state.after(Ratios(0.0, lopsidedness(up, flips - up), lopsidedness(flips - up, up)))
            if state.foremost[1] >= bound:
                alarms += 1
                break
    assert alarms <= 0.1 * 300


@pytest.mark.parametrize(("times", "tokens"), [(2.0, 200), (3.0, 60), (5.0, 20)])
def test_a_noisier_engine_is_condemned_about_when_the_drift_says(times: float, tokens: int) -> None:
    rng = np.random.default_rng(11)
    sigma = times * SEQUENTIAL.sigma
    drift = float(np.mean([honest_job(rng, tokens, sigma).choices for _ in range(400)]))
    assert drift > 0
    found = [jobs_until(rng, SEQUENTIAL.bound, 2_000, sigma, tokens) for _ in range(40)]
    assert None not in found
    predicted = SEQUENTIAL.bound / drift
    assert float(np.mean([number for number in found if number])) == pytest.approx(predicted, rel=0.3)


def test_flips_all_one_way_are_condemned_within_the_flips_it_takes() -> None:
    state, flips = EvidenceState(), 0
    while state.foremost[1] < SEQUENTIAL.bound:
        flips += 1
        state = state.after(Ratios(0.0, lopsidedness(1, 0), lopsidedness(0, 1)))
    assert flips == math.ceil(SEQUENTIAL.bound / math.log(1.8)) == 49
    assert state.foremost[0] == "upward"


def test_records_of_an_owner_grow_with_its_own_rounds_only() -> None:
    records = Records(SEQUENTIAL)
    for number in range(1, 5):
        records.settle(settled(number, owner=OWNER if number % 2 else OTHER), view(1.0))
    blocks = [10 * number + 1 for number in range(5)]
    assert [before(records, OWNER, block).choices for block in blocks] == [0, 1, 1, 2, 2]
    assert all(later >= earlier for earlier, later in pairwise(before(records, OTHER, b).choices for b in blocks))
