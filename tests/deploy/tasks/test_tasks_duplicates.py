"""Questions that are the same or nearly."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pytest

from deploy.tasks.duplicates import SAME, digest_of, near_duplicates, normal, share_of
from tests.bench.tasks_data import numina_rows, synthetic_rows

STORY = (
    "A gardener plants 12 rows of 8 tulips along the south wall of the park, and then removes the three rows that "
    "stand closest to the old gate, because the ground there is too wet for them in spring. How many tulips are left?"
)


def test_white_space_case_and_compatible_characters_do_not_matter() -> None:
    assert normal("What  is ２ + ２?\n") == normal("what is 2 + 2?") == "what is 2 + 2 ?"
    assert len({normal(text) for text in ("2 + 2", "2 - 2", "2 + 3", "22", "(2+3)*4", "2+(3*4)", "1.5", "15")}) == 8


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (STORY.replace("gardener", "neighbour"), True),
        (STORY.upper(), True),
        ("Problem 4. " + STORY, True),
        ("3.1) " + STORY, True),
        (STORY.replace("12", "13"), False),
        (STORY.replace("12", "N").replace("8", "12").replace("N", "8"), False),
        (STORY.replace("tulips", "roses").replace("rows", "beds").replace("gate", "pond"), False),
        (STORY[:80], False),
    ],
    ids=[
        "a word",
        "case",
        "a number of the task",
        "another numbering",
        "a number",
        "order of numbers",
        "words",
        "a part",
    ],
)
def test_long_texts_are_one_question_if_they_share_words_and_numbers(changed: str, same: bool) -> None:
    other = "Something else entirely, which has nothing to do with it at all."
    assert near_duplicates([STORY, other, changed]).tolist() == [False, False, same]


def test_the_first_one_stays_and_short_texts_are_left_alone() -> None:
    changed = STORY.replace("gardener", "neighbour")
    assert near_duplicates([changed, STORY]).tolist() == [False, True]
    assert near_duplicates(["1 + 2 =", "1 + 2 =", "What is 3 + 4?", "What is 3 + 5?"]).tolist() == [False] * 4
    assert near_duplicates([]).tolist() == []
    assert near_duplicates([STORY]).tolist() == [False]


def test_bands_find_what_comparing_all_texts_finds() -> None:
    texts = [row["problem"] for row in numina_rows(1200, seed=3)] + [
        row["prompt"] for row in synthetic_rows(1200, seed=4)
    ]
    dropped: list[bool] = []
    earlier = defaultdict[tuple[str, ...], list[frozenset[tuple[str, ...]]]](list)
    for text in texts:
        words = normal(text).split(" ")
        runs = frozenset(zip(*(words[step:] for step in range(5)), strict=False))
        others = earlier[tuple(word for word in words if word.isdigit())]
        dropped.append(any(len(runs & other) >= SAME * len(runs | other) for other in others))
        if not dropped[-1]:
            others.append(runs)
    assert sum(dropped) > 50
    assert near_duplicates(texts).tolist() == dropped


def test_texts_of_one_pattern_take_no_quadratic_time() -> None:
    chance = random.Random(5)
    pattern = "Say which of these words comes last in the dictionary, and explain your choice in a sentence or two:"
    texts = [f"{pattern} {' '.join(chance.choice('abcdefghij') * 3 for _ in range(6))}." for _ in range(3000)]
    started = time.process_time()
    near_duplicates(texts)
    assert time.process_time() - started < 8


def test_a_question_is_always_on_the_same_side() -> None:
    shares = [share_of(digest_of(normal(f"What is {n} + 1?"))) for n in range(2000)]
    assert shares == [share_of(digest_of(normal(f"what is {n}  + 1?"))) for n in range(2000)]
    assert 0.03 < sum(share < 0.05 for share in shares) / 2000 < 0.07
