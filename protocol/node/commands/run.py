"""``assize run``: rules, root, open, fund, show, join, leave, announce, close, refund."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import ALL, positive_wei, wei_of
from protocol.errors import Misconfigured
from protocol.node.commands.connection import Amount, AmountOrAll, AsJson, address_of
from protocol.node.commands.terms import JurorFee, Price, RunId, announce, checked_rules_hash
from protocol.node.commands.transaction import Planned, mined, transaction, view
from protocol.node.console import guard, picked, show

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.structs import Run, RunTerms
    from protocol.chain.writing.sender import Sender
    from protocol.wire.rules import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="Open, fund, change, close and show runs; join and leave them.")

Seconds = Annotated[int, typer.Option(min=1, help="Length of this phase of a round.")]


def hash_of(text: str) -> bytes:
    """Returns the 32 bytes of a hash as typed.

    Raises:
        Misconfigured: the text is not 64 hex digits.
    """
    try:
        value = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        value = b""
    if len(value) != 32:
        raise Misconfigured(f"invalid hash {text!r}: expected 0x and 64 hex digits")
    return value


@app.command("rules")
@guard
def rules(
    source: Annotated[Path, typer.Argument(help="Rules as JSON, in any layout.")],
    out: Annotated[Path, typer.Argument(help="File to write the canonical rules to.")],
    model: Annotated[
        Path | None, typer.Option(help="Model the run starts from; the rules pin its files for every version.")
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(help="Store of artifacts as ADDRESS=URL: its key and its base URL. Give it once for each store."),
    ] = None,
    receipts: Annotated[int, typer.Option(min=1, help="Stores of which a submission needs a receipt.")] = 2,
    least_version: Annotated[
        str | None, typer.Option(help="Oldest version of this software that may serve or judge, such as 0.3.1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write rules in canonical form. The chain holds their hash."""
    import json

    from protocol.wire.canonical import validating
    from protocol.wire.rules import Rules, encode_rules, rules_hash, with_checkpoint, with_least_version, with_stores

    try:
        with validating(f"cannot turn {source} into rules", Misconfigured):
            read = Rules.model_validate(json.loads(source.read_bytes()))
        if store:
            read = with_stores(read, [_store(text) for text in store], receipts)
        if least_version is not None:
            read = with_least_version(read, least_version)
        encoded = encode_rules(read if model is None else with_checkpoint(read, model))
        out.write_bytes(encoded)
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot turn {source} into rules: {error}") from error
    show({"rules_hash": rules_hash(encoded), "bytes": len(encoded)}, as_json)


def _store(text: str) -> ArtifactStore:
    """Returns a store as typed."""
    from protocol.wire.canonical import validating
    from protocol.wire.rules import ArtifactStore

    key, _, url = text.partition("=")
    with validating(f"invalid store {text!r}: expected ADDRESS=URL", Misconfigured):
        return ArtifactStore(key=key, url=url)


@app.command("root")
@guard
def root(
    model: Annotated[Path, typer.Argument(help="Hugging Face directory of the model.")],
    version: Annotated[int, typer.Option(min=0, help="Version of the run that it is.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the manifest root of a model directory, by which a run names each version."""
    from protocol.wire import manifest

    if not (model / "config.json").is_file():
        what = f"no config.json in {model}" if model.is_dir() else f"no directory {model}"
        raise Misconfigured(f"{what}: expected a model as Hugging Face saves it")
    made = manifest.from_directory(model, version)
    show({"model_root": made.root, "version": version, "bytes": sum(file.size for file in made.files)}, as_json)


@app.command("open")
@transaction("open-run")
def open_run(
    sender: Sender,
    file: Annotated[
        Path | None, typer.Option("--file", help="Run file by assize run new; the other options override it.")
    ] = None,
    rules_file: Annotated[
        Path | None, typer.Option("--rules", help="File of canonical rules (see: assize run rules).")
    ] = None,
    model_root: Annotated[str | None, typer.Option(help="Manifest root of version 0 (see: assize run root).")] = None,
    coordinator: Annotated[str | None, typer.Option(help="Address that may open rounds.")] = None,
    trainer: Annotated[str | None, typer.Option(help="Address that may publish checkpoints.")] = None,
    price_per_unit: Price | None = None,
    juror_fee: JurorFee | None = None,
    max_units: Annotated[int | None, typer.Option(min=1, help="Most units one job is paid for.")] = None,
    uri: Annotated[str | None, typer.Option(help="URL of the coordinator, which serves rules and sources.")] = None,
    committee: Annotated[int | None, typer.Option(min=1, max=15, help="Seats of a committee, odd; else 3.")] = None,
    appeal_seats: Annotated[
        int | None, typer.Option(min=0, max=15, help="Seats of an appeal's committee; 0, the default, offers none.")
    ] = None,
    work_seconds: Seconds | None = None,
    draw_seconds: Seconds | None = None,
    commit_seconds: Seconds | None = None,
    reveal_seconds: Seconds | None = None,
    challenge_seconds: Annotated[
        int | None, typer.Option(min=0, help="Time to appeal against a verdict; else 0.")
    ] = None,
) -> Planned:
    """Open a run with its terms and first model, from options or from a run file."""
    from protocol.chain.writing import actions
    from protocol.node.commands.run_file import opening_of

    opening = opening_of(
        file,
        rules_file,
        {"model_root": model_root, "coordinator": coordinator, "trainer": trainer, "uri": uri},
        {
            "price_per_unit": wei_of(price_per_unit) if price_per_unit else None,
            "juror_fee": wei_of(juror_fee) if juror_fee else None,
            "max_units": max_units,
            "committee": committee,
            "appeal_seats": appeal_seats,
            "work_seconds": work_seconds,
            "draw_seconds": draw_seconds,
            "commit_seconds": commit_seconds,
            "reveal_seconds": reveal_seconds,
            "challenge_seconds": challenge_seconds,
        },
    )
    parties = opening.requester
    rules_hash = checked_rules_hash(opening.rules)
    terms = opening.terms.on_chain(address_of(parties.coordinator), address_of(parties.trainer), rules_hash)
    plan = actions.open_run(sender, terms, hash_of(parties.model_root), parties.uri)
    return plan, lambda event: picked(event, "run", "requester") | picked(event.terms, "rules_hash")


@app.command("fund")
@transaction("fund-run")
def fund(
    sender: Sender,
    run: RunId,
    amount: Amount,
) -> Planned:
    """Lock credits in a run's escrow; missing ones are bought with tokens."""
    from protocol.chain.writing import actions

    wei = positive_wei(amount)
    return actions.fund_run(sender, run, wei), mined(run=run, amount_wei=wei)


@app.command("show")
@view
def show_run(
    chain: Chain, run: Annotated[int | None, typer.Argument(help="Id of the run; omitted, all runs.")] = None
) -> list[dict[str, object]] | dict[str, object]:
    """Show runs with their parties, prices and escrow."""
    head = chain.head()
    reader = chain.pinned(head)
    ids = [run] if run is not None else range(1, reader.run_count() + 1)
    announced = reader.views("Market", "announcedOf", [(number,) for number in ids])
    rows = [
        {"run": number} | _run_row(value) | {"new_terms_at": at if at > head.timestamp else None}
        for number, value, (_, at) in zip(ids, reader.runs(ids), announced, strict=True)
    ]
    return rows[0] if run is not None else rows


def _run_row(run: Run) -> dict[str, object]:
    row = picked(run, "requester", "closed", "version", escrow_wei="escrow", reserved_wei="reserved")
    return row | _terms_row(run.terms)


def _terms_row(terms: RunTerms) -> dict[str, object]:
    prices = {"price_per_unit_wei": "price_per_unit", "juror_fee_wei": "juror_fee"}
    row = picked(terms, "coordinator", "trainer", "rules_hash", **prices) | picked(terms, "max_units", "committee")
    return row | {"appeals": f"{terms.appeal_seats} seats" if terms.appeal_seats else "not offered"}


@app.command("join")
@transaction("join")
def join(
    sender: Sender,
    run: RunId,
    node: Annotated[int, typer.Argument(help="Id of the node.")],
    rules_hash: Annotated[str | None, typer.Option(help="Hash of the rules you have read; omitted, any.")] = None,
) -> Planned:
    """Consent to a run's rules for a node."""
    from protocol.chain.writing import actions

    plan = actions.join_run(sender, run, node, hash_of(rules_hash) if rules_hash else None)
    return plan, mined(run=run, node=node)


@app.command("leave")
@transaction("leave")
def leave(sender: Sender, run: RunId, node: Annotated[int, typer.Argument(help="Id of the node.")]) -> Planned:
    """End a node's part in a run's new rounds; for validators of a closed run or of old rules, anyone may."""
    from protocol.chain.writing import calls, plans

    return plans.plan_of(sender, calls.leave(sender.chain.deployment, run, node)), mined(run=run, node=node)


@app.command("refund")
@transaction("refund-run")
def refund(
    sender: Sender,
    run: RunId,
    amount: AmountOrAll = ALL,
) -> Planned:
    """Take unreserved escrow of a closed run back into your credits."""
    from protocol.chain.writing import actions

    plan = actions.refund_run(sender, run, positive_wei(amount, sender.chain.latest().run(run).escrow))
    return plan, lambda event: picked(event, "run", amount_wei="amount", escrow_wei="escrow")


@app.command("close")
@transaction("close-run")
def close(sender: Sender, run: RunId) -> Planned:
    """Close a run: no new rounds are opened, and open ones run to their end."""
    from protocol.chain.writing import calls, plans

    return plans.plan_of(sender, calls.close_run(sender.chain.deployment, run)), mined(run=run)


app.command("announce")(announce)
