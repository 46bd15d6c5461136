"""Terms files: the terms that a deployment fixes for good, in TOML.

    admin_delay = 172800             seconds between the two steps of handing over the administration
    [registry] [market] [rounds]     fields of these contracts' terms: seconds as numbers, amounts as typed

``assize contracts terms show`` prints one of a deployment's terms.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from protocol.amounts import tokens, wei_of
from protocol.chain.structs import MarketTerms, ProtocolTerms, RegistryTerms, RoundsTerms
from protocol.errors import Misconfigured
from protocol.wire.canonical import validating


def _amount(given: object) -> object:
    if not isinstance(given, str):
        raise PydanticCustomError("amount", "expected an amount in quotes, such as '48 ASZ'")
    try:
        return wei_of(given)
    except Misconfigured as error:
        raise PydanticCustomError("amount", "{fault}", {"fault": str(error)}) from error


Amount = Annotated[int, BeforeValidator(_amount)]
Seconds = Annotated[int, Field(ge=0, lt=2**32)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RegistryTable(_Table):
    """Bonds and delays: see ``RegistryTerms``."""

    bond_per_job: Amount
    validator_bond: Amount
    activation_delay: Seconds
    unbonding_delay: Seconds


class MarketTable(_Table):
    """Delays and minimums of runs: see ``MarketTerms``."""

    notice_seconds: Seconds
    max_round_seconds: Seconds
    min_commit_seconds: Seconds
    min_reveal_seconds: Seconds
    min_juror_fee: Amount
    max_strikes: Annotated[int, Field(ge=1, lt=2**16)]


class RoundsTable(_Table):
    """Penalties and appeals: see ``RoundsTerms``."""

    fraud_slash: Amount
    absence_penalty: Amount
    overturn_penalty: Amount
    appeal_bond: Amount
    appeal_bounty: Amount


class TermsFile(_Table):
    """All terms of a deployment."""

    admin_delay: Seconds
    registry: RegistryTable
    market: MarketTable
    rounds: RoundsTable


def read_terms(path: Path) -> ProtocolTerms:
    """Returns the terms in a file.

    Raises:
        Misconfigured: it cannot be read, or a value is missing or invalid.
    """
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        raise Misconfigured(f"cannot read the terms file {path}: {error}") from error
    with validating(str(path), Misconfigured):
        found = TermsFile.model_validate(tables)
    return ProtocolTerms(
        RegistryTerms(**found.registry.model_dump()),
        MarketTerms(**found.market.model_dump()),
        RoundsTerms(**found.rounds.model_dump()),
        found.admin_delay,
    )


def terms_rows(terms: ProtocolTerms) -> dict[str, int]:
    """Returns each term by its name in a terms file, such as ``rounds.fraud_slash``. PURE."""
    rows = {"admin_delay": terms.admin_delay}
    for table in ("registry", "market", "rounds"):
        held: Any = getattr(terms, table)
        rows |= {f"{table}.{each.name}": getattr(held, each.name) for each in fields(held)}
    return rows


def written(name: str, value: int) -> str:
    """Returns a term's value as a terms file has it. PURE."""
    return f'"{tokens(value)}"' if name in AMOUNTS else str(value)


def terms_toml(terms: ProtocolTerms) -> str:
    """Returns a terms file of these terms. PURE."""
    lines, table = list[str](), ""
    for name, value in terms_rows(terms).items():
        head, _, field = name.rpartition(".")
        if head != table:
            table = head
            lines += ["", f"[{table}]"]
        lines.append(f"{field} = {written(name, value)}")
    return "\n".join(lines) + "\n"


AMOUNTS = frozenset(
    f"{table}.{name}"
    for table, entry in TermsFile.model_fields.items()
    for name, field in getattr(entry.annotation, "model_fields", {}).items()
    if any(isinstance(each, BeforeValidator) for each in field.metadata)
)
"""Terms that are amounts."""
