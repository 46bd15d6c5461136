"""Costs of a run as tables, JSON and CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from ledger.queries.run_costs import ProviderCost, RunCosts
from protocol.amounts import UNIT, digits_of, rounded
from protocol.errors import Misconfigured
from protocol.node.console import show
from protocol.times import clock, spell

SHOWN_VERSIONS = 10
"""Versions that a terminal shows, the newest; JSON has all."""
VERDICTS = ("accepted", "void", "fraud", "unavailable")
CSV_COLUMNS = (
    *("owner", "node", "role", *(f"jobs {verdict}" for verdict in VERDICTS), "seats", "units"),
    *(f"paid {UNIT}", f"slashed {UNIT}"),
)


def costs_json(costs: RunCosts, block: int, tokens: int | None) -> str:
    """Returns the costs up to ``block`` as JSON on one line, amounts in wei."""
    told = TypeAdapter(RunCosts).dump_python(costs, mode="json")
    means = {"a_version": costs.a_version, "a_thousand_tokens": a_thousand_tokens(costs, tokens)}
    shown = {name: None if wei is None else str(wei) for name, wei in means.items()}
    return json.dumps(told | shown | {"block_number": block})


def show_costs(costs: RunCosts, now: int, tokens: int | None) -> None:
    """Prints the costs at the unix second ``now``."""
    show(money_rows(costs, now, tokens), False, f"Run {costs.run}")
    if not costs.providers:
        print("no node has worked or judged in it yet")
        return
    show([provider_row(one) for one in costs.providers], False, f"Providers, amounts in {UNIT}")
    shown = [
        {
            "version": each.version,
            "published_at": each.timestamp,
            "jobs": each.jobs,
            "versions behind": f"{each.staleness:.1f}",
            "paid": rounded(each.paid),
        }
        for each in costs.versions[-SHOWN_VERSIONS:]
    ]
    if shown:
        show(shown, False, f"Newest {len(shown)} of {len(costs.versions)} versions, paid for their jobs in {UNIT}")


def a_thousand_tokens(costs: RunCosts, tokens: int | None) -> int | None:
    """Returns the cost of a thousand tokens trained on, in wei; None where nobody told how many there were. PURE."""
    return costs.spent * 1000 // tokens if tokens else None


def money_rows(costs: RunCosts, now: int, tokens: int | None) -> dict[str, str]:
    """Returns the run's money as names and values for people. PURE."""
    share = f", {100 * costs.fees // costs.spent} % of it juror fees" if costs.spent else ""
    rows = {
        "requester": costs.requester,
        "open": f"since {clock(costs.opened_at)}, {spell(now - costs.opened_at)}{', closed' if costs.closed else ''}",
        "funded": f"{digits_of(costs.funded)} {UNIT}",
        "spent": f"{digits_of(costs.spent)} {UNIT}{share}",
        "for work": f"{digits_of(costs.work)} {UNIT}",
        "for judging": f"{digits_of(costs.fees)} {UNIT}",
        "refunded": f"{digits_of(costs.refunded)} {UNIT}",
        "escrow left": f"{digits_of(costs.escrow)} {UNIT}, and {digits_of(costs.reserved)} {UNIT} reserved",
        "slashed in its rounds": f"{digits_of(costs.slashed)} {UNIT}, {digits_of(costs.awarded)} {UNIT} of it awarded",
        "versions": f"{len(costs.versions)}, newest {costs.version}",
    }
    if costs.trapped or costs.trap_deposits:
        rows["traps"] = f"{digits_of(costs.trapped)} {UNIT}, and {digits_of(costs.trap_deposits)} {UNIT} deposited"
    if costs.a_version is not None:
        rows["cost a version"] = f"{rounded(costs.a_version)} {UNIT}"
    if costs.units:
        rows["cost a teraflop"] = f"{rounded(costs.spent * 10**12 // costs.units)} {UNIT}, of accepted work"
    if (thousand := a_thousand_tokens(costs, tokens)) is not None:
        rows["cost a thousand tokens"] = f"{rounded(thousand)} {UNIT}, trained on {tokens:,}"
    return rows


def provider_row(one: ProviderCost) -> dict[str, object]:
    """Returns a provider as a row of a table. PURE."""
    counts = ((verdict, getattr(one, verdict)) for verdict in VERDICTS)
    work = "  ".join(f"{verdict} {count}" for verdict, count in counts if count)
    return {
        "node": one.node,
        "role": one.role,
        "owner": one.owner,
        "work": work if one.role == "worker" else f"{one.seats} seats",
        "paid": rounded(one.paid),
        "slashed": rounded(one.slashed) if one.slashed else "",
    }


def write_csv(out: Path, costs: RunCosts) -> None:
    """Writes a line for each provider to a file that does not exist yet."""
    try:
        with out.open("x", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(CSV_COLUMNS)
            for one in costs.providers:
                row = asdict(one)
                plain = {name: digits_of(row[name]).replace(",", "") for name in ("paid", "slashed")}
                writer.writerow((row | plain).values())
    except FileExistsError:
        raise Misconfigured(f"{out} exists: give another file") from None
    except OSError as error:
        raise Misconfigured(f"cannot write {out}: {error.strerror}") from error
