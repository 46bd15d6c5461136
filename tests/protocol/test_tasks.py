"""The file of a run's tasks, a version's curriculum and its rewards: what is read is what was written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.wire.rewards import JobRewards, Rewards, parse_rewards
from protocol.wire.tasks import (
    LengthTarget,
    TaskHeader,
    TaskRow,
    TaskSource,
    decode_curriculum,
    decode_tasks,
    encode_curriculum,
    encode_tasks,
    tasks_root,
)

HEADER = TaskHeader(b"\x07" * 32, (TaskSource("sums", 3), TaskSource("code", 1)), (LengthTarget(64, (1, 2)),), 0.001)
ROWS = [
    TaskRow((1, 2, 3), "6", "exact", source=0, budget_at=2),
    TaskRow((4,), "", "code", '{"tests":[]}', source=1, weight=7),
    TaskRow((5, 6), "ü", "math", held_out=True, source=1),
]

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
row = st.builds(
    TaskRow,
    prompt_tokens=st.lists(st.integers(0, 2**24 - 1), min_size=1, max_size=9).map(tuple),
    answer=text,
    verifier=text,
    info=text,
    held_out=st.booleans(),
    source=st.integers(0, 1),
    weight=st.integers(0, 65535),
)


@settings(max_examples=50)
@given(rows=st.lists(row, max_size=20))
def test_rows_come_out_as_they_went_in(rows: list[TaskRow]) -> None:
    whole = [*ROWS, *rows]
    file = decode_tasks(encode_tasks(HEADER, whole))
    assert file.header == HEADER
    assert [file.row(index) for index in range(len(file))] == whole
    assert file.longest_prompt == max(len(each.prompt_tokens) for each in whole) + 2
    assert file.largest_token == max(token for each in whole for token in each.prompt_tokens)
    assert file.verifiers == sorted({each.verifier for each in whole})


def test_any_changed_byte_gives_another_root() -> None:
    data = encode_tasks(HEADER, ROWS)
    for at in range(0, len(data), 7):
        assert tasks_root(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) != tasks_root(data)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompt_tokens": ()}, "prompt without tokens"),
        ({"prompt_tokens": (-1,)}, "negative token"),
        ({"source": 2}, "source that is not 0 to 1"),
        ({"weight": 65536}, "weight that is not 0 to 65535"),
        ({"budget_at": 4}, "length budget outside"),
        ({"held_out": True}, "sums has no task to train on"),
        ({"weight": 0}, "sums has no task to train on"),
    ],
)
def test_rows_that_nobody_could_draw_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        encode_tasks(HEADER, [replace(ROWS[0], **change), *ROWS[1:]])


@given(data=st.binary(max_size=400))
def test_other_bytes_are_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(Rejected, match="the task file"):
        decode_tasks(data)


@settings(max_examples=200)
@given(at=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_file_is_refused_or_reads_as_tasks(at: int, value: int) -> None:
    data = bytearray(encode_tasks(HEADER, ROWS))
    data[at % len(data)] = value
    try:
        file = decode_tasks(bytes(data))
    except Rejected:
        return
    assert len(file) == len(ROWS)


@given(weights=st.lists(st.integers(0, 65535), max_size=50))
def test_weights_of_a_version_come_out_as_they_went_in(weights: list[int]) -> None:
    data = encode_curriculum(np.array(weights, np.uint16))
    assert decode_curriculum(data, len(weights)).tolist() == weights
    with pytest.raises(Rejected, match="expected 2 for each"):
        decode_curriculum(data + b"\x00", len(weights))


def test_rewards_of_a_version_come_out_as_they_went_in_and_have_one_spelling() -> None:
    rewards = Rewards((JobRewards(3, 1, np.float32([0, 0.5, -0.25])), JobRewards(4, 0, np.float32([1]))))
    read = parse_rewards(rewards.canonical)
    assert [(each.round, each.job, each.rewards.tolist()) for each in read.jobs] == [
        (3, 1, [0, 0.5, -0.25]),
        (4, 0, [1]),
    ]
    assert read.canonical == rewards.canonical
    for other in (b"", b"{}", b" " + rewards.canonical, Rewards(rewards.jobs[::-1]).canonical):
        with pytest.raises(Rejected):
            parse_rewards(other)
