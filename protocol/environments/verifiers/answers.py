r"""The part of a completion that answers the question.

<think> … </think> so x = 3 … \boxed{3}            boxed: the last box with balanced braces
… The answer is **3**.                              marked: after the last "answer", to the end of the line
…\n3                                                neither: the last line that is not empty
"""

from __future__ import annotations

import re

MAX_TEXT = 2**14
"""Characters at the end of a completion in which an answer is looked for."""
_DEPTH = 16
"""Decorations within one another that are stripped."""
_OPEN, _CLOSE = "<think>", "</think>"
_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_MARKER = re.compile(r"\banswer\b(?:[^\n.:=$\\]{0,60}?\bis\b)?[\s:=*]*", re.IGNORECASE)
_WRAPPINGS = (("**", "**"), ("__", "__"), ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("`", "`"))
_LETTER = re.compile(r"\W*(?:(?i:option|choice)\W+)?([A-Ja-j])\W*")
_LETTER_FIRST = re.compile(
    r"\W*(?:(?i:option|choice)\W+)?(?:\(([A-Ja-j])\)|([A-J])(?:[).:,*]|\s+(?:[-–—]|because\b|since\b))|([B-HJ])\b)"
)
_STYLE = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|bf|rm)\b")


def after_thought(text: str) -> str:
    """Returns the part after the last closed thought; nothing if a thought is still open there."""
    _, _, spoken = text.rpartition(_CLOSE)
    return "" if _OPEN in spoken else spoken


def final_answer(text: str) -> str:
    """Returns the answer that ``text`` ends in, without its box, marker and decoration; may be empty."""
    spoken = after_thought(text)[-MAX_TEXT:]
    box = last_box(spoken)
    if box is not None:
        return bare(box)
    for marker in reversed(list(_MARKER.finditer(spoken))):
        line_end = spoken.find("\n", marker.end())
        if marked := bare(spoken[marker.end() : line_end if line_end >= 0 else None]):
            return marked
    return bare(last_line(spoken))


def last_box(text: str) -> str | None:
    r"""Returns the content of the last ``\boxed{…}`` that is closed, of nested ones the inner; None if none is."""
    opened: list[tuple[int, bool]] = []
    start, content = -1, None
    for brace in _BRACES.finditer(text):
        token = brace[0]
        if token == "}":
            if opened:
                begin, boxed = opened.pop()
                if boxed and begin > start:
                    start, content = begin, text[begin : brace.start()]
        elif token == "{" or (token[-1] == "{" and len(token) > 2):
            opened.append((brace.end(), token != "{"))
    return content


def last_line(text: str) -> str:
    """Returns the last line that is not blank; empty if all are."""
    return text.rstrip().rpartition("\n")[2]


def bare(text: str) -> str:
    """Strips white space, a final full stop, and the marks of emphasis and mathematics that surround ``text``."""
    for _ in range(_DEPTH):
        before = text
        text = text.strip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        if text.count("**") == 1:
            text = text.removeprefix("**").removesuffix("**").strip()
        for left, right in _WRAPPINGS:
            inner = text[len(left) : -len(right)]
            if inner and text.startswith(left) and text.endswith(right) and left not in inner:
                text = inner
        if text == before:
            break
    return text if text.strip("*$_` ") else ""


def letter(text: str) -> str | None:
    """Returns the choice, A to J, that an answer names, as ``B``, ``(B)`` or ``B) nine``; None if it names none."""
    plain = _STYLE.sub("", text)
    alone = _LETTER.fullmatch(plain)
    if alone:
        return alone[1].upper()
    first = _LETTER_FIRST.match(plain)
    return next(found for found in first.groups() if found).upper() if first else None
