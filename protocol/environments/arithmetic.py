r"""Multi-digit sums with the working written out, column by column from the right.

    prompt      347+586\n
    completion  7+6+0=13,3c1\n        digits of the column, carry in = two-digit sum, digit written c carry out
                4+8+1=13,3c1\n
                3+5+1=09,9c0\n
                answer 0933            last carry and the written digits, always one digit longer than the operands

Three digits make 50 characters and the end-of-text, so that a completion fills a 32-row proof chunk. The answer has a
fixed width: a right one is as long as a wrong one. One problem in ten, by a hash of its operands whichever way round,
is held out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.environments.environment import Problem
from protocol.errors import Misconfigured
from protocol.wire.rules import Rules

MIN_DIGITS = 1
MAX_DIGITS = 12
"""Operands stay under 16 bytes, with a modulo bias below 2**-80."""
HELD_OUT_ONE_IN = 10
"""Split: leaves about 100,000 three-digit problems for evaluation. A held-out draw needs ten hashes on average."""
_ANSWER = "answer "
_TYPED = re.compile(r"(\d+) *\+ *(\d+) *=?", re.ASCII)
_TRAIN_DOMAIN = b"assize/arithmetic/train/1"
_HELD_OUT_DOMAIN = b"assize/arithmetic/held-out/1"
_SPLIT_DOMAIN = b"assize/arithmetic/split/1"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Sums of two numbers of ``digits`` digits each, leading zeros kept. See ``Environment`` for the methods."""

    digits: int = 3

    @classmethod
    def from_params(cls, params: Mapping[str, object]) -> Arithmetic:
        """Reads ``{"digits": 1..12}``; the default is 3."""
        if unknown := sorted(set(params) - {"digits"}):
            raise Misconfigured(f"unknown arithmetic parameter {unknown[0]!r}: expected 'digits'")
        digits = params.get("digits", 3)
        if not isinstance(digits, int) or isinstance(digits, bool) or not MIN_DIGITS <= digits <= MAX_DIGITS:
            raise Misconfigured(
                f"invalid arithmetic 'digits' {digits!r}: expected a whole number from {MIN_DIGITS} to {MAX_DIGITS}"
            )
        return cls(digits)

    @property
    def alphabet(self) -> str:
        """Every character that prompts and correct completions use, sorted."""
        return "".join(sorted(set("0123456789+=,c\n" + _ANSWER)))

    def problem(self, seed: bytes) -> Problem:
        """Returns the training problem of ``seed`` (32 bytes): the first draw that is not held out."""
        if len(seed) != 32:
            raise ValueError(f"invalid problem seed of {len(seed)} bytes: expected 32 bytes")
        return self._first(_TRAIN_DOMAIN + seed, held_out=False)

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        """Returns ``count`` distinct held-out problems of ``seed`` (0 to 2**64 - 1), in the order drawn."""
        if count > 10 ** (2 * self.digits) // (4 * HELD_OUT_ONE_IN):
            raise ValueError(f"{self.digits}-digit sums have fewer than {count} held-out problems to draw")
        found: dict[str, Problem] = {}
        draw = 0
        while len(found) < count:
            label = _HELD_OUT_DOMAIN + seed.to_bytes(8, "big") + draw.to_bytes(8, "big")
            problem = self._first(label, held_out=True)
            found.setdefault(str(problem.prompt), problem)
            draw += 1
        return list(found.values())

    def typed(self, text: str) -> Problem | None:
        """Returns the sum that a person types, as ``23+48=``; None unless both numbers fit the width."""
        found = _TYPED.fullmatch(text.strip())
        if found is None or max(map(len, found.groups())) > self.digits:
            return None
        return self._sum(int(found[1]), int(found[2]))

    def reward(self, problem: Problem, completion: str) -> float:
        """Returns 1 if the text ends in the right answer, else 0; the working is not judged."""
        return float(_final_answer(completion) == problem.answer)

    def most_prompt_tokens(self, rules: Rules) -> int:
        """Returns the bytes of any prompt: all are as long."""
        return len(rules.prompt_text(str(self._sum(0, 0).prompt)).encode())

    def with_answer(self, completion: str, answer: str) -> str | None:
        """Replaces the final answer by ``answer``; returns None if the text has no final answer of that length."""
        written = _final_answer(completion)
        if written is None or len(written) != len(answer):
            return None
        return completion[: len(completion) - len(written)] + answer

    def working(self, problem: Problem, slips: Sequence[int]) -> str:
        """Returns the working of a teacher whose sum of column *i*, counted from the right, is off by ``slips[i]``.

        Everything after a slip follows from it, so one slip makes a wrong answer. A sum is kept within 0 to 19.
        """
        left, right = str(problem.prompt).rstrip("\n").split("+")
        carry, written, lines = 0, "", []
        for a, b, slip in zip(reversed(left), reversed(right), slips, strict=True):
            total = min(max(int(a) + int(b) + carry + slip, 0), 19)
            lines.append(f"{a}+{b}+{carry}={total:02d},{total % 10}c{total // 10}\n")
            carry, written = total // 10, f"{total % 10}{written}"
        return "".join(lines) + f"{_ANSWER}{carry}{written}"

    def _first(self, label: bytes, held_out: bool) -> Problem:
        """Returns the first problem drawn under ``label`` whose split is the requested one."""
        draw = 0
        while True:
            a, b = self._operands(label + draw.to_bytes(8, "big"))
            if self._is_held_out(a, b) == held_out:
                return self._sum(a, b)
            draw += 1

    def _sum(self, a: int, b: int) -> Problem:
        width = self.digits
        return Problem(f"{a:0{width}d}+{b:0{width}d}\n", f"{a + b:0{width + 1}d}", self._is_held_out(a, b))

    def _operands(self, label: bytes) -> tuple[int, int]:
        digest = hashlib.sha256(label).digest()
        bound = 10**self.digits
        return int.from_bytes(digest[:16], "big") % bound, int.from_bytes(digest[16:], "big") % bound

    def _is_held_out(self, a: int, b: int) -> bool:
        low, high = sorted((a, b))
        digest = hashlib.sha256(_SPLIT_DOMAIN + f"{low}+{high}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def _final_answer(completion: str) -> str | None:
    """Returns the text after the last ``answer``, or None if that is not digits only."""
    _, marker, tail = completion.rpartition(_ANSWER)
    return tail if marker and tail.isascii() and tail.isdigit() else None
