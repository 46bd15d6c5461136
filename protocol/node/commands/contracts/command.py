"""``assize contracts``: deploy, verify, show, terms, pause, unpause, treasury, pauser, hand-over, accept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import coin
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import (
    DEFAULT_RPC,
    Addresses,
    AsJson,
    KeystoreName,
    PasswordFile,
    RpcUrl,
    address_of,
    connected,
    opened,
    owner_of,
)
from protocol.node.commands.transaction import Planned, Row, mined, transaction, view
from protocol.node.console import guard, note, show
from protocol.times import clock

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.deploying import Deploying, DeploymentPlan
    from protocol.chain.writing.plans import Plan
    from protocol.chain.writing.receipts import Receipt
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Deploy the contracts onto a network, verify and administrate them.")
terms = typer.Typer(no_args_is_help=True, help="Terms that a deployment fixes for good.")
app.add_typer(terms, name="terms")

AddressArgument = Annotated[str, typer.Argument(metavar="ADDRESS", help="0x and 40 hex digits.")]
TermsPath = Annotated[Path, typer.Option("--terms", help="Terms file, as: assize contracts terms show.")]
JOURNAL_SUFFIX = ".unfinished"
"""Suffix of the file beside the address file that a deployment keeps until it is done."""


def finality_of(text: str) -> int | None:
    """Returns blocks until finality as typed; None for the node's ``finalized`` tag.

    Raises:
        Misconfigured: the text is neither.
    """
    from protocol.chain.deployment import FINALIZED

    if text == FINALIZED:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Misconfigured(f"invalid --finality {text!r}: expected a number of blocks, or {FINALIZED}")
    return int(text)


@app.command("deploy")
@guard
def deploy_(
    terms_file: TermsPath,
    keystore: KeystoreName,
    treasury: Annotated[str, typer.Option(help="Receiver of slashed bonds: an address, or a keystore.")],
    out: Annotated[Path, typer.Option(help="Address file to write; it must not exist.")],
    rpc: RpcUrl = DEFAULT_RPC,
    admin: Annotated[str | None, typer.Option(help="First admin and pauser, likewise; else the deployer.")] = None,
    finality: Annotated[
        str, typer.Option(metavar="BLOCKS|finalized", help="Blocks after which one is final, or the node's own tag.")
    ] = "64",
    password_file: PasswordFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show addresses and most cost, and send nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deploy a set of contracts. Type the same command again to go on after an interruption."""
    from protocol.chain.writing.deploying import Deploying
    from protocol.node.commands.contracts.terms_file import read_terms

    if out.exists():
        raise Misconfigured(f"{out} exists: a deployment is written to a new address file, give another --out")
    wanted, depth = read_terms(terms_file), finality_of(finality)
    receiver, first = owner_of(treasury), owner_of(admin) if admin else None
    wallet = opened(keystore, password_file)
    with closing(Deploying(rpc, out.with_name(out.name + JOURNAL_SUFFIX), note)) as deploying:
        plan = deploying.plan(wallet.address, wanted, receiver, first or wallet.address, depth)
        if dry_run:
            _show_costs(deploying, plan, as_json)
            return
        _check_money(deploying, plan)
        deployment = deploying.carry_out(plan, wallet, depth)
    deployment.save(out)
    deploying.finish()
    show({"addresses": str(out), "chain_id": deployment.chain_id, **deployment.identity()["contracts"]}, as_json)


def _show_costs(deploying: Deploying, plan: DeploymentPlan, as_json: bool) -> None:
    costs = deploying.costs(plan)
    rows: list[Row] = [
        {
            "contract": each.contract,
            "address": each.address,
            "most_gas": each.gas,
            "most_cost": coin(each.wei),
            **({"data_fee": coin(each.data_wei)} if each.data_wei else {}),
        }
        for each in costs
    ]
    show(rows, as_json, f"From {plan.deployer}, nonce {plan.nonce}")
    if not as_json:
        whole = sum(each.wei + each.data_wei for each in costs)
        note(f"at most {coin(whole)} in all; {plan.deployer} has {coin(deploying.balance(plan.deployer))}")


def _check_money(deploying: Deploying, plan: DeploymentPlan) -> None:
    need = sum(each.wei + each.data_wei for each in deploying.costs(plan))
    if (have := deploying.balance(plan.deployer)) < need:
        raise Rejected(f"{plan.deployer} has {coin(have)}, deploying takes up to {coin(need)}: send it the difference")


@app.command("verify")
@guard
def verify(
    addresses: Addresses,
    rpc: RpcUrl = DEFAULT_RPC,
    terms_file: Annotated[Path | None, typer.Option("--terms", help="Terms file that the contracts must have.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare code, constructors' arguments, references and terms with this repository; exit 1 if any differs."""
    from dataclasses import asdict

    from protocol.node.commands.contracts.terms_file import read_terms
    from protocol.node.commands.contracts.verifying import verify_contracts

    wanted = read_terms(terms_file) if terms_file else None
    with connected(rpc, addresses) as chain:
        found = list(verify_contracts(chain, wanted))
    faulty = [each for each in found if each.fault]
    rows: list[Row] = [asdict(each) | {"fault": each.fault or "none"} for each in found]
    show(rows, as_json, "Contracts beside this repository")
    if faulty:
        raise typer.Exit(1)


@terms.command("show")
@guard
def show_terms(addresses: Addresses, rpc: RpcUrl = DEFAULT_RPC, as_json: AsJson = False) -> None:
    """Print a deployment's terms as a terms file."""
    from protocol.node.commands.contracts.terms_file import terms_rows, terms_toml
    from protocol.node.commands.contracts.verifying import deployed_terms

    with connected(rpc, addresses) as chain:
        held = deployed_terms(chain)
    if as_json:
        show(terms_rows(held), True)
    else:
        print(terms_toml(held), end="")


@app.command("pause")
@transaction("pause")
def pause(sender: Sender) -> Planned:
    """Stop new rounds, as a pauser. What is under way goes on, and anyone can still withdraw and redeem."""
    return _of_admin(sender, "pause"), mined(paused=True)


@app.command("unpause")
@transaction("unpause")
def unpause(sender: Sender) -> Planned:
    """Allow new rounds again, as a pauser or the admin."""
    return _of_admin(sender, "unpause"), mined(paused=False)


@app.command("treasury")
@transaction("treasury")
def set_treasury(sender: Sender, receiver: AddressArgument) -> Planned:
    """Name the receiver of slashed bonds, as the admin."""
    address = address_of(receiver)
    return _of_admin(sender, "setTreasury", address), mined(treasury=address)


@app.command("pauser")
@transaction("pauser")
def set_pauser(
    sender: Sender,
    pauser: AddressArgument,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the role from it instead.")] = False,
) -> Planned:
    """Let an address pause new rounds, as the admin."""
    address, role = address_of(pauser), sender.chain.latest().view("Admin", "PAUSER")
    return _of_admin(sender, "revokeRole" if revoke else "grantRole", role, address), mined(
        pauser=address, held=not revoke
    )


@app.command("hand-over")
@transaction("hand-over")
def hand_over(
    sender: Sender,
    to: Annotated[str | None, typer.Argument(metavar="ADDRESS", help="The next admin.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back a hand-over that is not accepted yet.")] = False,
) -> Planned:
    """Begin to hand the administration over, as the admin; the next one accepts it after the deployment's delay."""
    if cancel == (to is not None):
        raise Misconfigured("give either the next admin's address or --cancel")
    if to is None:
        return _of_admin(sender, "cancelDefaultAdminTransfer"), mined(next_admin=None)
    address = address_of(to)
    delay = sender.chain.latest().view("Admin", "defaultAdminDelay")
    return _of_admin(sender, "beginDefaultAdminTransfer", address), mined(
        next_admin=address, accepted_after_seconds=delay
    )


@app.command("accept")
@transaction("accept")
def accept(sender: Sender) -> Planned:
    """Accept the administration, as the address that it is handed over to, after the delay."""
    next_admin, due = sender.chain.latest().view("Admin", "pendingDefaultAdmin")
    if next_admin != sender.address:
        raise Rejected(f"the administration is not handed over to {sender.address}")
    if due >= sender.chain.head().timestamp:
        raise Rejected(f"the administration can be accepted after {clock(due)}")
    return _of_admin(sender, "acceptDefaultAdminTransfer"), mined(admin=sender.address)


def _of_admin(sender: Sender, function: str, *arguments: object) -> Plan[Receipt]:
    """Returns the plan of one call of ``Admin``; a caller without the role gets a sentence."""
    from protocol.chain.writing import calls
    from protocol.chain.writing.plans import Plan

    refusal = Rejected(f"{sender.address} may not {function}: see who may with: assize contracts show")
    unauthorized = "AccessControlUnauthorizedAccount"
    call = calls.call(sender.chain.deployment, "Admin", function, *arguments)
    return Plan(sender, (call,), lambda receipt: receipt, {unauthorized: refusal})


@app.command("show")
@view
def show_administration(chain: Chain) -> dict[str, object]:
    """Show who administrates the contracts, where slashes go, and whether new rounds are paused."""
    reader = chain.latest()
    next_admin, due = reader.view("Admin", "pendingDefaultAdmin")
    shown = {
        "admin": reader.view("Admin", "defaultAdmin"),
        "treasury": reader.view("Admin", "treasury"),
        "paused": reader.view("Admin", "paused"),
    }
    return shown | ({"next_admin": next_admin, "accepted_after": due} if due else {})
