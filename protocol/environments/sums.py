"""Sums asked in words, for models that can chat: "What is 17 + 5?" The answer may be put in any words.

A completion is right if the last whole number in it is the sum. One pair of numbers in ten, by a hash of the two
whichever way round, is held out, in every wording.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.environments.environment import Problem
from protocol.errors import Misconfigured
from protocol.wire.rules import Rules

LEAST_MOST, MOST_MOST = 9, 10**12
WORDINGS = ("What is {} + {}?", "How much is {} + {}?", "Calculate {} + {}.", "{} + {} = ?")
HELD_OUT_ONE_IN = 10
DRAWS_EACH = 100
"""Draws for each held-out problem: far more than it takes to find nearly all that there are."""
_NUMBER = re.compile(r"\d{1,40}", re.ASCII)
_TYPED = re.compile(r"[^\d+]*(\d{1,13}) *\+ *(\d{1,13})[^\d+]*", re.ASCII)
_TRAIN_DOMAIN = b"assize/sums/train/1"
_HELD_OUT_DOMAIN = b"assize/sums/held-out/1"
_SPLIT_DOMAIN = b"assize/sums/split/1"


@dataclass(frozen=True, slots=True)
class AskedSums:
    """Sums of two numbers from 0 to ``most``. See ``Environment`` for the methods."""

    most: int = 29

    @classmethod
    def from_params(cls, params: Mapping[str, object]) -> AskedSums:
        """Reads ``{"most": 9..10**12}``; the default is 29."""
        if unknown := sorted(set(params) - {"most"}):
            raise Misconfigured(f"unknown parameter {unknown[0]!r} of sums: expected 'most'")
        most = params.get("most", 29)
        if not isinstance(most, int) or isinstance(most, bool) or not LEAST_MOST <= most <= MOST_MOST:
            raise Misconfigured(
                f"invalid 'most' {most!r} of sums: expected a whole number from {LEAST_MOST} to {MOST_MOST}"
            )
        return cls(most)

    def problem(self, seed: bytes) -> Problem:
        """Returns the training problem of ``seed`` (32 bytes): the first draw that is not held out."""
        if len(seed) != 32:
            raise ValueError(f"invalid problem seed of {len(seed)} bytes: expected 32 bytes")
        return self._first(_TRAIN_DOMAIN + seed, held_out=False)

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        """Returns ``count`` distinct held-out problems of ``seed`` (0 to 2**64 - 1), in the order drawn."""
        found: dict[str, Problem] = {}
        for draw in range(DRAWS_EACH * count):
            if len(found) == count:
                break
            problem = self._first(_HELD_OUT_DOMAIN + seed.to_bytes(8, "big") + draw.to_bytes(8, "big"), held_out=True)
            found.setdefault(str(problem.prompt), problem)
        if len(found) < count:
            raise ValueError(f"sums of numbers up to {self.most} have fewer than {count} held-out problems")
        return list(found.values())

    def typed(self, text: str) -> Problem | None:
        """Returns the sum that a person types, in words or as ``23+48=``; None unless both numbers are in range."""
        found = _TYPED.fullmatch(text.strip())
        if found is None or max(int(found[1]), int(found[2])) > self.most:
            return None
        return self._sum(int(found[1]), int(found[2]), WORDINGS[0])

    def reward(self, problem: Problem, completion: str) -> float:
        """Returns 1 if the last whole number of the text is the sum, else 0."""
        numbers = _NUMBER.findall(completion)
        return float(bool(numbers) and int(numbers[-1]) == int(problem.answer))

    def most_prompt_tokens(self, rules: Rules) -> int:
        """Returns the bytes of the longest prompt."""
        return max(len(rules.prompt_text(wording.format(self.most, self.most)).encode()) for wording in WORDINGS)

    def _first(self, label: bytes, held_out: bool) -> Problem:
        """Returns the first problem drawn under ``label`` whose split is the requested one."""
        draw = 0
        while True:
            digest = hashlib.sha256(label + draw.to_bytes(8, "big")).digest()
            a, b = (int.from_bytes(part, "big") % (self.most + 1) for part in (digest[:12], digest[12:24]))
            problem = self._sum(a, b, WORDINGS[digest[24] % len(WORDINGS)])
            if problem.held_out == held_out:
                return problem
            draw += 1

    def _sum(self, a: int, b: int, wording: str) -> Problem:
        low, high = sorted((a, b))
        split = hashlib.sha256(_SPLIT_DOMAIN + f"{low}+{high}".encode()).digest()
        held_out = int.from_bytes(split[:8], "big") % HELD_OUT_ONE_IN == 0
        return Problem(wording.format(a, b), str(a + b), held_out)
