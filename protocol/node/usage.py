"""Errors of typing as one sentence on stderr, like all others, where Typer prints a box of five lines."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Any, NoReturn

from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from protocol.node.console import EXIT_INTERRUPTED, EXIT_MISCONFIGURED, EXIT_OK, EXIT_REFUSED, note

NARROWEST = 60
"""Columns below which help would cut the names of options: there the terminal folds its lines."""

HELP_WIDTH_VARIABLE = "TERMINAL_WIDTH"
"""Variable from which Typer takes the width of help."""

_NEGATIVE = re.compile(r"No such option: (-\d)")
_LARGEST = re.compile(r"Input should be (.*?), unable to parse string as an? \w+")


class SentenceGroup(TyperGroup):
    """The front door's commands, of which a usage error ends in one sentence and exit code 2."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **given: Any) -> NoReturn:
        """Runs a command and exits."""
        if shutil.get_terminal_size().columns < NARROWEST:
            os.environ.setdefault(HELP_WIDTH_VARIABLE, str(NARROWEST))
        try:
            code = super().main(args, "assize", **given | {"standalone_mode": False})
        except TyperException as error:
            raise SystemExit(_said(error)) from None
        except Abort:
            note("interrupted: the input ended")
            raise SystemExit(EXIT_REFUSED) from None
        if code == EXIT_INTERRUPTED:
            note("interrupted")
        raise SystemExit(code or EXIT_OK)


def _said(error: TyperException) -> int:
    """Prints a usage error as a sentence, or the help of a command that was typed without any arguments."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "assize"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
    else:
        note(f"{sentence_of(error.format_message())}; see: {path} --help")
    return EXIT_MISCONFIGURED


def sentence_of(message: str) -> str:
    """Returns Typer's message in our words."""
    if found := _NEGATIVE.match(message):
        return f"invalid value {found[1]}…: expected a number that is not negative, or an option"
    plain = _LARGEST.sub(r"expected \1", " ".join(message.split())).replace("Input should be", "expected")
    return plain[:1].lower() + plain[1:].rstrip(".")
