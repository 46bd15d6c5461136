"""What an audit found: named checks, how often each was made, and every value that was not what the events say."""

from __future__ import annotations

from dataclasses import dataclass

CHECKS: dict[str, str] = {
    "code": "the contracts were created from this repository's code, which all other checks rely on",
    "chain": "blocks and events follow each other without a gap, and events speak of what earlier ones made",
    "amounts": "every running amount an event names is what the events before it add up to",
    "rules": "rounds, joins and deadlines follow the terms in effect, changed with notice; none opened paused",
    "assignments": "listed nodes had joined at the run's rules and had capacity; every submitted job was its node's",
    "reserves": "a round's reserve covers its jobs at the run's price and both committees' fees",
    "signatures": "every submission was signed by the key of its node",
    "beacons": "every accepted job was worked under the hash of its round's opening block",
    "phases": "every event came in the phase that allows it, and no phase ended before it might",
    "draws": "every committee is the one its seed draws from the eligible validators",
    "seeds": "every seed is the hash of its seed block",
    "commitments": "every revealed vote is the one that was committed",
    "tallies": "every verdict is the majority of its revealed votes, bit by bit, with a quorum",
    "settlements": "every submitted job is settled once, as its verdict says, at units times price",
    "fees": "every juror earned its fee in proportion to its agreement with the verdict",
    "appeals": "every appeal was admissible, its verdict is final, and what it cost is what the rules come to",
    "escrow": "credits were locked in and paid out of runs and deposits exactly as announced",
    "credits": "credits were earned exactly where a settlement owed them, by the node's owner",
    "slashes": "bonds were slashed exactly for fraud with a quorum, absence and overturned majorities",
    "treasury": "slashed bonds went to the treasury of the time, or to whoever had a verdict overturned",
    "consumption": "every job trained on was accepted, and none twice",
    "raw events": "the database's raw events are the chain's",
    "tables": "the database's derived rows are what the events say, field by field",
    "views": "the contracts' own views at the audited block are what the events say",
    "conservation": "tokens and credits are conserved: bonds, treasury, escrow, balances and what was withdrawn add up",
}
"""Name of a check to what it shows where it holds."""

MOST_FINDINGS = 1_000
"""Findings kept of each check; more of them only count."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One value that is not what the events say.

    ``subject`` is the table, contract or event looked at, ``key`` which one of its kind, ``stored`` what was found
    there and ``recomputed`` what follows from the events.
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
class Check:
    """One named check: how many values it compared, how many were wrong, and the findings."""

    name: str
    shows: str
    compared: int
    wrong: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """An audit at one block."""

    chain_id: int
    block_number: int
    block_hash: str
    events: int
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True where every check holds."""
        return not any(check.wrong for check in self.checks)


class Findings:
    """Collects comparisons. Pure bookkeeping: the same comparisons give the same checks."""

    def __init__(self) -> None:
        self._compared = dict.fromkeys(CHECKS, 0)
        self._wrong = dict.fromkeys(CHECKS, 0)
        self._findings: dict[str, list[Finding]] = {name: [] for name in CHECKS}

    def equal(self, check: str, subject: str, key: object, field: str, stored: object, recomputed: object) -> None:
        """Counts one comparison under ``check``, and keeps a finding where the two differ."""
        self._compared[check] += 1
        if stored == recomputed and type(stored) is type(recomputed):
            return
        self._wrong[check] += 1
        if len(self._findings[check]) < MOST_FINDINGS:
            finding = Finding(check, subject, shown(key), field, shown(stored), shown(recomputed))
            self._findings[check].append(finding)

    def holds(self, check: str, subject: str, key: object, says: str, true: bool) -> None:
        """Counts one statement under ``check``; ``says`` reads as what should be true of the subject."""
        self.equal(check, subject, key, says, bool(true), True)

    def checks(self, leave_out: frozenset[str] = frozenset()) -> tuple[Check, ...]:
        """Returns all checks in their order, without those that were not asked for."""
        return tuple(
            Check(name, shows, self._compared[name], self._wrong[name], tuple(self._findings[name]))
            for name, shows in CHECKS.items()
            if name not in leave_out
        )


def shown(value: object) -> str:
    """Returns a value as a finding names it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, tuple | list):
        return "/".join(shown(part) for part in value)
    return str(value)
