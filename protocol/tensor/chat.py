"""Chat prompts: the text that a tokenizer's chat template puts around the first message of a user.

A template is a program, which may look at the clock or draw numbers. So it is rendered once, by the requester who makes
the rules, and they carry the result.
"""

from __future__ import annotations

from typing import Any

from jinja2.exceptions import TemplateError

from protocol.errors import Misconfigured
from protocol.wire.rules import MAX_AFFIX, Rules

MARK = "(the message)"


def with_chat(rules: Rules, tokenizer: Any) -> Rules:
    """Returns ``rules`` whose prompts are a user's messages in the tokenizer's chat template.

    White space at the ends of a message stays as it is, where some templates strip it.

    Raises:
        Misconfigured: there is no chat template, or it does not render to a short text that has the message once.
    """
    if not isinstance(tokenizer.chat_template, str):
        raise Misconfigured(
            "the tokenizer has no chat template: set chat_template in its configuration, or leave --chat out"
        )
    messages = [{"role": "user", "content": MARK}]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise Misconfigured(f"the tokenizer's chat template does not render: {error}") from error
    parts = text.split(MARK)
    if len(parts) != 2:
        raise Misconfigured(f"the tokenizer's chat template has a user's message {len(parts) - 1} times: expected once")
    if max(map(len, parts)) > MAX_AFFIX:
        raise Misconfigured(
            f"the tokenizer's chat template puts {max(map(len, parts))} characters before or after a message: expected "
            f"at most {MAX_AFFIX}"
        )
    return rules.model_copy(update={"prompt_before": parts[0], "prompt_after": parts[1]})
