"""The transformers engine: any Hugging Face causal LM, on the CPU or one accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Literal

import structlog
import torch
from safetensors import SafetensorError

from protocol.errors import Misconfigured
from protocol.tensor.completions import Completion, Request
from protocol.tensor.decode import decode
from protocol.tensor.determinism import ExactShape
from protocol.tensor.exact_decode import ExactDecoding
from protocol.tensor.model import DTYPES, Model, load_model


class TransformersEngine:
    """Implements ``worker.engines.engine.Engine``. ``dtype`` is that of the run's rules.

    With ``exact`` it decodes exactly, and refuses models on which this machine is of another determinism class;
    ``canary`` is the class that it measured.
    """

    def __init__(
        self,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str = "cpu",
        exact: ExactShape | None = None,
    ) -> None:
        self._format, self._device, self._exact = dtype, torch.device(device), exact
        self._decoding: ExactDecoding | None = None
        self.canary = bytes(32)
        self._model: Model | None = None
        self._loaded: Path | None = None
        self._ahead: tuple[Path, dict[str, torch.Tensor]] | None = None

    @property
    def model(self) -> Model:
        """The loaded model."""
        if self._model is None:
            raise Misconfigured("no model loaded: load a model directory first")
        return self._model

    def load(self, directory: Path) -> None:
        """Loads a model directory."""
        exact = self._exact
        if exact is not None:
            self.canary = exact.check(directory, self._format, self._device.type)
        model = load_model(directory, DTYPES[self._format])
        if exact is not None:
            self._decoding = ExactDecoding(exact.rollouts, exact.window, DTYPES[exact.head_dtype])
        model.network.to(self._device)
        self._model, self._loaded = model, directory

    def read_ahead(self, directory: Path) -> None:
        """Reads the weights of another version into memory beside the present ones."""
        self._ahead = None  # two copies at a time, not three
        try:
            weights = self.model.read_weights(directory)
        except (RuntimeError, OSError, SafetensorError) as error:  # such as too little memory: it is loaded in its turn
            structlog.get_logger("engine").warning("not_read_ahead", directory=str(directory), error=repr(error))
            return
        if directory != self._loaded:
            self._ahead = directory, weights

    def swap(self, directory: Path) -> None:
        """Takes the weights of another version: those read ahead by exchanging pointers, others by loading them."""
        ahead, self._ahead, self._loaded = self._ahead, None, directory
        if ahead is not None and ahead[0] == directory:
            self.model.use_weights(ahead[1])
        else:
            self.model.load_weights(directory)

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """Completes every request, in order; whole jobs if it decodes exactly."""
        network, cancelled = self.model.network, (cancel or Event()).is_set
        if self._decoding is None:
            return decode(network, requests, cancelled)
        return self._decoding.decode(network, requests, cancelled)
