"""Decodes why a contract refused a call: custom errors with their arguments."""

from __future__ import annotations

from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from protocol.chain.abi import custom_errors
from protocol.chain.rpc import RpcFault
from protocol.chain.sentences import sentence
from protocol.errors import Rejected

REVERT_CODE = 3
"""JSON-RPC error code of an execution that reverted, as in geth and its followers."""

ERROR_STRING = bytes.fromhex("08c379a0")
PANIC = bytes.fromhex("4e487b71")


class Reverted(Rejected):
    """A contract refused the call: the custom error's ``name`` ("" if it has none) and ``arguments``."""

    def __init__(self, name: str, arguments: dict[str, Any], sentence: str) -> None:
        super().__init__(sentence)
        self.name = name
        self.arguments = arguments


def reverted(fault: RpcFault) -> Reverted | None:
    """Returns the revert behind an RPC error, or None if the error is another one."""
    if fault.data:
        return decode_revert(fault.data)
    if fault.code == REVERT_CODE or "revert" in fault.message.lower():
        return Reverted("", {}, f"reverted: {fault.message}")
    return None


def decode_revert(payload: bytes) -> Reverted:
    """Decodes the custom error, ``require`` string or panic in revert data."""
    error = custom_errors().get(payload[:4])
    try:
        if error is not None:
            arguments = error.decode_revert(payload)
            return Reverted(error.name, arguments, _refusal(error.name, arguments))
        if payload[:4] == ERROR_STRING:
            (message,) = decode(["string"], payload[4:])
            return Reverted("Error", {"message": message}, f"reverted: {message}")
        if payload[:4] == PANIC:
            (code,) = decode(["uint256"], payload[4:])
            return Reverted("Panic", {"code": code}, f"reverted: Panic({code:#x})")
    except DecodingError:
        pass
    return Reverted("", {}, f"reverted with unknown data 0x{payload.hex()}")


def _refusal(error: str, arguments: dict[str, Any]) -> str:
    """Returns what the contract says in a sentence, with the error's name to search for."""
    if (said := sentence(error, arguments)) is None:
        return f"reverted: {error}({_listed(arguments)})"
    return f"the contract refused: {said} ({error})"


def _listed(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items())


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return getattr(value, "name", None) or str(value)
