"""Stores of folded facts.

``Book`` is all that the fold asks of a store. ``MemoryBook`` holds everything in dictionaries: the auditor's own copy,
made from nothing but events. ``ledger.store.stored_book.StoredBook`` reads and writes the derived tables of a database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from ledger.facts import Fact, key_of
from protocol.errors import Misconfigured

Kind = TypeVar("Kind", bound=Fact)


class Book(Protocol):
    """Facts by kind and key."""

    def find(self, kind: type[Kind], *key: int | str) -> Kind | None:
        """Returns the fact, or None where the chain has not spoken of it."""

    def put(self, fact: Fact) -> None:
        """Writes a fact, in the place of an older one under the same key."""


class MemoryBook:
    """A ``Book`` in dictionaries."""

    def __init__(self) -> None:
        self._facts: dict[type[Any], dict[tuple[int | str, ...], Any]] = {}

    def find(self, kind: type[Kind], *key: int | str) -> Kind | None:
        """Returns the fact, or None."""
        return self._facts.get(kind, {}).get(key)

    def put(self, fact: Fact) -> None:
        """Writes a fact."""
        self._facts.setdefault(type(fact), {})[key_of(fact)] = fact

    def all(self, kind: type[Kind]) -> Iterator[Kind]:
        """Yields every fact of a kind, oldest key first."""
        yield from self._facts.get(kind, {}).values()


def add(book: Book, fact: Fact, **amounts: int) -> None:
    """Writes a fact with these amounts added to its fields of these names."""
    book.put(replace(fact, **{name: getattr(fact, name) + amount for name, amount in amounts.items()}))


def known(book: Book, kind: type[Kind], *key: int | str) -> Kind:
    """Returns a fact that earlier events must have made.

    Raises:
        Misconfigured: they have not, so that the book lacks the beginning of the chain.
    """
    fact = book.find(kind, *key)
    if fact is None:
        raise Misconfigured(
            f"an event speaks of {kind.__name__.lower()} {', '.join(map(str, key))}, which no earlier event made: "
            "the address file's startBlock is later than the deployment"
        )
    return fact
