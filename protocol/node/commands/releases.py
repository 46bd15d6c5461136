"""The least version that a run's rules ask for, present and announced, beside the installed one."""

from __future__ import annotations

from contextlib import closing
from time import time
from typing import Any

from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri, rules_in_view
from protocol.errors import Misconfigured, Rejected
from protocol.node.release import behind, own_version
from protocol.transport.coordinator import CoordinatorClient


def look_at_release(chain: Chain, run: int, coordinator: str = "") -> tuple[dict[str, Any], list[str]]:
    """Returns the versions that a run asks for, by name, and a sentence on each that is newer than the installed one.

    Announced rules that the coordinator does not serve yet are named as such: nobody can know what they ask for.

    Raises:
        Misconfigured: there is no such run, or it names no coordinator.
        Unavailable: chain or coordinator do not answer.
        Rejected: the coordinator does not serve the rules in effect.
    """
    row: dict[str, Any] = {"run": run, "version": own_version(), "least_version": None}
    problems = []
    if not 0 < run <= chain.latest().run_count():
        raise Misconfigured(f"there is no run {run} on this deployment: see assize run show")
    with closing(CoordinatorClient(coordinator_uri(chain, run, coordinator))) as client:
        for each in rules_in_view(chain.latest(), run, time()):
            try:
                rules = client.rules(each.rules_hash)
            except Rejected:
                if not each.effective_at:
                    raise
                row |= {"coming_version": "not served by the coordinator yet", "coming_at": each.effective_at}
                continue
            if each.effective_at:
                row |= {"coming_version": rules.least_version, "coming_at": each.effective_at}
            else:
                row["least_version"] = rules.least_version
            if sentence := behind(run, rules, each.effective_at):
                problems.append(sentence)
    return row | {"ok": not problems}, problems


def examined_release(chain: Chain, run: int, coordinator: str = "") -> str:
    """Returns the installed version for a doctor; raises ``Misconfigured`` if a run asks for a newer one."""
    row, problems = look_at_release(chain, run, coordinator)
    if problems:
        raise Misconfigured("; ".join(problems))
    least = row["least_version"]
    return f"{row['version']}, {least} or later is asked for" if least else f"{row['version']}, any is asked for"
