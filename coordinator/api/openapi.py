"""Additions to the OpenAPI document: the routes read bodies themselves, and the gate reads headers."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from protocol.wire import api, auth

JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
BLOB = "application/octet-stream"

BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
FILES: dict[str, dict[str, Any]] = {JSON: {"type": "object"}, PARQUET: BINARY, BLOB: BINARY}
"""Schemas of bodies and answers that are files, by media type."""

ERRORS: dict[int | str, dict[str, object]] = {
    code: {"model": api.ErrorBody} for code in (401, 403, 404, 408, 409, 413, 422, 429, 503)
}
"""Responses of every route to refused requests."""


def answers_file(media_type: str) -> dict[str, Any]:
    """Returns the options of a route that answers with a file of a media type."""
    described = {"description": "The file", "content": {media_type: {"schema": FILES[media_type]}}}
    return {"response_class": Response, "responses": {200: described}}


def signed_by_node(body: type[api.Body] | str | None = None) -> dict[str, Any]:
    """Returns the OpenAPI description of a signed request whose body is a model, a file of a media type, or absent."""
    common = {"in": "header", "required": True}
    parameters = [
        common | {"name": name, "description": meaning, "schema": {"type": "string", "pattern": pattern}}
        for name, (pattern, meaning) in auth.HEADERS.items()
    ]
    described: dict[str, Any] = {"parameters": parameters}
    if isinstance(body, str):
        content = {body: {"schema": FILES[body]}}
    elif body is not None:
        content = {JSON: {"schema": _written_out(body.model_json_schema())}}
    else:
        return described
    return described | {"requestBody": {"required": True, "content": content}}


def _written_out(schema: dict[str, Any]) -> dict[str, Any]:
    """Inlines the definitions of a model's schema; references would resolve against the whole document."""
    parts = schema.pop("$defs", {})

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return filled(parts[value["$ref"].rpartition("/")[2]])
        return {name: filled(inner) for name, inner in value.items()}

    written: dict[str, Any] = filled(schema)
    return written
