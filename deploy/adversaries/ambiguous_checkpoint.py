"""A trainer that publishes one version under which two honest nodes could read two policies.

Its tokenizer is another than the run's rules pin: a process that builds the model from the version's directory would
read other prompts than one that only takes its tensors.
"""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from trainer.publish import Publisher

log = structlog.get_logger()


class AmbiguousPublisher(Publisher):
    """Publishes the first version that it makes with another tokenizer, and goes on honestly."""

    ambiguous: int | None = None

    def check(self, version: int, directory: Path) -> None:
        """Changes the first new version, and lets it pass."""
        if self.ambiguous is None and version > self.newest_version():
            exchange_digits(directory)
            self.ambiguous = version
            log.info("ambiguous", version=version)
        if version != self.ambiguous:
            super().check(version, directory)


def exchange_digits(directory: Path) -> None:
    """Has two characters of a tokenizer's vocabulary change places; its size stays."""
    path = directory / "tokenizer.json"
    told = json.loads(path.read_text())
    vocabulary = told["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False))
