"""A new run's folder: rules with the model's files pinned, and a run file.

run.toml      rules, terms, requester and recipe
rules.json    canonical rules
assize.toml   once the run is open: the profile of this folder, with the settings of its coordinator and trainer
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.runs.choices import ProtocolBounds
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.errors import Misconfigured, Rejected, accessing
from protocol.files import linked, write_atomically
from protocol.node.commands.run_file import RunFileTerms
from protocol.tensor.determinism import with_canary
from protocol.wire import manifest
from protocol.wire.pins import TASKS_FILE, pinned_sizes
from protocol.wire.rules import EnvironmentRules, Rules, decode_rules, encode_rules, with_checkpoint

RUN_FILE, RULES_FILE = "run.toml", "rules.json"
MEASURED = Path(__file__).with_name("builtin-rules.json")
"""Rules with thresholds measured for the built-in model; others are measured with `assize validator calibrate`."""
SMALL_MODEL_BYTES = 100_000_000
"""A model below this size is trained by the recipe of the built-in one, which is as small."""
SLOTS = 256


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is not open yet. ``escrow`` is an amount as people type it; addresses are those of the parties."""

    folder: Path
    model: Path
    rules: Rules
    terms: RunFileTerms
    coordinator: str
    trainer: str
    uri: str
    escrow: str
    steps: int

    @property
    def model_root(self) -> bytes:
        """Manifest root of version 0."""
        return manifest.from_directory(self.model, 0).root


def read_bounds(chain: Chain) -> ProtocolBounds:
    """Reads the deployment's bounds and the number of its validators."""
    reader = chain.pinned(chain.head())
    return ProtocolBounds(reader.market_terms(), reader.rounds_terms(), _validators(reader))


def _validators(reader: Reader) -> int:
    return sum(node != 0 for node in reader.views("Registry", "holderOf", [(slot,) for slot in range(SLOTS)]))


def rules_for(
    base: Path, model: Path, environment: str | None, params: Mapping[str, object], work: Mapping[str, object]
) -> Rules:
    """Returns rules with the thresholds of ``base``, other tasks and ``work``, and the files of ``model`` pinned.

    Without an ``environment`` the tasks are those of ``base``.

    Raises:
        Misconfigured: ``base`` holds no rules, or a value is invalid.
        UnfitCheckpoint: the model cannot be pinned.
    """
    from pydantic import ValidationError

    try:
        with accessing(f"read the rules {base}"):
            read = decode_rules(base.read_bytes())
        changed = {name: value for name, value in work.items() if value is not None}
        if environment is not None:
            changed["environment"] = EnvironmentRules(name=environment, params=dict(params)).model_dump()
        rules = Rules.model_validate(read.model_dump() | changed)
    except Rejected as error:
        raise Misconfigured(f"{base} holds no canonical rules: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misconfigured(f"rules: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
    return with_canary(with_checkpoint(rules, model), model)


def model_with_tasks(model: Path, tasks: Path, folder: Path) -> Path:
    """Makes ``FOLDER/model``, links to the model's files where it can, and the tasks; returns it.

    Raises:
        Misconfigured: it is there with other files, or cannot be written.
    """
    whole = folder / "model"
    made = whole.with_name(".model.unfinished")
    with accessing(f"write to {folder}"):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for name in pinned_sizes(model):
            if name != TASKS_FILE:
                linked(model / name, made / name)
        shutil.copyfile(tasks, made / TASKS_FILE)  # it may be written again, in place
    if not whole.exists():
        os.replace(made, whole)
        return whole
    same = manifest.from_directory(made, 0).root == manifest.from_directory(whole, 0).root
    shutil.rmtree(made)
    if not same:
        raise Misconfigured(f"{whole} has other files than this run's model and tasks: give another folder")
    return whole


def write_run(run: NewRun, resumes: bool = False) -> Path:
    """Writes rules and run file into a folder that has no run file yet; returns the run file.

    Args:
        run: to be written.
        resumes: whether a run file with the same content is taken for this one.

    Raises:
        Misconfigured: the folder holds a run, or cannot be written.
    """
    path = run.folder / RUN_FILE
    if path.exists() and not (resumes and path.read_text() == run_toml(run)):
        raise Misconfigured(
            f"{path} exists: give another folder; open that run with: assize run open --file {path}; or, if it was "
            "being opened, go on with the options that it was made with"
        )
    with accessing(f"write to {run.folder}"):
        run.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(run.folder / RULES_FILE, encode_rules(run.rules))
        write_atomically(path, run_toml(run).encode())
    return path


def run_toml(run: NewRun) -> str:
    """Returns the run file of a run that is not open yet."""
    requester = {
        "model": str(run.model.absolute()),
        "model_root": "0x" + run.model_root.hex(),
        "coordinator": run.coordinator,
        "trainer": run.trainer,
        "uri": run.uri,
        "escrow": run.escrow,
    }
    tables = {"terms": run.terms.model_dump(), "requester": requester, "recipe": recipe_of(run)}
    parts = [f"# Made by assize run new. Amounts in [terms] are in wei.\nrules = {json.dumps(RULES_FILE)}\n"]
    for name, values in tables.items():
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
        parts.append(f"\n[{name}]\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def recipe_of(run: NewRun) -> dict[str, object]:
    """Returns the recipe: one round's groups make a step, a quarter of them suffices to start one."""
    groups = run.terms.jobs_per_round * run.rules.groups_per_job
    size = sum(file.size for file in manifest.from_directory(run.model, 0).files)
    preset: dict[str, object] = {"preset": "builtin"} if size < SMALL_MODEL_BYTES else {}
    return preset | {"steps": run.steps, "groups_per_step": groups, "groups_to_start": max(1, groups // 4)}


def next_commands(run: NewRun, number: int) -> list[str]:
    """Returns the commands that set an open run going."""
    folder, metrics = (shlex.quote(str(path)) for path in (run.folder, run.folder / "state" / "trainer"))
    return [f"assize run up {folder}", f"assize run watch {number} --metrics {metrics}"]
