"""``assize receipts``: collect, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, RpcUrl, connected
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.wire.receipts import Part

app = typer.Typer(no_args_is_help=True, help="Collect stores' receipts and refusals; check what they prove.")


@app.command("check")
@guard
def check(
    file: Annotated[Path, typer.Argument(help="Answers of a store, as `assize receipts collect` writes them.")],
    as_json: AsJson = False,
) -> None:
    """Say what a receipt, or a receipt and a refusal, prove; exit 1 if nothing."""
    from protocol.wire.store_answers import parse_answers

    if not file.is_file():
        raise Misconfigured(f"file not found: {file}")
    answers = parse_answers(file.read_bytes())
    proof = answers.proof()
    show({"store": answers.store, "contradiction": answers.refusal is not None, "proves": proof}, as_json)


@app.command("collect")
@guard
def collect(
    round_: Annotated[int, typer.Argument(metavar="ROUND", min=1, help="The round.")],
    job: Annotated[int, typer.Argument(min=0, max=255, help="The job whose artifact to ask for.")],
    out: Annotated[Path, typer.Argument(help="Folder to write a file for each store to.")],
    rules_file: Annotated[Path, typer.Option("--rules", help="The run's rules, which name its stores.")],
    addresses: Addresses,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Take a job's receipts from the chain, ask each store for the artifact, and keep what it signs."""
    from protocol.wire.rules import decode_rules

    try:
        rules = decode_rules(rules_file.read_bytes())
    except OSError as error:
        raise Misconfigured(f"cannot read the rules {rules_file}: {error.strerror}") from error
    with connected(rpc, addresses) as chain:
        part = _submission(chain, round_, job)
    out.mkdir(parents=True, exist_ok=True)
    from protocol.wire.receipts import check_receipt, receipts_of

    rows = []
    for receipt in receipts_of(part.uri):
        check_receipt(receipt, rules.stores, part)
        store = rules.stores[receipt.store]
        answers, answered = _asked(part, store.url, store.key, receipt.time, receipt.signature, job)
        file = out / f"round-{round_}-job-{job}-store-{receipt.store}.json"
        file.write_text(answers)
        rows.append({"store": store.url, "answer": answered, "file": str(file)})
    if not rows:
        raise Rejected(f"the submission of job {job} of round {round_} carries no receipts")
    show(rows, as_json, "receipts")


def _asked(part: Part, url: str, key: str, time: int, signature: bytes, job: int) -> tuple[str, str]:
    """Asks a store for the artifact; returns its answers as JSON, and the last one in words."""
    from contextlib import closing

    from protocol.errors import Unavailable
    from protocol.transport.coordinator import CoordinatorClient
    from protocol.wire.assignments import unpack_leaves
    from protocol.wire.store_answers import PartReceipt, StoreAnswers

    root = next(leaf.root for leaf in unpack_leaves(part.leaves) if leaf.job == job)
    receipt = PartReceipt(round=part.round, node=part.node, leaves=part.leaves, time=time, signature=signature)
    refusal, answered = None, "serves the artifact"
    with closing(CoordinatorClient(url, run=part.run)) as client:
        try:
            refusal = client.refusal(root)
        except (Unavailable, Rejected) as error:
            answered = f"signs nothing: {error}"
    if refusal is not None:
        answered = "refuses, over its signature"
    answers = StoreAnswers(
        chain_id=part.chain_id, rounds=part.rounds, run=part.run, store=key, receipt=receipt, refusal=refusal
    )
    return answers.model_dump_json(indent=1), answered


def _submission(chain: Chain, round_: int, job: int) -> Part:
    """Finds the submission of a job on chain."""
    from protocol.chain.events import RoundOpened, Submitted
    from protocol.chain.reading.tail import Rollback, Tail
    from protocol.wire.assignments import unpack_leaves
    from protocol.wire.receipts import Part

    deployment, tail = chain.deployment, Tail(chain)
    run, found = 0, None
    while answer := tail.poll():
        if isinstance(answer, Rollback):
            tail, run, found = Tail(chain), 0, None
            continue
        for log in (log for block in answer for log in block.logs):
            event = log.event
            if isinstance(event, RoundOpened) and event.round == round_:
                run = event.run
            if not isinstance(event, Submitted) or event.round != round_:
                continue
            if job in {leaf.job for leaf in unpack_leaves(event.leaves)}:
                found = (event.node, event.leaves, event.uri, log.timestamp)
    if found is None:
        raise Rejected(f"job {job} of round {round_} was not submitted")
    return Part(deployment.chain_id, deployment.rounds, run, round_, *found)
