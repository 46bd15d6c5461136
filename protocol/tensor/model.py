"""A causal LM and its tokenizer, from a directory in Hugging Face's layout.

Worker, validator and trainer share this module, because they must turn a prompt into the same tokens, end at the same
token, and read the same text out of a completion. The network is built from its configuration, and every version fills
it in the same way, the first as the thousandth: each parameter from exactly one tensor of a ``*.safetensors``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.initialization import no_init_weights
from transformers.utils import logging

from protocol.errors import Misconfigured
from protocol.files import linked
from protocol.tensor.directory import check_model_directory, shape_of
from protocol.wire.manifest import Manifest, hashes_of_pieces
from protocol.wire.pins import TASKS_FILE, TENSORS, UnfitCheckpoint, head_of, pinned_sizes, tensors_in
from protocol.wire.rules import Rules

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Number formats by their name in a run's rules."""

STORED_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
"""Number formats by their name in a file of tensors."""


@dataclass(frozen=True, slots=True)
class Model:
    """``network`` is any causal LM of transformers, ``stop_token`` the tokenizer's end-of-text."""

    network: Any
    tokenizer: Any
    stop_token: int

    def prompt_tokens(self, prompt: str | tuple[int, ...], rules: Rules) -> tuple[int, ...]:
        """Returns the tokens that the model is given for an environment's prompt under a run's rules."""
        return self.text_tokens(rules.prompt_text(prompt)) if isinstance(prompt, str) else prompt

    def prompt_text(self, prompt: str | tuple[int, ...]) -> str:
        """Returns an environment's prompt for people: without what the rules put around it, special tokens included."""
        return prompt if isinstance(prompt, str) else str(self.tokenizer.decode(prompt))

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """Returns the tokens of a text, to which none are added."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def stop_tokens(self, rules: Rules) -> tuple[int, ...]:
        """Returns the tokens that end a completion under a run's rules."""
        return rules.stop_tokens or (self.stop_token,)

    def completion_text(self, output_tokens: Sequence[int] | NDArray[np.int32], stop_tokens: Sequence[int]) -> str:
        """Returns the text that an environment rewards: without a last token among ``stop_tokens``, with all others.

        Special tokens within an answer stay in it, by name: left out, they would join what stands around them.
        """
        # The tokenizer checks lists element by element; arrays are faster.
        tokens = np.asarray(output_tokens, dtype=np.int64)
        ended = len(tokens) > 0 and int(tokens[-1]) in stop_tokens
        return str(self.tokenizer.decode(tokens[:-1] if ended else tokens))

    def load_weights(self, directory: Path) -> None:
        """Copies the weights of another version over the present ones, in place.

        Raises:
            UnfitCheckpoint: the directory's tensors are not this model's, each once.
        """
        own: dict[str, torch.Tensor] = self.network.state_dict()
        for name, tensor in self._stored(directory):
            own[name].copy_(tensor)

    def read_weights(self, directory: Path) -> dict[str, torch.Tensor]:
        """Returns the weights of another version by name, in memory of their own, formatted and placed as the present.

        Raises:
            UnfitCheckpoint: the directory's tensors are not this model's, each once.
        """
        own: dict[str, torch.Tensor] = self.network.state_dict()
        read = {}
        for name, tensor in self._stored(directory):
            read[name] = torch.empty_like(own[name], memory_format=torch.contiguous_format).copy_(tensor)
        return read

    def stored_weights(self, directory: Path) -> dict[str, torch.Tensor]:
        """Returns the weights of another version by name, formatted and placed as the present: mapped, where they are.

        Raises:
            UnfitCheckpoint: the directory's tensors are not this model's, each once.
        """
        own: dict[str, torch.Tensor] = self.network.state_dict()
        return {name: tensor.to(own[name]) for name, tensor in self._stored(directory)}

    def use_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Takes weights that ``read_weights`` returned in place of the present ones, without a copy."""
        own: dict[str, torch.Tensor] = self.network.state_dict(keep_vars=True)
        for name, tensor in weights.items():
            own[name].data = tensor

    def _stored(self, directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields each tensor of a directory, once all are known to be this model's."""
        check_tensors(directory, self.network)
        for file, tensors in tensors_in(directory).items():
            with safe_open(directory / file, framework="pt") as held:
                for name in tensors:
                    yield name, held.get_tensor(name)

    def save(self, directory: Path, like: Path) -> None:
        """Writes the present weights to ``directory``, in the files and formats of ``like``, another version."""
        own: dict[str, torch.Tensor] = self.network.state_dict()
        directory.mkdir()
        for file, tensors in tensors_in(like).items():
            with (directory / file).open("wb") as stream:
                stream.write(head_of(like / file))
                for name, tensor in tensors.items():
                    values = own[name].detach().to("cpu", STORED_DTYPES[tensor.dtype]).contiguous()
                    stream.write(values.view(torch.uint8).numpy().data)
        for name in pinned_sizes(like):
            if name == TASKS_FILE:
                linked(like / name, directory / name)
            elif not name.endswith(TENSORS):
                shutil.copyfile(like / name, directory / name)

    def differing(self, manifest: Manifest, directory: Path) -> list[str]:
        """Returns the files of tensors in which the present weights are not those of a version, byte for byte.

        ``directory`` holds the version, of whose files the headers are read.
        """
        own: dict[str, torch.Tensor] = self.network.state_dict()
        stored = tensors_in(directory)

        def pieces(file: str) -> Iterator[memoryview]:
            yield memoryview(head_of(directory / file))
            for name, tensor in stored[file].items():
                values = own[name].detach().to("cpu", STORED_DTYPES[tensor.dtype]).contiguous()
                yield values.view(torch.uint8).numpy().data.cast("B")

        described = [file for file in manifest.files if file.name in stored]
        return [
            file.name
            for file in described
            if hashes_of_pieces(pieces(file.name), manifest.chunk_bytes) != list(file.chunks)
        ]

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns the parameters by name, not copied, without gradient, tied ones once."""
        return {name: parameter.detach() for name, parameter in self.network.named_parameters()}

    def copy_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copies ``weights``, named as in ``weights()``, over the present ones, in place."""
        for name, parameter in self.weights().items():
            parameter.copy_(weights[name])


def load_model(directory: Path, dtype: torch.dtype) -> Model:
    """Loads a model in evaluation mode, without access to the network and without code from the directory.

    Raises:
        Misconfigured: the directory lacks a causal LM or a tokenizer, or the tokenizer has no end-of-text token.
        UnfitCheckpoint: a file cannot be part of a checkpoint, or the tensors are not the model's, each once.
    """
    check_model_directory(directory)
    tokenizer = load_tokenizer(directory)
    with no_init_weights():  # every parameter is overwritten: ``check_tensors`` sees to that
        network = build(directory, dtype)
    network.tie_weights()
    model = Model(network.eval(), tokenizer, tokenizer.eos_token_id)
    model.load_weights(directory)
    return model


def check_model(directory: Path) -> None:
    """Checks by files, architecture and headers that a run can begin with a model, without reading its weights.

    Raises:
        Misconfigured: it cannot.
    """
    try:
        check_model_directory(directory)
        shape_of(directory)
        check_tensors(directory)
    except UnfitCheckpoint as error:
        raise Misconfigured(f"cannot use the model in {directory}: {error}") from error


def check_tensors(directory: Path, network: Any = None) -> None:
    """Checks that the directory's tensors are those of ``network``: None is the one that its config.json describes.

    Raises:
        UnfitCheckpoint: one is missing, held twice or unexpected, or has another shape.
        Misconfigured: there is no configuration of a causal LM.
    """
    if network is None:
        with torch.device("meta"):
            network = build(directory, torch.float32)
        network.tie_weights()
    own: dict[str, torch.Tensor] = network.state_dict(keep_vars=True)
    held = {name: tensor for file in tensors_in(directory).values() for name, tensor in file.items()}
    filled: dict[int, str] = {}
    for name, tensor in held.items():
        if name not in own:
            raise UnfitCheckpoint(f"{directory.name} holds the tensor {name}, which this model does not have")
        if tensor.shape != (shape := tuple(own[name].shape)):
            raise UnfitCheckpoint(f"{directory.name} holds {name} with shape {tensor.shape}: this model's is {shape}")
        if (other := filled.setdefault(id(own[name]), name)) != name:
            raise UnfitCheckpoint(f"{directory.name} holds {name} and {other}, which are one tensor of this model")
    for name, parameter in own.items():
        if id(parameter) not in filled:
            raise UnfitCheckpoint(f"{directory.name} lacks the tensor {name} of this model")


def build(directory: Path, dtype: torch.dtype, most_layers: int | None = None) -> Any:
    """Builds the network that config.json describes, or its first layers, with weights of no meaning.

    Raises:
        Misconfigured: it describes no causal language model.
    """
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        if most_layers is not None:
            _shorten(config.get_text_config(decoder=True), most_layers)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise Misconfigured(f"{directory} holds no causal language model that loads: {error}") from error


def _shorten(config: Any, layers: int) -> None:
    config.num_hidden_layers = min(layers, config.num_hidden_layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: config.num_hidden_layers]


def check_device(device: str) -> None:
    """Raises ``Misconfigured`` if torch cannot compute on ``device``, "cpu" or "cuda"."""
    if device not in ("cpu", "cuda"):
        raise Misconfigured(f"unknown device {device!r}: expected cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise Misconfigured("no CUDA device found: compute on cpu, or install torch for this machine's GPU")


def load_tokenizer(directory: Path) -> Any:
    """Loads the tokenizer alone; raises ``Misconfigured`` if it does not load or has no end-of-text token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(f"the tokenizer of {directory} does not load: {error}") from error
    if tokenizer.eos_token_id is None:
        raise Misconfigured(
            f"the tokenizer of {directory} has no end-of-text token: set eos_token in its configuration"
        )
    return tokenizer


def logits_of(head: Any, hidden_RH: torch.Tensor, head_dtype: torch.dtype) -> torch.Tensor:
    """Returns fp32 logits (R, V) of an LM head computed in ``head_dtype``."""
    if hidden_RH.dtype == head_dtype:
        logits: torch.Tensor = head(hidden_RH)
    else:
        bias = None if getattr(head, "bias", None) is None else head.bias.to(head_dtype)
        logits = torch.nn.functional.linear(hidden_RH.to(head_dtype), head.weight.to(head_dtype), bias)
    return logits.float()


# Progress bars would clutter a daemon's log.
logging.disable_progress_bar()
