"""Commands that read the chain and commands that send: decorators that add the options each kind shares."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from protocol.node.commands import connection
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from protocol.chain.writing.plans import Plan
    from protocol.chain.writing.receipts import Receipt

Row = Mapping[str, Any]
Planned = tuple["Plan[Any]", Callable[[Any], Row]]
"""A plan, and how its answer is shown."""

TYPES_ONLY = dict.fromkeys(("Sender", "Chain"))
"""Annotations of a command's first parameter; not imported, so that ``--help`` does not load the chain's code."""


def _option(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


READING = (
    _option("addresses", connection.Addresses),
    _option("rpc", connection.RpcUrl, connection.DEFAULT_RPC),
    _option("as_json", connection.AsJson, False),
)
SENDING = (
    _option("password_file", connection.PasswordFile, None),
    _option("fee_cap_gwei", connection.FeeCap, None),
    _option("dry_run", connection.DryRun, False),
)


def view(function: Callable[..., Sequence[Row] | Row]) -> Callable[..., None]:
    """Turns a function of a ``Chain`` and options of its own, which returns rows, into a command that shows them."""
    own = _own_options(function)

    def command(**given: Any) -> None:
        with connection.connected(given["rpc"], given["addresses"]) as chain:
            rows = function(chain, **{name: given[name] for name in own})
        show(rows, given["as_json"])

    return _command(command, function, (*own.values(), *READING))


def transaction(
    verb: str, key: Any = connection.KeystoreName
) -> Callable[[Callable[..., Planned]], Callable[..., None]]:
    """Turns a function of a ``Sender`` and options of its own, which plans, into a command that carries the plan out.

    With ``--dry-run`` the command simulates the same plan. A function that names a shared option is given its value.

    Args:
        verb: names the intent in the sender's journal.
        key: the option that names the keystore to sign with.
    """

    def decorate(function: Callable[..., Planned]) -> Callable[..., None]:
        own = _own_options(function)

        def command(**given: Any) -> None:
            place = given["rpc"], given["addresses"], given["keystore"], given["password_file"], given["fee_cap_gwei"]
            with connection.sending(*place) as sender:
                plan, row = function(sender, **{name: given[name] for name in own})
                # A new intent each time: typing a command again means it again.
                shown = _preview(plan) if given["dry_run"] else row(plan.carry_out(f"{verb}/{secrets.token_hex(8)}"))
                show(shown, given["as_json"])

        return _command(command, function, (*own.values(), _option("keystore", key), *READING, *SENDING))

    return decorate


def mined(**details: Any) -> Callable[[Receipt], Row]:
    """Returns how a receipt is shown: the details given, then the transaction."""
    return lambda receipt: details | {"tx_hash": receipt.tx_hash, "block": receipt.block_number, "fee_wei": receipt.fee}


def _preview(plan: Plan[Any]) -> Row:
    """Shows the first call as simulated, and names the others: they can only succeed after it."""
    run = plan.dry_run()
    shown = {
        "would_call": run.first.description,
        "to": run.first.to,
        "from": plan.sender.address,
        "calldata": run.first.data,
        "gas": run.simulation.gas,
        "most_cost_wei": run.simulation.max_cost,
    }
    then = ", then ".join(call.description for call in run.then)
    return shown | ({"then": then} if then else {})


def _own_options(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function after its first, which the decorator provides."""
    _, *own = inspect.signature(function, locals=TYPES_ONLY, eval_str=True).parameters.values()
    return {each.name: each.replace(kind=Parameter.KEYWORD_ONLY) for each in own}


def _command(
    command: Callable[..., None], function: Callable[..., Any], options: Sequence[Parameter]
) -> Callable[..., None]:
    """Gives a command the name and help of ``function``, and options for Typer to read: the first of each name."""
    named = {option.name: option for option in reversed(options)}
    guarded = guard(command)
    guarded.__name__, guarded.__doc__ = function.__name__, function.__doc__
    guarded.__annotations__ = {name: option.annotation for name, option in named.items()}
    vars(guarded)["__signature__"] = inspect.Signature(list(reversed(named.values())))
    return guarded
