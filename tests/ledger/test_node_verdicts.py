"""A node's verdicts with their reasons, over HTTP and as a command."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient
from typer.testing import CliRunner

from ledger.api.app import create_app
from ledger.commands.app import app
from ledger.commands.verdicts import _finding
from ledger.explorer.contents import _findings
from ledger.explorer.findings import BundleReading, JobReading
from ledger.explorer.views import node_view
from ledger.queries.verdicts import node_verdicts
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from protocol.chain.reading.client import Chain
from protocol.wire.evidence import Evidence, Finding, JobEvidence, SignedEvidence
from protocol.wire.reasons import Reason
from tests.ledger.conftest import shared_story as story
from tests.ledger.disputes import CHAPTERS, Dispute, condemn, dispute_all, told
from tests.ledger.scenario import Story

__all__ = ["story"]

FRAUD = "a token differs from the seeded choice by more than any honest engine gives"


def test_each_verdict_has_its_reason_in_words_and_pages_follow(story: Story, synced: Database, chain: Chain) -> None:
    with TestClient(create_app(chain, synced, Follower(chain, synced))) as http:
        path = f"/nodes/{story.cheat.node}/verdicts"
        first = http.get(path, params={"limit": 1}).json()
        (one,) = first["items"]
        assert (one["round"], one["job"], one["verdict"], one["sentence"]) == (story.rounds[0], 3, "fraud", FRAUD)
        assert (one["jurors"], len(one["evidence_roots"])) == (2, 2)
        second = http.get(path, params={"limit": 1, "after": first["next"]}).json()
        assert ([each["job"] for each in second["items"]], second["next"]) == ([4], None)
        assert http.get(path, params={"since": one["timestamp"] + 1}).json()["items"] == []
        assert http.get(path, params={"after": "nonsense"}).status_code == 400
        honest = http.get(f"/nodes/{story.honest.node}/verdicts").json()["items"]
        assert [(each["verdict"], each["sentence"]) for each in honest[:2]] == [("accepted", "every check passed")] * 2
        assert honest[-1]["sentence"] == "the round ended without a verdict"
        assert http.get("/nodes/999/verdicts").json()["items"] == []


def test_after_an_appeal_the_reason_is_its_committees(dispute: Dispute, chain: Chain, database: Database) -> None:
    told(dispute)
    sync(chain, database)
    with database.reading() as connection:
        found = node_verdicts(connection, dispute.workers[0].node, 0, None, None)
    trials = {each.job: each.trial for each in found if each.round == dispute.round}
    assert trials == {job: dispute.appeals[job] if job in (0, 1, 2) else dispute.round for job in trials}
    by_job = {each.job: (each.verdict, each.reason, each.appeal > 0) for each in found if each.round == dispute.round}
    assert by_job[0] == ("accepted", "accepted", True)  # found fraudulent at first
    assert by_job[1] == ("fraud", "sampling_fraud", True)
    assert by_job[2][:2] == ("void", "shape")
    assert by_job[4] == ("accepted", "accepted", False)


def test_a_feed_since_a_time_has_the_verdicts_that_an_appeal_changed_after_it(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    for chapter in CHAPTERS:
        chapter(dispute)
        dispute.market.pass_time(2)
    sync(chain, database)
    with database.reading() as connection:
        whole = node_verdicts(connection, dispute.workers[0].node, 0, None, None)
        first = next(each for each in whole if each.round == dispute.round)
        later = node_verdicts(connection, dispute.workers[0].node, first.timestamp + 1, None, None)
    appealed = {each.job for each in whole if each.round == dispute.round and each.appeal}
    assert {each.job for each in later if each.round == dispute.round} == appealed != set()


def test_until_an_appeal_is_decided_the_reason_is_the_first_committees(
    dispute: Dispute, chain: Chain, database: Database
) -> None:
    for chapter in (condemn, dispute_all):
        chapter(dispute)
    sync(chain, database)
    with database.reading() as connection:
        found = node_verdicts(connection, dispute.workers[0].node, 0, None, None)
        view = node_view(connection, dispute.workers[0].node, True)
    assert [(each.job, each.reason, each.jurors) for each in found[:3]] == [
        (0, "sampling_fraud", 1),
        (1, "accepted", 1),
        (2, "shape", 1),
    ]
    assert view
    assert view.refusals[-1].appeal == dispute.appeals[0]
    assert [each.round.round for each in view.rounds] == [dispute.round]
    finding = Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 2.0, 1.0)
    job = JobReading(view.node.node, bytes(32), Reason.SAMPLING_FRAUD, (finding,), 1, (), None)
    bundles = {dispute.round: [BundleReading(bytes(32), {0: job})]}
    assert _findings(bundles, view.refusals) == {(dispute.round, 0): finding}


def test_a_bundle_may_leave_a_job_out_or_name_it_twice(story: Story, synced: Database, chain: Chain) -> None:
    with synced.reading() as connection:
        verdict = node_verdicts(connection, story.cheat.node, 0, None, 1)[0]
    finding = Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 2.0, 1.0)
    job = JobEvidence(verdict.job, verdict.node, bytes(32), Reason.SAMPLING_FRAUD, 1, 1, (finding,), None)
    for jobs, expected in (((), None), ((job, job), finding)):
        evidence = Evidence(
            *(chain.chain_id, chain.deployment.rounds, 1, verdict.round, 0, 1, 0),
            *(bytes(32), bytes(32), {"toploc": 1.0}, jobs),
        )
        data = SignedEvidence(evidence, bytes(65)).canonical
        assert _finding(verdict, data, evidence.root, chain) == expected


def test_the_command_lists_them(story: Story, chain: Chain, addresses: Path, tmp_path: Path) -> None:
    where = ["--addresses", str(addresses), "--rpc", chain.rpc.url, "--db", str(tmp_path / "cli.sqlite")]
    done = CliRunner().invoke(app, ["verdicts", str(story.cheat.node), "--json", *where])
    assert [each["reason"] for each in json.loads(done.stdout)] == ["sampling_fraud"] * 2
    shown = CliRunner().invoke(app, ["verdicts", str(story.cheat.node), *where])
    assert FRAUD in shown.stdout
    unanswered = CliRunner().invoke(
        app, ["verdicts", str(story.cheat.node), "--json", "--coordinator", "http://127.0.0.1:9", *where]
    )
    assert [each["observed"] for each in json.loads(unanswered.stdout)] == [None, None]
    wrong = CliRunner().invoke(app, ["verdicts", "1", "--since", "yesterday", *where])
    assert wrong.exit_code == 2
