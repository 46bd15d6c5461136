"""Sums of several sources, and stages of several versions that set them: what exchangeable rewards are tested on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from deploy.adversaries.models import KEPT_IN
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Problem
from protocol.wire.rules import Rules
from tests.zoo.models import policies
from tests.zoo.stage import Stage

_WIDTH_DOMAIN = b"assize/zoo/width/1"


class MixedSums(Arithmetic):
    """Sums of numbers of one to ``digits`` digits, each width as often, leading zeros kept; a source for each width."""

    def problem(self, seed: bytes) -> Problem:
        """Returns the training problem of ``seed`` (32 bytes)."""
        found = super().problem(seed)
        width = max(len(part.lstrip("0")) for part in str(found.prompt).strip().split("+"))
        return replace(found, source=f"{max(1, width)} digits")

    def _operands(self, label: bytes) -> tuple[int, int]:
        bound = 10 ** (1 + hashlib.sha256(_WIDTH_DOMAIN + label).digest()[0] % self.digits)
        a, b = super()._operands(label)
        return a % bound, b % bound


def version_directories(environment: Arithmetic) -> list[Path]:
    """Returns the directories of the model as it was made, of the policy before its last step, and of the policy."""
    return [KEPT_IN / f"policy-{environment.digits}-v0", *policies(environment)]


def mixed_stages(rules: Rules, directories: list[Path]) -> list[Stage]:
    """Returns a stage for each version, which sets sums of several sources; a stale worker is one version behind."""
    digits = rules.environment.params.get("digits", 3)
    tasks = MixedSums(int(str(digits)))
    before = [directories[0], *directories[:-1]]
    stages = [Stage.of(rules, older, newer) for older, newer in zip(before, directories, strict=True)]
    return [replace(stage, environment=tasks, policy=replace(stage.policy, tasks=tasks)) for stage in stages]
