"""A task file out of sources: rows to tasks, duplicates dropped, prompts in tokens, some held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deploy.tasks import duplicates
from deploy.tasks.prompts import TaskPrompts
from deploy.tasks.shapes import RawTask, Unfit, solve_rate
from deploy.tasks.sources import NamedSource, RowReader
from protocol.errors import Misconfigured, Rejected
from protocol.node.progress import CountBars
from protocol.tensor.directory import tokenizer_hash
from protocol.wire.canonical import validating
from protocol.wire.tasks import (
    MAX_PROMPT_TOKENS,
    LengthTarget,
    TaskHeader,
    TaskRow,
    TaskSource,
    decode_tasks,
    encode_tasks,
)

_AT_ONCE = 512
_TOLD_EACH = 1000
_MANY_WORDS, _LEAST_NEW = 200, 0.1
"""A prompt of so many words repeats itself if less than this share of its words in a row are new."""


@dataclass(frozen=True, slots=True)
class TaskChoices:
    """Choices of whoever builds a file.

    held_out     share of the questions that are for evaluation alone
    lengths      lengths in tokens that prompts ask for
    penalty      loss of reward for each token by which a completion misses its length
    limit        most tasks of a source; None for all
    seed         of generators
    longest      most tokens of a prompt, its length budget included
    solved       least and greatest share of attempts that solved a row, where its dataset says
    """

    held_out: float = 0.05
    lengths: tuple[int, ...] = ()
    penalty: float = 0.0003
    limit: int | None = None
    seed: int = 1
    longest: int = MAX_PROMPT_TOKENS
    solved: tuple[float, float] | None = None


@dataclass(slots=True)
class SourceAccount:
    """Counts of what became of a source's rows. ``lengths`` are the tokens of the prompts that stay."""

    source: NamedSource
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    held_out: int = 0
    lengths: list[int] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Tasks that are in the file."""
        return len(self.lengths)


@dataclass(slots=True)
class _ReadTask:
    """A task whose question no earlier one has, ``place`` the number of its source, ``share`` from its hash."""

    place: int
    task: RawTask
    share: float


@dataclass(frozen=True, slots=True)
class BuiltTasks:
    """A task file, what became of each source's rows, and how many prompts have text that the tokenizer lacks."""

    data: bytes
    accounts: list[SourceAccount]
    unknown: int


def build_tasks(
    sources: Sequence[NamedSource], model: Path, prompts: TaskPrompts, choices: TaskChoices, bars: CountBars
) -> BuiltTasks:
    """Builds the tasks of ``sources`` for the tokenizer of ``model``: the same bytes each time.

    Raises:
        Misconfigured: a source or one of its rows is invalid, or a source has no task to train on.
    """
    header = _header(sources, model, prompts.targets(choices.lengths), choices)
    accounts = [SourceAccount(source) for source in sources]
    candidates = list(_candidates(accounts, choices, bars))
    if len(candidates) >= _TOLD_EACH:
        bars.say(f"near duplicates: comparing {len(candidates):,} questions")
    rows = _rows(_distinct(candidates, accounts), accounts, prompts, header.targets, choices, bars)
    for index, account in enumerate(accounts):
        if not any(row.source == index and row.weight and not row.held_out for row in rows):
            raise Misconfigured(f"the source {account.source.name} has no task to train on: {_story(account)}")
    try:
        data = encode_tasks(header, rows)
        decode_tasks(data)
    except Rejected as error:
        raise Misconfigured(f"cannot build the tasks: {error}") from error
    unknown = sum(prompts.unknown in row.prompt_tokens for row in rows) if prompts.unknown is not None else 0
    return BuiltTasks(data, accounts, unknown)


def _header(
    sources: Sequence[NamedSource], model: Path, targets: tuple[LengthTarget, ...], choices: TaskChoices
) -> TaskHeader:
    from pydantic import TypeAdapter

    whole = TaskHeader(
        tokenizer=tokenizer_hash(model),
        sources=tuple(TaskSource(source.name, source.weight) for source in sources),
        targets=targets,
        penalty=choices.penalty if targets else 0.0,
    )
    adapter = TypeAdapter(TaskHeader)
    with validating("the tasks", Misconfigured):
        return adapter.validate_json(adapter.dump_json(whole))


def _candidates(accounts: Sequence[SourceAccount], choices: TaskChoices, bars: CountBars) -> Iterator[_ReadTask]:
    """Yields the tasks of all sources, the first one of each question."""
    seen: set[bytes] = set()
    rated = choices.solved is None
    for place, account in enumerate(accounts):
        reader = RowReader(account.source, choices.seed)
        taken = 0
        for row, task in reader.tasks():
            account.read += 1
            if account.read % _TOLD_EACH == 0:
                bars.reached(f"read {account.source.name}", account.read, max(reader.count, account.read), "rows")
            if isinstance(task, Unfit):
                account.left_out[str(task)] += 1
                continue
            if choices.solved is not None and (rate := solve_rate(row)) is not None:
                rated = True
                if not choices.solved[0] <= rate <= choices.solved[1]:
                    account.left_out["another solve rate"] += 1
                    continue
            normal = duplicates.normal(task.text)
            if not task.procedural and _repeats_itself(normal):
                account.left_out["it repeats itself"] += 1
                continue
            digest = duplicates.digest_of(normal)
            if digest in seen:
                account.duplicates += 1
                continue
            seen.add(digest)
            yield _ReadTask(place, task, duplicates.share_of(digest))
            taken += 1
            if taken == choices.limit:
                break
    if not rated:
        raise Misconfigured("invalid --solve-rate: expected a source with a column of solve rates")


def _distinct(candidates: Sequence[_ReadTask], accounts: Sequence[SourceAccount]) -> Iterator[_ReadTask]:
    """Yields the tasks that are not nearly an earlier one."""
    near = np.zeros(len(candidates), np.bool_)
    compared = [index for index, candidate in enumerate(candidates) if not candidate.task.procedural]
    near[compared] = duplicates.near_duplicates([candidates[index].task.text for index in compared])
    for candidate, dropped in zip(candidates, near.tolist(), strict=True):
        if dropped:
            accounts[candidate.place].duplicates += 1
        else:
            yield candidate


def _rows(
    candidates: Iterator[_ReadTask],
    accounts: Sequence[SourceAccount],
    prompts: TaskPrompts,
    targets: Sequence[LengthTarget],
    choices: TaskChoices,
    bars: CountBars,
) -> list[TaskRow]:
    """Returns the rows of the file; leaves out prompts that are too long."""
    budget = max((len(target.tokens) for target in targets), default=0)
    rows: list[TaskRow] = []
    whole = list(candidates)
    for start in range(0, len(whole), _AT_ONCE):
        part = whole[start : start + _AT_ONCE]
        frames = [prompts.frame(candidate.task) for candidate in part]
        if targets:
            before, after = (prompts.tokens_of(texts) for texts in zip(*frames, strict=True))
        else:
            before, after = prompts.tokens_of([left + right for left, right in frames]), [[] for _ in frames]
        for candidate, left, right in zip(part, before, after, strict=True):
            account, task = accounts[candidate.place], candidate.task
            length = len(left) + len(right) + budget
            if not 0 < length <= choices.longest:
                account.left_out["a prompt that is too long" if length else "no question"] += 1
                continue
            held_out = candidate.share < choices.held_out if task.held_out is None else task.held_out
            account.lengths.append(length - budget)
            account.held_out += held_out
            at = len(left) if targets else -1
            rows.append(
                TaskRow(
                    (*left, *right), task.answer, task.verifier, task.info, held_out, candidate.place, task.weight, at
                )
            )
        if len(whole) >= _TOLD_EACH:
            bars.reached("tokens", start + len(part), len(whole), "prompts")
    return rows


def _repeats_itself(normal: str) -> bool:
    """Tells whether a long text says the same again and again."""
    words = normal.split(" ")
    if len(words) < _MANY_WORDS:
        return False
    return len(set(zip(words, words[1:], words[2:], words[3:], strict=False))) < _LEAST_NEW * len(words)


def _story(account: SourceAccount) -> str:
    """Returns what became of a source's rows, as a list."""
    parts = [f"{account.read} read", *(f"{count} left out ({why})" for why, count in account.left_out.most_common())]
    counts = {"duplicates": account.duplicates, "held out": account.held_out}
    return ", ".join(parts + [f"{count} {what}" for what, count in counts.items() if count])
