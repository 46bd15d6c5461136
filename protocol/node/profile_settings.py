"""A service's settings as the profile has them, each with the place where it stands."""

from __future__ import annotations

import os
import shlex
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from protocol.node.profile import (
    NETWORK_VARIABLE,
    SERVICES,
    PathWords,
    Profile,
    ProfileNetwork,
    chosen_network,
    refuse_unknown,
)
from protocol.node.wallet import KEYSTORE_DIRECTORY_VARIABLE

FROM_WALLET = ("keystore", "password_file", "keystore_directory", "fee_cap_gwei")
"""Keys of ``[wallet]`` that a service takes where its own table lacks them."""

FROM_NETWORK = frozenset({"rpc_url", "addresses"})


@dataclass(frozen=True, slots=True)
class PlacedValue:
    """A value, and where it comes from, as a person reads it."""

    value: Any
    place: str


def service_of(prefix: str) -> str:
    """Returns the service whose settings have this prefix; empty if it has no table in a profile."""
    name = prefix.removeprefix("ASSIZE_").rstrip("_").lower()
    return name if name in SERVICES else ""


def of_chosen_network(profile: Profile) -> dict[str, PlacedValue]:
    """Returns what the network chosen by option or variable sets, ahead of settings files; nothing if none is.

    Raises:
        Misconfigured: the profile does not name it.
    """
    chosen = chosen_network()
    return _of_network(profile, profile.network(chosen), f"chosen by --network or {NETWORK_VARIABLE}") if chosen else {}


def of_profile(profile: Profile, service: str, fields: Mapping[str, FieldInfo]) -> dict[str, PlacedValue]:
    """Returns what a profile sets of a service's ``fields``: its table, then its network, then the wallet.

    Raises:
        Misconfigured: the table has an unknown key, or names an unknown network.
    """
    table = profile.table(service) if service else {}
    refuse_unknown(profile.path, service, table, (*fields, "network"))
    named = table.pop("network", None)
    network = None if chosen_network() else profile.network(named)
    wallet = profile.wallet()
    if KEYSTORE_DIRECTORY_VARIABLE in os.environ:
        wallet.pop("keystore_directory", None)
    values = _in_table(profile, "wallet", wallet, FROM_WALLET) | _of_network(profile, network)
    own = {key: _placed(profile, fields[key], value) for key, value in table.items()}
    return values | _in_table(profile, service, own, own)


def _of_network(profile: Profile, network: ProfileNetwork | None, why: str = "") -> dict[str, PlacedValue]:
    if network is None:
        return {}
    values = {"rpc_url": network.rpc, "addresses": network.addresses}
    found = _in_table(profile, f"networks.{network.name}", values, values)
    return {key: PlacedValue(one.value, f"{one.place}, {why}" if why else one.place) for key, one in found.items()}


def _in_table(profile: Profile, table: str, values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, PlacedValue]:
    return {key: PlacedValue(values[key], f"[{table}] of {profile.path}") for key in keys if key in values}


def _placed(profile: Profile, field: FieldInfo, value: Any) -> Any:
    """Places a relative path in the profile's folder, if the field is one, or several, or of tables with one."""
    if any(isinstance(each, PathWords) for each in field.metadata):
        return _placed_words(profile, value)
    table = next((kind for kind in typing.get_args(field.annotation) if _is_table(kind)), None)
    if table is not None and isinstance(value, list):
        return [_placed_table(profile, table, each) if isinstance(each, dict) else each for each in value]
    alternatives = typing.get_args(field.annotation) if isinstance(field.annotation, types.UnionType) else ()
    is_path = Path in (field.annotation, *alternatives)
    return profile.placed(value) if is_path and isinstance(value, str) and value else value


def _placed_words(profile: Profile, value: Any) -> Any:
    """Places each of several paths: those of a list, or of text with spaces that is not itself a file."""
    if isinstance(value, str):
        value = [value] if profile.placed(value).exists() else shlex.split(value)
    return [str(profile.placed(str(each))) for each in value] if isinstance(value, list) else value


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _placed_table(profile: Profile, table: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    fields = table.model_fields
    return {key: _placed(profile, fields[key], value) if key in fields else value for key, value in values.items()}
