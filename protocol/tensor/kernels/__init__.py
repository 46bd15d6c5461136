"""Compiled loops of the arithmetic that `protocol.wire` defines: numba on CPUs, triton on CUDA. Imported late."""
