"""Settings that every daemon has. A service adds its fields and its prefix.

    class WorkerSettings(NodeSettings):
        model_config = settings_config("ASSIZE_WORKER_")

Values come from the environment (``ASSIZE_WORKER_RPC_URL``), from an optional env file, or from the profile: its table
of the service, the network chosen, and its wallet. Unknown names are refused in all of them, so that a misspelt setting
does not silently keep its default. Settings are built once at start and passed down.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from protocol.amounts import wei_of
from protocol.errors import Misconfigured
from protocol.node.profile import Profile
from protocol.node.profile_settings import PlacedValue, of_chosen_network, of_profile, service_of
from protocol.node.telemetry import METRICS_HOST
from protocol.node.wallet import Keystores, Wallet, default_directory, read_password


def settings_config(prefix: str) -> SettingsConfigDict:
    """Returns the settings configuration of a service: frozen, prefixed, unknown names refused."""
    return SettingsConfigDict(env_prefix=prefix, frozen=True, extra="forbid", env_file_encoding="utf-8")


def _amount(text: str) -> str:
    try:
        wei_of(text)
    except Misconfigured as error:
        raise ValueError(str(error)) from error
    return text


AmountText = Annotated[str, AfterValidator(_amount)]
"""An amount as ``protocol.amounts`` reads it."""


class _Variables(EnvSettingsSource):
    """Variables; one that has to be JSON and is not is named, in place of an error of the library's own."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            name = f"{self.env_prefix}{field_name}".upper()
            raise Misconfigured(
                f"settings: {name}: expected JSON, quoted where a shell reads it: {name}='[...]'"
            ) from error


class _SettingsFile(_Variables, DotEnvSettingsSource):
    """Those of a file."""


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
        metrics_host: address to serve them at; anyone who reaches it can read them.
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
    metrics_port: int = Field(default=0, ge=0, le=65535)
    metrics_host: str = METRICS_HOST
    log_level: str = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources of settings, the first of which that has a value decides."""
        profile = Profile.current()
        chosen, rest = (
            InitSettingsSource(settings_cls, {name: found.value for name, found in values.items()})
            for values in (of_chosen_network(profile), of_profile(profile, cls.service(), cls.model_fields))
        )
        in_file = _SettingsFile(settings_cls, env_file=cast(DotEnvSettingsSource, dotenv_settings).env_file)
        return init_settings, _Variables(settings_cls), chosen, in_file, rest

    @classmethod
    def service(cls) -> str:
        """Returns the name of the profile's table with these settings; empty if there is none."""
        return service_of(str(cls.model_config.get("env_prefix", "")))

    @classmethod
    def stated(cls, env_file: Path | None = None) -> dict[str, PlacedValue]:
        """Returns the settings that are not defaults as they are written, and where each comes from.

        Raises:
            Misconfigured: as ``read``, of names and of what is not JSON.
        """
        prefix = str(cls.model_config.get("env_prefix", ""))
        _refuse_unknown(prefix, set(cls.model_fields))
        profile = Profile.current()
        in_file = _SettingsFile(cls, env_file=env_file)() if env_file is not None else {}
        return (
            of_profile(profile, cls.service(), cls.model_fields)
            | {name: PlacedValue(value, str(env_file)) for name, value in in_file.items()}
            | of_chosen_network(profile)
            | {
                name: PlacedValue(value, f"variable {prefix.upper()}{name.upper()}")
                for name, value in _Variables(cls)().items()
            }
        )

    @classmethod
    def read(cls, env_file: Path | None = None, **given: Any) -> Self:
        """Reads the settings; ``given`` values override the environment, then come the file and the profile.

        Raises:
            Misconfigured: a setting is missing, unknown, of the wrong type or not the JSON it has to be; the message
                names its variable, or its place in the profile.
        """
        prefix = str(cls.model_config.get("env_prefix", ""))
        _refuse_unknown(prefix, set(cls.model_fields))
        if env_file is not None and not env_file.is_file():
            raise Misconfigured(f"settings file {env_file} not found")
        try:
            stated = {name: value for name, value in given.items() if value is not None}
            return cls(_env_file=env_file, **stated)  # type: ignore[call-arg]
        except ValidationError as error:
            raise Misconfigured(cls._sentence(error, env_file)) from error

    @classmethod
    def _sentence(cls, error: ValidationError, env_file: Path | None) -> str:
        """Returns what is wrong and where: a variable's name, or a key of the profile."""
        prefix, places = str(cls.model_config.get("env_prefix", "")), cls.stated(env_file)
        problems, missing = [], []
        for problem in error.errors(include_url=False, include_input=False):
            name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
            field = str(problem["loc"][0]) if problem["loc"] else ""
            if problem["type"] == "missing":
                problems.append(f"{name} is not set")
                missing.append(field)
            elif field in places and places[field].place.startswith("["):
                problems.append(f"{field} in {places[field].place}: {problem['msg'].lower()}")
            else:
                problems.append(f"{name}: {problem['msg'].lower()}")
        mend = f"; or set {', '.join(missing)} in [{cls.service()}] of the profile" if missing and cls.service() else ""
        return "settings: " + "; ".join(problems) + mend

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
