"""A machine's canaries, kept on disk: each is measured once for all that it depends on, in whichever process.

    STATE/canaries/HASH.json    {"canary", "check", "conditions"}; HASH is that of the conditions

STATE is ``ASSIZE_STATE_DIR``, else ``~/.assize/state``. Conditions name the pass, this package's code, libraries,
threads, switches and the processor. A file that is missing, damaged or of other conditions is measured again; where
none can be written, every process measures for itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from blake3 import blake3

from protocol.files import write_atomically

STATE_VARIABLE = "ASSIZE_STATE_DIR"
SWITCHES = ("ATEN_", "CUBLAS_", "CUDA_", "DNNL_", "GOMP_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "ONEDNN_", "TORCH_")
"""Beginnings of the names of variables by which people choose kernels."""
MOST_BYTES = 256 << 10
"""Most bytes of a file that is read; one takes a few thousand."""

_known: dict[str, bytes] = {}
_measuring = threading.Lock()


def measured_canary(conditions: Mapping[str, Any], measure: Callable[[], bytes], expected: bytes) -> bytes:
    """Returns this machine's canary under ``conditions``, by ``measure`` unless it is known already.

    One from disk that is not ``expected`` is measured again: a machine is not refused for what a file says.
    """
    name = _hash(conditions)
    with _measuring:
        if name not in _known:
            kept = _read(name, conditions)
            if kept != expected:
                kept = measure()
                _write(name, conditions, kept)
            _known[name] = kept
        return _known[name]


def kept_canary(conditions: Mapping[str, Any]) -> bytes | None:
    """Returns what was measured under ``conditions`` before; None if nothing was."""
    name = _hash(conditions)
    return _known.get(name) or _read(name, conditions)


def machine(device: str) -> dict[str, Any]:
    """Returns what the bits of kernels depend on in this process: code, libraries, threads, switches, processor."""
    return {
        "code": _code(),
        "libraries": {
            "numpy": np.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "build": torch.__config__.show(),
        },
        "threads": torch.get_num_threads(),
        "switches": {
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "products": torch.get_float32_matmul_precision(),
            **{name: value for name, value in sorted(os.environ.items()) if name.startswith(SWITCHES)},
        },
        "processor": _processor(),
        "device": _accelerator() if device == "cuda" else device,
    }


@functools.cache
def _code() -> str:
    """Returns the hash of this package's sources: how a pass is cut into shapes."""
    digest = blake3()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _processor() -> list[str]:
    """Returns the model, features and caches by which libraries choose kernels, and how many processors there are."""
    found = [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability(), str(os.cpu_count())]
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        named = ("vendor_id", "cpu family", "model", "stepping", "cache size", "flags", "CPU ", "Features")
        found += sorted(line.replace("\t", "") for line in first.splitlines() if line.startswith(named))
    return found


def _accelerator() -> list[str]:
    properties = torch.cuda.get_device_properties(0)
    backends = torch.backends.cuda.matmul
    return [
        *(properties.name, f"{properties.major}.{properties.minor}", str(properties.multi_processor_count)),
        f"{backends.allow_tf32} {backends.allow_bf16_reduced_precision_reduction}",
    ]


def _hash(conditions: Mapping[str, Any], canary: str = "") -> str:
    return blake3(json.dumps([conditions, canary], sort_keys=True).encode()).hexdigest()


def _file_of(conditions: Mapping[str, Any], canary: str) -> bytes:
    """Returns the one file that says of ``conditions`` that they give ``canary``."""
    held = {"canary": canary, "check": _hash(conditions, canary), "conditions": conditions}
    return json.dumps(held, indent=1, sort_keys=True).encode()


def _folder() -> Path | None:
    """Returns the folder of canaries; None for a process that has no home."""
    if given := os.environ.get(STATE_VARIABLE):
        return Path(given) / "canaries"
    try:
        return Path.home() / ".assize" / "state" / "canaries"
    except RuntimeError:
        return None


def _read(name: str, conditions: Mapping[str, Any]) -> bytes | None:
    folder = _folder()
    if folder is None:
        return None
    try:
        with (folder / f"{name}.json").open("rb") as file:
            data = file.read(MOST_BYTES)
    except OSError:
        return None
    # Bytes from a disk are not parsed: they are those that are written for the canary they begin with, or damaged.
    stated = re.match(rb'\{\s*"canary": "([0-9a-f]{64})"', data)
    if stated is None or data != _file_of(conditions, stated[1].decode()):
        return None
    return bytes.fromhex(stated[1].decode())


def _write(name: str, conditions: Mapping[str, Any], canary: bytes) -> None:
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{name}.json", _file_of(conditions, canary.hex()))
