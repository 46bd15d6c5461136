"""Defaults of commands from the profile, and ``--network`` for each command that needs a network.

``add_network_options`` gives every command of a part that talks to a chain, or reads a service's settings, an option
``--network``. It is read before the command's other options and sets their defaults, which an option or a variable
overrides.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import typer

from protocol.errors import AssizeError
from protocol.node.console import leave
from protocol.node.profile import NETWORK_VARIABLE, Profile, chosen_network

CHAIN_OPTIONS = frozenset({"rpc", "addresses"})
SETTINGS_OPTIONS = frozenset({"settings", "env_file"})
"""Names of options of which a command has one if it talks to a chain, or reads a service's settings."""

SIGNING_OPTIONS = frozenset({"password_file"})
"""Options of commands that open keystores; the profile sets them, whether the command needs a network or not."""

_OVERRIDDEN = re.compile(r"ASSIZE_([A-Z]+_)?(RPC_URL|ADDRESSES)")
"""Variables that a typed ``--network`` overrides, as options do."""

DEFAULTS = {"rpc_url": "rpc", "database": "db"}
"""Key of a profile's table to the option that it sets, where the names differ."""


def add_network_options(part: typer.Typer, name: str) -> None:
    """Adds ``--network`` to the commands of a part and its groups, and takes their defaults from the profile."""
    for command in part.registered_commands:
        assert command.callback is not None
        command.callback = profiled(command.callback, name)
    for group in part.registered_groups:
        assert group.typer_instance is not None
        add_network_options(group.typer_instance, name)


def profiled(command: Callable[..., Any], part: str) -> Callable[..., Any]:
    """Returns a command with ``--network`` and the profile's defaults, if it has options that a profile sets."""
    options = inspect.signature(command).parameters
    if (CHAIN_OPTIONS | SETTINGS_OPTIONS | SIGNING_OPTIONS) & set(options) and "network" not in options:
        return _with_network(command, part)
    return command


def command_defaults(profile: Profile, part: str, options: frozenset[str]) -> dict[str, Any]:
    """Returns the defaults that a profile sets for the options of one command of a part. PURE.

    Raises:
        Misconfigured: the network chosen is unknown.
    """
    service = part if part in ("relay", "ledger") else "ledger" if "db" in options else ""
    own, wallet = profile.table(service) if service else {}, profile.wallet()
    named = own.pop("network", None)
    network = profile.network(chosen_network() or named)
    found = {} if network is None else {"rpc": network.rpc, "addresses": network.addresses}
    told = {DEFAULTS.get(key, key): value for key, value in own.items()}
    found = told | found if chosen_network() else found | told
    if "keystore" not in options:  # such as `wallet new`, whose key is none that the profile's password opens
        wallet.pop("password_file", None)
    if SIGNING_OPTIONS & options:  # elsewhere `--keystore` picks whose balances to show, and by default all
        found |= {key: wallet[key] for key in ("keystore", "password_file", "fee_cap_gwei") if key in wallet}
    return {key: value for key, value in found.items() if key in options}


def _with_network(command: Callable[..., Any], part: str) -> Callable[..., Any]:
    """Returns the command with an option that chooses a network before the other options are read."""
    signature = inspect.signature(command, eval_str=True)
    options = frozenset(signature.parameters)
    lists = {name for name, option in signature.parameters.items() if _is_list(option.annotation)}

    source_of: Callable[[str], Any] = dict[str, Any]().get

    def choose(context: typer.Context, network: str | None) -> None:
        nonlocal source_of
        source_of = context.get_parameter_source
        if network is not None:
            _choose(network, context.get_parameter_source("network"))
        try:
            profile = Profile.current()
            profile.network(chosen_network())
            found = command_defaults(profile, part, options)
            context.default_map = {key: _several(value) if key in lists else value for key, value in found.items()}
        except AssizeError as error:
            leave(error)

    choice = typer.Option(
        "--network",
        envvar=NETWORK_VARIABLE,
        is_eager=True,
        callback=choose,
        hidden=not options & (CHAIN_OPTIONS | SETTINGS_OPTIONS),
        help="Network of the profile (see: assize network list); else its default.",
    )

    @functools.wraps(command)
    def with_network(*args: Any, network: str | None = None, **given: Any) -> Any:
        source = source_of("password_file")
        if source is not None and source.name == "DEFAULT_MAP" and given.get("keystore") != Profile.current().keystore:
            given["password_file"] = None  # the profile's opens the profile's keystore alone
        return command(*args, **given)

    more = Parameter("network", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, choice])
    vars(with_network)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), more])
    with_network.__annotations__ = dict(command.__annotations__) | {"network": more.annotation}
    return with_network


def _is_list(annotation: Any) -> bool:
    """Returns whether an option may be repeated."""
    return any(typing.get_origin(each) is list for each in typing.get_args(annotation))


def _several(value: Any) -> list[Any]:
    """Returns the values that a profile's one stands for: several have spaces between them, as in a variable."""
    if isinstance(value, list):
        return value
    return value.split() if isinstance(value, str) else [value]


def _choose(network: str, source: Any) -> None:
    """Makes a network the chosen one; one that was typed overrides variables that name a network's parts."""
    os.environ[NETWORK_VARIABLE] = network
    if source is not None and source.name == "COMMANDLINE":
        for name in [name for name in os.environ if _OVERRIDDEN.fullmatch(name)]:
            del os.environ[name]
