"""The outcome's figures, from a real chain with a cheat on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.localnet.parties import Party
from deploy.localnet.scoreboard import Scoreboard, rounds_before_caught
from ledger import facts
from protocol.chain.reading.client import Chain
from protocol.node.wallet import Wallet
from tests.conftest import TOKEN, Anvil
from tests.ledger.scenario import Market, Story, tell

ROLLOUTS = 8


@pytest.fixture
def story(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Story]:
    """A run with three rounds behind it: one judged, one without work, one without a verdict."""
    market = Market(chain, anvil, make_wallet, tmp_path)
    yield tell(market)
    market.close()


def scoreboard(story: Story) -> Scoreboard:
    jurors = sorted(story.validators)
    parties = (
        Party("worker-1", "worker"),
        Party("cheat", "worker", adversary="edited-answer"),
        *(Party(f"validator-{n}", "validator") for n in range(1, 1 + len(jurors))),
    )
    nodes = {"worker-1": story.honest.node, "cheat": story.cheat.node}
    nodes |= {f"validator-{n}": node for n, node in enumerate(jurors, 1)}
    return Scoreboard(story.market.chain, story.market.run, parties, nodes, ROLLOUTS)


def test_the_figures_are_those_of_the_chain(story: Story) -> None:
    board = scoreboard(story)
    board.refresh()
    figures = board.run_figures()
    assert (figures.rounds, board.rounds_unsettled(), figures.steps) == (3, 0, 3)
    assert figures.rollouts_accepted == figures.rollouts_trained == 2 * ROLLOUTS
    assert figures.rollouts_fraud == 2 * ROLLOUTS
    assert board.rollouts_submitted() == 5 * ROLLOUTS
    assert (figures.cheat_rollouts_trained, figures.cheat_rounds_before_caught) == (0, 0)
    assert figures.cheat_slashed_wei >= TOKEN
    assert figures.honest_slashed_wei == 0
    assert figures.penalties_wei > 0, "jurors stayed away"
    assert figures.credits["worker-1"] > 0
    assert figures.credits["cheat"] == 0


def test_looking_twice_counts_nothing_twice_and_the_live_view_agrees(story: Story) -> None:
    board = scoreboard(story)
    board.refresh()
    first = board.run_figures()
    board.refresh()
    assert board.run_figures() == first
    shown = board.figures()
    assert shown.jobs_accepted * ROLLOUTS == first.rollouts_accepted
    assert shown.jobs_fraud * ROLLOUTS == first.rollouts_fraud
    assert shown.credits == first.credits
    assert shown.rounds_open == 0
    assert sum(shown.slashed.values()) == first.cheat_slashed_wei + first.penalties_wei


def job(round_: int, node: int, verdict: str) -> facts.Job:
    empty = dict.fromkeys(facts.Job.__slots__, 0)
    return facts.Job(**empty | {"round": round_, "node": node, "verdict": verdict, "root": b""})


def round_of(number: int, state: str) -> facts.Round:
    empty = dict.fromkeys(facts.Round.__slots__, 0)
    return facts.Round(
        **empty | {"round": number, "state": state, "assignments": b"", "beacon": b"", "close_hash": b""}
    )


CHEAT = 2
VERDICTS = st.lists(st.sampled_from(["accepted", "void", "fraud"]), max_size=8)


@given(verdicts=VERDICTS)
def test_rounds_before_the_first_that_was_not_accepted_are_counted(verdicts: list[str]) -> None:
    rounds = [round_of(number, "settled") for number in range(1, len(verdicts) + 1)]
    jobs = [job(number, CHEAT, verdict) for number, verdict in enumerate(verdicts, 1)]
    expected = next((n for n, verdict in enumerate(verdicts) if verdict != "accepted"), len(verdicts))
    assert rounds_before_caught(jobs, rounds, {CHEAT}) == expected


def test_rounds_not_judged_yet_and_other_nodes_do_not_count() -> None:
    rounds = [round_of(1, "voting"), round_of(2, "void"), round_of(3, "tallied")]
    jobs = [job(1, CHEAT, "submitted"), job(2, CHEAT, "void"), job(3, CHEAT, "fraud"), job(3, 1, "accepted")]
    assert rounds_before_caught(jobs, rounds, {CHEAT}) == 0
    assert rounds_before_caught(jobs, rounds, {1}) == 1
    assert rounds_before_caught([], [], {CHEAT}) == 0
