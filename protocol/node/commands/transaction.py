"""Commands that read the chain and commands that send: decorators that add the options each kind shares."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from protocol.errors import Misconfigured
from protocol.node.commands import connection
from protocol.node.commands.interruption import saying_how_far, tell_what_was_left
from protocol.node.console import guard, note, show

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
    _option("unsigned", connection.Unsigned, False),
    _option("from_", connection.From, None),
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

    With ``--dry-run`` the command simulates the same plan, with ``--unsigned`` it prints the first transaction of it. A
    function that names a shared option is given its value.

    Args:
        verb: names the intent in the sender's journal.
        key: the option that names the keystore to sign with.
    """

    def decorate(function: Callable[..., Planned]) -> Callable[..., None]:
        own, named = _own_options(function), key.__metadata__[0].default  # where Typer keeps the first name

        def command(**given: Any) -> None:
            if given["unsigned"] or given["from_"]:
                _draft(function, own, given)
                return
            if given["keystore"] is None:
                raise Misconfigured(f"no keystore is given: name one with {named}; see them with: assize wallet list")
            place = given["rpc"], given["addresses"], given["keystore"], given["password_file"], given["fee_cap_gwei"]
            with connection.sending(*place, sends=not given["dry_run"]) as sender:
                if not given["dry_run"]:
                    tell_what_was_left(sender)
                plan, row = function(sender, **{name: given[name] for name in own})
                # A new intent each time: typing a command again means it again.
                shown = _preview(plan) if given["dry_run"] else row(_sent(plan, f"{verb}/{secrets.token_hex(8)}"))
                show(shown, given["as_json"])

        return _command(command, function, (*own.values(), _option("keystore", key, None), *READING, *SENDING))

    return decorate


def _sent(plan: Plan[Any], intent: str) -> Any:
    """Carries a plan out; an interrupt or an outage says how far it came."""
    from protocol.chain.writing.sender import Sender

    assert isinstance(plan.sender, Sender)
    with saying_how_far(plan.sender, intent, plan.calls):
        return plan.carry_out(intent)


def _draft(function: Callable[..., Planned], own: Iterable[str], given: Mapping[str, Any]) -> None:
    """Plans for an address without its key: shows the first call as simulated, or as a transaction to sign."""
    if not given["unsigned"] and not given["dry_run"]:
        raise Misconfigured("--from gives an address without its key: add --unsigned or --dry-run, or give --keystore")
    whose = given["from_"] or given["keystore"]
    with connection.drafting(given["rpc"], given["addresses"], whose, given["fee_cap_gwei"]) as account:
        plan, _ = function(account, **{name: True if name == "dry_run" else given[name] for name in own})
        if given["unsigned"]:
            _print_unsigned(plan, given["as_json"])
        else:
            show(_preview(plan), given["as_json"])


def _print_unsigned(plan: Plan[Any], as_json: bool) -> None:
    """Prints the transaction that is due as JSON, and says on stderr what follows it."""
    from protocol.chain.writing.unsigned import unsigned

    drafted = unsigned(plan)
    print(json.dumps(drafted.to_json(), indent=None if as_json else 2))
    if drafted.then:
        then = ", then ".join(call.description for call in drafted.then)
        note(f"once this is mined, type the command again, for: {then}")


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
