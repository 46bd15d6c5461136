"""``assize join``: from nothing to a working node: keys, gas, bond, the run's rules, profile, doctor, daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Misconfigured
from protocol.node.commands.asking import Questions, refuse_unseen_figures
from protocol.node.commands.connection import AsJson, FeeCap, PasswordFile
from protocol.node.console import EXIT_INTERRUPTED, guard, note
from protocol.node.membership import JoinOptions
from protocol.node.profile import NETWORK_VARIABLE, Profile, ProfileNetwork, writable
from protocol.node.profile_edit import set_network

app = typer.Typer(help="Join a run as a worker or validator, from nothing: asks, shows the figures, does it, starts.")

NetworkChoice = Annotated[
    str | None, typer.Option("--network", envvar=NETWORK_VARIABLE, help="Network of the profile.")
]
RunChoice = Annotated[int | None, typer.Option("--run", help="Run to join; else the only open one, or asked for.")]
WalletName = Annotated[
    str | None, typer.Option("--wallet", help="Keystore of the owner, who posts the bond; made if it is missing.")
]
KeyName = Annotated[
    str | None, typer.Option("--key", help="Keystore of the session key, made if missing; else WALLET-ROLE.")
]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; else as in the profile, else cpu.")]
StateDir = Annotated[
    Path | None, typer.Option("--state-dir", help="State folder; else the profile's, else one beside it.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Take the defaults and agree to the figures; asks nothing.")]
NoStart = Annotated[bool, typer.Option("--no-start", help="Leave the daemon to `assize ROLE run`.")]


ROLES = ("worker", "validator")


def _role(answer: str) -> None:
    if answer not in ROLES:
        raise Misconfigured(f"unknown role {answer!r}: expected one of {', '.join(ROLES)}")


@app.callback(invoke_without_command=True)
@guard
def join(context: typer.Context, yes: Yes = False) -> None:
    """Join a run, from nothing to a working node. Typed again after any interruption, it goes on where it stopped."""
    if context.invoked_subcommand is None:
        role = Questions(yes).answer(
            None, "role, worker or validator", "`join worker` or `join validator`", None, _role
        )
        carry_out(role, JoinOptions(yes=yes))


@app.command("worker")
@guard
def join_worker(
    network: NetworkChoice = None,
    run: RunChoice = None,
    wallet: WalletName = None,
    key: KeyName = None,
    password_file: PasswordFile = None,
    capacity: Annotated[int | None, typer.Option(min=1, help="Most jobs in flight; the bond grows with it.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine that generates (see: assize worker engines).")] = None,
    device: Device = None,
    state_dir: StateDir = None,
    fee_cap_gwei: FeeCap = None,
    yes: Yes = False,
    no_start: NoStart = False,
    as_json: AsJson = False,
) -> None:
    """Generate rollouts for a run: bond, register, join, write the profile, examine, start."""
    common = JoinOptions(network, run, wallet, key, password_file, state_dir, fee_cap_gwei, yes, no_start, as_json)
    carry_out("worker", replace(common, capacity=capacity, engine=engine, device=device))


@app.command("validator")
@guard
def join_validator(
    network: NetworkChoice = None,
    run: RunChoice = None,
    wallet: WalletName = None,
    key: KeyName = None,
    password_file: PasswordFile = None,
    margin: Annotated[str | None, typer.Option(help="Tokens above the bond; below the bond no seat is drawn.")] = None,
    device: Device = None,
    state_dir: StateDir = None,
    fee_cap_gwei: FeeCap = None,
    yes: Yes = False,
    no_start: NoStart = False,
    as_json: AsJson = False,
) -> None:
    """Judge a run's rollouts: bond with a margin, register, join, write the profile, examine, start."""
    common = JoinOptions(network, run, wallet, key, password_file, state_dir, fee_cap_gwei, yes, no_start, as_json)
    carry_out("validator", replace(common, margin=margin, device=device))


def carry_out(role: str, options: JoinOptions) -> None:
    """Joins as ``role``; an interruption says that the same command goes on."""
    from protocol.chain.reading.client import Chain
    from protocol.node.commands.joining.joining import Joining

    refuse_unseen_figures(options.as_json, options.yes)
    try:
        path, ask = writable(), Questions(options.yes)
        network = choose_network(path, options.network, ask)
        with Chain.connect(network.rpc, network.addresses) as chain:
            joining = Joining(role, options, Profile.read(path), network, chain, ask)
            node, password = joining.carry_out()
            if not options.no_start:
                joining.start(node, password)
    except (KeyboardInterrupt, typer.Abort) as stopped:
        note(f"{str(stopped) or 'stopped'}; type the same command again, and it goes on where it stopped")
        raise SystemExit(EXIT_INTERRUPTED) from None


def choose_network(path: Path, name: str | None, ask: Questions) -> ProfileNetwork:
    """Returns the network to join on; asks which where the profile names several, and for one where it names none.

    Raises:
        Misconfigured: the profile does not name it, or names none and nobody is there to ask.
        Unavailable: no RPC answers at the URL that was typed, which is not kept then.
    """
    from protocol.chain.reading.client import Chain

    profile = Profile.read(path)
    if not profile.networks and name is None and not ask.yes:
        name = ask.answer(None, "name for the network", "`assize network add`", "main")
        addresses = ask.answer(None, "address file of its contracts", "`assize network add`", None)
        rpc = ask.answer(None, "URL of its RPC endpoint", "`assize network add`", None)
        with Chain.connect(rpc, Path(addresses)):
            profile = set_network(path, name, rpc, Path(addresses))
    if not profile.networks:
        raise Misconfigured(
            f"no network is known in {path}: add one with: assize network add NAME --addresses FILE --rpc URL; "
            "`assize localnet up` adds its own"
        )
    several = len(profile.networks) > 1 or profile.default is None
    chosen = ask.answer(name, "network", "--network NAME", profile.default) if several else name
    network = profile.network(chosen)
    assert network is not None
    return network
