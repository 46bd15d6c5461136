"""Settings every daemon has. A service adds its own fields and its prefix:

    class WorkerSettings(NodeSettings):
        model_config = settings_config("ASSIZE_WORKER_")

Values come from the environment (``ASSIZE_WORKER_RPC_URL``) or, where given, an env file. Unknown names with the prefix
are refused in both: a misspelt setting must not pass for its default. Built once at start, then passed down.
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
    """How a service's settings are read: frozen, prefixed, unknown names refused."""
    return SettingsConfigDict(env_prefix=prefix, frozen=True, extra="forbid", env_file_encoding="utf-8")


class NodeSettings(BaseSettings):
    """What every daemon needs: a chain, a key, and a place of its own.

    Args:
        rpc_url: JSON-RPC endpoint, or several with commas between them.
        addresses: address file of the deployment.
        keystore: name of the key to sign with.
        keystore_directory: where keystores are kept.
        password_file: file whose first line opens the keystore; None asks at the terminal.
        state_dir: journals, downloads, health file: what must outlive a restart.
        fee_cap_gwei: highest bid for gas, in gwei per gas; None takes the sender's default of 200.
        metrics_port: serve Prometheus metrics there; 0 does not.
        log_level: least level logged.
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
        """Reads the settings; ``given`` ones win over the environment, which wins over the file.

        Raises:
            Misconfigured: one is missing, unknown or of the wrong kind; the sentence names it as a person would set it.
        """
        prefix = str(cls.model_config.get("env_prefix", ""))
        _refuse_unknown(prefix, set(cls.model_fields))
        if env_file is not None and not env_file.is_file():
            raise Misconfigured(f"no settings file {env_file}")
        try:
            stated = {name: value for name, value in given.items() if value is not None}
            return cls(_env_file=env_file, **stated)  # type: ignore[call-arg]
        except ValidationError as error:
            raise Misconfigured(_sentence(error, prefix)) from error

    def wallet(self) -> Wallet:
        """Opens the key these settings name.

        Raises:
            Misconfigured: there is none, or the password is wrong.
        """
        return Keystores(self.keystore_directory).open(self.keystore, read_password(self.password_file))


def _refuse_unknown(prefix: str, fields: set[str]) -> None:
    """pydantic-settings refuses unknown names in files only; the environment deserves the same."""
    if prefix == "ASSIZE_":  # every service's names begin with this one: nothing to tell apart
        return
    known = {f"{prefix}{name}".upper() for name in fields}
    unknown = [name for name in os.environ if name.upper().startswith(prefix) and name.upper() not in known]
    nested = [name for name in unknown if not any(name.upper().startswith(f"{field}__") for field in known)]
    if nested:
        raise Misconfigured(f"unknown setting {nested[0]}; known ones: {', '.join(sorted(known))}")


def _sentence(error: ValidationError, prefix: str) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
        problems.append(f"{name} is not set" if problem["type"] == "missing" else f"{name}: {problem['msg'].lower()}")
    return "settings: " + "; ".join(problems)
