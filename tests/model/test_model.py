"""The reference model and the deployed contracts take the same steps: same results, same refusals, same views.

Each example starts from a small network (three workers, ten validators, three funded runs) and takes some forty steps.
Most of them lead rounds and appeals on towards an end; the others register, retire, announce, fund, pause, or try what
must be refused. After every step each view of the contracts is compared with the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from protocol.chain.structs import Consumption, Role, State, Verdict
from protocol.wire.assignments import Listing, pack_assignments
from tests.model import parties
from tests.model.chance import Chance
from tests.model.house import contested, fill_house
from tests.model.network import Network, open_network
from tests.model.round import Round, bits_in, committee_slots
from tests.model.twins import Twins

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "contracts.json").read_text())

SETTINGS = settings(
    max_examples=30,
    stateful_step_count=45,
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

VERBS = {
    "Registry": ("register", "topUp", "retire", "withdraw", "rotateKey", "revokeKey", "sweep"),
    "Market": ("open", "fund", "close", "refund", "announce", "join", "leave", "publish"),
    "Rounds": (
        *("open", "submit", "close", "draw", "commit", "reveal", "tally"),
        *("appeal", "settle", "finish", "expire", "free"),
    ),
    "Credits": ("buy", "redeem", "redeemTo"),
    "Admin": ("pause", "unpause", "setTreasury"),
}
"""Each must succeed now and then: a verb that is always refused proves nothing."""
ENDS = ("round settled", "round void", "redrawn", "appeal won", "appeal lost", "appeal undecided")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """The contracts beside the model; what is chosen must not depend on how fast the machine is."""
    with open_network(tmp_path_factory.mktemp("model"), same_each_time=True) as opened:
        yield opened


@pytest.mark.parametrize("vector", VECTORS["draws"])
def test_the_models_draw_is_the_golden_one(vector: dict[str, object]) -> None:
    drawn = committee_slots(
        bytes.fromhex(str(vector["seed"])[2:]),
        int(str(vector["attempt"])),
        int(str(vector["slotCount"])),
        bits_in(int(str(vector["eligible"]), 16)),
        int(str(vector["seats"])),
    )
    assert drawn == vector["slots"]


@pytest.mark.slow
def test_model_and_contracts_agree_at_every_step(twins: Twins) -> None:
    twins.outcomes.clear()
    run_state_machine_as_test(Network, settings=SETTINGS)
    tried = {(contract, verb) for contract, verbs in VERBS.items() for verb in verbs}
    assert {(contract, verb) for contract, verb in tried if not twins.outcomes[contract, verb, ""]} == set()
    assert {end for end in ENDS if not twins.endings[end]} == set()


@pytest.mark.parametrize("against", Verdict)
@pytest.mark.parametrize("verdict", Verdict)
def test_an_appeal_ends_each_way_for_a_job_that_was_trained_on(
    twins: Twins, against: Verdict, verdict: Verdict
) -> None:
    steps, chance = begun(), Chance(0, 0)
    round = tallied(steps, run=2, said=against)
    twins.compare()
    if against == Verdict.ACCEPTED:
        twins.must(parties.TRAINER, "Market", "publish", 2, 1, parties.SALT, [Consumption(1, 1)])
    twins.must(parties.PROVIDERS[0], "Rounds", "appeal", 1, 0, 0, steps.batch(round, 0))
    twins.must(parties.STRANGER, "Rounds", "draw", 2)
    trial = steps.model.rounds.rounds[2]
    steps.hold_vote(chance, trial, {0: verdict}, ["agree"] * len(trial.seats))
    twins.compare()
    twins.wait(round.deadline)
    twins.must(parties.STRANGER, "Rounds", "settle", 1, 0, round.assignments, steps.batch(round, 0))
    twins.compare()
    assert steps.now(round).state == State.SETTLED
    kept = verdict == Verdict.UNAVAILABLE
    assert steps.now(round).verdicts[0] == (against if kept else verdict)


@pytest.mark.parametrize("behaviour", ["silent", "abstain", "hide"])
@pytest.mark.parametrize("against", Verdict)
def test_an_appeal_that_no_committee_decides_only_undoes_a_condemnation(
    twins: Twins, behaviour: str, against: Verdict
) -> None:
    steps, chance = begun(), Chance(0, 0)
    round = tallied(steps, run=2, said=against)
    twins.must(parties.PROVIDERS[0], "Rounds", "appeal", 1, 0, 0, steps.batch(round, 0))
    for _ in range(4):
        twins.must(parties.STRANGER, "Rounds", "draw", 2)
        trial = steps.model.rounds.rounds[2]
        steps.hold_vote(chance, trial, {0: Verdict.FRAUD}, ["agree", "agree", *[behaviour] * 3])
        twins.compare()
    assert steps.model.rounds.rounds[2].state == State.VOID
    assert steps.now(round).verdicts[0] == (Verdict.VOID if against == Verdict.FRAUD else against)


def test_a_slot_is_not_touched_by_what_befalls_the_one_who_left_it(twins: Twins) -> None:
    """A juror leaves a round that nobody ends; its slot has a new validator when its absence is noted."""
    steps, judge = begun(), parties.JUDGES[0]
    drawn(steps, run=1)
    (seat,) = twins.model.rounds.rounds[1].seats
    juror = twins.model.registry.nodes[seat.juror]
    twins.must(juror.owner, "Registry", "retire", juror.number)
    twins.wait(twins.now + parties.TERMS.registry.unbonding_delay)
    twins.must(juror.owner, "Registry", "withdraw", juror.number)
    key = steps.free_key()
    signature = twins.consent(judge, key, Role.VALIDATOR, 1)
    twins.must(judge, "Registry", "register", Role.VALIDATOR, key, 1, parties.LONG, signature)
    twins.wait(twins.now + parties.TERMS.registry.activation_delay)
    twins.must(judge, "Rounds", "tally", 1)
    assert juror.slot in twins.model.registry.eligible(twins.contracts.now)
    twins.compare()


def test_newcomers_to_a_full_house_are_matched_or_displace_a_holder_that_its_rounds_keep(twins: Twins) -> None:
    steps, judge = begun(), parties.JUDGES[1]
    fill_house(twins)
    first, second = contested(twins, 0), contested(twins, 1)
    twins.compare()
    for verb, arguments in (("displace", ()), ("retire", ()), ("topUp", (1,))):
        assert twins.do(judge, "Registry", verb, first, *arguments) is not None
    kept = twins.model.registry.slots[twins.model.registry.nodes[second].slot]
    twins.must(judge, "Registry", "topUp", kept, 249)
    twins.must(judge, "Registry", "topUp", kept, 1)
    twins.must(judge, "Registry", "withdraw", second)
    twins.wait(twins.now + parties.TERMS.registry.activation_delay)
    round = drawn(steps, run=2)
    twins.must(parties.STRANGER, "Registry", "displace", first)
    twins.compare()
    rules = twins.model.market.runs[2].terms(twins.now).rules_hash
    twins.must(judge, "Market", "join", 2, first, rules)
    round = steps.now(round)
    steps.hold_vote(Chance(0, 0), round, {0: Verdict.ACCEPTED, 1: Verdict.ACCEPTED}, ["agree"] * len(round.seats))
    twins.wait(twins.model.registry.nodes[first].active_at)
    twins.must(parties.STRANGER, "Rounds", "settle", 1, 0, round.assignments, steps.batch(round, 0))
    twins.compare()
    assert twins.model.registry.nodes[first].slot in twins.model.registry.eligible(twins.contracts.now)


def begun() -> Network:
    """The common start."""
    steps = Network()
    steps.begin(history=True)
    return steps


def drawn(steps: Network, run: int) -> Round:
    """The first round, of two jobs of one node, before its committee."""
    twins, assignments = steps.twins, pack_assignments([Listing(1, 2)])
    twins.must(parties.COORDINATOR, "Rounds", "open", run, 0, 0, assignments)
    at, key = twins.contracts.deployment, twins.model.registry.nodes[1].key
    batch = [parties.part(at.chain_id, at.rounds, 1, 1, key, parties.leaves_for([0, 1], 45))]
    twins.must(parties.COORDINATOR, "Rounds", "submit", 1, assignments, batch)
    twins.must(parties.STRANGER, "Rounds", "draw", 1)
    return steps.model.rounds.rounds[1]


def tallied(steps: Network, run: int, said: Verdict) -> Round:
    """The first round, with the same verdict on both jobs."""
    round = drawn(steps, run)
    steps.hold_vote(Chance(0, 0), round, {0: said, 1: said}, ["agree"] * len(round.seats))
    return steps.model.rounds.rounds[1]
