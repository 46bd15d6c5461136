"""The interface between a worker and its inference engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Protocol

from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import Model


class Engine(Protocol):
    """Generates with one policy version at a time."""

    @property
    def canary(self) -> bytes:
        """The determinism class that it measured on this machine, which artifacts name: 32 bytes.

        Zeros where the run's rules name no class.
        """

    @property
    def model(self) -> Model:
        """The loaded model: its tokenizer and stop token. Raises ``Misconfigured`` before ``load``."""

    def load(self, directory: Path) -> None:
        """Loads a model directory. Raises ``Misconfigured`` if it holds no model or lacks a tokenizer."""

    def read_ahead(self, directory: Path) -> None:
        """Reads another version of the loaded model beside it, if the engine can, so that its ``swap`` takes no time.

        May be called by another thread while the engine generates.
        """

    def swap(self, directory: Path) -> None:
        """Loads the weights of another version of the same model, in place."""

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """Completes every request, in order. Raises ``Unavailable`` soon after ``cancel`` is set."""
