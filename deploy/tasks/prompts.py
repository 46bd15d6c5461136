"""Tasks in tokens: a tokenizer's chat template around the messages, and the place for a length budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError

from deploy.tasks.shapes import RawTask
from protocol.errors import Misconfigured
from protocol.tensor.chat import MARK
from protocol.tensor.model import load_tokenizer
from protocol.wire.tasks import LengthTarget

ASKS_FOR = "\n\nThink for {} tokens before giving a response."


class TaskPrompts:
    """Puts messages into the template of a model's tokenizer, and turns the text into tokens.

    ``plain`` leaves the template out; a tokenizer without one has none to leave out. ``system`` is a message to begin
    chats that have no such message of their own.

    Raises:
        Misconfigured: the tokenizer does not load, or there is no template for ``system``.
    """

    def __init__(self, directory: Path, system: str = "", plain: bool = False) -> None:
        if not directory.is_dir():
            raise Misconfigured(f"invalid model directory {directory}: it does not exist")
        self.tokenizer: Any = load_tokenizer(directory)
        self.plain = plain or not self.tokenizer.chat_template
        if system and self.plain:
            raise Misconfigured("invalid --system: expected a tokenizer with a chat template, and no --plain")
        self._system = (("system", system),) if system else ()
        self._framed: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}

    @property
    def unknown(self) -> int | None:
        """The token of text that the tokenizer lacks, if it has one for nothing else."""
        unknown: int | None = self.tokenizer.unk_token_id
        return None if unknown == self.tokenizer.eos_token_id else unknown

    def frame(self, task: RawTask) -> tuple[str, str]:
        """Returns the text up to the end of the last message, and the text after it.

        Raises:
            Misconfigured: the template does not render, or not to a text that has the message once.
        """
        if self.plain:
            return task.text, ""
        earlier, (_, last) = task.messages[:-1], task.messages[-1]
        if not any(role == "system" for role, _ in earlier):
            earlier = self._system + earlier
        before, after = self._around(earlier)
        return before + last, after

    def _around(self, earlier: tuple[tuple[str, str], ...]) -> tuple[str, str]:
        """Returns what comes before and after a last message."""
        if earlier in self._framed:
            return self._framed[earlier]
        messages = [{"role": role, "content": text} for role, text in (*earlier, ("user", MARK))]
        try:
            text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise Misconfigured(f"the tokenizer's chat template does not render: {error}") from error
        before, mark, after = text.rpartition(MARK)
        if not mark or before.count(MARK) != sum(content.count(MARK) for _, content in earlier):
            raise Misconfigured("the tokenizer's chat template does not have a user's message once: give --plain")
        if len(earlier) <= len(self._system):
            self._framed[earlier] = before, after
        return before, after

    def tokens_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of each text, to which none are added."""
        tokens: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return tokens

    def targets(self, lengths: Sequence[int]) -> tuple[LengthTarget, ...]:
        """Returns length budgets, with the tokens that ask for them."""
        asked = self.tokens_of([ASKS_FOR.format(length) for length in lengths]) if lengths else []
        return tuple(LengthTarget(length, tuple(tokens)) for length, tokens in zip(lengths, asked, strict=True))
