"""Scenario: a faulty validator condemns an honest worker, which appeals and is restored; the validator is slashed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from deploy.localnet.disputes import Disputes
from deploy.localnet.network import LOOK_SECONDS, Localnet
from deploy.localnet.provider import Provider
from protocol.chain.structs import Cause, Verdict
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
        fields: dict[str, Any] = asdict(self)
        return json.dumps({name: str(value) if name.endswith("_wei") else value for name, value in fields.items()})


def broken_rules(outcome: DisputeOutcome) -> list[str]:
    """Returns a sentence for each expectation that the run did not meet. PURE."""
    rules = [
        (outcome.audit == "ok", f"the audit says {outcome.audit}"),
        (outcome.appeals > 0, "no honest worker was condemned and appealed"),
        (
            outcome.overturned == outcome.appeals,
            f"{outcome.appeals - outcome.overturned} of {outcome.appeals} appeals were not upheld",
        ),
        (outcome.paid_wei > 0, "the restored worker was not credited"),
        (outcome.honest_slashed_wei == 0, f"honest nodes were slashed {outcome.honest_slashed_wei} wei"),
        (outcome.faulty_slashed_wei > 0, "the faulty validator was not slashed"),
        (outcome.awarded_wei > 0, "the appellants were awarded nothing"),
    ]
    return [sentence for holds, sentence in rules if not holds]


def run_until_restored(network: Localnet) -> tuple[DisputeOutcome, list[str]]:
    """Runs a started network until every appeal is decided and its round has ended; then audits."""
    disputes = Disputes(network.chain)
    providers = _providers(network)
    try:
        _watch(network, disputes, providers)
    finally:
        for provider in providers:
            provider.close()
    network.view.say("auditing the ledger against the chain")
    outcome = outcome_of(network, disputes, network.audit())
    return outcome, broken_rules(outcome)


def outcome_of(network: Localnet, disputes: Disputes, verdict: str) -> DisputeOutcome:
    """Returns the figures of the run."""
    nodes = network.established.nodes
    faulty = {nodes[party.name] for party in network.parties if party.adversary}
    honest = set(nodes.values()) - faulty
    return DisputeOutcome(
        appeals=len(disputes.appeals),
        overturned=sum(each.verdict is Verdict.ACCEPTED for each in disputes.decisions),
        rounds=disputes.submitted,
        honest_slashed_wei=sum(disputes.slashed(honest, cause) for cause in (Cause.FRAUD, Cause.OVERTURNED)),
        faulty_slashed_wei=disputes.slashed(faulty, Cause.OVERTURNED),
        paid_wei=sum(each.paid for each in disputes.settled),
        awarded_wei=disputes.awarded,
        audit=verdict,
        wall_seconds=round(time.monotonic() - network.started, 1),
        seed=network.options.seed,
    )


def _providers(network: Localnet) -> list[Provider]:
    layout = network.layout
    password = read_password(layout.password_file)
    keystores = Keystores(layout.keystores)
    return [
        Provider(
            network.chain,
            keystores.open(party.owner, password),
            network.established.nodes[party.name],
            layout.root / "state" / "provider" / f"{party.name}.db",
        )
        for party in network.parties
        if party.role == "worker"
    ]


def _watch(network: Localnet, disputes: Disputes, providers: list[Provider]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    told: set[int] = set()
    while not disputes.decided:
        if time.monotonic() > deadline:
            raise Unavailable(f"no verdict was overturned within {LONGEST_SECONDS:.0f} s: see the logs")
        disputes.refresh()
        for provider in providers:
            for opened in provider.appeal(disputes):
                network.view.say(
                    f"round {opened.round} finds job {opened.job} of node {opened.node} fraudulent; "
                    f"its provider appeals, number {opened.appeal}"
                )
        for decision in [each for each in disputes.decisions if each.appeal not in told]:
            network.view.say(f"appeal {decision.appeal}: job {decision.job} is {decision.verdict.name.lower()}")
            told.add(decision.appeal)
        network.watch()
        network.insist_on_services()
        time.sleep(LOOK_SECONDS)
