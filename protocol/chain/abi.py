"""Encoders and decoders from the committed compiler output, built once and cached.

``contracts/abi/<Contract>.json`` = ``{"abi": [...], "bytecode": "0x..."}`` is all that Python reads of the contracts.
Solidity structs and enums become the types in ``structs``, addresses checksummed strings, ``bytes32`` bytes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import EncodingError
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from protocol.chain.structs import ENUMS, STRUCTS
from protocol.errors import Misconfigured, Rejected

ABI_DIRECTORY = Path(__file__).parents[2] / "contracts" / "abi"
"""Directory of the compiler output, in the same checkout as this package."""

CONTRACTS = ("Token", "Admin", "Registry", "Market", "Rounds", "Credits", "Traps")
"""The contracts of a deployment."""

Convert = Callable[[Any], Any]
checksummed = functools.lru_cache(maxsize=65536)(to_checksum_address)


@dataclass(frozen=True, slots=True)
class Values:
    """ABI values in a row: the types to decode them as, and what converts each into our type."""

    types: tuple[str, ...]
    converts: tuple[Convert, ...]

    @classmethod
    def of(cls, components: Sequence[dict[str, Any]]) -> Values:
        """Returns the decoder of these inputs or outputs."""
        return cls(tuple(map(decoded_type, components)), tuple(map(converter, components)))

    def decode(self, payload: bytes) -> list[Any]:
        """Returns the decoded values in order."""
        values = decode(self.types, payload)
        return [convert(value) for convert, value in zip(self.converts, values, strict=True)]


@dataclass(frozen=True, slots=True)
class Entry:
    """One function or custom error: its selector, and its inputs and outputs."""

    contract: str
    name: str
    selector: bytes
    parameters: tuple[str, ...]
    input_types: tuple[str, ...]
    inputs: Values
    outputs: Values

    def encode(self, *arguments: Any) -> bytes:
        """Returns the calldata for these arguments, with dataclasses for structs.

        Raises:
            Rejected: an argument does not fit its type, such as a node number of 40 bits.
        """
        try:
            return self.selector + encode(self.input_types, [plain(argument) for argument in arguments])
        except EncodingError as error:
            shown = ", ".join(f"{name}={given}" for name, given in zip(self.parameters, arguments, strict=False))
            raise Rejected(
                f"invalid arguments of {self.contract}.{self.name}({shown}): a value is out of range"
            ) from error

    def decode_output(self, payload: bytes) -> Any:
        """Returns the decoded value, or a tuple if there are several."""
        values = self.outputs.decode(payload)
        return values[0] if len(values) == 1 else tuple(values)

    def decode_revert(self, payload: bytes) -> dict[str, Any]:
        """Returns a custom error's arguments by name from revert data (selector included)."""
        return dict(zip(self.parameters, self.inputs.decode(payload[4:]), strict=True))


def plain(value: Any) -> Any:
    """Turns dataclasses into tuples recursively, as the ABI encoder takes them."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(plain(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def canonical_type(component: dict[str, Any]) -> str:
    """Returns the type as written in a signature, with tuples expanded."""
    kind: str = component["type"]
    if not kind.startswith("tuple"):
        return kind
    inner = ",".join(canonical_type(part) for part in component["components"])
    return f"({inner}){kind[len('tuple') :]}"


def decoded_type(component: dict[str, Any]) -> str:
    """Returns the type to decode as. Strings are decoded as bytes: a contract accepts any bytes as a string."""
    return canonical_type(component).replace("string", "bytes")


def converter(component: dict[str, Any]) -> Convert:
    """Returns the function that converts a decoded ABI value of this type into our type."""
    kind: str = component["type"]
    if kind.endswith("]"):
        item = converter({**component, "type": kind[: kind.rindex("[")]})
        return lambda values: tuple(item(value) for value in values)
    if kind == "tuple":
        return _struct_converter(component)
    internal = str(component.get("internalType", ""))
    if internal.startswith("enum "):
        return ENUMS[internal.removeprefix("enum ").rsplit(".")[-1]]
    plain_kinds: dict[str, Convert] = {"address": checksummed, "string": _text}
    return plain_kinds.get(kind, _same)


def _struct_converter(component: dict[str, Any]) -> Convert:
    name = str(component["internalType"]).removeprefix("struct ").split("[")[0].rsplit(".")[-1]
    cls = STRUCTS[name]
    parts = [converter(part) for part in component["components"]]
    return lambda values: cls(*(part(value) for part, value in zip(parts, values, strict=True)))


def _text(value: bytes) -> str:
    """Decodes text, with U+FFFD for invalid UTF-8."""
    return value.decode("utf-8", "replace")


def _same(value: Any) -> Any:
    return value


@functools.cache
def artifact(contract: str) -> dict[str, Any]:
    """Returns the committed compiler output of one contract.

    Raises:
        Misconfigured: the file is missing or unreadable.
    """
    path = ABI_DIRECTORY / f"{contract}.json"
    try:
        loaded: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"cannot read contracts/abi/{contract}.json ({error}); build the contracts first"
        ) from error
    return loaded


def bytecode(contract: str) -> bytes:
    """Returns the creation bytecode of a contract."""
    return bytes.fromhex(str(artifact(contract)["bytecode"]).removeprefix("0x"))


@functools.cache
def functions(contract: str) -> dict[str, Entry]:
    """Returns the contract's functions by name (none is overloaded)."""
    return {entry.name: entry for entry in _entries(contract, "function")}


@functools.cache
def custom_errors() -> dict[bytes, Entry]:
    """Returns every custom error of the contracts, by selector."""
    return {error.selector: error for contract in CONTRACTS for error in _entries(contract, "error")}


def _entries(contract: str, kind: str) -> Iterator[Entry]:
    for entry in artifact(contract)["abi"]:
        if entry["type"] == kind:
            inputs, types = entry["inputs"], tuple(map(canonical_type, entry["inputs"]))
            yield Entry(
                contract=contract,
                name=entry["name"],
                selector=keccak(text=f"{entry['name']}({','.join(types)})")[:4],
                parameters=tuple(part["name"].strip("_") or str(index) for index, part in enumerate(inputs)),
                input_types=types,
                inputs=Values.of(inputs),
                outputs=Values.of(entry.get("outputs", ())),
            )
