"""A requester plans, sets, lists and opens traps with its commands, on a real chain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assize import front_door
from ledger.queries.run_costs import run_costs
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.reading.client import Chain
from protocol.chain.reading.plantings import Plantings
from protocol.chain.structs import SettledLeaves
from protocol.chain.writing import calls, trapping
from protocol.errors import Rejected
from protocol.node.trap_file import TrapFile, planned
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.traps import Trap, TrapKind
from tests.conftest import TOKEN
from tests.ledger import disputes
from tests.ledger.disputes import FRAUD, OK, Dispute
from tests.ledger.scenario import MAX_UNITS, WINDOW

BOUNTY = TOKEN // 10
JOBS = 2


def announced(dispute: Dispute, kinds: int = 2, rounds: int = 3) -> TrapFile:
    """A file of traps of the first worker, set on chain."""
    market, chain = dispute.market, dispute.market.chain
    first = chain.latest().round_count() + 1
    file = planned(
        chain_id=chain.chain_id,
        contract=chain.deployment.traps,
        run=market.run,
        nodes=(dispute.workers[0].node,),
        kinds=kinds,
        decoys=1,
        rounds=range(first, first + rounds),
        bounty_wei=BOUNTY,
        open_by=chain.head().timestamp + 86_400,
    )
    market.send(dispute.requester, calls.drip(chain.deployment, dispute.requester.address, 10 * TOKEN))
    setting = trapping.set_traps(
        market.senders[dispute.requester.address], file.run, file.given(), BOUNTY, file.first, file.open_by
    )
    assert setting.carry_out("traps").leaves == kinds + 1
    return file


def worked(dispute: Dispute, missed: frozenset[Trap] = frozenset(), traps: tuple[Trap, ...] = ()) -> dict[int, Trap]:
    """A round of the first worker's, judged: its traps are found, but for those missed; returns the jobs trapped."""
    market, worker = dispute.market, dispute.workers[0]
    assignments = pack_assignments([Listing(worker.node, JOBS)])
    round_ = market.open_round(dispute.coordinator, assignments)
    planted = Plantings(market.chain, market.run, traps).in_round(round_)
    leaves = pack_leaves([Leaf(job, MAX_UNITS, bytes([round_, job]) * 16) for job in range(JOBS)])
    submission = market.signed(round_, worker, leaves)
    market.send(dispute.coordinator, calls.submit(market.deployment, round_, assignments, [submission]))
    dispute.tick("draw", round_)
    judgements = {job: OK if planted.get(job) in (None, *missed) else FRAUD for job in range(JOBS)}
    disputes.judge(dispute, round_, judgements)
    dispute.batches = [[SettledLeaves(worker.node, leaves)]]
    dispute.round = round_
    return planted


def states(dispute: Dispute, file: TrapFile) -> dict[Trap, str]:
    return {report.trap: report.state for report in trapping.reports(dispute.market.chain, file.run, file.given())}


def test_traps_are_planted_once_each_judged_and_opened(dispute: Dispute) -> None:
    file = announced(dispute)
    traps = [trap for trap in file.given() if trap.kind is not TrapKind.DECOY]
    assert set(states(dispute, file).values()) == {"hidden"}
    planted: list[Trap] = []
    for _ in range(3):
        here = worked(dispute, traps=file.given())
        planted += here.values()
        for report, call in trapping.opening(dispute.market.chain, file.run, file.given()):
            assert report.trap in here.values() or report.trap.kind is TrapKind.DECOY
            dispute.market.send(dispute.rival, call)
    assert sorted(planted, key=str) == sorted(traps, key=str)
    assert set(states(dispute, file).values()) == {"opened"}
    chain = dispute.market.chain
    assert chain.latest().balance_of(chain.deployment.traps) == 0


def test_what_traps_cost_is_in_the_report_of_their_run(dispute: Dispute, chain: Chain, database: Database) -> None:
    file = announced(dispute)
    sync(chain, database)
    with database.reading() as connection:
        before = run_costs(connection, file.run)
    assert (before.trapped, before.trap_deposits) == (0, BOUNTY * len(file.given()))
    for _ in range(3):
        worked(dispute, traps=file.given())
        for _, call in trapping.opening(chain, file.run, file.given()):
            dispute.market.send(dispute.rival, call)
    sync(chain, database)
    with database.reading() as connection:
        after = run_costs(connection, file.run)
    decoys = sum(trap.kind is TrapKind.DECOY for trap in file.given())
    assert decoys > 0
    assert (after.trapped, after.trap_deposits) == (BOUNTY * (len(file.given()) - decoys), 0)


def test_a_missed_trap_is_told_while_it_can_be_appealed_and_lost_afterwards(dispute: Dispute) -> None:
    file = announced(dispute, kinds=1, rounds=1)
    (trap,) = [trap for trap in file.given() if trap.kind is not TrapKind.DECOY]
    assert list(worked(dispute, missed=frozenset({trap}), traps=file.given()).values()) == [trap]
    assert states(dispute, file)[trap] == "missed"
    dispute.market.pass_time(WINDOW + 1)
    dispute.market.anvil.rpc.call("anvil_mine", "0x1")
    assert states(dispute, file)[trap] == "lost"
    dispute.market.pass_time(86_400)
    dispute.market.anvil.rpc.call("anvil_mine", "0x1")
    assert set(states(dispute, file).values()) == {"lost"}


def test_only_the_requester_sets_them_and_in_time(dispute: Dispute) -> None:
    file = announced(dispute)
    market = dispute.market
    setting = (file.run, file.given(), BOUNTY, file.first, file.open_by)
    with pytest.raises(Rejected, match="only its requester can set traps"):
        trapping.set_traps(market.senders[dispute.rival.address], *setting)
    worked(dispute)
    with pytest.raises(Rejected, match="is open already"):
        trapping.set_traps(market.senders[dispute.requester.address], *setting)


def test_the_plan_prints_the_rate_and_writes_the_file(dispute: Dispute, tmp_path: Path) -> None:
    market, path = dispute.market, tmp_path / "traps.json"
    market.chain.deployment.save(tmp_path / "addresses.json")
    words = ["traps", "plan", str(market.run), str(path), "--node", "1", "--jobs", "1000", "--rounds", "20"]
    words += ["--check-cost", "0.001", "--bounty", "5wei", "--rpc", market.anvil.url, "--json"]
    done = CliRunner().invoke(front_door(words), [*words, "--addresses", str(tmp_path / "addresses.json")])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    penalty = market.chain.latest().rounds_terms().overturn_penalty
    assert told["rate_needed"] == TOKEN // 1000 / penalty
    assert told["traps"] * penalty > 1000 * (TOKEN // 1000)
    assert len(TrapFile.read(path).traps) == told["traps"] + told["decoys"]


def test_a_set_is_found_in_its_own_run_alone(dispute: Dispute) -> None:
    file, chain = announced(dispute), dispute.market.chain
    assert trapping.set_numbered(chain, file.run, file.given())[1].run == file.run
    with pytest.raises(Rejected, match="never set in run"):
        trapping.set_numbered(chain, file.run + 1, file.given())
    with pytest.raises(Rejected, match="never set in run"):
        trapping.set_numbered(chain, file.run, file.given()[1:])
