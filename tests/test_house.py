"""Conventions of the code that no linter checks: the first word of a docstring, and one name for one thing."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("protocol", "coordinator", "worker", "trainer", "validator", "ledger", "deploy")

CLAUSE = re.compile(r"(What|Whoever|Whatever|Whichever|Of which|Of each|Whether|How|Where|Who|Which|When|That)\b")
"""Words that begin a subordinate clause: a docstring begins with a verb or with the field's term instead."""

FACTS = ROOT / "ledger" / "facts"
"""The auditor's own account of the chain's nouns. Exports, API and state hash use its class names, and code uses them
qualified, as ``facts.Node``; so these names may recur among the contracts' structs."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def test_no_docstring_begins_with_a_clause() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    clauses = [
        f"{path.relative_to(ROOT)}: {first}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, documented) and CLAUSE.match(first := (ast.get_docstring(node) or "").partition("\n")[0])
    ]
    assert clauses == []


def test_a_class_name_means_one_thing_in_all_product_packages() -> None:
    named = defaultdict[str, list[str]](list)
    for path, tree in modules():
        if FACTS not in path.parents:
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    named[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_no_two_modules_of_a_folder_differ_by_one_letter() -> None:
    names = {path.with_suffix("") for path, _ in modules()}
    assert sorted(str(name.relative_to(ROOT)) for name in names if name.with_name(name.name + "s") in names) == []


def test_every_package_is_part_of_a_wheel() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {".".join(path.relative_to(ROOT).parent.parts) for path, _ in modules()}
    assert found - listed == set()
