"""``make wheel``: installs the wheel into an empty environment and asks every command for its help; JSON at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from assize import PARTS
from tests.conftest import ROOT

EXTRAS = "coordinator,ledger,relay"
"""Extras without torch, which no help imports."""
DATA = (
    "contracts/abi/Rounds.json",
    "deploy/runs/builtin.toml",
    "ledger/explorer/templates/base.html",
    "ledger/explorer/static/built/check.js",
    "ledger/explorer/static/built/explorer.js",
)
PACKAGES = ("assize", "coordinator", "deploy", "ledger", "protocol", "trainer", "validator", "worker")


def main() -> int:
    """Tries the wheel in ``dist``."""
    (wheel,) = (ROOT / "dist").glob("assize-*.whl")
    began = time.monotonic()
    missing = [name for name in DATA if name not in zipfile.ZipFile(wheel).namelist()]
    with tempfile.TemporaryDirectory(prefix="assize-wheel-") as folder:
        bin_ = installed(wheel, Path(folder))
        commands = [(part, "--help") for part in PARTS] + [("ledger", "serve", "--help"), ("--help",)]
        broken = [" ".join(words) for words in commands if not helps(bin_, folder, words)]
        outside = [name for name in PACKAGES if not place_of(bin_, folder, name).is_relative_to(folder)]
    found = {
        "wheel": wheel.name,
        "bytes": wheel.stat().st_size,
        "commands": len(commands),
        "broken": broken,
        "missing": missing,
        "outside": outside,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(found))
    return 1 if broken or missing or outside else 0


def installed(wheel: Path, folder: Path) -> Path:
    """Returns the folder of programs of a new environment with the wheel in it."""
    subprocess.run((sys.executable, "-m", "venv", folder / "env"), check=True)
    pip = (folder / "env/bin/python", "-m", "pip", "install", "-q", "-c", ROOT / "deploy/constraints.txt")
    subprocess.run((*pip, f"{wheel}[{EXTRAS}]"), env=bare(), check=True)
    return folder / "env/bin"


def helps(programs: Path, folder: str, words: tuple[str, ...]) -> bool:
    """Returns whether a command prints its help."""
    ran = subprocess.run((programs / "assize", *words), cwd=folder, env=bare(), capture_output=True, text=True)
    return ran.returncode == 0 and "Usage: assize" in ran.stdout


def place_of(programs: Path, folder: str, package: str) -> Path:
    """Returns the file or folder that a package is imported from."""
    words = (programs / "python", "-c", f"import {package} as p; print(getattr(p, '__file__', None) or p.__path__[0])")
    return Path(
        subprocess.run(words, cwd=folder, env=bare(), capture_output=True, text=True, check=True).stdout.strip()
    )


def bare() -> dict[str, str]:
    """Returns this environment without what points into the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    sys.exit(main())
