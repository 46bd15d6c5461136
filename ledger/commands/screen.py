"""Terminal tables of the ledger. JSON output has the same facts in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.audit.report import Report
from ledger.facts import Appeal, Checkpoint, Credit, Fact, Node, Round, Service, Slash
from ledger.facts.fact import Bitmap, Hex, Wide, annotations_of, hex_bytes
from ledger.queries.fairness import Share
from ledger.queries.lineage import Lineage
from ledger.queries.why import Explanation
from protocol.amounts import UNIT, digits_of
from protocol.node import console

Found = TypeVar("Found")
WIDE_COLUMNS = 180
SHOWN_FINDINGS = 20
"""Findings of one check that a terminal shows; JSON has all that were kept."""


def tell(kind: Any, found: Found, show: Callable[[Found], None], as_json: bool) -> None:
    """Prints what was found, as JSON of ``kind`` or as people read it."""
    if as_json:
        print(TypeAdapter(kind).dump_json(found).decode())
    else:
        show(found)


def screen() -> Console:
    """Returns the console; output to a pipe or file is wide, so that lines stay searchable."""
    return console.screen(WIDE_COLUMNS)


def plain(text: str) -> Text:
    """Returns text that somebody else may have written: it has no markup, and nothing that a terminal acts on."""
    return Text("".join(one if one.isprintable() else repr(one)[1:-1] for one in text))


def say(text: str) -> None:
    """Prints one line as it is."""
    screen().print(plain(text), highlight=False, soft_wrap=True)


def table_of(name: str, kind: type[Fact], facts: Sequence[Any]) -> Table:
    """Returns the table of one kind of facts, which the command ``name`` lists."""
    columns = COLUMNS[kind]
    table = Table(title=f"{name.capitalize()}, amounts in {UNIT}")
    for column in columns:
        table.add_column(column.replace("_", " ") if isinstance(column, str) else column[0], overflow="fold")
    formats = {name: FORMATS.get(annotation, str) for name, annotation in annotations_of(kind).items()}
    for fact in facts:
        cells = (formats[c](getattr(fact, c)) if isinstance(c, str) else str(c[1](fact)) for c in columns)
        table.add_row(*map(plain, cells))
    return table


FORMATS: dict[Any, Callable[[Any], str]] = {Wide: digits_of, Hex: hex_bytes, Bitmap: lambda jobs: str(jobs.bit_count())}
"""Annotation of a field to its form in a table."""


def show_report(report: Report) -> None:
    """Prints an audit: a line for each check, findings beneath, then the verdict."""
    console = screen()
    table = Table("check", "compared", "wrong", "what it shows", title=f"Audit at block {report.block_number}")
    for check in report.checks:
        wrong = f"[red]{check.wrong}[/red]" if check.wrong else "0"
        table.add_row(check.name, str(check.compared), wrong, check.shows)
    console.print(table)
    for check in report.checks:
        for finding in check.findings[:SHOWN_FINDINGS]:
            console.print(Text.assemble((check.name, "red"), " ", plain(str(finding))), highlight=False, soft_wrap=True)
        if check.wrong > SHOWN_FINDINGS:
            console.print(f"[red]{check.name}[/red] and {check.wrong - SHOWN_FINDINGS} more; --json has them")
    verdict = "[green]audit ok[/green]" if report.ok else "[red]audit failed[/red]"
    console.print(
        f"{verdict}: {report.events} events recomputed up to block {report.block_number} ({report.block_hash})"
    )


def show_explanation(explanation: Explanation) -> None:
    """Prints what is explained, then a line for each thing that led to it."""
    say(explanation.subject)
    table = Table("block", "what happened", "transaction", show_lines=True)
    for line in explanation.lines:
        table.add_row(str(line.block_number), plain(line.says), plain(line.tx_hash))
    screen().print(table)


def show_lineage(lineage: Lineage) -> None:
    """Prints the line of checkpoints, and what is amiss in it."""
    console = screen()
    title = f"Version {lineage.version} of run {lineage.run}, and what it stands on"
    table = Table("version", "rounds", "jobs", "by nodes", "accepted by validators", "tainted", "root", title=title)
    for one in lineage.ancestors:
        nodes, jurors = _counts(one.nodes), _counts(one.jurors)
        rounds, root = ", ".join(map(str, one.rounds)), "0x" + one.manifest_root.hex()
        table.add_row(str(one.version), rounds, str(one.jobs), nodes, jurors, str(one.tainted), root)
    console.print(table)
    console.print(*(f"the contracts enforced: {rule}" for rule in lineage.enforced), sep="\n")
    for taint in lineage.taints:
        console.print(f"[red]tainted[/red]: version {taint.version} by job {taint.job} of round {taint.round}")


def _counts(counts: dict[int, int]) -> str:
    return ", ".join(f"{who}: {count}" for who, count in counts.items())


def show_shares(shares: Sequence[Share]) -> None:
    """Prints each worker's share against its due."""
    table = Table(
        "node", "owner", "rounds", "jobs", "expected", "z", "p", "more than chance", title="Shares of the work"
    )
    for one in shares:
        numbers = (str(one.rounds), str(one.jobs), f"{one.expected:.1f}", f"{one.z:+.2f}", f"{one.p:.3g}")
        table.add_row(str(one.node), plain(one.owner), *numbers, "[red]yes[/red]" if one.significant else "no")
    screen().print(table)


def _service(node: Node) -> str:
    if node.withdrawn or node.retired_at:
        return "withdrawn" if node.withdrawn else "retired"
    return "key revoked" if node.revoked else "in service"


Column = str | tuple[str, Callable[[Any], object]]
WHY: Column = ("why", lambda fact: f"{fact.block_number}:{fact.log_index}")
"""The place by which ``assize ledger why`` finds a fact."""

COLUMNS: dict[type[Fact], tuple[Column, ...]] = {
    Credit: (
        *("owner", "balance", "worked", "judged", "bought", "redeemed", "granted"),
        ("in runs", lambda credit: digits_of(credit.locked - credit.unlocked)),
    ),
    Node: ("node", "role", "owner", ("state", _service), "capacity", "in_flight", "bond", "slashed"),
    Round: (
        *(
            "round",
            "run",
            ("step", lambda round_: round_.step),
            ("policy", lambda round_: round_.policy_version),
            "state",
            "jobs",
        ),
        "submitted",
        ("accepted", lambda round_: (round_.accepted & ~round_.fraud).bit_count()),
        ("fraud", lambda round_: (round_.fraud & ~round_.accepted).bit_count()),
        ("trained on", lambda round_: round_.consumed.bit_count()),
        "paid",
    ),
    Checkpoint: ("run", "version", "jobs", "tainted", "manifest_root", ("block", lambda made: made.block_number)),
    Slash: ("round", "node", "owner", "cause", "amount", ("bond left", lambda slash: digits_of(slash.bond)), WHY),
    Appeal: (
        *("appeal", "round", "job", "node", "appellant", "against", "state", "verdict"),
        *("deposit", "fees", "awarded", "forfeited"),
    ),
    Service: (
        *("validator", "owner", "seats", "revealed", "abstained", "silent", "agreed", "absent", "overturned"),
        "paid",
    ),
}
"""Kind of fact to its columns: a field, or a heading and what stands beneath."""
