"""The profile: one TOML file with a person's networks, wallet and services, in place of variables.

    network = "local"                       the default network

    [networks.local]
    rpc = "http://127.0.0.1:8545"           or several, comma-separated
    addresses = ".localnet/addresses.json"

    [wallet]                                defaults of commands that sign as an owner
    keystore = "alice"

    [worker]                                a service's settings, by the names of its fields
    run = 1

It is the file that ``ASSIZE_PROFILE`` names (none, if that is empty), else ``./assize.toml``, else
``~/.assize/assize.toml``. Paths in it are relative to its folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured, accessing

PROFILE_VARIABLE = "ASSIZE_PROFILE"
NETWORK_VARIABLE = "ASSIZE_NETWORK"
FILE_NAME = "assize.toml"

SERVICES = ("worker", "validator", "recheck", "trainer", "coordinator", "relay", "ledger", "notices")
"""Services with a table of their own; its keys are the fields of the service's settings, and ``network``."""

NETWORK_KEYS = ("rpc", "addresses")
WALLET_KEYS = ("keystore", "password_file", "keystore_directory", "state_dir", "fee_cap_gwei")
RELAY_KEYS = (
    *("upstream", "trainer", "addresses", "run", "state_dir", "host", "port"),
    *("keep", "keep_gib", "most_up", "most_down", "objects", "metrics_port", "metrics_host"),
)
LEDGER_KEYS = ("rpc_url", "addresses", "database", "state_dir", "host", "port", "metrics_port", "metrics_host")

PATH_KEYS = frozenset({"addresses", "password_file", "keystore_directory", "state_dir"})
"""Keys of the tables above whose values are paths."""


@dataclass(frozen=True, slots=True)
class ProfileNetwork:
    """A network that a profile names: its RPC endpoints and the address file of its contracts."""

    name: str
    rpc: str
    addresses: Path


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as read; ``path`` is where it is or would be, ``content`` is empty where there is none."""

    path: Path
    content: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Reads and checks a profile; one that does not exist is empty.

        Raises:
            Misconfigured: it cannot be read, is not TOML, or has an unknown table or key.
        """
        if not path.exists():
            return cls(path)
        with accessing(f"read the profile {path}"):
            return cls.parse(path, path.read_bytes())

    @classmethod
    def parse(cls, path: Path, text: bytes) -> Profile:
        """Returns the profile that a file with this text would be; raises as ``read``."""
        try:
            content = tomllib.loads(text.decode())
        except ValueError as error:  # not TOML, or not UTF-8
            raise Misconfigured(f"cannot read the profile {path}: {error}") from error
        _check(path, content)
        return cls(path, content)

    @classmethod
    def current(cls) -> Profile:
        """Returns the profile in effect; an empty one where there is none."""
        path = located()
        return cls(Path(FILE_NAME)) if path is None else cls.read(path)

    @property
    def networks(self) -> dict[str, ProfileNetwork]:
        """The networks by name."""
        named = self.content.get("networks", {})
        return {name: ProfileNetwork(name, one["rpc"], self.placed(one["addresses"])) for name, one in named.items()}

    @property
    def default(self) -> str | None:
        """Name of the default network: the one stated, else the only one."""
        names = list(self.networks)
        return self.content.get("network") or (names[0] if len(names) == 1 else None)

    def network(self, name: str | None = None) -> ProfileNetwork | None:
        """Returns a network by name, else the default one; None if there is no default.

        Raises:
            Misconfigured: the profile does not name it.
        """
        wanted = name or self.default
        if wanted is None or wanted in self.networks:
            return self.networks.get(wanted or "")
        known = f"expected one of {', '.join(self.networks)}" if self.networks else "it names none"
        raise Misconfigured(
            f"unknown network {wanted!r} in the profile {self.path}: {known}; "
            "add one with: assize network add NAME --addresses FILE --rpc URL"
        )

    def wallet(self) -> dict[str, Any]:
        """Returns the wallet's keys, paths placed."""
        return self.table("wallet")

    @property
    def keystore(self) -> str | None:
        """The wallet's keystore, a name or a file; the wallet's password file opens this one alone."""
        found: str | None = self.wallet().get("keystore")
        return found

    def table(self, name: str) -> dict[str, Any]:
        """Returns a table's keys, the well-known paths placed; empty where the profile has no such table."""
        return {key: self._value(key, value) for key, value in self.content.get(name, {}).items()}

    def placed(self, path: str) -> Path:
        """Returns a path of the profile, relative to its folder."""
        return self.path.parent / at_home(Path(path))

    def _value(self, key: str, value: Any) -> Any:
        """Places a path. A keystore or database is one only if it is written as one."""
        written = isinstance(value, str) and value != ""
        if key == "keystore" and written and os.sep in value:
            return str(self.placed(value))  # a name or a file to what opens it, in text either way
        path = key in PATH_KEYS or (key == "database" and "://" not in str(value))
        return self.placed(value) if written and path else value


class PathWords:
    """Marks a setting of text that holds a path, or several with spaces between them."""


def at_home(path: Path) -> Path:
    """Returns a path with ``~`` replaced by the home directory that it stands for.

    Raises:
        Misconfigured: it stands for that of a user who is unknown.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise Misconfigured(f"no home directory is known for the path {path}: write it out") from None


def located() -> Path | None:
    """Returns where the profile in effect is; None if there is none."""
    told = os.environ.get(PROFILE_VARIABLE)
    if told is not None:
        return Path(told) if told else None
    return next((path for path in (Path(FILE_NAME), home()) if path.exists()), None)


def home() -> Path:
    """Returns where a profile is made if there is none."""
    return Path.home() / ".assize" / FILE_NAME


def writable() -> Path:
    """Returns the profile to change: the one in effect, or else a new one in the home directory.

    Raises:
        Misconfigured: ``ASSIZE_PROFILE`` is empty, which turns profiles off.
    """
    if os.environ.get(PROFILE_VARIABLE) == "":
        raise Misconfigured(f"{PROFILE_VARIABLE} is empty, which turns profiles off: set it to a file, or unset it")
    return located() or home()


def chosen_network() -> str | None:
    """Returns the network that ``ASSIZE_NETWORK`` names, which ``--network`` sets."""
    return os.environ.get(NETWORK_VARIABLE) or None


def refuse_unknown(path: Path, table: str, keys: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raises ``Misconfigured`` at the first key of a table that is not known."""
    for key in keys:
        if key not in known:
            raise Misconfigured(f"{path}: unknown key {key!r} in [{table}]: expected one of {', '.join(sorted(known))}")


def _check(path: Path, content: Mapping[str, Any]) -> None:
    """Refuses tables and keys that are unknown; services check the keys of their own tables with their settings."""
    for name, value in content.items():
        if name == "network":
            if not isinstance(value, str):
                raise Misconfigured(f"{path}: network is {value!r}: expected the name of a network in quotes")
        elif name not in ("networks", "wallet", *SERVICES):
            known = ", ".join(("network", "networks", "wallet", *SERVICES))
            raise Misconfigured(f"{path}: unknown table or key {name!r}: expected one of {known}")
        elif not isinstance(value, dict):
            raise Misconfigured(f"{path}: {name} is {value!r}: expected a table [{name}]")
    for name, network in content.get("networks", {}).items():
        _check_network(path, name, network)
    refuse_unknown(path, "wallet", content.get("wallet", {}), WALLET_KEYS)
    refuse_unknown(path, "relay", content.get("relay", {}), (*RELAY_KEYS, "network"))
    refuse_unknown(path, "ledger", content.get("ledger", {}), (*LEDGER_KEYS, "network"))
    for table in ("wallet", *SERVICES):
        _check_paths(path, table, content.get(table, {}))


def _check_network(path: Path, name: str, network: Any) -> None:
    if not isinstance(network, dict):
        raise Misconfigured(f"{path}: networks.{name} is {network!r}: expected a table [networks.{name}]")
    refuse_unknown(path, f"networks.{name}", network, NETWORK_KEYS)
    for key in NETWORK_KEYS:
        if not isinstance(network.get(key), str) or not network[key]:
            said = f"{key} is {network[key]!r}" if key in network else f"no {key}"
            raise Misconfigured(f"{path}: {said} in [networks.{name}]: expected a text in quotes")


def _check_paths(path: Path, table: str, values: Mapping[str, Any]) -> None:
    for key in (*PATH_KEYS, "keystore", "network"):
        if key in values and not isinstance(values[key], str):
            raise Misconfigured(f"{path}: {key} is {values[key]!r} in [{table}]: expected a text in quotes")
