"""Kernels are compiled wherever the source lies, and do what they are compiled for only."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.compiled import compiled

SOURCE = "def double(numbers):\n    for i in range(len(numbers)):\n        numbers[i] *= 2\n"


def test_what_has_nowhere_to_be_kept_is_compiled_all_the_same():
    names: dict = {}
    exec(compile(SOURCE, "<nowhere>", "exec"), names)
    double = compiled("void(float32[:])")(names["double"])
    assert double.stats.cache_path is None
    numbers = np.ones(3, dtype=np.float32)
    double(numbers)
    assert numbers.tolist() == [2, 2, 2]


def test_kernels_refuse_other_types_than_their_signature_s():
    names: dict = {}
    exec(compile(SOURCE, "<nowhere>", "exec"), names)
    with pytest.raises(TypeError):
        compiled("void(float32[:])")(names["double"])(np.ones(3, dtype=np.int64))


def test_what_is_compiled_once_is_loaded_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE)
    hits = []
    for _ in range(2):
        names: dict = {}
        exec(compile(SOURCE, str(file), "exec"), names)
        double = compiled("void(float32[:])")(names["double"])
        hits.append(sum(double.stats.cache_hits.values()))
    assert hits == [0, 1]
