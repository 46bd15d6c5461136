"""Counts lines of product code: ``python -m tests.lines [REVISION]`` (`make lines`) compares with an earlier revision.

Python and Solidity of the product's folders. Blank lines, comments and docstrings do not count; neither do tests,
benchmarks, the adversary zoo's harness and calibration of the built-in run, wherever a revision keeps them.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter

from rich.console import Console
from rich.table import Table

SERVICES = ("coordinator", "worker", "trainer", "validator", "ledger")
PRODUCT = ("contracts/src", "protocol", *SERVICES, "deploy", "assize.py")

LEFT_OUT = re.compile(r"deploy/(bench_|gas_|bare_loop|own_sampling|zoo/|calibrate_builtin)")
"""Benchmarks and the zoo's harness, where earlier revisions kept them."""

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def python_lines(source: str) -> int:
    """Returns how many lines of Python hold code."""
    documented = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    held = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - documented)


def solidity_lines(source: str) -> int:
    """Returns how many lines of Solidity hold code."""
    return sum(bool(line.strip()) for line in COMMENT.sub("", source).splitlines())


def count(revision: str | None) -> Counter[str]:
    """Returns lines of code by top-level folder, of a revision or of the working tree."""
    listing = ["ls-tree", "-r", "--name-only", revision] if revision else ["ls-files"]
    found = Counter[str]()
    for path in subprocess.check_output(["git", *listing, "--", *PRODUCT], text=True).split():
        if not path.endswith((".py", ".sol")) or LEFT_OUT.match(path):
            continue
        if revision:
            source = subprocess.check_output(["git", "show", f"{revision}:{path}"], text=True)
        else:
            with open(path, encoding="utf-8") as file:
                source = file.read()
        found[path.split("/")[0]] += python_lines(source) if path.endswith(".py") else solidity_lines(source)
    return found


def main() -> None:
    """Prints a table by folder, and one line of JSON."""
    before = count(sys.argv[1]) if len(sys.argv) > 1 else Counter[str]()
    now = count(None)
    table = Table("folder", "before", "now", "change")
    for folder in sorted(now | before):
        table.add_row(folder, str(before[folder]), str(now[folder]), f"{now[folder] - before[folder]:+d}")
    Console().print(table)
    print(json.dumps({"before": before.total(), "now": now.total(), "change": now.total() - before.total()}))


if __name__ == "__main__":
    main()
