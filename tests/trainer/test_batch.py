"""Which groups make a step, and how they are packed."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch import Group, MicroBatch, pack, select, usable


def _group(round_: int, job: int, group: int = 0, version: int = 0, rewards: tuple[float, ...] = (1.0, 0.0)) -> Group:
    completions = tuple((5, 6, 7 + sample)[: 2 + sample % 2] for sample in range(len(rewards)))
    return Group(round_, job, group, version, (1, 2, 3), completions, rewards)


@pytest.mark.parametrize(
    ("version", "newest", "level", "expected"),
    [(5, 5, 0, True), (4, 5, 0, False), (3, 5, 2, True), (2, 5, 2, False), (6, 5, 2, False)],
)
def test_rollouts_are_usable_up_to_the_async_level(version: int, newest: int, level: int, expected: bool) -> None:
    assert usable(version, newest, level) is expected


def test_groups_are_taken_in_round_and_job_order_whatever_order_they_came_in() -> None:
    groups = [_group(2, 0), _group(1, 1), _group(1, 0, 1), _group(1, 0, 0)]
    taken = select(groups, newest=0, async_level=2, wanted=3).taken
    assert [(group.round, group.job, group.group) for group in taken] == [(1, 0, 0), (1, 0, 1), (1, 1, 0)]


def test_a_job_is_never_split_between_steps() -> None:
    groups = [_group(1, 0, index) for index in range(3)] + [_group(1, 1, index) for index in range(3)]
    selection = select(groups, newest=0, async_level=2, wanted=2)
    assert [group.job for group in selection.taken] == [0, 0, 0]
    assert [group.job for group in selection.left] == [1, 1, 1]


def test_groups_without_advantage_are_set_aside_and_not_counted() -> None:
    groups = [_group(1, 0, rewards=(1.0, 1.0)), _group(1, 1), _group(1, 2, rewards=(0.0, 0.0)), _group(1, 3)]
    selection = select(groups, newest=0, async_level=2, wanted=2)
    assert [group.job for group in selection.taken] == [1, 3]
    assert [group.job for group in selection.idle] == [0, 2]


def test_leftovers_carry_over_until_they_are_stale() -> None:
    groups = [_group(1, 0), _group(1, 1)]
    left = select(groups, newest=0, async_level=2, wanted=1).left
    assert [group.job for group in left] == [1]
    assert select(left, newest=2, async_level=2, wanted=1).taken == left
    expired = select(left, newest=3, async_level=2, wanted=1)
    assert (expired.taken, expired.stale) == ((), left)


@given(
    st.lists(
        st.builds(
            _group,
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(0, 4),
            st.sampled_from([(1.0, 0.0), (1.0, 1.0)]),
        )
    ),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_every_group_ends_in_exactly_one_place(groups: list[Group], newest: int, level: int, wanted: int) -> None:
    selection = select(groups, newest, level, wanted)
    placed = [*selection.taken, *selection.idle, *selection.left, *selection.stale]
    assert sorted(map(repr, placed)) == sorted(map(repr, groups))
    assert all(usable(group.version, newest, level) and group.informative for group in selection.taken)
    assert not {(g.round, g.job) for g in selection.taken} & {(g.round, g.job) for g in selection.left}


def _mask_rows(batch: MicroBatch) -> list[list[bool]]:
    rows: list[list[bool]] = batch.mask_BK.tolist()
    return rows


def test_padding_and_prompt_are_masked_and_the_end_of_text_is_not() -> None:
    group = Group(0, 0, 0, 0, (1, 2, 3), ((9,), (8, 7, 9)), (1.0, 0.0))
    ((batch,),) = pack([group], 1, 1000)
    assert batch.first == 3
    assert batch.tokens_BT.tolist() == [[1, 2, 3, 9, 0, 0], [1, 2, 3, 8, 7, 9]]
    assert _mask_rows(batch) == [[True, False, False], [True, True, True]]
    assert batch.targets_BK.tolist() == [[9, 0, 0], [8, 7, 9]]
    assert batch.completion_tokens == 4
    assert batch.advantages_B.tolist() == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001])


def test_prompts_of_unlike_length_share_a_micro_batch() -> None:
    groups = [
        Group(0, 0, 0, 0, (1, 2), ((8, 9), (8, 9)), (1.0, 0.0)),
        Group(0, 0, 1, 0, (1,), ((9,), (9,)), (1.0, 0.0)),
    ]
    ((batch,),) = pack(groups, 1, 1000)
    assert batch.first == 1
    assert _mask_rows(batch) == [[True, False, False]] * 2 + [[False, True, True]] * 2


def test_micro_batches_hold_one_version_and_no_more_tokens_than_allowed() -> None:
    groups = [_group(0, job, version=job % 2, rewards=(1.0, 0.0, 0.0, 1.0)) for job in range(10)]
    steps = pack(groups, 1, 24)
    assert sum(len(batch.tokens_BT) for batch in steps[0]) == 40
    assert all(batch.tokens_BT.numel() <= 24 for batch in steps[0])
    assert {batch.version for batch in steps[0]} == {0, 1}


def test_one_row_longer_than_allowed_still_gets_its_micro_batch() -> None:
    assert [batch.tokens_BT.shape[0] for batch in pack([_group(0, 0)], 1, 1)[0]] == [1, 1]


@pytest.mark.parametrize(("count", "steps"), [(64, 2), (5, 2), (1, 2), (0, 2)])
def test_groups_are_dealt_whole_to_the_optimizer_steps(count: int, steps: int) -> None:
    parts = pack([_group(0, job) for job in range(count)], steps, 1000)
    rows = [sum(len(batch.tokens_BT) for batch in part) for part in parts]
    assert sum(rows) == 2 * count
    assert len(parts) == min(count, steps)
    assert not rows or max(rows) - min(rows) <= 2


def test_packing_is_the_same_every_time() -> None:
    groups = [_group(0, job, version=job % 3) for job in range(9)]
    first, second = pack(groups, 2, 20), pack(groups, 2, 20)
    for one, two in zip(chain.from_iterable(first), chain.from_iterable(second), strict=True):
        assert torch.equal(one.tokens_BT, two.tokens_BT)
