"""Changes to a profile: comments and layout stay, the file is replaced whole, and one that breaks it is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from protocol.errors import Misconfigured, accessing
from protocol.files import lock, write_atomically
from protocol.node.profile import Profile, at_home, home

PRIVATE = 0o600
"""Permissions of a new profile, whose URLs may hold credentials."""
LOCK_SECONDS = 10.0
"""Longest wait for another command that changes the same profile."""


def change_profile(path: Path, change: Callable[[TOMLDocument], None]) -> Profile:
    """Applies a change to a profile, which is made if there is none, and returns it as it is then.

    Raises:
        Misconfigured: the profile is invalid, before or after; nothing is written then. Or it cannot be written.
    """
    with accessing(f"write the profile {path}"):
        for folder in (path.parent, home().parent):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            Profile.read(path)
            text = _changed(path, change)
            changed = Profile.parse(path, text)
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else PRIVATE
            write_atomically(path.resolve(), text, mode)
    return changed


def set_network(path: Path, name: str, rpc: str, addresses: Path, default: bool = False) -> Profile:
    """Adds a network or replaces the one of this name; it becomes the default if there is none, or on request.

    A default that was one only for being alone is written, so that it stays.
    """

    def change(document: TOMLDocument) -> None:
        before = Profile(path, document).default
        networks = _table(document, "networks", super_table=True)
        networks.setdefault(name, tomlkit.table()).update({"rpc": rpc, "addresses": relative(path, addresses)})
        _set_default(document, name if default or before is None else before)

    return change_profile(path, change)


def remove_network(path: Path, name: str) -> Profile:
    """Removes a network; if it was the default, there is none, unless a single one remains."""

    def change(document: TOMLDocument) -> None:
        networks = _table(document, "networks", super_table=True)
        networks.remove(name)
        if not networks:
            document.remove("networks")
        if document.get("network") == name:
            document.remove("network")

    return change_profile(path, change)


def use_network(path: Path, name: str) -> Profile:
    """Makes a network the default."""
    return change_profile(path, lambda document: _set_default(document, name))


def set_table(path: Path, name: str, values: Mapping[str, Any], replace: bool = True) -> Profile:
    """Sets keys of a table and leaves its others; without ``replace`` only keys that it lacks. Paths become text."""

    def change(document: TOMLDocument) -> None:
        table = _table(document, name)
        for key, value in values.items():
            if replace or key not in table:
                table[key] = relative(path, value) if isinstance(value, Path) else value

    return change_profile(path, change)


def relative(profile: Path, path: Path) -> str:
    """Returns a path as a profile writes it: relative if it lies in the profile's folder, else absolute."""
    folder, place = profile.parent.absolute(), Path(os.path.abspath(at_home(path)))
    return str(place.relative_to(folder)) if place.is_relative_to(folder) else str(place)


def _changed(path: Path, change: Callable[[TOMLDocument], None]) -> bytes:
    """Returns the text of a profile after a change.

    Raises:
        Misconfigured: its layout is one in which no change can be made.
    """
    try:
        document = tomlkit.parse(path.read_text()) if path.exists() else tomlkit.document()
        change(document)
        return tomlkit.dumps(document).encode()
    except (TOMLKitError, AttributeError, TypeError) as error:  # tomlkit's own, of layouts that it does not change
        raise Misconfigured(
            f"cannot change the profile {path} as it is laid out ({error}): change it by hand"
        ) from error


def _table(document: TOMLDocument, name: str, super_table: bool = False) -> Table:
    if name not in document:
        document[name] = tomlkit.table(is_super_table=super_table)
    table = document[name]
    if not isinstance(table, Table):
        raise Misconfigured(
            f"cannot change {name} in the profile, which is written in braces or in several places: "
            f"put it under [{name}], in one place, then type this again"
        )
    return table


def _set_default(document: TOMLDocument, name: str) -> None:
    """Writes the default network; a new key goes above all tables, where TOML takes it for one of the document."""
    if document.get("network") != name:
        document["network"] = name


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        held = lock(home().with_suffix(".lock"), LOCK_SECONDS)
    except BlockingIOError:
        raise Misconfigured(f"another command is changing the profile {path}: try again") from None
    with held:
        yield
