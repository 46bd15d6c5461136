"""Which groups make a step, and how they are packed."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.movement import group_of, packed_by
from trainer.batch import Group, Packed, micro_batches, select, usable


def _group(round_: int, job: int, group: int = 0, version: int = 0, rewards: tuple[float, ...] = (1.0, 0.0)) -> Group:
    completions = tuple((5, 6, 7 + sample)[: 2 + sample % 2] for sample in range(len(rewards)))
    return _weighed(group_of(round_, job, (1, 2, 3), completions, rewards, version=version, group=group))


def _weighed(group: Group) -> Group:
    """The group with logprobs that tell the tokens: a tenth of each, below 0."""
    return replace(group, behaviour=tuple((-completion / 10).astype(np.float32) for completion in group.completions))


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


def _sequences(packed: Packed) -> list[list[int]]:
    """The packed sequences, node by node."""
    return [packed.pack.tokens_N[nodes_T[nodes_T >= 0]].tolist() for nodes_T in packed.pack.nodes_ST]


def test_completion_tokens_follow_their_nodes_and_the_last_is_no_input() -> None:
    group = _weighed(group_of(0, 0, (1, 2, 3), ((9,), (8, 7, 9)), (1.0, 0.0)))
    ((batch,),) = micro_batches([group], packed_by(1, 1000))
    packed = batch.packed
    assert sorted(_sequences(packed)) == [[1, 2, 3], [1, 2, 3, 8, 7]]
    assert len(packed.pack.tokens_N) == 5, "the prompt is run once"
    order = [group.completions[member].tolist() for member in packed.members]
    assert packed.targets_K.tolist() == [token for completion in order for token in completion]
    followed = packed.pack.tokens_N[packed.nodes_K.numpy()].tolist()
    assert followed == [token for completion in order for token in [3, *completion[:-1]]]
    assert batch.completion_tokens == 4
    assert batch.tokens.behaviour_K.tolist() == pytest.approx([-token / 10 for token in packed.targets_K.tolist()])
    value = 0.5 / 0.5001
    expected = [value if len(completion) == 1 else -value for completion in order for _ in completion]
    assert batch.tokens.advantages_K.tolist() == pytest.approx(expected)


def test_prompts_of_unlike_length_and_version_share_a_micro_batch() -> None:
    groups = [
        _weighed(group_of(0, 0, (1, 2), ((8, 9), (8, 9)), (1.0, 0.0))),
        _weighed(group_of(0, 0, (1,), ((9,), (9,)), (1.0, 0.0), group=1, version=3)),
    ]
    ((batch,),) = micro_batches(groups, packed_by(1, 1000))
    assert len(batch.packed.pack.tokens_N) == 3, "1, 2, 8: all four rollouts begin alike"
    assert sorted(batch.versions_K.tolist()) == [0, 0, 0, 0, 3, 3]


def test_micro_batches_run_no_more_tokens_than_allowed() -> None:
    groups = [_group(0, job, version=job % 2, rewards=(1.0, 0.0, 0.0, 1.0)) for job in range(10)]
    (step,) = micro_batches(groups, packed_by(1, 6))
    assert sum(len(batch.packed.members) for batch in step) == 40
    assert all(len(batch.packed.pack.tokens_N) <= 6 for batch in step)


def test_one_rollout_longer_than_allowed_still_gets_its_micro_batch() -> None:
    groups = [_weighed(group_of(0, 0, (1, 2, 3), ((5, 6), (7, 8)), (1.0, 0.0)))]
    assert [batch.packed.members for batch in micro_batches(groups, packed_by(1, 1))[0]] == [(1,), (0,)]


def test_groups_without_behaviour_logprobs_are_refused() -> None:
    with pytest.raises(ValueError, match="no behaviour logprobs"):
        micro_batches([group_of(1, 2, (1,), ((5,), (6,)), (1.0, 0.0))], packed_by(1, 10))


@pytest.mark.parametrize(("count", "steps"), [(64, 2), (5, 2), (1, 2), (0, 2)])
def test_groups_are_dealt_whole_to_the_optimizer_steps(count: int, steps: int) -> None:
    parts = micro_batches([_group(0, job) for job in range(count)], packed_by(steps, 1000))
    rollouts = [sum(len(batch.packed.members) for batch in part) for part in parts]
    assert sum(rollouts) == 2 * count
    assert len(parts) == min(count, steps)
    assert not rollouts or max(rollouts) - min(rollouts) <= 2


def test_packing_is_the_same_every_time() -> None:
    groups = [_group(0, job, version=job % 3) for job in range(9)]
    first, second = micro_batches(groups, packed_by(2, 20)), micro_batches(groups, packed_by(2, 20))
    for one, two in zip(chain.from_iterable(first), chain.from_iterable(second), strict=True):
        assert torch.equal(one.packed.nodes_K, two.packed.nodes_K)
        assert torch.equal(one.tokens.behaviour_K, two.tokens.behaviour_K)
