"""Pretrained models from packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_without_the_package_one_sentence_names_the_command_that_has_it(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "deploy.models.smollm2", str(tmp_path / "model"))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].endswith("is not installed: make the model with `make model-smollm2`")
    assert list(tmp_path.iterdir()) == []
