"""The file that keeps a set of traps: whoever reads it knows every trap, so only the setter and its own services do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.errors import Misconfigured
from protocol.wire.canonical import Bytes32, validating
from protocol.wire.rules import Rules
from protocol.wire.traps import Trap, TrapKind


class TrapEntry(BaseModel):
    """One trap in its file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: Annotated[int, Field(ge=1, lt=2**32)]
    first: Annotated[int, Field(ge=1, lt=2**48)]
    last: Annotated[int, Field(ge=1, lt=2**48)]
    kind: TrapKind
    salt: Bytes32

    def trap(self) -> Trap:
        """Returns the leaf."""
        return Trap(self.node, self.first, self.last, self.kind, self.salt)


class TrapFile(BaseModel):
    """A set of traps as its setter keeps it: whoever reads the file knows every trap in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["assize/traps/1"] = "assize/traps/1"
    chain_id: int
    contract: str
    run: int
    first: int
    bounty_wei: Annotated[int, Field(ge=1, lt=2**128)]
    open_by: int
    traps: Annotated[tuple[TrapEntry, ...], Field(min_length=1, max_length=65535)]

    @classmethod
    def read(cls, path: Path) -> TrapFile:
        """Reads a trap file.

        Raises:
            Misconfigured: it cannot be read, or is not one.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Misconfigured(f"cannot read the trap file {path}: {error.strerror}") from error
        with validating(f"invalid trap file {path}", Misconfigured):
            return cls.model_validate_json(content)

    def check(self, path: Path, chain_id: int, contract: str, run: int) -> None:
        """Checks that the traps are of this deployment and run.

        Raises:
            Misconfigured: they are not.
        """
        if (self.chain_id, self.contract) != (chain_id, contract):
            raise Misconfigured(f"{path} is of another deployment: its traps are for {self.contract}")
        if self.run != run:
            raise Misconfigured(f"{path} has the traps of run {self.run}, not of run {run}")

    def write(self, path: Path) -> None:
        """Writes the file, readable by its owner only.

        Raises:
            Misconfigured: the file exists already: its salts open a deposit, and no other copy of them may exist.
        """
        if path.exists():
            raise Misconfigured(f"{path} exists: give another file, as the salts in it may open a deposit")
        path.touch(mode=0o600)
        path.write_text(self.model_dump_json(indent=1) + "\n")

    def given(self) -> tuple[Trap, ...]:
        """Returns the leaves in the order of the file."""
        return tuple(entry.trap() for entry in self.traps)


FAULTS = tuple(kind for kind in TrapKind if kind is not TrapKind.DECOY)
"""Every fault that can be planted."""


def sure_faults(rules: Rules) -> tuple[TrapKind, ...]:
    """Returns the faults that jurors of a run are sure to call fraud.

    Other noise moves a token by about the temperature, so a fault of sampling may stay below a larger bound of fraud.
    """
    fraud = rules.thresholds.sampling_fraud
    return FAULTS if fraud is not None and fraud < rules.temperature else (TrapKind.OTHER_PROMPTS,)


def planned(
    *,
    chain_id: int,
    contract: str,
    run: int,
    nodes: Sequence[int],
    kinds: int,
    decoys: int,
    rounds: range,
    bounty_wei: int,
    open_by: int,
    faults: Sequence[TrapKind] = FAULTS,
) -> TrapFile:
    """Returns a file of ``kinds`` traps and ``decoys`` decoys, spread at random over nodes, rounds and ``faults``.

    Each trap may be planted in any round from its own on, so that it finds one in which its node works.
    """
    draw = secrets.SystemRandom()
    wanted = [draw.choice(faults) for _ in range(kinds)] + [TrapKind.DECOY] * decoys
    draw.shuffle(wanted)
    return TrapFile(
        chain_id=chain_id,
        contract=contract,
        run=run,
        first=rounds.start,
        bounty_wei=bounty_wei,
        open_by=open_by,
        traps=tuple(
            TrapEntry(
                node=draw.choice(nodes),
                first=draw.choice(rounds),
                last=rounds[-1],
                kind=kind,
                salt=secrets.token_bytes(32),
            )
            for kind in wanted
        ),
    )
