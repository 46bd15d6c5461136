"""The ``assize`` command. Each part is imported only when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from protocol.garbage import collect_seldom_while_loading

if TYPE_CHECKING:
    import typer

PARTS: dict[str, tuple[str, str, str]] = {
    "localnet": ("deploy.localnet.commands", "localnet", "The whole market on this machine: run, up, status, down."),
    "join": ("protocol.node.commands.joining.command", "app", "Join a run as a worker or validator, from nothing."),
    "network": ("protocol.node.commands.network", "app", "Name networks in the profile; choose the default one."),
    "config": ("protocol.node.commands.config", "app", "Show every setting, and where it comes from."),
    "wallet": ("protocol.node.commands.wallet", "app", "Make, import and list keys; show balances; take test tokens."),
    "node": ("protocol.node.commands.node", "app", "Register, list and retire nodes; rotate and revoke their keys."),
    "stake": ("protocol.node.commands.stake", "app", "Add to a node's bond, or withdraw it."),
    "run": ("protocol.node.commands.run", "app", "Open, fund, change, close and show runs; join them."),
    "tasks": ("deploy.tasks.commands", "app", "Build, show, measure and try a run's tasks."),
    "appeal": ("protocol.node.commands.appeal", "app", "Appeal against verdicts, list and show appeals."),
    "traps": ("protocol.node.commands.traps", "app", "Plant faults in own work, to find jurors that do not look."),
    "receipts": ("protocol.node.commands.receipts", "app", "Collect stores' receipts and refusals; check them."),
    "weights": ("protocol.node.commands.weights", "app", "Fetch versions of a run's model, checked against the chain."),
    "credits": ("protocol.node.commands.credits", "app", "Buy, show and redeem credits."),
    "contracts": ("protocol.node.commands.contracts.command", "app", "Deploy the contracts, verify and run them."),
    "send": ("protocol.node.commands.send", "send", "Send a transaction that was signed elsewhere."),
    "notices": ("protocol.node.commands.notices", "app", "Messages about own nodes, credits and runs."),
    "coordinator": ("coordinator.commands", "app", "Assign jobs, take uploads, drive rounds."),
    "worker": ("worker.commands", "app", "Generate rollouts and earn credits."),
    "validator": ("validator.commands", "app", "Judge rollouts and vote."),
    "recheck": ("validator.recheck.commands", "app", "Check a share of decided jobs again, and appeal."),
    "trainer": ("trainer.commands", "app", "Train on accepted rollouts, publish weights; make the built-in model."),
    "relay": ("protocol.node.commands.relay", "app", "Relay verified weights."),
    "ledger": ("ledger.commands.app", "app", "Rebuild and audit everything from the chain alone."),
    "zoo": ("deploy.zoo.commands", "app", "Put a cheating worker of your own before the judge."),
    "doctor": ("protocol.node.commands.examining", "doctor", "Examine every role that is set up here."),
    "support": ("protocol.node.commands.support", "app", "Pack what somebody who helps needs to see, without secrets."),
    "health": ("protocol.node.commands.health", "health", "Check that one service runs, for supervisors."),
    "version": ("ledger.commands.version", "version", "Print the version and the hash of the explorer's check."),
    "update": ("protocol.node.updating.command", "update", "Install another version, with no round lost on the way."),
    "completion": ("protocol.node.commands.completion", "completion", "Print a script for completion in a shell."),
}
"""Name to (module, attribute, summary); the attribute is an app of commands, or one command."""


BORROWED: dict[str, tuple[tuple[str, str], ...]] = {
    "credits": (("ledger.commands.statement", "app"),),
    "ledger": (("trainer.rewards_audit", "app"),),
    "worker": (("deploy.rehearsal", "app"),),
    "run": (("worker.trying", "app"), ("ledger.commands.requester", "app"), ("deploy.runs.commands", "app")),
}
"""Part to the modules with commands that are also part of it, as (module, attribute)."""


def front_door(arguments: Sequence[str]) -> typer.Typer:
    """Returns the app with every part listed, and only the called part loaded."""
    import typer

    from protocol.node.usage import SentenceGroup

    app = typer.Typer(
        name="assize",
        cls=SentenceGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="A compute marketplace for decentralised reinforcement learning.",
    )
    app.callback()(lambda: None)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module, attribute, summary) in PARTS.items():
        part = _loaded(name, module, attribute) if name == called else _closed(summary)
        if isinstance(part, typer.Typer):
            app.add_typer(part, name=name, help=summary)
        else:
            app.command(name)(part)
    return app


def _closed(summary: str) -> typer.Typer:
    """Returns a part that was not called, for the list of parts."""
    import typer

    part = typer.Typer(help=summary)
    part.callback()(lambda: None)
    return part


def _loaded(name: str, module: str, attribute: str) -> typer.Typer | Callable[..., object]:
    """Imports a part, an app with what it borrows or one command, which then takes defaults from the profile."""
    import typer

    from protocol.node.commands.profiled import add_network_options, profiled

    part: typer.Typer | Callable[..., object] = getattr(importlib.import_module(module), attribute)
    if not isinstance(part, typer.Typer):
        return profiled(part, name)
    for place, borrowed in BORROWED.get(name, ()):
        part.add_typer(getattr(importlib.import_module(place), borrowed))
    add_network_options(part, name)
    return part


def completed_words() -> list[str]:
    """Returns the words of the line that a shell wants completed, without the program's; usually none."""
    if "_ASSIZE_COMPLETE" not in os.environ:
        return []
    import shlex

    from typer.completion import completion_init

    completion_init()
    line = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)[1:]
    except ValueError:  # a quote that is still open
        return line.split()[1:]


def interrupted(*_: Any) -> None:
    """Ends the process at once, as an import that is interrupted may swallow an exception."""
    os.write(2, b"assize: interrupted: nothing was done\n")
    os._exit(130)


def main() -> None:
    """Runs the command line."""
    collect_seldom_while_loading()
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a shell has it ignored
    if heard:
        signal.signal(signal.SIGINT, interrupted)
    app = front_door(sys.argv[1:] or completed_words())
    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
