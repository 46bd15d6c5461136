"""A causal LM and its tokenizer, from a directory in Hugging Face's layout.

Worker, validator and trainer share this module, because they must turn a prompt into the same tokens, end at the same
token, and read the same text out of a completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from protocol.errors import Misconfigured
from protocol.tensor.directory import check_model_directory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Number formats by their name in a run's rules."""


@dataclass(frozen=True, slots=True)
class Model:
    """``network`` is any causal LM of transformers, ``stop_token`` the end-of-text at which a completion ends."""

    network: Any
    tokenizer: Any
    stop_token: int

    def prompt_tokens(self, prompt: str) -> tuple[int, ...]:
        """Returns the tokens of a prompt, without special tokens."""
        return tuple(self.tokenizer.encode(prompt, add_special_tokens=False))

    def completion_text(self, output_tokens: Sequence[int] | NDArray[np.int32]) -> str:
        """Returns the text that an environment rewards, without special tokens such as end-of-text."""
        # The tokenizer checks lists element by element; arrays are faster.
        text: str = self.tokenizer.decode(np.asarray(output_tokens, dtype=np.int64), skip_special_tokens=True)
        return text

    def load_weights(self, directory: Path) -> None:
        """Copies the weights of another version over the present ones, in place.

        Raises:
            Misconfigured: The directory's tensors are not this model's.
        """
        own: dict[str, torch.Tensor] = self.network.state_dict()
        missing = set(self.weights())
        for file in sorted(directory.glob("*.safetensors")):
            missing -= _copy_tensors(file, own)
        if missing:
            raise Misconfigured(
                f"{directory} lacks weights of this model, {sorted(missing)[0]!r} first: fetch it again"
            )

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns the parameters by name, not copied, without gradient, tied ones once."""
        return {name: parameter.detach() for name, parameter in self.network.named_parameters()}

    def copy_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copies ``weights``, named as in ``weights()``, over the present ones, in place."""
        for name, parameter in self.weights().items():
            parameter.copy_(weights[name])


def load_model(directory: Path, dtype: torch.dtype) -> Model:
    """Loads a model in evaluation mode, without access to the network.

    Raises:
        Misconfigured: The directory lacks a causal LM or a tokenizer, or the tokenizer has no end-of-text token.
    """
    check_model_directory(directory)
    tokenizer = load_tokenizer(directory)
    try:
        network = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True, dtype=dtype)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise Misconfigured(f"{directory} holds no causal language model that loads: {error}") from error
    return Model(network.eval(), tokenizer, tokenizer.eos_token_id)


def load_tokenizer(directory: Path) -> Any:
    """Loads the tokenizer alone; raises ``Misconfigured`` if it does not load or has no end-of-text token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(f"the tokenizer of {directory} does not load: {error}") from error
    if tokenizer.eos_token_id is None:
        raise Misconfigured(
            f"the tokenizer of {directory} has no end-of-text token: set eos_token in its configuration"
        )
    return tokenizer


def _copy_tensors(file: Path, own: dict[str, torch.Tensor]) -> set[str]:
    """Copies the tensors of ``file`` into those of the same names; returns the names."""
    try:
        with safe_open(file, framework="pt") as held:
            names = set(held.keys())
            for name in names:
                own[name].copy_(held.get_tensor(name))
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise Misconfigured(f"{file} does not hold weights of this model: {error}") from error
    return names


# Progress bars would clutter a daemon's log.
logging.disable_progress_bar()
