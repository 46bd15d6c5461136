"""The walks of the READMEs: their blocks of commands, typed into bash as a newcomer types them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
OWN = (".git", ".localnet", "assize.toml", "auditor", "books", "build", "my-model", "rules.json", "state")
"""Entries of a checkout that commands make or that belong to a person: none of a newcomer's."""

BASH = ("bash", "--norc", "--noprofile", "-e")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<\s*'?(\w+)'?")


def blocks(readme: str, heading: str = "") -> list[str]:
    """Returns the blocks of commands of a README, in order; with a heading those beneath it alone."""
    text = (ROOT / readme).read_text()
    if heading:
        text = re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    return [block for language, block in _BLOCK.findall(text) if not language]


def commands(block: str) -> list[str]:
    """Returns what a person types in a block: commands without comments; a here-document is part of its command."""
    typed: list[str] = []
    lines = iter(block.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines).lstrip()
        if found := _HEREDOC.search(line):
            line = "\n".join((line, *iter(lambda end=found[1]: _until(lines, end), None)))
        typed.append(line)
    return typed


def _until(lines: Iterator[str], end: str) -> str | None:
    line = next(lines)
    return None if line == end else line


def newcomer(folder: Path, **more: str) -> dict[str, str]:
    """Returns the environment of a person who has just made the checkout ``folder`` and has set no variable of ours."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASSIZE_", "ETH_"))}
    # The package that the environment has may be installed from another checkout.
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONUNBUFFERED": "1"} | more


def checkout(folder: Path) -> Path:
    """Makes a folder that looks like the repository's root after the first ``make demo``."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in OWN and not entry.name.endswith((".env", ".password", ".egg-info")):
            (folder / entry.name).symlink_to(entry)
    return folder


@dataclass
class Terminal:
    """One bash session; what it shows goes to a file. Use it under ``terminal``, which ends what still runs in it."""

    process: subprocess.Popen[str]
    log: Path
    count: int = field(default=0)

    def types(self, block: str) -> None:
        """Types a block, whose last command may run on."""
        assert self.process.stdin is not None
        self.process.stdin.write(block + "\n")
        self.process.stdin.flush()

    def finishes(self, block: str, seconds: float = 120) -> str:
        """Types a block and waits until all of it is done; returns what it showed. A command that fails ends it."""
        before, self.count = len(self.shown()), self.count + 1
        self.types(f"{block}\necho walked-{self.count}")
        self.waits_for(f"walked-{self.count}", seconds)
        return self.shown()[before:]

    def waits_for(self, text: str, seconds: float = 120) -> None:
        """Waits until ``text`` is shown."""
        deadline = time.monotonic() + seconds
        while text not in self.shown():
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.shown()}"
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {text!r}:\n{self.shown()[-4000:]}"
            time.sleep(0.2)

    def shown(self) -> str:
        """Everything shown so far."""
        return self.log.read_text(errors="replace")


@contextmanager
def terminal(
    folder: Path, name: str, environment: Mapping[str, str], words: Sequence[str] = BASH
) -> Iterator[Terminal]:
    """Opens a terminal in a folder, and closes it with all that runs in it; ``words`` start its shell."""
    log = folder.parent / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield Terminal(process, log)
    finally:
        running = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for child in running:
            child.terminate()
        _, alive = psutil.wait_procs(running, timeout=20)
        for child in alive:
            child.kill()
        process.kill()
        process.communicate()
