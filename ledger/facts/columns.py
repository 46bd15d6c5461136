"""Annotations of fields: the column type and the JSON form of each.

int      64-bit integer        number in JSON
Wide     decimal text          string in JSON: wei, credits, units, whatever a party may choose up to 2**256
Bitmap   0x-hexadecimal text   the same in JSON; bit j stands for job j
Hex      0x-hexadecimal text   the same in JSON; hashes, roots, packed bytes
"""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainSerializer


def hex_bytes(value: bytes) -> str:
    """Returns bytes as people and JSON read them."""
    return "0x" + value.hex()


Wide = Annotated[int, PlainSerializer(str, return_type=str)]
Bitmap = Annotated[int, PlainSerializer(hex, return_type=str)]
Hex = Annotated[bytes, PlainSerializer(hex_bytes, return_type=str)]
