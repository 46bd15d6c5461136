"""Report of an audit: each named check, how many values it compared, and every value that contradicts the events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

MOST_DISCREPANCIES = 1_000
"""Discrepancies kept for each check; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One value that contradicts the events.

    Args:
        check: name of the check that compared it.
        subject: table, contract or event type.
        key: identifies the subject among its kind.
        field: compared field.
        stored: value found there.
        recomputed: value that follows from the events.
    """

    check: str
    subject: str
    key: str
    field: str
    stored: str
    recomputed: str

    def __str__(self) -> str:
        return f"{self.subject} {self.key}: {self.field} is {self.stored}, the events say {self.recomputed}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one named check: values compared, values wrong, and the discrepancies kept."""

    name: str
    shows: str
    compared: int
    wrong: int
    findings: tuple[Discrepancy, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """An audit at one block."""

    chain_id: int
    block_number: int
    block_hash: str
    events: int
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """True if every check holds."""
        return not any(check.wrong for check in self.checks)


class Findings:
    """Collects comparisons by the name of their check."""

    def __init__(self) -> None:
        self._compared = Counter[str]()
        self._wrong = Counter[str]()
        self._kept = defaultdict[str, list[Discrepancy]](list)

    def equal(self, check: str, subject: str, key: object, field: str, stored: object, recomputed: object) -> None:
        """Counts one comparison under ``check``; keeps a discrepancy if the two values or their types differ."""
        self._compared[check] += 1
        if stored == recomputed and type(stored) is type(recomputed):
            return
        self._wrong[check] += 1
        if len(self._kept[check]) < MOST_DISCREPANCIES:
            found = Discrepancy(check, subject, shown(key), field, shown(stored), shown(recomputed))
            self._kept[check].append(found)

    def holds(self, check: str, subject: str, key: object, says: str, true: bool) -> None:
        """Counts one statement under ``check``; ``says`` reads as a property of the subject."""
        self.equal(check, subject, key, says, bool(true), True)

    def results(self, sentences: Mapping[str, str]) -> tuple[CheckResult, ...]:
        """Returns the result of every check, in the order of ``sentences``.

        Args:
            sentences: name of each check to the sentence it shows.

        Raises:
            LookupError: a comparison was counted under an unknown name.
        """
        if unknown := self._compared.keys() - sentences.keys():
            raise LookupError(f"unknown audit check {min(unknown)!r}: register it in ledger.audit.checks")
        return tuple(
            CheckResult(name, shows, self._compared[name], self._wrong[name], tuple(self._kept[name]))
            for name, shows in sentences.items()
        )


def shown(value: object) -> str:
    """Returns a value as a discrepancy prints it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, tuple | list):
        return "/".join(shown(part) for part in value)
    return str(value)
