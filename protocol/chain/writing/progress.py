"""Progress of intents, in words: for a command that was interrupted, and for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.chain.reading.client import Chain
from protocol.chain.rpc import RpcRequest
from protocol.chain.writing.account import Account
from protocol.chain.writing.journal import BROADCAST, FAILED, FINAL, MINED, SIGNED, Attempt, Intent, Journal
from protocol.errors import Unavailable


def progress_of(chain: Chain, intent: Intent, attempts: Sequence[Attempt]) -> str:
    """Returns a clause that says how far an intent came: by its journal and, while it is pending, by the chain."""
    what = intent.call.description
    if intent.state == FAILED:
        return str(intent.failure)
    if intent.state in (MINED, FINAL):
        return f"{what} was mined in block {intent.block_number}, transaction {_hashes(attempts)}"
    if intent.state not in (SIGNED, BROADCAST):
        return f"{what} was not sent"
    try:
        known = chain.rpc.results(
            [RpcRequest("eth_getTransactionByHash", ("0x" + attempt.tx_hash.hex(),)) for attempt in attempts]
        )
    except Unavailable:
        return f"{what} is signed as {_hashes(attempts)}, and the RPC does not say whether it arrived"
    return _as_known(what, attempts, [each for each in known if each])


def history(account: Account, journal_path: Path, count: int) -> list[tuple[Intent, str]]:
    """Returns an address's newest intents in a journal, and how far each came; reads what another process writes."""
    if not journal_path.is_file():
        return []
    journal = Journal(journal_path, account.identity)
    try:
        intents = journal.newest(count)
        return [(intent, progress_of(account.chain, intent, journal.attempts(intent.key))) for intent in intents]
    finally:
        journal.close()


def _as_known(what: str, attempts: Sequence[Attempt], known: Sequence[dict[str, Any]]) -> str:
    mined = [each for each in known if each.get("blockNumber")]
    if mined:
        return f"{what} was mined in block {int(mined[0]['blockNumber'], 16)}, transaction {mined[0]['hash']}"
    if known:
        return f"{what} was sent as {_hashes(attempts)} and is not mined yet"
    return f"{what} is signed as {_hashes(attempts)} and not sent: the next command with this key sends it"


def _hashes(attempts: Sequence[Attempt]) -> str:
    return " or ".join("0x" + attempt.tx_hash.hex() for attempt in attempts)
