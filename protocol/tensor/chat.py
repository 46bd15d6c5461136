"""Chat prompts: the text that a tokenizer's chat template puts before and after the first message of a user.

A template is a program that comes with a model, and nodes run the models of strangers. So it is rendered once, around a
mark, by a process of its own with little time and memory; it sees no prompt, and cannot treat two prompts unlike.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured
from protocol.wire.rules import TEMPLATE_BYTES

SECONDS = 30.0
MARK = "(the message)"


def chat_affixes(tokenizer: Any) -> tuple[str, str]:
    """Returns the text before and after a user's message, up to where the answer begins.

    Raises:
        Misconfigured: there is no chat template, it asks for the date, or it does not render to a short text that has
            the message once.
    """
    template = tokenizer.chat_template
    if not isinstance(template, str):
        raise Misconfigured(
            'the tokenizer has no chat template: set chat_template in its configuration, or prompt_format = "text" '
            "in the rules"
        )
    return _affixes(template, tuple(sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items())))


@functools.lru_cache(maxsize=16)
def _affixes(template: str, special_tokens: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    if "strftime_now" in template:
        raise Misconfigured(
            "the tokenizer's chat template asks for the date, so that prompts would differ by day: write a fixed date "
            "into it"
        )
    given = {"template": template, "names": dict(special_tokens), "message": MARK}
    renderer = Path(__file__).with_name("chat_renderer.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(renderer)],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Misconfigured(f"the tokenizer's chat template does not render within {SECONDS:.0f} s") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it was ended for its use of time or memory"])[-1]
        raise Misconfigured(f"the tokenizer's chat template does not render: {why[:300]}")
    parts = done.stdout.split(MARK)
    if len(parts) != 2:
        raise Misconfigured(f"the tokenizer's chat template has a user's message {len(parts) - 1} times: expected once")
    if len(done.stdout.encode()) > TEMPLATE_BYTES:
        raise Misconfigured(
            f"the tokenizer's chat template puts {len(done.stdout.encode())} bytes around a message: expected at most "
            f"{TEMPLATE_BYTES}"
        )
    return parts[0], parts[1]
