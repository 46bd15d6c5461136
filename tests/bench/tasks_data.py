"""Rows in the shapes of NuminaMath-1.5 and SYNTHETIC-1, made up by a seed: for tests and for what building them costs.

``PYTHONPATH=. python tests/bench/tasks_data.py FOLDER [ROWS]`` writes ``numina.parquet`` and ``synthetic.jsonl``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS = 10_000
NEAR_DUPLICATES = 0.05
"""Share of the rows that repeat an earlier one with a word or two changed."""

_PEOPLE = [
    "Ada",
    "Bela",
    "Chen",
    "Dara",
    "Esme",
    "Femi",
    "Gita",
    "Hugo",
    "Ines",
    "Jun",
    "Kofi",
    "Lena",
    "Mina",
    "Noor",
    "Otto",
    "Pia",
    "Rosa",
    "Sven",
    "Tariq",
    "Uma",
]
_THINGS = [
    "tiles",
    "stamps",
    "lamps",
    "maps",
    "bolts",
    "shells",
    "ropes",
    "jars",
    "coins",
    "kites",
    "seeds",
    "bricks",
    "pencils",
    "wheels",
    "drums",
]
_PLACES = ["market", "harbour", "school", "museum", "workshop", "library", "garden", "station", "bakery", "observatory"]
_VERBS = ["buys", "sells", "counts", "sorts", "paints", "carries", "stacks", "borrows", "repairs", "measures"]
_ADJECTIVES = ["small", "heavy", "blue", "narrow", "spare", "round", "wooden", "bright", "broken", "striped"]
_SHAPES = ["triangle", "square", "trapezium", "rectangle", "hexagon", "circle", "rhombus", "pentagon"]
_STRUCTURES = ["array", "string", "permutation", "grid", "sequence", "tree", "interval", "list", "matrix", "multiset"]
_GOALS = ["sum", "product", "maximum", "minimum", "median", "number", "length", "parity", "count", "rank"]
_FILLER = [
    "along",
    "because",
    "while",
    "after",
    "before",
    "whenever",
    "until",
    "although",
    "nearly",
    "exactly",
    "twice",
    "together",
    "again",
    "slowly",
    "carefully",
    "therefore",
    "meanwhile",
    "outside",
    "beneath",
    "beyond",
    "without",
    "towards",
    "between",
    "among",
    "across",
    "through",
    "during",
    "against",
]


def numina_rows(rows: int = ROWS, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yields rows with the columns of NuminaMath-1.5: word problems, choices, proofs, and some that are invalid."""
    chance = random.Random(f"numina {seed}")
    earlier: list[str] = []
    for _ in range(rows):
        kind = chance.choices(("math-word-problem", "MCQ", "proof"), (8, 1, 1))[0]
        problem, answer = _word_problem(chance)
        if earlier and chance.random() < NEAR_DUPLICATES:
            problem = _reworded(chance.choice(earlier), chance)
        else:
            earlier.append(problem)
        if kind == "MCQ":
            letter = chance.choice("ABCD")
            choices = "  ".join(
                f"({name}) {int(answer) + place - 'ABCD'.index(letter)}" for place, name in enumerate("ABCD")
            )
            problem, answer = f"{problem}\n{choices}", letter
        elif kind == "proof":
            problem, answer = f"Prove the following. {problem}", "proof"
        elif chance.random() < 0.1:
            answer = rf"\frac{{{answer}}}{{{chance.randrange(2, 9)}}}"
        yield {
            "problem": problem,
            "solution": _sentence(chance, 40),
            "answer": answer if chance.random() > 0.02 else "notfound",
            "problem_type": chance.choice(("Algebra", "Geometry", "Number Theory", "Combinatorics")),
            "question_type": kind,
            "problem_is_valid": chance.choices(("Yes", "Incomplete"), (19, 1))[0],
            "solution_is_valid": chance.choices(("Yes", "Incomplete"), (19, 1))[0],
            "source": chance.choice(("olympiads", "cn_k12", "orca_math")),
            "synthetic": False,
        }


def synthetic_rows(rows: int = ROWS, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yields rows with the columns of SYNTHETIC-1: mathematics, programs in several languages, and other tasks."""
    chance = random.Random(f"synthetic {seed}")
    earlier: list[str] = []
    for index in range(rows):
        kind = chance.choices(
            ("verifiable_math", "verifiable_code", "llm_judgeable_groundtruth_similarity"), (5, 4, 1)
        )[0]
        if kind == "verifiable_math":
            prompt, answer = _word_problem(chance)
            info: dict[str, Any] = {"ground_truth": answer}
        elif kind == "verifiable_code":
            prompt, info = _program(chance)
        else:
            prompt, info = _sentence(chance, 30), {"ground_truth": _sentence(chance, 20)}
        if earlier and chance.random() < NEAR_DUPLICATES:
            prompt = _reworded(chance.choice(earlier), chance)
        else:
            earlier.append(prompt)
        yield {
            "response_id": f"r{index}",
            "problem_id": f"p{index}",
            "source": "made up",
            "in_source_id": str(index),
            "task_type": kind,
            "prompt": prompt,
            "gold_standard_solution": _sentence(chance, 40),
            "llm_response": _sentence(chance, 100),
            "verification_info": json.dumps(info) if chance.random() < 0.5 else repr(info),
            "score": chance.random(),
            "metadata": "{}",
        }


def write(folder: Path, rows: int = ROWS, seed: int = 1) -> tuple[Path, Path]:
    """Writes both datasets, as Parquet and as JSON Lines; returns their files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numina, synthetic = folder / "numina.parquet", folder / "synthetic.jsonl"
    pq.write_table(pa.Table.from_pylist(list(numina_rows(rows, seed))), numina)
    with synthetic.open("w") as file:
        for row in synthetic_rows(rows, seed):
            file.write(json.dumps(row) + "\n")
    return numina, synthetic


def _word_problem(chance: random.Random) -> tuple[str, str]:
    """Returns a problem of 40 to 120 words, and its answer."""
    person, other = chance.sample(_PEOPLE, 2)
    first, second, each = chance.randrange(3, 900), chance.randrange(3, 900), chance.randrange(2, 30)
    thing, shape = chance.choice(_THINGS), chance.choice(_SHAPES)
    story = _sentence(chance, chance.randrange(10, 60))
    buys, counts = chance.sample(_VERBS, 2)
    question = (
        f"{person} {buys} ${first}$ {chance.choice(_ADJECTIVES)} {thing} at the {chance.choice(_PLACES)}, and {other} "
        f"{counts} $x={second}$ of them. {story} Each {shape} needs ${each}$ {thing}. Find the value of "
        rf"$\left({first}+{second}\right) \cdot {each}$ {chance.choice(_FILLER)} they meet."
    )
    return question, str((first + second) * each)


def _program(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Returns a problem of programming, and its tests: of what is printed, or of a function."""
    structure, goal = chance.choice(_STRUCTURES), chance.choice(_GOALS)
    language = chance.choices(("python", "cpp", "javascript"), (8, 1, 1))[0]
    story, most = _sentence(chance, chance.randrange(30, 120)), chance.randrange(10, 10**6)
    prompt = (
        f"Write a program in {language}. You are given a {structure} of n numbers, n at most {most}. {story} "
        f"Compute the {goal} of the {structure} modulo {chance.randrange(2, 10**9)}."
    )
    cases: list[dict[str, Any]] = []
    if chance.random() < 0.7:
        for _ in range(chance.randrange(3, 20)):
            numbers = [chance.randrange(1000) for _ in range(chance.randrange(2, 12))]
            cases.append(
                {
                    "type": "stdin_stdout",
                    "fn_name": None,
                    "input": f"{len(numbers)}\n{' '.join(map(str, numbers))}\n",
                    "output": f"{sum(numbers)}\n",
                }
            )
    else:
        name = f"{goal}_of_{structure}"
        for _ in range(chance.randrange(3, 10)):
            numbers = [chance.randrange(1000) for _ in range(chance.randrange(2, 12))]
            cases.append({"type": "function_call", "fn_name": name, "input": [numbers], "output": sum(numbers)})
    return prompt, {"language": language, "test_cases": cases}


def _sentence(chance: random.Random, words: int) -> str:
    pool = (_FILLER, _THINGS, _PLACES, _VERBS, _ADJECTIVES, _PEOPLE, _SHAPES)
    return " ".join(chance.choice(chance.choice(pool)) for _ in range(words)).capitalize() + "."


def _reworded(text: str, chance: random.Random) -> str:
    """Returns ``text`` with one word changed."""
    words = text.split(" ")
    places = [place for place, word in enumerate(words) if word.isalpha()]
    words[chance.choice(places)] = chance.choice(_FILLER)
    return " ".join(words)


if __name__ == "__main__":
    for made in write(Path(sys.argv[1]), *map(int, sys.argv[2:])):
        print(made)
