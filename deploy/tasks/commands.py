"""``assize tasks``: builds the tasks of a run from datasets, shows them, and lets a person answer one."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from protocol.errors import Misconfigured, accessing
from protocol.node.commands.connection import AsJson
from protocol.node.console import guard, note, show

if TYPE_CHECKING:
    from deploy.tasks.building import BuiltTasks
    from protocol.environments.task_set import TaskSet

app = typer.Typer(no_args_is_help=True)

EXAMPLES = 3
MAX_HELD_OUT, MAX_TARGETS, MAX_LENGTH = 0.5, 16, 1 << 20
Model = Annotated[Path, typer.Option("--model", help="Hugging Face directory of the model that is given the tasks.")]
File = Annotated[Path, typer.Argument(help="File of tasks, as assize tasks build writes it.")]
RowNumber = Annotated[int | None, typer.Option("--row", min=0, help="Row of the file, from 0.")]


@app.command()
@guard
def build(
    source: Annotated[
        list[str],
        typer.Argument(
            help="PLACE, NAME=PLACE or NAME=PLACE:WEIGHT; a PLACE is a file (.jsonl, .json, .parquet), "
            "reasoning-gym/DATASET?NAME=VALUE&NAME=VALUE, hf/OWNER/NAME@SPLIT or hf/OWNER/NAME/SUBSET@SPLIT."
        ),
    ],
    model: Model,
    out: Annotated[Path, typer.Option(help="File to write.")],
    held_out: Annotated[float, typer.Option(help="Share of the questions kept for evaluation, 0 to 0.5.")] = 0.05,
    length_targets: Annotated[str, typer.Option(help="Lengths in tokens to ask for, such as 64,128.")] = "",
    length_penalty: Annotated[
        float | None, typer.Option(min=0, max=1, help="Reward lost for each token off the length; else 0.0003.")
    ] = None,
    system: Annotated[str, typer.Option(help="System message to begin each chat with.")] = "",
    plain: Annotated[bool, typer.Option("--plain", help="Leave out the model's chat template.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Most tasks of each source, the first ones.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of Reasoning Gym's generators.")] = 1,
    max_prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Leave out longer prompts.")] = None,
    solve_rate: Annotated[
        str | None, typer.Option(help="MIN:MAX of the share of attempts that solved a row, where its dataset says.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build one file of tasks from datasets and generators: near duplicates dropped, some held out, in tokens."""
    from deploy.tasks.building import TaskChoices, build_tasks
    from deploy.tasks.prompts import TaskPrompts
    from deploy.tasks.sources import named_sources
    from protocol.files import write_atomically
    from protocol.node.progress import CountBars
    from protocol.wire.tasks import MAX_PROMPT_TOKENS

    lengths = _lengths(length_targets)
    if length_penalty is not None and not lengths:
        raise Misconfigured("invalid --length-penalty without --length-targets: expected lengths to ask for")
    if not 0 <= held_out <= MAX_HELD_OUT:
        raise Misconfigured(f"invalid --held-out {held_out}: expected 0 to {MAX_HELD_OUT}")
    defaults = TaskChoices()
    choices = TaskChoices(
        held_out,
        lengths,
        defaults.penalty if length_penalty is None else length_penalty,
        limit,
        seed,
        min(max_prompt_tokens or MAX_PROMPT_TOKENS, MAX_PROMPT_TOKENS),
        _rates(solve_rate),
    )
    sources = named_sources(source)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise Misconfigured(f"invalid --out {out}: expected a file in a folder that exists")
    with CountBars() as bars:
        built = build_tasks(sources, model, TaskPrompts(model, system, plain), choices, bars)
    with accessing(f"write {out}"):
        write_atomically(out, built.data)
    if built.unknown:
        note(f"{built.unknown} prompts have characters that the model's tokenizer does not know: it will not see them")
    _tell_built(out, built, as_json)


@app.command("show")
@guard
def show_tasks(
    file: File,
    model: Annotated[Path | None, typer.Option("--model", help="Directory of the model, to show words.")] = None,
    row: RowNumber = None,
    as_json: AsJson = False,
) -> None:
    """Show a file's sources, verifiers and lengths; with --model some of its tasks, or the one of --row, in words."""
    from deploy.tasks.viewing import in_words, source_rows, spread, summary

    if row is not None and model is None:
        raise Misconfigured("invalid --row without --model: expected the model whose tokens the tasks are")
    tasks = _opened(file, model)
    whole, sources = summary(file, tasks), source_rows(tasks)
    examples = []
    if model is not None:
        rows = spread(tasks, EXAMPLES) if row is None else [row]
        examples = [in_words(tasks, _tokenizer(model), each) for each in rows]
    if as_json:
        show({**whole, "sources": sources, **({"examples": examples} if examples else {})}, True)
        return
    show(whole, False, "tasks")
    show(sources, False, "sources")
    for example in examples:
        show(example, False, f"task {example['row']}")


@app.command("try")
@guard
def try_task(
    file: File,
    model: Model,
    row: RowNumber = None,
    answer: Annotated[str | None, typer.Option(help="Answer to judge; else it is asked for.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give a person one of the tasks, by chance or of --row; tell the reward of the answer, why, and the right one."""
    from deploy.tasks.viewing import graded, in_words

    tasks = _opened(file, model)
    chosen = random.randrange(len(tasks.opened.file)) if row is None else row
    task = in_words(tasks, _tokenizer(model), chosen)
    if not as_json:
        print(task["prompt"])
    if answer is None:
        answer = _answer_of_a_person()
    judged = graded(tasks, chosen, answer)
    if as_json:
        show(task | judged, True)
    else:
        show({**judged, "right_answer": task["answer"] or task["info"]}, False)


@app.command("measure")
@guard
def measure_tasks(
    file: File,
    model: Model,
    out: Annotated[Path | None, typer.Option(help="File for the tasks that are kept; else only the rates.")] = None,
    keep: Annotated[str, typer.Option(help="MIN:MAX of the share of tries that are right.")] = "0.125:0.5",
    samples: Annotated[int, typer.Option(min=1, max=64, help="Tries of each task.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, max=1.5, help="Temperature of a try.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, max=131072, help="Most tokens of a try.")] = 512,
    limit: Annotated[int | None, typer.Option(min=1, help="Measure, and keep, the first training tasks only.")] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Number format of the model.")] = "float32",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to compute on.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Have a model try the training tasks, and keep those that it solves sometimes; the held-out ones stay."""
    from deploy.tasks.in_rules import read_tasks
    from deploy.tasks.measuring import TryRules, kept, measure, rates_by_source
    from protocol.files import write_atomically
    from protocol.node.progress import CountBars
    from protocol.tensor.model import check_device

    least, most = _share(keep, "--keep")
    check_device(device)
    tasks = read_tasks(file, model)
    rows = tasks.opened.drawable[:limit]
    with CountBars() as bars:
        way = TryRules(samples, temperature, max_tokens, dtype, device)
        found = measure(tasks, rows, model, way, lambda done: bars.reached("measured", done, len(rows), "tasks"))
    table = rates_by_source(tasks.opened.file, found, least, most)
    data = None if out is None else kept(tasks.opened.file, found, least, most)
    if out is not None and data is not None:
        with accessing(f"write {out}"):
            write_atomically(out, data)
    if as_json:
        show({"file": str(out or ""), "sources": table}, True)
        return
    show(table, False, f"tasks of {file}")


def _opened(file: Path, model: Path | None) -> TaskSet:
    """Reads a file of tasks, of the tokenizer of ``model`` if one is given."""
    from deploy.tasks.in_rules import check_tokenizer, open_tasks

    tasks = open_tasks(file)
    if model is not None:
        check_tokenizer(file, tasks, model)
    return tasks


def _tokenizer(model: Path) -> Any:
    from protocol.tensor.model import load_tokenizer

    return load_tokenizer(model)


def _answer_of_a_person() -> str:
    """Returns the answer that is typed or piped, to the end of the input; raises ``Misconfigured`` for none."""
    if sys.stdin.isatty():
        print("answer, then Ctrl-D on an empty line:", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise Misconfigured("invalid answer: expected UTF-8") from error
    if not answer.strip():
        raise Misconfigured("invalid answer: expected text, or --answer TEXT")
    return answer


def _tell_built(out: Path, built: BuiltTasks, as_json: bool) -> None:
    """Prints what became of each source, and the root of the file."""
    from deploy.tasks.viewing import account_row
    from protocol.wire.tasks import tasks_root

    sources = [account_row(account) for account in built.accounts]
    whole = {
        "file": str(out),
        "root": tasks_root(built.data),
        "bytes": len(built.data),
        "tasks": sum(account.kept for account in built.accounts),
        "held_out": sum(account.held_out for account in built.accounts),
    }
    if as_json:
        show({**whole, "sources": sources}, True)
        return
    show([{**source, "left_out": _reasons(source["left_out"])} for source in sources], False, "sources")
    show(whole, False)


def _reasons(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in left_out.items()) or "none"


def _lengths(text: str) -> tuple[int, ...]:
    """Reads lengths such as ``64,128``."""
    parts = [part.strip() for part in text.split(",")] if text else []
    lengths = tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= 7)
    most = len(lengths) == len(parts) == len(set(lengths)) <= MAX_TARGETS
    if not most or not all(1 <= length <= MAX_LENGTH for length in lengths):
        raise Misconfigured(
            f"invalid --length-targets {text}: expected at most {MAX_TARGETS} lengths such as 64,128, each once"
        )
    return lengths


def _rates(text: str | None) -> tuple[float, float] | None:
    """Reads a range such as ``0.125:0.5``."""
    return None if text is None else _share(text, "--solve-rate")


def _share(text: str, option: str) -> tuple[float, float]:
    """Reads a range of shares such as ``0.125:0.5``."""
    try:
        least, most = (float(part) for part in text.split(":"))
    except ValueError:
        least, most = 1.0, 0.0
    if not 0 <= least <= most <= 1:
        raise Misconfigured(f"invalid {option} {text}: expected MIN:MAX from 0 to 1, such as 0.125:0.5")
    return least, most
