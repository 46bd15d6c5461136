"""``assize run``: rules, open, fund, show, join, announce, close, refund."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Misconfigured
from protocol.node.commands.connection import (
    DEFAULT_RPC,
    Addresses,
    AsJson,
    DryRun,
    KeystoreName,
    PasswordFile,
    RpcUrl,
    address_of,
    carry_out,
    connected,
    new_intent,
    preview,
    report,
    sending,
)
from protocol.node.commands.terms import announce, checked_rules_hash
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from protocol.chain.structs import RunTerms

app = typer.Typer(no_args_is_help=True, help="Open, fund and show runs; join them.")

RunId = Annotated[int, typer.Argument(help="Id of the run.")]
Seconds = Annotated[int, typer.Option(min=1)]


def hash_of(text: str) -> bytes:
    """The 32 bytes of a hash as typed.

    Raises:
        Misconfigured: it is not 64 hex digits.
    """
    try:
        value = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        value = b""
    if len(value) != 32:
        raise Misconfigured(f"{text!r} is not a hash: want 0x and 64 hex digits")
    return value


@app.command("rules")
@guard
def rules(
    source: Annotated[Path, typer.Argument(help="Rules as JSON, in any layout.")],
    out: Annotated[Path, typer.Argument(help="Where the canonical form goes.")],
    as_json: AsJson = False,
) -> None:
    """Write rules in canonical form, whose hash stands on chain."""
    import json

    from pydantic import ValidationError

    from protocol.wire.rules import Rules, encode_rules, rules_hash

    try:
        encoded = encode_rules(Rules.model_validate(json.loads(source.read_bytes())))
        out.write_bytes(encoded)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Misconfigured(
            f"cannot turn {source} into rules: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot turn {source} into rules: {error}") from error
    show({"rules_hash": rules_hash(encoded), "bytes": len(encoded)}, as_json)


@app.command("open")
@guard
def open_run(
    addresses: Addresses,
    keystore: KeystoreName,
    rules_file: Annotated[Path, typer.Option("--rules", help="Canonical rules (assize run rules).")],
    model_root: Annotated[str, typer.Option(help="Manifest root of version 0, the model the run starts from.")],
    coordinator: Annotated[str, typer.Option(help="Address that may open rounds.")],
    trainer: Annotated[str, typer.Option(help="Address that may publish checkpoints.")],
    price_per_unit: Annotated[int, typer.Option(min=0, help="Credits for one verified unit.")],
    juror_fee: Annotated[int, typer.Option(min=0, help="Most credits a juror earns in a round.")],
    max_units: Annotated[int, typer.Option(min=1, help="Most units one job is paid for.")],
    uri: Annotated[str, typer.Option(help="Where rules and manifest are served.")],
    committee: Annotated[int, typer.Option(min=1, max=15, help="Seats, odd.")] = 3,
    appeal_seats: Annotated[int, typer.Option(min=0, max=15, help="0 offers no appeals.")] = 0,
    work_seconds: Seconds = 600,
    draw_seconds: Seconds = 600,
    commit_seconds: Seconds = 600,
    reveal_seconds: Seconds = 600,
    challenge_seconds: Annotated[int, typer.Option(min=0)] = 0,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Open a run."""
    from protocol.chain.structs import RunTerms
    from protocol.chain.writing import actions, calls

    terms = RunTerms(
        *(address_of(coordinator), address_of(trainer), checked_rules_hash(rules_file)),
        *(price_per_unit, juror_fee, max_units, committee, appeal_seats),
        *(work_seconds, draw_seconds, commit_seconds, reveal_seconds, challenge_seconds),
    )
    root = hash_of(model_root)
    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.open_run(sender.chain.deployment, terms, root, uri), as_json)
            return
        event = actions.open_run(sender, terms, root, uri, new_intent("open-run"))
        show({"run": event.run, "requester": event.requester, "rules_hash": event.terms.rules_hash}, as_json)


@app.command("fund")
@guard
def fund(
    run: RunId,
    amount: Annotated[int, typer.Argument(help="Credits; missing ones are bought with tokens.")],
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Lock credits in a run's escrow."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.fund_run(sender.chain.deployment, run, amount), as_json)
            return
        receipt = actions.fund_run(sender, run, amount, new_intent("fund-run"))
        report(receipt, as_json, run=run, amount_wei=amount)


@app.command("show")
@guard
def show_run(
    addresses: Addresses,
    run: Annotated[int | None, typer.Argument(help="Id of the run; all of them if left out.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Show runs: who, at what price, how much escrow."""
    with connected(rpc, addresses) as chain:
        head = chain.head()
        reader = chain.pinned(head)
        ids = [run] if run is not None else range(1, reader.run_count() + 1)
        announced = reader.views("Market", "announcedOf", [(number,) for number in ids])
        rows = [
            {"run": number} | _run_row(value) | {"new_terms_at": at if at > head.timestamp else None}
            for number, value, (_, at) in zip(ids, reader.runs(ids), announced, strict=True)
        ]
    show(rows[0] if run is not None else rows, as_json)


def _run_row(run: object) -> dict[str, object]:
    from protocol.chain.structs import Run

    assert isinstance(run, Run)
    return {
        "requester": run.requester,
        "closed": run.closed,
        "version": run.version,
        "escrow_wei": run.escrow,
        "reserved_wei": run.reserved,
        **_terms_row(run.terms),
    }


def _terms_row(terms: RunTerms) -> dict[str, object]:
    return {
        "coordinator": terms.coordinator,
        "trainer": terms.trainer,
        "rules_hash": terms.rules_hash,
        "price_per_unit_wei": terms.price_per_unit,
        "juror_fee_wei": terms.juror_fee,
        "max_units": terms.max_units,
        "committee": terms.committee,
        "appeals": f"{terms.appeal_seats} seats" if terms.appeal_seats else "not offered",
    }


@app.command("join")
@guard
def join(
    run: RunId,
    node: Annotated[int, typer.Argument(help="Id of the node.")],
    addresses: Addresses,
    keystore: KeystoreName,
    rules_hash: Annotated[
        str | None, typer.Option(help="The rules you have read; else the run's present ones.")
    ] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Consent, for a node, to a run's rules."""
    from protocol.chain.writing import actions, calls

    given = hash_of(rules_hash) if rules_hash else None
    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            present = given or sender.chain.latest().run(run).terms.rules_hash
            preview(sender, calls.join(sender.chain.deployment, run, node, present), as_json)
            return
        receipt = actions.join_run(sender, run, node, new_intent("join"), given)
        report(receipt, as_json, run=run, node=node)


@app.command("refund")
@guard
def refund(
    run: RunId,
    addresses: Addresses,
    keystore: KeystoreName,
    amount: Annotated[int | None, typer.Argument(min=1, help="Credits; all that is not reserved if left out.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Take escrow of a closed run back into your credits."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            wanted = sender.chain.latest().run(run).escrow if amount is None else amount
            preview(sender, calls.refund_run(sender.chain.deployment, run, wanted), as_json)
            return
        event = actions.refund_run(sender, run, amount, new_intent("refund-run"))
        show({"run": event.run, "amount_wei": event.amount, "escrow_wei": event.escrow}, as_json)


@app.command("close")
@guard
def close(
    run: RunId,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """End a run: no new rounds; those open run to their end."""
    from protocol.chain.writing import calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        carry_out(sender, calls.close_run(sender.chain.deployment, run), "close-run", as_json, dry_run, run=run)


app.command("announce")(announce)
