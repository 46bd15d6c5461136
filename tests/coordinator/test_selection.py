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


TURNS = st.integers(0, 10_000)


@given(st.integers(1, 256), crowds(), TURNS)
def test_shares_fill_the_round_as_far_as_capacities_allow(jobs: int, crowd: list[Candidate], turn: int) -> None:
    listings = divide(jobs, crowd, turn)
    free = {candidate.node: candidate.free for candidate in crowd}
    assert sum(listing.count for listing in listings) == min(jobs, sum(free.values()))
    assert all(1 <= listing.count <= free[listing.node] for listing in listings)
    assert [listing.node for listing in listings] == sorted({listing.node for listing in listings})


@given(st.integers(1, 256), crowds(), TURNS, st.randoms())
def test_shares_do_not_depend_on_the_order_of_candidates(
    jobs: int, crowd: list[Candidate], turn: int, random: object
) -> None:
    shuffled = sorted(crowd, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert divide(jobs, crowd, turn) == divide(jobs, shuffled, turn)


@given(st.integers(1, 256), st.lists(st.integers(1, 300), min_size=1, max_size=12), TURNS)
def test_every_share_is_its_quota_by_capacity_rounded_down_or_up(jobs: int, capacities: list[int], turn: int) -> None:
    crowd = [replace(ABLE, node=n, capacity=c, free=c, given=1) for n, c in enumerate(capacities, 1)]
    jobs = min(jobs, sum(capacities))
    counts = {listing.node: listing.count for listing in divide(jobs, crowd, turn)}
    for each in crowd:
        assert abs(counts.get(each.node, 0) - jobs * each.capacity / sum(capacities)) < 1


@given(st.integers(1, 64), st.integers(1, 20), st.integers(21, 400), TURNS)
def test_a_small_node_has_its_turns(jobs: int, small: int, large: int, first: int) -> None:
    crowd = [replace(ABLE, node=n, capacity=c, free=c, given=1) for n, c in ((1, large), (2, large), (3, small))]
    wanted = min(jobs, small + 2 * large) * small / (small + 2 * large)
    turns = range(first, first + 200)
    given_ = sum(each.count for turn in turns for each in divide(jobs, crowd, turn) if each.node == 3)
    assert abs(given_ - 200 * wanted) < 5


@given(TURNS)
def test_newcomers_have_their_first_job_at_once_one_in_a_turn(turn: int) -> None:
    large = replace(ABLE, node=1, capacity=192, free=192, given=500)
    new = [replace(ABLE, node=node, capacity=1, free=1, given=0) for node in (2, 3)]
    counts = {each.node: each.count for each in divide(6, [large, *new], turn)}
    assert sum(counts.values()) == 6
    assert any(node in counts for node in (2, 3))


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
