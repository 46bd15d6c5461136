"""``assize config``: every setting, and where it comes from."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import Misconfigured
from protocol.masking import masked
from protocol.node.commands.connection import DEFAULT_RPC, AsJson
from protocol.node.commands.profiled import DEFAULTS, command_defaults
from protocol.node.console import guard, show
from protocol.node.profile import LEDGER_KEYS, RELAY_KEYS, Profile
from protocol.node.profile_settings import PlacedValue

app = typer.Typer(no_args_is_help=True, help="Show every setting, and where it comes from.")

CLASSES = {
    "worker": ("worker.settings", "WorkerSettings"),
    "validator": ("validator.settings", "ValidatorSettings"),
    "recheck": ("validator.recheck.settings", "RecheckSettings"),
    "trainer": ("trainer.settings", "TrainerSettings"),
    "coordinator": ("coordinator.settings", "CoordinatorSettings"),
    "notices": ("protocol.node.notices.settings", "NoticesSettings"),
}
"""Role to (module, class) of its settings: imported only when shown, as the front door does with parts."""

COMMAND_VARIABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "commands": {
        "rpc": ("ASSIZE_RPC_URL",),
        "addresses": ("ASSIZE_ADDRESSES",),
        "keystore": ("ASSIZE_KEYSTORE", "ETH_KEYSTORE"),
        "password_file": ("ASSIZE_PASSWORD_FILE", "ETH_PASSWORD"),
        "keystore_directory": ("ASSIZE_KEYSTORE_DIR",),
        "state_dir": ("ASSIZE_STATE_DIR",),
        "fee_cap_gwei": ("ASSIZE_FEE_CAP_GWEI",),
    },
    "relay": {key: (f"ASSIZE_RELAY_{key.upper()}",) for key in RELAY_KEYS},
    "ledger": {key: (f"ASSIZE_LEDGER_{key.upper()}",) for key in LEDGER_KEYS}
    | {key: (f"ASSIZE_LEDGER_{key.upper()}", f"ASSIZE_{key.upper()}") for key in ("rpc_url", "addresses")},
}
"""Variables of what is set by options alone: the role ``commands`` is what a person types as an owner."""

ROLES = (*COMMAND_VARIABLES, *CLASSES)


@app.callback()
def config() -> None:
    """Show every setting, and where it comes from."""


@app.command("show")
@guard
def show_config(
    role: Annotated[str | None, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}; else all.")] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="Settings file of the role, as given to its commands.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a role with their values and where each comes from: variable, file, profile or default."""
    if role is not None and role not in ROLES:
        raise Misconfigured(f"unknown role {role!r}: expected one of {', '.join(ROLES)}")
    if settings is not None and role not in CLASSES:
        raise Misconfigured(f"--settings needs a role that has settings files: one of {', '.join(CLASSES)}")
    rows = [
        {"role": name, "setting": key, "value": _shown(found.value), "from": found.place}
        for name in ([role] if role else ROLES)
        for key, found in settings_of(name, settings)
    ]
    if not as_json:
        rows = [row | {"value": "" if row["value"] is None else row["value"]} for row in rows]
    show(rows, as_json)


def settings_of(role: str, env_file: Path | None) -> Iterator[tuple[str, PlacedValue]]:
    """Yields a role's settings, each with its value and the place that it comes from.

    Raises:
        Misconfigured: a file, the profile or a variable has an unknown name.
    """
    if role in CLASSES:
        module, name = CLASSES[role]
        yield from _of_service(getattr(importlib.import_module(module), name), env_file)
    else:
        yield from _of_commands(role, COMMAND_VARIABLES[role])


def known_variables() -> frozenset[str]:
    """Returns the names of the variables of options; those of services begin with the service's name."""
    return frozenset(name for variables in COMMAND_VARIABLES.values() for names in variables.values() for name in names)


def _of_service(kind: Any, env_file: Path | None) -> Iterator[tuple[str, PlacedValue]]:
    stated = kind.stated(env_file)
    for key, field in kind.model_fields.items():
        if key in stated:
            yield key, stated[key]
        elif field.is_required():
            yield key, PlacedValue(None, "not set")
        else:
            yield key, PlacedValue(field.get_default(call_default_factory=True), "default")


def _of_commands(role: str, variables: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, PlacedValue]]:
    """Reads what options default to: a variable, else the profile."""
    profile = Profile.current()
    names = {key: DEFAULTS.get(key, key) for key in variables}
    found = command_defaults(profile, role, frozenset(names.values()))
    found |= {key: value for key, value in profile.wallet().items() if role == "commands"}
    found |= {key: value for key, value in profile.table(role).items() if key not in DEFAULTS and key not in found}
    for key, candidates in variables.items():
        set_one = next((name for name in candidates if os.environ.get(name)), None)
        if set_one is not None:
            yield key, PlacedValue(os.environ[set_one], f"variable {set_one}")
        elif names[key] in found:
            yield key, PlacedValue(found[names[key]], f"profile {profile.path}")
        else:
            yield key, PlacedValue(DEFAULT_RPC if names[key] == "rpc" else None, "default")


def _shown(value: Any) -> Any:
    """Returns a value as shown: credentials in URLs masked."""
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return masked(str(value))
