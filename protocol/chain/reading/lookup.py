"""Events looked up by their first indexed field, without following the chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from protocol.chain.abi import artifact
from protocol.chain.events import Event, RunOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.chain.reading.decoding import decode_event, topic_of
from protocol.errors import Misconfigured

Found = TypeVar("Found", bound=Event)


def events_of(chain: Chain, contract: str, kind: type[Found], number: int, first_block: int) -> list[Found]:
    """Returns the events of one kind whose first indexed field is ``number``, in chain order.

    Args:
        chain: an RPC endpoint that keeps events from ``first_block`` on.
        contract: name of the contract that emits them.
        kind: type of the events.
        number: a run or a round.
        first_block: block from which to look.
    """
    raws = _logs_of(chain, contract, kind, number, first_block)
    events = (decode_event(contract, raw["topics"], raw["data"]) for raw in raws)
    return [event for event in events if isinstance(event, kind)]


def blocks_of(chain: Chain, contract: str, kind: type[Event], number: int, first_block: int) -> list[int]:
    """Returns the numbers of the blocks with the events that ``events_of`` returns."""
    return [int(raw["blockNumber"], 16) for raw in _logs_of(chain, contract, kind, number, first_block)]


def _logs_of(chain: Chain, contract: str, kind: type[Event], number: int, first_block: int) -> list[dict[str, Any]]:
    abi = artifact(contract)["abi"]
    entry = next(each for each in abi if each["type"] == "event" and each["name"] == kind.__name__)
    wanted = {
        "fromBlock": hex(first_block),
        "toBlock": "latest",
        "address": chain.deployment.address_of(contract),
        "topics": [topic_of(entry), f"0x{number:064x}"],
    }
    raws: list[dict[str, Any]] = chain.rpc.call("eth_getLogs", wanted)
    return raws


@dataclass(frozen=True, slots=True)
class RunRules:
    """Rules of a run by their hash; ``effective_at`` is a unix second, or 0 if they are in effect."""

    run: int
    rules_hash: bytes
    effective_at: int


def rules_in_view(reader: Reader, run: int, now: float) -> tuple[RunRules, ...]:
    """Returns the rules of a run in effect, and those announced that are in effect after ``now``, a unix second."""
    terms, effective_at = reader.announced(run)
    present = RunRules(run, reader.run(run).terms.rules_hash, 0)
    return (present, RunRules(run, terms.rules_hash, effective_at)) if effective_at > now else (present,)


def coordinator_uri(chain: Chain, run: int, told: str = "") -> str:
    """Returns the URI of a run's coordinator: the one ``told``, else the one that the run named when it was opened.

    Raises:
        Misconfigured: none is told, and the run names none or does not exist.
    """
    if told:
        return told
    opened = events_of(chain, "Market", RunOpened, run, chain.deployment.start_block)
    if not opened or not opened[0].uri:
        raise Misconfigured(f"run {run} names no coordinator on chain: set coordinator_url, or choose another run")
    return opened[0].uri
