"""``assize completion``: prints the script by which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from protocol.node.console import guard

VARIABLE = "_ASSIZE_COMPLETE"
"""Variable by which a shell asks for completions, as Typer names it after the program."""


class Shell(StrEnum):
    """Shells as typed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@guard
def completion(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print a script that completes commands and options: for bash, source <(assize completion bash)."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="assize", complete_var=VARIABLE, shell=shell.value))
