"""Scenario: a faulty validator condemns an honest worker, which appeals and is restored; the validator is slashed."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass

from deploy.localnet.network import LOOK_SECONDS, Localnet
from deploy.localnet.outcome import in_strings
from deploy.localnet.scoreboard import Scoreboard
from ledger import facts
from protocol.chain.structs import Cause
from protocol.chain.writing.appealing import open_appeal
from protocol.chain.writing.sender import Sender
from protocol.errors import Unavailable
from protocol.node.wallet import Keystores, read_password

LONGEST_SECONDS = 900.0
"""Time limit for the faulty validator to be drawn and every appeal to be decided."""


@dataclass(frozen=True, slots=True)
class DisputeOutcome:
    """The figures of one run, printed as JSON in its last line, wei as decimal strings.

    ``paid_wei`` was credited for condemned jobs once restored; ``awarded_wei`` went to appellants from slashes.
    """

    appeals: int
    overturned: int
    rounds: int
    honest_slashed_wei: int
    faulty_slashed_wei: int
    paid_wei: int
    awarded_wei: int
    audit: str
    wall_seconds: float
    seed: int

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(in_strings(asdict(self)))


def broken_rules(outcome: DisputeOutcome) -> list[str]:
    """Returns a sentence for each expectation that the run did not meet. PURE."""
    refused = outcome.appeals - outcome.overturned
    rules = [
        (outcome.audit == "ok", f"the audit says {outcome.audit}"),
        (outcome.appeals > 0, "no honest worker was condemned and appealed"),
        (refused == 0, f"{refused} of {outcome.appeals} appeals were not upheld"),
        (outcome.paid_wei > 0, "the restored worker was not credited"),
        (outcome.honest_slashed_wei == 0, f"honest nodes were slashed {outcome.honest_slashed_wei} wei"),
        (outcome.faulty_slashed_wei > 0, "the faulty validator was not slashed"),
        (outcome.awarded_wei > 0, "the appellants were awarded nothing"),
    ]
    return [sentence for holds, sentence in rules if not holds]


def run_until_restored(network: Localnet) -> tuple[DisputeOutcome, list[str]]:
    """Runs a started network until every appeal is decided and its round has ended; then audits."""
    with ExitStack() as stack:
        senders = {node: stack.enter_context(closing(sender)) for node, sender in _appellants(network).items()}
        _watch(network, senders)
    network.view.say("auditing the ledger against the chain")
    verdict = network.audit()
    seconds = round(time.monotonic() - network.started, 1)
    outcome = outcome_of(network.scoreboard, verdict, seconds, network.options.seed)
    return outcome, broken_rules(outcome)


def outcome_of(board: Scoreboard, audit: str, seconds: float, seed: int) -> DisputeOutcome:
    """Returns the figures of a run on its scoreboard, whose audit said ``audit``."""
    appeals, treasury = list(board.book.all(facts.Appeal)), board.book.find(facts.Treasury, facts.THE_ONE)
    honest = [party for party in board.parties if not party.adversary]
    faulty = [party for party in board.parties if party.adversary]
    return DisputeOutcome(
        appeals=len(appeals),
        overturned=sum(each.verdict == "accepted" for each in appeals),
        rounds=len({job.round for job in board.book.all(facts.Job)}),
        honest_slashed_wei=sum(board.slashed(party, Cause.FRAUD, Cause.OVERTURNED) for party in honest),
        faulty_slashed_wei=sum(board.slashed(party, Cause.OVERTURNED) for party in faulty),
        paid_wei=sum(job.credited for job in board.book.all(facts.Job) if job.appeal),
        awarded_wei=treasury.awarded if treasury else 0,
        audit=audit,
        wall_seconds=seconds,
        seed=seed,
    )


def restored(board: Scoreboard) -> bool:
    """Returns whether there were appeals, each is decided, and each round appealed against has ended."""
    disputed = [round_ for round_ in board.book.all(facts.Round) if round_.appealed]
    return bool(disputed) and all(round_.state == "settled" and not round_.appeals for round_ in disputed)


def _appellants(network: Localnet) -> dict[int, Sender]:
    """Returns the senders of the workers' owners by node; appeals need the wallet that the worker's host lacks."""
    layout, password = network.layout, read_password(network.layout.password_file)
    (layout.root / "state" / "provider").mkdir(parents=True, exist_ok=True)
    return {
        network.established.nodes[party.name]: Sender(
            network.chain,
            Keystores(layout.keystores).open(party.owner, password),
            layout.root / "state" / "provider" / f"{party.name}.db",
        )
        for party in network.parties
        if party.role == "worker"
    }


def _watch(network: Localnet, senders: dict[int, Sender]) -> None:
    """Appeals every fraud verdict on a worker's jobs until all appeals are decided."""
    board, deadline = network.scoreboard, time.monotonic() + LONGEST_SECONDS
    told: set[int] = set()
    while not restored(board):
        if time.monotonic() > deadline:
            raise Unavailable(f"no verdict was overturned within {LONGEST_SECONDS:.0f} s: see the logs")
        network.watch()
        for job in list(board.book.all(facts.Job)):
            if job.verdict == "fraud" and not job.appeal and job.node in senders:
                opened = open_appeal(senders[job.node], job.round, job.job).carry_out(f"appeal/{job.round}/{job.job}")
                network.view.say(
                    f"round {job.round} finds job {job.job} of node {job.node} fraudulent; "
                    f"its provider appeals, number {opened.appeal}"
                )
        for appeal in [each for each in board.book.all(facts.Appeal) if each.verdict and each.appeal not in told]:
            network.view.say(f"appeal {appeal.appeal}: job {appeal.job} is {appeal.verdict}")
            told.add(appeal.appeal)
        network.insist_on_services()
        time.sleep(LOOK_SECONDS)
