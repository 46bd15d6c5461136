"""Plans: the checked calls of a verb, which are either sent or simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from protocol.chain.events import Event
from protocol.chain.reverts import Reverted
from protocol.chain.writing.account import Account
from protocol.chain.writing.calls import Call
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.sender import key_of
from protocol.chain.writing.simulation import Simulation
from protocol.errors import Rejected

A = TypeVar("A")
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The simulation of a plan's first call, and the calls after it, which need the state that it leaves."""

    first: Call
    simulation: Simulation
    then: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Plan(Generic[A]):
    """Calls to send in order, each after the one before it is mined.

    Args:
        sender: sends or simulates them; one without its key only simulates.
        calls: at least one; the last is the verb itself, the earlier ones provide for it, such as an approval.
        answer: reads the outcome from the receipt of the last call.
        refusals: custom error of a contract to the error raised in its place.
    """

    sender: Account
    calls: tuple[Call, ...]
    answer: Callable[[Receipt], A]
    refusals: Mapping[str, Rejected] = field(default_factory=dict)

    def carry_out(self, intent: str) -> A:
        """Sends the calls and returns the answer; the same intent again continues where it stopped.

        A call that failed for good is reported and not sent again: no contract tells two deposits or two runs apart.

        Raises:
            Rejected: a contract refuses one of the calls, or one has failed under this intent.
            Unavailable: see ``Sender.send``.
        """
        with self._explained():
            receipts = [self.sender.send_once(key_of(intent, call), call) for call in self.calls]
        return self.answer(receipts[-1])

    def dry_run(self) -> DryRun:
        """Simulates the first call and sends nothing; raises as ``carry_out`` would."""
        first, *then = self.calls
        with self._explained():
            return DryRun(first, self.sender.simulate(first), tuple(then))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Reverted as refusal:
            if refusal.name in self.refusals:
                raise self.refusals[refusal.name] from refusal
            raise


def plan_of(sender: Account, *calls: Call) -> Plan[Receipt]:
    """Returns the plan of these calls whose answer is the last receipt."""
    return Plan(sender, calls, lambda receipt: receipt)


def event_in(receipt: Receipt, kind: type[E]) -> E:
    """Returns the first event of this kind in a receipt.

    Raises:
        Rejected: the transaction emitted none.
    """
    for log in receipt.logs:
        if isinstance(log.event, kind):
            return log.event
    raise Rejected(f"transaction 0x{receipt.tx_hash.hex()} emitted no {kind.__name__}")


def event_of(kind: type[E]) -> Callable[[Receipt], E]:
    """Returns the ``answer`` of a plan whose outcome is an event."""
    return lambda receipt: event_in(receipt, kind)
