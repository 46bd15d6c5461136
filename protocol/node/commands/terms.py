"""New terms of a run: ``assize run announce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.amounts import wei_of
from protocol.errors import accessing
from protocol.node.commands.connection import address_of
from protocol.node.commands.transaction import Planned, transaction
from protocol.node.console import picked

if TYPE_CHECKING:
    from protocol.chain.writing.sender import Sender


def checked_rules_hash(rules_file: Path) -> bytes:
    """Returns the hash of a run's rules in canonical form.

    Raises:
        Misconfigured: the file cannot be read.
        Rejected: the file does not hold canonical rules, or they pin no checkpoint.
    """
    from protocol.wire.rules import decode_rules, rules_hash

    with accessing(f"read the rules {rules_file}"):
        encoded = rules_file.read_bytes()
    digest = rules_hash(encoded)
    decode_rules(encoded, digest)
    return digest


Price = Annotated[str, typer.Option(metavar="AMOUNT", help="Pay for one verified unit, such as 1000000000wei.")]
JurorFee = Annotated[str, typer.Option(metavar="AMOUNT", help="Most that a juror earns in a round, such as 0.5.")]
RunId = Annotated[int, typer.Argument(help="Id of the run.")]


@transaction("announce")
def announce(
    sender: Sender,
    run: RunId,
    rules_file: Annotated[Path, typer.Option("--rules", help="File of canonical rules that the run never had.")],
    coordinator: Annotated[str | None, typer.Option(help="Address that may open rounds.")] = None,
    trainer: Annotated[str | None, typer.Option(help="Address that may publish checkpoints.")] = None,
    price_per_unit: Price | None = None,
    juror_fee: JurorFee | None = None,
    max_units: Annotated[int | None, typer.Option(min=1, help="Most units one job is paid for.")] = None,
    committee: Annotated[int | None, typer.Option(min=1, max=15, help="Seats of a committee, an odd number.")] = None,
    appeal_seats: Annotated[
        int | None, typer.Option(min=0, max=15, help="Seats of an appeal's committee; 0 offers no appeals.")
    ] = None,
    challenge_seconds: Annotated[int | None, typer.Option(min=0, help="Time to appeal against a verdict.")] = None,
) -> Planned:
    """Announce new terms, in effect after notice. Omitted terms stay, and every node has to join again."""
    from dataclasses import replace

    from protocol.chain.writing import actions

    given: dict[str, Any] = {
        "coordinator": address_of(coordinator) if coordinator else None,
        "trainer": address_of(trainer) if trainer else None,
        "rules_hash": checked_rules_hash(rules_file),
        "price_per_unit": wei_of(price_per_unit) if price_per_unit else None,
        "juror_fee": wei_of(juror_fee) if juror_fee else None,
        "max_units": max_units,
        "committee": committee,
        "appeal_seats": appeal_seats,
        "challenge_seconds": challenge_seconds,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    plan = actions.announce_terms(sender, run, replace(sender.chain.latest().run(run).terms, **changed))
    return plan, lambda event: picked(event, "run", "effective_at") | picked(event.terms, "rules_hash")
