"""Settings that every daemon has. A service adds its fields and its prefix.

    class WorkerSettings(NodeSettings):
        model_config = settings_config("ASSIZE_WORKER_")

Values come from the environment (``ASSIZE_WORKER_RPC_URL``) or an optional env file. Unknown names with the prefix are
refused in both, so that a misspelt setting does not silently keep its default. Settings are built once at start and
passed down.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from protocol.errors import Misconfigured
from protocol.node.wallet import Keystores, Wallet, default_directory, read_password


def settings_config(prefix: str) -> SettingsConfigDict:
    """Returns the settings configuration of a service: frozen, prefixed, unknown names refused."""
    return SettingsConfigDict(env_prefix=prefix, frozen=True, extra="forbid", env_file_encoding="utf-8")


class NodeSettings(BaseSettings):
    """Settings of every daemon: chain, key and state directory.

    Args:
        rpc_url: JSON-RPC endpoint, or several separated by commas.
        addresses: address file of the deployment.
        keystore: name of the key to sign with.
        keystore_directory: directory of keystores.
        password_file: file whose first line opens the keystore; None asks at the terminal.
        state_dir: directory of journals, downloads and the health file.
        fee_cap_gwei: highest bid for gas, in gwei per gas; None takes the sender's default of 200.
        metrics_port: port of Prometheus metrics; 0 disables them.
        log_level: lowest level that is logged.
    """

    model_config = settings_config("ASSIZE_")

    rpc_url: str = "http://127.0.0.1:8545"
    addresses: Path
    keystore: str
    keystore_directory: Path = Field(default_factory=default_directory)
    password_file: Path | None = None
    state_dir: Path
    fee_cap_gwei: int | None = Field(default=None, ge=1)
    metrics_port: int = 0
    log_level: str = "info"

    @classmethod
    def read(cls, env_file: Path | None = None, **given: Any) -> Self:
        """Reads the settings; ``given`` values override the environment, which overrides the file.

        Raises:
            Misconfigured: a setting is missing, unknown or of the wrong type; the message names its variable.
        """
        prefix = str(cls.model_config.get("env_prefix", ""))
        _refuse_unknown(prefix, set(cls.model_fields))
        if env_file is not None and not env_file.is_file():
            raise Misconfigured(f"settings file {env_file} not found")
        try:
            stated = {name: value for name, value in given.items() if value is not None}
            return cls(_env_file=env_file, **stated)  # type: ignore[call-arg]
        except ValidationError as error:
            raise Misconfigured(_sentence(error, prefix)) from error

    def wallet(self) -> Wallet:
        """Opens the keystore that these settings name.

        Raises:
            Misconfigured: the keystore is missing, or the password is wrong.
        """
        return Keystores(self.keystore_directory).open(self.keystore, read_password(self.password_file))


def _refuse_unknown(prefix: str, fields: set[str]) -> None:
    """Refuses unknown names in the environment, as pydantic-settings does in files."""
    if prefix == "ASSIZE_":  # the names of every service begin with this prefix
        return
    known = {f"{prefix}{name}".upper() for name in fields}
    unknown = [name for name in os.environ if name.upper().startswith(prefix) and name.upper() not in known]
    nested = [name for name in unknown if not any(name.upper().startswith(f"{field}__") for field in known)]
    if nested:
        raise Misconfigured(f"unknown setting {nested[0]}: expected one of {', '.join(sorted(known))}")


def _sentence(error: ValidationError, prefix: str) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
        problems.append(f"{name} is not set" if problem["type"] == "missing" else f"{name}: {problem['msg'].lower()}")
    return "settings: " + "; ".join(problems)
