"""Who is listed, and how jobs are shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.driver.selection import Candidate, ListingLimits, divide, exclusion_reason

ADMISSION = ListingLimits(version_lag=2, neglect_bound=27.6)
ABLE = Candidate(
    node=1,
    capacity=8,
    free=8,
    given=0,
    version=5,
    bonded=True,
    joined=True,
    leased=True,
    neglect=10.0,
    fraudulent=0,
)


def crowds() -> st.SearchStrategy[list[Candidate]]:
    """Candidates with distinct ids, some of them busy."""

    def made(node: int, capacity: int, busy: int, given_: int) -> Candidate:
        return replace(ABLE, node=node, capacity=capacity, free=max(0, capacity - busy), given=given_)

    one = st.builds(made, st.integers(1, 500), st.integers(1, 300), st.integers(0, 300), st.integers(0, 10_000))
    return st.lists(one, max_size=12, unique_by=lambda candidate: candidate.node)


@given(st.integers(1, 256), crowds())
def test_shares_fill_the_round_as_far_as_capacities_allow(jobs: int, crowd: list[Candidate]) -> None:
    listings = divide(jobs, crowd)
    free = {candidate.node: candidate.free for candidate in crowd}
    assert sum(listing.count for listing in listings) == min(jobs, sum(free.values()))
    assert all(1 <= listing.count <= free[listing.node] for listing in listings)
    assert [listing.node for listing in listings] == sorted({listing.node for listing in listings})


@given(st.integers(1, 256), crowds(), st.randoms())
def test_shares_do_not_depend_on_the_order_of_candidates(jobs: int, crowd: list[Candidate], random: object) -> None:
    shuffled = sorted(crowd, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert divide(jobs, crowd) == divide(jobs, shuffled)


@given(st.integers(1, 256), crowds())
def test_nobody_is_more_than_one_job_ahead_of_its_share_by_capacity(jobs: int, crowd: list[Candidate]) -> None:
    counts = {listing.node: listing.count for listing in divide(jobs, crowd)}
    for ahead in crowd:
        for behind in crowd:
            if counts.get(behind.node, 0) < behind.free and counts.get(ahead.node, 0):
                assert counts[ahead.node] / ahead.capacity <= (counts.get(behind.node, 0) + 1) / behind.capacity + 1e-9


def test_a_spare_job_goes_to_the_node_given_least_so_far() -> None:
    first, second = replace(ABLE, node=1, given=9), replace(ABLE, node=2, given=3)
    assert [(each.node, each.count) for each in divide(3, [first, second])] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fraudulent": 2}, "2 of its jobs were found fraudulent"),
        ({"joined": False}, "has not joined"),
        ({"bonded": False}, "under-bonded"),
        ({"leased": False}, "no heartbeat"),
        ({"version": -1}, "no weights"),
        ({"version": 2}, "has loaded version 2, the newest is 5"),
        ({"neglect": 27.7}, "void or never handed in"),
        ({"free": 0}, "at capacity"),
    ],
)
def test_each_shortcoming_is_named(change: dict[str, object], reason: str) -> None:
    assert reason in str(exclusion_reason(replace(ABLE, **change), 5, ADMISSION))  # type: ignore[arg-type]


def test_an_able_node_is_not_left_out() -> None:
    assert exclusion_reason(ABLE, 5, ADMISSION) is None
    assert exclusion_reason(replace(ABLE, neglect=27.5), 5, ADMISSION) is None, "not for what may be chance"
