"""Questions to a person at a terminal, each of which has an option and may have a default."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import typer

from protocol.errors import Misconfigured

Answer = TypeVar("Answer", str, int)


def refuse_unseen_figures(as_json: bool, yes: bool) -> None:
    """Refuses a command that spends and shows its figures to nobody; raises ``Misconfigured``."""
    if as_json and not yes:
        raise Misconfigured("--json shows no figures to agree to: add --yes, which takes the defaults and agrees")


class Questions:
    """Answers from options, else from the terminal; with ``yes`` defaults are taken and nothing is asked."""

    def __init__(self, yes: bool) -> None:
        self.yes = yes

    def answer(
        self,
        given: Answer | None,
        question: str,
        option: str,
        default: Answer | None,
        check: Callable[[Answer], object] = lambda answer: None,
        kind: type[Answer] | None = None,
    ) -> Answer:
        """Returns the answer given by an option, else by the person, who may take the default.

        Args:
            given: the option's value; None if it was not typed.
            question: names what is asked for.
            option: the option that answers the question, as typed.
            default: offered, or taken unasked with ``yes``; None if there is none.
            check: raises ``Misconfigured`` at a wrong answer; a person is asked again.
            kind: type of an answer that has no default; None takes text.

        Raises:
            Misconfigured: there is no answer and nobody to ask, or a wrong one was given by an option.
        """
        found = given if given is not None else default if self.yes else None
        if found is not None:
            check(found)
            return found
        self._need_terminal(question, option, default)
        read = kind or (str if default is None else type(default))
        while True:
            answer: Answer = typer.prompt(question, default=default, type=read)
            try:
                check(answer)
                return answer
            except Misconfigured as error:
                typer.echo(str(error))

    def confirm(self, question: str) -> None:
        """Has a person agree; with ``yes`` they have.

        Raises:
            Misconfigured: nobody is there to ask.
            typer.Abort: they do not agree.
        """
        if not self.yes:
            self._need_terminal("agreement", "--yes", None)
            typer.confirm(question, abort=True)

    def _need_terminal(self, question: str, option: str, default: object) -> None:
        if self.yes:
            raise Misconfigured(f"missing {question}: --yes asks nothing and there is no default: give {option}")
        if not sys.stdin.isatty():
            either = ", or take the default with --yes" if default is not None else ""
            raise Misconfigured(f"missing {question}: there is no terminal to ask at: give {option}{either}")
