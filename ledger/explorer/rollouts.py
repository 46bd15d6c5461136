"""Rollouts of a job as a page shows them: prompts and completions as text beside their tokens. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.explorer.texts import Decoder
from protocol.wire.rollout import Artifact, Rollout

ROLLOUTS_SHOWN = 8
"""Rollouts of a page."""
TOKENS_DECODED, TOKENS_SHOWN = 4096, 200
"""Most tokens of a prompt or completion that are turned into text, and that are listed by their ids."""


@dataclass(frozen=True, slots=True)
class ShownTokens:
    """A prompt or a completion: its text, None without a tokenizer, the number of its tokens, and the first ids.

    The text is that of the first ``decoded`` tokens.
    """

    text: str | None
    decoded: int
    count: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShownRollout:
    """One completion; ``marks`` are the findings that speak of it, each as a juror and a reason."""

    number: int
    completion: ShownTokens
    finish: str
    marks: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A prompt and its completions."""

    prompt: ShownTokens
    rollouts: tuple[ShownRollout, ...]


@dataclass(frozen=True, slots=True)
class ShownArtifact:
    """Rollouts from ``first`` on, of ``total``; ``textless`` says why there is no text, and is empty where there is."""

    groups: tuple[ShownGroup, ...]
    first: int
    total: int
    tokens: int
    size: int
    textless: str

    @property
    def next(self) -> int | None:
        """Number of the first rollout of the next page, None at the end."""
        after = self.first + ROLLOUTS_SHOWN
        return after if after < self.total else None


def shown_artifact(
    artifact: Artifact,
    size: int,
    first: int,
    decoder: Decoder | None,
    textless: str,
    marks: Mapping[int, Sequence[tuple[int, str]]],
) -> ShownArtifact:
    """Returns the page of an artifact's rollouts that begins with ``first``.

    Args:
        artifact: what the node signed.
        size: bytes of its file.
        first: number of the first rollout shown.
        decoder: turns tokens into text; None where there is none, for the reason ``textless``.
        textless: one sentence, empty where there is a decoder.
        marks: findings by rollout.
    """
    page = list(enumerate(artifact.rollouts))[first : first + ROLLOUTS_SHOWN]
    groups = []
    for _, held in itertools.groupby(page, key=lambda pair: pair[1].prompt_tokens.tobytes()):
        rollouts = list(held)
        shown = tuple(_rollout(number, each, decoder, marks.get(number, ())) for number, each in rollouts)
        groups.append(ShownGroup(_tokens(rollouts[0][1].prompt_tokens, decoder), shown))
    tokens = sum(len(each.output_tokens) for each in artifact.rollouts)
    return ShownArtifact(tuple(groups), first, len(artifact.rollouts), tokens, size, textless)


def _rollout(number: int, rollout: Rollout, decoder: Decoder | None, marks: Sequence[tuple[int, str]]) -> ShownRollout:
    return ShownRollout(number, _tokens(rollout.output_tokens, decoder), rollout.finish_reason, tuple(marks))


def _tokens(ids: NDArray[np.int32], decoder: Decoder | None) -> ShownTokens:
    text, decoded = (None, 0) if decoder is None else decoder(ids[:TOKENS_DECODED].tolist())
    return ShownTokens(text, decoded, len(ids), tuple(ids[:TOKENS_SHOWN].tolist()))
