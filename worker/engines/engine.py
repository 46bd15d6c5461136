"""What a worker asks of whatever generates."""

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
    def model(self) -> Model:
        """The model that is loaded: its tokenizer and end-of-text. ``Misconfigured`` before ``load``."""
        ...

    def load(self, directory: Path) -> None:
        """Load a model directory. ``Misconfigured``, in one sentence, where it is none or lacks a tokenizer."""
        ...

    def swap(self, directory: Path) -> None:
        """Take over the weights of another version of the same model, in place."""
        ...

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """Complete every request, in their order; ``Unavailable`` soon after ``cancel`` is set."""
        ...
