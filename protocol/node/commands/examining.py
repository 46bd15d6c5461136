"""``assize doctor``: the examinations of every role that this machine is set up for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from protocol.errors import Misconfigured
from protocol.node.console import EXIT_OK, EXIT_REFUSED, guard, show
from protocol.node.profile import SERVICES, Profile

ROLES = tuple(role for role in SERVICES if role != "notices")
"""Roles that have a doctor."""
LONGEST_SECONDS = 300.0
"""Time for the examinations of one role."""


def configured_roles(profile: Profile) -> list[str]:
    """Returns the roles that the profile has a table for, or whose variables are set."""
    return [
        role
        for role in ROLES
        if profile.table(role) or any(name.startswith(f"ASSIZE_{role.upper()}_") for name in os.environ)
    ]


def examined(role: str, asks: bool = True) -> list[dict[str, Any]]:
    """Has the role's own doctor examine it, in a process of its own, since roles need different packages.

    Args:
        role: one of ``ROLES``.
        asks: whether it may ask for a password at the terminal.

    Returns:
        Its rows, or one that says why there are none.
    """
    words = [sys.executable, "-P", "-m", "assize", role, "doctor", "--json"]  # no assize.py of the present folder
    stdin = None if asks else subprocess.DEVNULL
    try:
        done = subprocess.run(
            words,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
            start_new_session=not asks,
        )
    except subprocess.TimeoutExpired:
        return [_failed(f"no result within {LONGEST_SECONDS:.0f} s")]
    if done.returncode not in (EXIT_OK, EXIT_REFUSED):
        return [_failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])]
    try:
        return list(json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return [_failed((done.stderr.strip().splitlines() or ["no answer"])[-1])]


def _failed(why: str) -> dict[str, Any]:
    return {"check": "doctor", "ok": False, "found": why.removeprefix("assize: "), "mend": "see the sentence"}


@guard
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line.")] = False) -> None:
    """Examine every role that the profile or variables configure; exit 1 if a check fails."""
    roles = configured_roles(Profile.current())
    if not roles:
        raise Misconfigured(f"no role is set up here: `assize ROLE doctor` takes settings, of {', '.join(ROLES)}")
    rows: Sequence[dict[str, Any]] = [{"role": role, **row} for role in roles for row in examined(role)]
    show(rows, as_json, "doctor")
    if not all(row["ok"] for row in rows):
        raise SystemExit(EXIT_REFUSED)
