"""Figures of a run in Trackio or Weights & Biases, which share the verbs that this needs: init, log and finish."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from numbers import Real
from typing import Any

import structlog

from protocol.errors import Misconfigured

PROJECT = "assize"


class Sink:
    """A run in one of the two. It takes numbers; whatever it raises is logged once and does not reach the trainer."""

    def __init__(self, module: Any) -> None:
        self._module, self._failed = module, False
        self._log = structlog.get_logger("trainer.sink")

    @classmethod
    def open(cls, name: str, run: str, recipe: Mapping[str, Any]) -> Sink:
        """Begins a run in the package ``name``, "trackio" or "wandb".

        Raises:
            Misconfigured: it is not installed, or does not begin a run.
        """
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise Misconfigured(f"metrics_sink {name} is not installed: pip install {name}") from error
        try:
            module.init(project=PROJECT, name=run, config=dict(recipe))
            if hasattr(module, "define_metric"):  # an evaluation comes later than the steps after its version
                module.define_metric("*", step_metric="version")
        except Exception as error:  # whatever these packages raise
            raise Misconfigured(f"metrics_sink {name} does not begin a run: {error}") from error
        return cls(module)

    def put(self, kind: str, figures: Mapping[str, Any]) -> None:
        """Records the numbers among ``figures`` under names that begin with ``kind``."""
        numbers_ = {key: value for key, value in figures.items() if isinstance(value, Real) and key != "version"}
        parts = {f"seconds/{part}": value for part, value in _parts(figures).items()}
        if numbers_ or parts:
            named = {f"{kind}/{key}": value for key, value in (numbers_ | parts).items()}
            self._guarded("log", {"version": figures["version"]} | named)

    def close(self) -> None:
        """Ends the run, once what it holds back is written."""
        self._guarded("finish")

    def _guarded(self, verb: str, *given: Any) -> None:
        try:
            getattr(self._module, verb)(*given)
        except Exception as error:  # training does not depend on who watches it
            if not self._failed:
                self._log.warning("sink_failed", error=repr(error))
            self._failed = True


def _parts(figures: Mapping[str, Any]) -> Mapping[str, float]:
    seconds = figures.get("seconds")
    return seconds if isinstance(seconds, Mapping) else {}
