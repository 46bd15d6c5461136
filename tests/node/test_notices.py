"""Notices on a real chain, received by a real webhook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.chain import events
from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.chain.structs import Cause, Consumption, Node, Role, Run, RunTerms, SettledLeaves, State, most_fees
from protocol.chain.writing import calls
from protocol.errors import Misconfigured, Unavailable
from protocol.node.notices.conditions import Seen, conditions
from protocol.node.notices.fold import Followed, take
from protocol.node.notices.journal import NoticeJournal, Place
from protocol.node.notices.notice import Notice, NoticeFigures, NoticeKind
from protocol.node.notices.targets import Target, read_targets
from protocol.node.notices.watch import NoticeSender
from protocol.node.wallet import Wallet
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import vote_on
from tests.conftest import ROOT, TOKEN, Anvil, until
from tests.ledger.scenario import MAX_UNITS, RULES, WINDOW, Market, Party, terms_of
from tests.webhook import Webhook, listening

pytestmark = pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # in Apprise


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as made:
        yield made


@pytest.fixture
def market(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Market]:
    made = Market(chain, anvil, make_wallet, tmp_path)
    yield made
    made.close()


@dataclass
class Scene:
    """A run with one worker and three validators; the first validator's owner and the worker's owner are watched."""

    market: Market
    requester: Wallet
    coordinator: Wallet
    trainer: Wallet
    worker: Party
    validators: dict[int, Party]
    round: int = 0
    assignments: bytes = b""
    leaves: bytes = b""

    def tick(self, function: str, *arguments: object) -> None:
        self.market.send(self.coordinator, calls.call(self.market.deployment, "Rounds", function, *arguments))

    def judge_a_round(self) -> None:
        """Job 0 accepted, 1 void, 2 fraud, 3 never handed in; one juror stays away."""
        market = self.market
        self.assignments = pack_assignments([Listing(self.worker.node, 4)])
        self.round = market.open_round(self.coordinator, self.assignments)
        self.leaves = pack_leaves([Leaf(job, MAX_UNITS, bytes([job + 1]) * 32) for job in range(3)])
        submission = market.signed(self.round, self.worker, self.leaves)
        market.send(self.coordinator, calls.submit(market.deployment, self.round, self.assignments, [submission]))
        market.pass_time(WINDOW + 1)
        market.send(self.coordinator, calls.close_round(market.deployment, self.round, self.assignments))
        market.send(self.coordinator, calls.draw(market.deployment, self.round))
        vote = vote_on({0: Reason.ACCEPTED, 1: Reason.SHAPE, 2: Reason.SAMPLING_FRAUD}, b"\x05" * 32)
        absent, *voting = [seat.node for seat in market.chain.latest().seats(self.round)]
        self.absent = absent
        for node in voting:
            market.commit(self.round, self.validators[node], vote)
        market.pass_time(WINDOW + 1)
        for node in voting:
            market.reveal(self.round, self.validators[node], vote)

    def settle(self) -> None:
        self.market.pass_time(WINDOW + 1)
        part = [SettledLeaves(self.worker.node, self.leaves)]
        self.market.send(self.coordinator, calls.settle(self.market.deployment, self.round, 0, self.assignments, part))

    def publish(self) -> None:
        call = calls.publish(self.market.deployment, self.market.run, 1, b"\x02" * 32, [Consumption(self.round, 0b001)])
        self.market.send(self.trainer, call)

    def announce(self) -> None:
        terms = replace(self.terms, rules_hash=b"\x22" * 32)
        call = calls.announce(self.market.deployment, self.market.run, terms)
        self.market.send(self.requester, call)

    @property
    def terms(self) -> Any:
        return replace(terms_of(self.coordinator, self.trainer), appeal_seats=5, challenge_seconds=WINDOW)


@pytest.fixture
def scene(market: Market) -> Scene:
    requester = market.rich("requester", "Credits")
    coordinator, trainer = market.make_wallet("coordinator"), market.make_wallet("trainer")
    worker = market.register("worker", Role.WORKER, 8)
    judges = [market.register(f"judge{index}", Role.VALIDATOR, 1) for index in range(8)]
    made = Scene(market, requester, coordinator, trainer, worker, {judge.node: judge for judge in judges})
    for judge in judges:
        market.send(judge.owner, calls.top_up(market.deployment, judge.node, TOKEN))
    market.open_run(requester, made.terms, 100 * TOKEN)
    for party in (worker, *judges):
        market.send(party.owner, calls.join(market.deployment, market.run, party.node, RULES))
    return made


def notifier(
    scene: Scene, directory: Path, hook: Webhook, figures: NoticeFigures | None = None, first: Followed | None = None
) -> NoticeSender:
    """A notifier that watches the worker's owner, every judge's owner and the run."""
    owners = {scene.worker.owner.address, *(judge.owner.address for judge in scene.validators.values())}
    chain = Chain(scene.market.anvil.url, scene.market.deployment)
    target = Target("target 1 (json)", "t1", hook.url)
    followed = first or Followed(owners, {}, {scene.market.run})
    made = figures or NoticeFigures(credits_wei=1, appeal_seconds=10 * WINDOW, escrow_rounds=10_000)
    return NoticeSender(chain, NoticeJournal(directory, ["t1"]), followed, [target], made)


def settle_down(watching: NoticeSender) -> None:
    """Ticks until nothing is left to read."""
    while watching.tick():
        pass


def test_every_kind_arrives_once_and_none_twice_after_a_restart(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    watching = notifier(scene, tmp_path / "state", hook)
    settle_down(watching)
    scene.judge_a_round()
    settle_down(watching)  # within the challenge window
    scene.publish()
    scene.announce()
    scene.settle()
    settle_down(watching)
    watching.close()
    counts = hook.titles()
    told = {each["title"]: each["message"] for each in hook.received}
    once = ("bond slashed", "new terms announced", "time to appeal runs out", "new version")
    assert {title: counts[f"Assize: {title}"] for title in once} == dict.fromkeys(once, 1)
    assert counts["Assize: strike or fine in a committee"] == 2  # of one absence
    assert counts["Assize: jobs void or missing"] == 2  # job 3 missing, job 1 void
    assert counts["Assize: credits to redeem"] >= 1
    assert counts["Assize: escrow runs out"] == 1
    assert counts["Assize: bond under its margin"] == 1  # after the slash
    assert f"assize ledger why {scene.round}/1" in told["Assize: jobs void or missing"]
    again = notifier(scene, tmp_path / "state", hook)
    settle_down(again)
    again.close()
    assert hook.titles() == counts


def test_before_its_first_round_a_runs_terms_say_what_a_round_needs() -> None:
    terms = RunTerms("0xC", "0xT", RULES, 10, 100, 50, 5, 0, *[WINDOW] * 5)
    need = 16 * 50 * 10 + most_fees(5, 100)
    for escrow, short in ((need, False), (need - 1, True)):
        seen = Seen(0, {}, {}, {1: Run("0xA", 0, False, escrow, 0, terms)}, {}, {})
        assert (conditions(Followed(), seen, NoticeFigures())["escrow/1"] is not None) == short


def test_each_strike_and_each_fine_of_a_round_is_told() -> None:
    followed, told = Followed(nodes={7: "0xA"}), list[Notice]()
    for strikes in (1, 2):  # by a committee and the one drawn after it
        for event in (
            events.NodeStruck(run=1, node=7, round=5, strikes=strikes),
            events.NodeSlashed(node=7, owner="0xA", round=5, cause=Cause.ABSENCE, amount=TOKEN, bond=TOKEN),
        ):
            told += take(followed, Log(1, b"", b"", 0, 0, event))
    assert len({notice.key for notice in told}) == 4
    assert ["strike" in notice.text for notice in told] == [True, False] * 2
    assert all(notice.kind is NoticeKind.ABSENCE for notice in told)


def test_a_silent_node_is_told_of_once_until_it_is_heard_again(tmp_path: Path) -> None:
    node = Node("0xA", Role.WORKER, 0, 8, 0, 0, 0, 8 * TOKEN, False, False, "0xB")
    journal = NoticeJournal(tmp_path, ["t"])
    for seconds, final in ((10, 0), (301, 1), (302, 2), (3, 3), (301, 3), (2, 4), (2, 9), (400, 9)):
        seen = Seen(0, {7: node}, {7: 8 * TOKEN}, {}, {}, {7: seconds})
        journal.look(conditions(Followed(), seen, NoticeFigures()), final + 1, final, now=0)
    told = [notice.key for notice, _ in journal.waiting("t")]
    journal.close()
    assert told == ["silent/7#1", "silent/7#2"]  # a reorganisation may have made it look alive at block 4


def test_a_reorganised_event_that_comes_back_is_not_told_again(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    watching, market = notifier(scene, tmp_path / "state", hook), scene.market
    scene.judge_a_round()
    scene.settle()
    settle_down(watching)
    counts, head = hook.titles(), market.chain.head()
    assert counts["Assize: bond slashed"] == 1
    market.anvil.rpc.call("anvil_reorg", 1, [])
    market.anvil.rpc.call("anvil_mine", hex(1))
    assert watching.tick()  # rolls back
    assert market.chain.block(head.number).hash != head.hash
    market.senders[scene.coordinator.address].reconcile()
    until(lambda: market.chain.latest().round(scene.round).state is State.SETTLED, 10, "the round settled again")
    settle_down(watching)
    watching.close()
    assert hook.titles() == counts


def test_a_target_that_is_down_gets_everything_later(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    hook.status = 503
    watching = notifier(scene, tmp_path / "state", hook)
    scene.judge_a_round()
    settle_down(watching)
    assert not hook.received
    watching.close()
    hook.status = 200
    again = notifier(scene, tmp_path / "state", hook)
    settle_down(again)
    again.close()
    assert hook.titles()["Assize: strike or fine in a committee"] == 2


def test_what_a_full_disk_did_not_keep_is_read_and_told_again(
    scene: Scene, hook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = notifier(scene, tmp_path / "state", hook)
    settle_down(watching)
    scene.judge_a_round()
    advance, failures = watching._journal.advance, [Unavailable("disk full")]

    def advance_later(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        advance(*arguments)

    monkeypatch.setattr(watching._journal, "advance", advance_later)
    with pytest.raises(Unavailable, match="disk full"):
        watching.tick()
    settle_down(watching)
    watching.close()
    assert hook.titles()["Assize: jobs void or missing"] == 1


def test_a_message_that_was_being_sent_at_a_kill_is_not_sent_twice(tmp_path: Path) -> None:
    journal = NoticeJournal(tmp_path, ["t"])
    notices = [Notice(NoticeKind.VERSION, f"version/1/{number}", "") for number in range(2)]
    journal.advance(Place(Cursor(1, b"1" * 32), Followed()), notices, now=0)
    journal.mark(notices[0], "t", "sending")
    journal.close()  # as a kill leaves it
    again = NoticeJournal(tmp_path, ["t"])
    assert again.interrupted() == ["version/1/0"]
    assert [notice.key for notice, _ in again.waiting("t")] == ["version/1/1"]
    assert again.counts() == {"unclear": 1, "waiting": 1}
    again.close()


def test_the_daemon_goes_on_after_a_kill_and_keeps_the_urls_to_itself(
    scene: Scene, hook: Webhook, tmp_path: Path
) -> None:
    market = scene.market
    addresses, urls = tmp_path / "addresses.json", tmp_path / "urls"
    addresses.write_text(json.dumps(market.deployment.to_json()))
    urls.write_text(f"# mine\n{hook.url}\n")
    settings = {
        "ADDRESSES": addresses,
        "RPC_URL": market.anvil.url,
        "STATE_DIR": tmp_path / "state",
        "URLS_FILE": urls,
        "NODES": json.dumps([scene.worker.node]),
        "RUNS": json.dumps([market.run]),
        "INTERVAL_SECONDS": "0.1",
        "CREDITS_ABOVE": "0.0001",
    }
    words = os.environ | {f"ASSIZE_NOTICES_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, str(ROOT / "assize.py"), "notices"]
    tried = subprocess.run([*command, "test", "--json"], env=words, capture_output=True, text=True, timeout=60)
    assert (tried.returncode, json.loads(tried.stdout)) == (0, [{"target": "target 2 (json)", "delivered": True}])
    told = tried.stderr
    scene.judge_a_round()
    daemon = subprocess.Popen([*command, "run"], env=words, stderr=subprocess.PIPE, text=True)
    until(lambda: hook.titles()["Assize: time to appeal runs out"] == 1, 60, "the notice")
    daemon.kill()
    told += daemon.communicate()[1]
    scene.settle()
    daemon = subprocess.Popen([*command, "run"], env=words, stderr=subprocess.PIPE, text=True)
    until(lambda: hook.titles()["Assize: bond slashed"] == 1, 60, "the notice")
    daemon.terminate()
    told += daemon.communicate()[1]
    assert daemon.returncode == 0
    assert set(hook.titles().values()) <= {1, 2}
    assert hook.titles()["Assize: time to appeal runs out"] == 1
    assert "s3cret" not in told


def test_a_fault_in_a_plugin_is_a_failed_delivery_and_shows_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise RuntimeError("s3cret")

    monkeypatch.setattr("apprise.plugins.custom_json.NotifyJSON.send", fail)
    with capture_logs() as lines:
        assert not Target("target 1 (json)", "t1", "json://user:s3cret@127.0.0.1:9").send("title", "text")
    assert "s3cret" not in str(lines)


def test_targets_are_named_by_line_and_never_by_url(tmp_path: Path) -> None:
    urls = tmp_path / "urls"
    urls.write_text("\njson://user:s3cret@host\nnonsense s3cret\n")
    with pytest.raises(Misconfigured, match="line 3") as raised:
        read_targets(urls)
    assert "s3cret" not in str(raised.value)
    urls.write_text("json://user:s3cret@host\n")
    assert "s3cret" not in repr(read_targets(urls))
    urls.write_text("# none\n")
    with pytest.raises(Misconfigured, match="names no target"):
        read_targets(urls)


def test_on_a_chain_with_a_history_it_starts_with_what_is_there(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    scene.judge_a_round()
    scene.settle()
    scene.market.anvil.rpc.call("anvil_mine", hex(200))
    watching = notifier(scene, tmp_path / "state", hook, NoticeFigures(appeal_seconds=10 * WINDOW))
    settle_down(watching)
    assert hook.titles() == {"Assize: bond under its margin": 1}  # it still is; what happened before is past
    scene.publish()
    settle_down(watching)
    watching.close()
    assert hook.titles()["Assize: new version"] == 1


def test_what_the_settings_name_no_more_is_not_followed_any_more(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    watching = notifier(scene, tmp_path / "state", hook)
    settle_down(watching)
    scene.judge_a_round()
    settle_down(watching)
    watching.close()
    told = len(hook.received)
    owner = next(iter(scene.validators.values())).owner.address
    again = notifier(scene, tmp_path / "state", hook, first=Followed({owner}))
    scene.settle()
    settle_down(again)
    followed = again._place.followed
    again.close()
    assert list(followed.nodes.values()) == [owner]
    assert followed.named == set()
    assert all(f"node {scene.worker.node} " not in each["message"].lower() for each in hook.received[told:])


def test_a_run_that_was_taken_out_of_the_settings_is_dropped(scene: Scene, hook: Webhook, tmp_path: Path) -> None:
    owner = next(iter(scene.validators.values())).owner.address
    for named in ({scene.market.run}, set[int]()):
        watching = notifier(scene, tmp_path / "state", hook, first=Followed({owner}, {}, named))
        settle_down(watching)
        assert watching._place.followed.named == named
        watching.close()
