"""Completion in shells: bash itself where there is one, and what zsh and fish ask the front door."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``assize`` is on the PATH."""
    program = tmp_path / "assize"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "assize.py"} "$@"\n')
    program.chmod(0o755)
    return dict(os.environ) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def ran(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("wal", "wallet"),
        ("wallet dr", "drip"),
        ("run join --rules", "--rules-hash"),
        ("completion f", "fish"),
        ("node register --role v", "validator"),
    ],
)
def test_bash_completes_parts_commands_options_and_choices(installed: dict[str, str], line: str, found: str) -> None:
    assert shutil.which("bash"), "the tests run where bash is"
    words = ["assize", *line.split()]
    script = (
        f"source <(assize completion bash); COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_assize_completion assize; echo "${COMPREPLY[@]}"'
    )
    assert ran(installed, "bash", "-c", script).split() == [found]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_complete_the_commands_of_a_part(installed: dict[str, str], shell: str) -> None:
    assert "_ASSIZE_COMPLETE=complete_" + shell in ran(installed, "assize", "completion", shell)
    asked = {"_ASSIZE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "assize wallet dr"}
    answer = ran(installed | asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "assize")
    assert "drip" in answer
