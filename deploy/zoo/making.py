"""The process that runs a stranger's worker: ``python -m deploy.zoo.making FOLDER FILE``.

It reads ``FOLDER/trial.json`` and ``rules.json``, and writes a blob and a line of ``made.jsonl`` for each job it makes.
Nothing that it imports or changes is seen by the process that judges.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

from protocol.environments.registry import environment
from protocol.errors import AssizeError, Misconfigured
from protocol.node.console import EXIT_MISCONFIGURED
from protocol.tensor.determinism import ExactShape
from protocol.wire.rules import decode_rules
from worker.engines.registry import make_engine
from worker.producer import Producer
from worker.prover import Work
from worker.specimens import ENOUGH_UNITS, NOWHERE

TRIAL, RULES, MADE = "trial.json", "rules.json", "made.jsonl"
NODE = 1


def main(folder: Path, file: Path) -> None:
    """Makes every job of the trial."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    trial, rules = json.loads((folder / TRIAL).read_text()), decode_rules((folder / RULES).read_bytes())
    tasks = environment(rules.environment.name, rules.environment.params)
    engine = make_engine("transformers", rules.model.dtype, exact=ExactShape.of(rules))
    producer = producer_in(file)(engine, rules, tasks, NOWHERE)
    producer.load(1, Path(trial["weights"]))
    with (folder / MADE).open("a") as made:
        for number, (beacon, jobs) in enumerate(trial["rounds"]):
            work = Work(number, NODE, tuple(range(jobs)), bytes.fromhex(beacon), 1, bytes(32), ENOUGH_UNITS)
            for done in producer.make(work):
                (folder / f"{number}-{done.job}.blob").write_bytes(done.blob)
                told = {"round": number, "job": done.job, "root": done.root.hex(), "units": done.units}
                print(json.dumps(told), file=made, flush=True)


def producer_in(file: Path) -> type[Producer]:
    """Returns the one subclass of ``Producer`` that a file defines.

    Raises:
        Misconfigured: it defines none or several, or cannot be imported as a module.
    """
    spec = importlib.util.spec_from_file_location("stranger", file)
    if spec is None or spec.loader is None:
        raise Misconfigured(f"invalid file {file}: expected a Python file, NAME.py")
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["stranger"] = module
    spec.loader.exec_module(module)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == "stranger"]
    kinds = [one for one in own if issubclass(one, Producer)]
    leaves = [one for one in kinds if not any(other is not one and issubclass(other, one) for other in kinds)]
    if len(leaves) != 1:
        raise Misconfigured(
            f"invalid file {file}: it defines {len(leaves)} workers, expected one class derived from "
            "worker.producer.Producer"
        )
    return leaves[0]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except AssizeError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_MISCONFIGURED)
