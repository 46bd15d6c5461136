"""The engines by name. None is imported before it is asked for."""

from __future__ import annotations

from typing import Literal

from protocol.errors import Misconfigured
from worker.engines.engine import Engine

ENGINES = ("transformers", "vllm")


def make_engine(name: str, dtype: Literal["float32", "bfloat16"], device: str = "cpu") -> Engine:
    """Returns the engine, without a model. ``Misconfigured`` where there is no such engine, or it is not installed."""
    if name == "transformers":
        from worker.engines.transformers_engine import TransformersEngine

        return TransformersEngine(dtype, device)
    if name == "vllm":
        from worker.engines.vllm_engine import VllmEngine

        return VllmEngine(dtype, device)
    raise Misconfigured(f"there is no engine {name!r}; choose from {', '.join(ENGINES)}")
