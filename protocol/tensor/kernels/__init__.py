"""Compiled loops of the arithmetic that `protocol.wire` defines: numba on CPUs, triton on CUDA. Imported late."""

from __future__ import annotations

from protocol.compiled import kernels

NOISE, PROOFS = "protocol.tensor.kernels.noise_cpu", "protocol.tensor.kernels.proofs_cpu"


def load_kernels() -> None:
    """Loads all kernels at once, for a process that is to answer its first job without the wait."""
    for name in (NOISE, PROOFS):
        kernels(name)
