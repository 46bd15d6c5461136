"""Evaluation of versions in a process of its own, so that training does not wait for it.

The process is told the plan, then a version at a time, each as a line of JSON on its standard input, and answers each
with a line on its standard output. It ends with its input: it never outlives the trainer by more than one evaluation.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

import structlog

from protocol.wire.rules import Rules, decode_rules, encode_rules
from trainer.evaluate import Evaluation

ATTEMPTS = 3
"""Times that a version is given to a process before it is given up, as where memory is too small for both."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """``samples`` completions of each of so many held-out ``problems``, which ``seed`` and the version fix."""

    problems: int
    samples: int = 1
    seed: int = 0
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The evaluation of a version, and the seconds from its request to its result; None where it failed."""

    version: int
    found: Evaluation | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Asked:
    version: int
    directory: str
    since: float
    ended: int = 0


class Evaluator:
    """Evaluates versions one after another. Not for use by more than one thread."""

    def __init__(self, rules: Rules, plan: EvaluationPlan, folder: Path) -> None:
        """Takes the ``folder`` in which versions are kept until they are evaluated, also over a restart."""
        self._first_line = json.dumps({"rules": encode_rules(rules).hex(), "plan": asdict(plan)})
        self._folder = folder
        self._requests: dict[int, _Asked] = {}
        self._serial = 0
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._log = structlog.get_logger("trainer.evaluator")

    @property
    def pending(self) -> set[int]:
        """The versions requested and not yet evaluated."""
        return {request.version for request in self._requests.values()}

    def request(self, version: int, directory: Path) -> None:
        """Asks for the evaluation of a version; one that is not the first is kept until then, by hard links."""
        if version and directory != (kept := self._folder / str(version)):
            _link(directory, kept)
            directory = kept
        self._send(_Asked(version, str(directory.resolve()), time.monotonic()))

    def left_behind(self) -> dict[int, Path]:
        """Returns the versions that a trainer before this one asked for and that were not evaluated, by number."""
        folders = self._folder.iterdir() if self._folder.exists() else ()
        versions = sorted(int(folder.name) for folder in folders if folder.name.isdigit())
        return {version: self._folder / str(version) for version in versions}

    def forget(self, version: int) -> None:
        """Drops a version: evaluated and recorded, or taken back by the trainer."""
        self._requests = {serial: each for serial, each in self._requests.items() if each.version != version}
        shutil.rmtree(self._folder / str(version), ignore_errors=True)

    def take(self) -> list[Evaluated]:
        """Returns what was evaluated since the last call, and repeats what a process that ended left undone."""
        taken: list[Evaluated] = []
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                return taken
            if answer is None:
                taken += self._again()
            elif (request := self._requests.pop(answer.pop("serial"), None)) is not None:
                if (error := answer.get("error")) is not None:
                    self._log.warning("evaluation_failed", version=request.version, why=error)
                found = None if error is not None else Evaluation(**answer)
                taken.append(Evaluated(request.version, found, time.monotonic() - request.since))

    def close(self) -> None:
        """Ends the process."""
        self._requests = {}
        if self._process is not None:
            self._process.kill()
            self._release(self._process)
            self._process = None

    def _release(self, process: subprocess.Popen[str]) -> None:
        """Waits for a process that has ended, and closes its input; its reader closes the rest."""
        process.wait()
        assert process.stdin is not None
        with suppress(OSError):  # of what it was still to be told
            process.stdin.close()

    def _again(self) -> list[Evaluated]:
        """Gives the open requests to a new process; returns the first if as many have ended on it as may."""
        if self._process is not None:
            self._release(self._process)
        self._process, open_ = None, list(self._requests.values())
        self._requests = {}
        given_up = []
        if open_ and open_[0].ended + 1 >= ATTEMPTS:
            first = open_.pop(0)
            self._log.warning("evaluation_failed", version=first.version, why=f"its process ended {ATTEMPTS} times")
            given_up.append(Evaluated(first.version, None, time.monotonic() - first.since))
        elif open_:
            open_[0] = replace(open_[0], ended=open_[0].ended + 1)
        for request in open_:
            self._send(request)
        return given_up

    def _send(self, request: _Asked) -> None:
        self._serial += 1
        self._requests[self._serial] = request
        line = {"serial": self._serial, "version": request.version, "directory": request.directory}
        try:
            _write(self._started(), line)
        except OSError:  # it has ended, of which its reader tells ``take``
            self._log.info("evaluating_process_ended")

    def _started(self) -> IO[str]:
        """Returns the input of the process, which is started with the first request."""
        if self._process is None:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "trainer.evaluator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            threading.Thread(target=_read, args=(process, self._answers), name="evaluations", daemon=True).start()
            assert process.stdin is not None
            process.stdin.write(self._first_line + "\n")
        assert self._process.stdin is not None
        return self._process.stdin


def _link(directory: Path, to: Path) -> None:
    """Makes a directory's files appear at ``to`` by hard links, complete or not at all."""
    unfinished = to.with_name(to.name + ".unfinished")
    for stale in (unfinished, to):
        shutil.rmtree(stale, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(directory, unfinished, copy_function=os.link)
    unfinished.rename(to)


def _read(process: subprocess.Popen[str], answers: SimpleQueue[dict[str, Any] | None]) -> None:
    """Puts a process's answers into the queue, and None once it has ended, as one does that answers anything else."""
    assert process.stdout is not None
    try:
        with process.stdout:
            for line in process.stdout:
                answers.put(json.loads(line))
    except ValueError:
        process.kill()
    process.wait()
    answers.put(None)


def _write(stream: IO[str], line: dict[str, Any]) -> None:
    stream.write(json.dumps(line) + "\n")
    stream.flush()


def main() -> None:
    """Evaluates the versions that the lines of standard input name, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the trainer too, which ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints, native code too, is no answer
    first = json.loads(sys.stdin.readline())
    rules, plan = decode_rules(bytes.fromhex(first["rules"])), EvaluationPlan(**first["plan"])
    evaluate = _prepared(rules, plan)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = asdict(evaluate(asked["version"], Path(asked["directory"])))
        except Exception as error:  # told to the trainer, which logs it and trains on
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            _write(answers, {"serial": asked["serial"]} | answer)
        except BrokenPipeError:
            return


def _prepared(rules: Rules, plan: EvaluationPlan) -> Callable[[int, Path], Evaluation]:
    """Returns the function that evaluates a version in a directory; its model is loaded with the first."""
    import torch

    from protocol.environments.environment import at_version
    from protocol.environments.registry import environment
    from protocol.tensor.model import DTYPES, Model, load_model
    from trainer.evaluate import evaluate

    torch.set_num_threads(plan.threads)
    tasks = environment(rules.environment.name, rules.environment.params)
    loaded: list[Model] = []

    def of(version: int, directory: Path) -> Evaluation:
        if loaded:
            loaded[0].load_weights(directory)
        else:
            loaded.append(load_model(directory, DTYPES[rules.model.dtype]))
            loaded[0].network.to(plan.device)
        return evaluate(
            loaded[0], at_version(tasks, directory), rules, plan.seed + version, plan.problems, plan.samples
        )

    return of


if __name__ == "__main__":
    main()
