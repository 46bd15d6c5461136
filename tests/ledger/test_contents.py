"""Pages that show bytes: what a worker wrote and what jurors measured, from a real coordinator and a real relay."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient
from tokenizers import Tokenizer

from ledger.api.app import create_app
from ledger.api.blobs import BlobSource
from ledger.explorer import texts, views
from ledger.explorer.contents import Contents, NamedSeat
from ledger.explorer.findings import RecordStep, read_bundle, record_after, step_of
from ledger.explorer.links import passage
from ledger.explorer.texts import decoder_of
from ledger.explorer.views import job_sources, named_seats
from ledger.facts import Job, Node, Round
from ledger.queries.daily import credits_by_day
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from ledger.store.rows import find_fact
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.evidence import Measurements, parse_signed
from protocol.wire.rules import Sequential
from tests.conftest import serving
from tests.ledger.scenario import FOREVER, Story
from tests.ledger.shown import Shown, shown, tokenizer
from validator.records.record import EvidenceState, bounded, ratios_of

HTML = {"Accept": "text/html"}
MOST_KIB = 200
STRIPS, LEVELS = ("single_word", "lstrip", "rstrip"), ("add_prefix_space", "trim_offsets", "use_regex")
"""Fields of a tokenizer's file."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[socket.socket]:
    """A server that the submissions name, and that nobody may ask."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        yield listener


@pytest.fixture(scope="module")
def round_shown(
    told_once: Story, elsewhere: socket.socket, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shown]:
    uri = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/<artifacts>/"
    with shown(told_once, tmp_path_factory.mktemp("shown"), uri) as told:
        yield told


@pytest.fixture(scope="module")
def database(round_shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    chain = round_shown.story.market.chain
    with closing(Database(tmp_path_factory.mktemp("books") / "ledger.sqlite", chain.deployment)) as opened:
        sync(chain, opened)
        yield opened


@contextmanager
def ledger_of(
    round_shown: Shown, database: Database, coordinators: list[str], relays: list[str]
) -> Iterator[TestClient]:
    """The ledger of the round, started with these addresses."""
    chain = round_shown.story.market.chain
    with closing(BlobSource(coordinators, relays)) as source:
        yield TestClient(create_app(chain, database, Follower(chain, database), blobs=source), headers=HTML)


@pytest.fixture(scope="module")
def told(round_shown: Shown, database: Database) -> Iterator[TestClient]:
    """The ledger of the round, started with its coordinator and its relay."""
    with ledger_of(round_shown, database, [round_shown.coordinator.url], [round_shown.relay]) as client:
        yield client


def seen(client: TestClient, path: str) -> str:
    """A page, once it has what it waits for."""
    for _ in range(20):
        answer = client.get(path)
        assert answer.status_code == 200
        assert len(answer.content) <= MOST_KIB * 1024
        if "still being fetched" not in answer.text:
            break
        time.sleep(0.2)
    return answer.text


def test_a_job_shows_its_prompts_and_completions_as_text(told: TestClient, round_shown: Shown) -> None:
    page = seen(told, f"/why/jobs/{round_shown.round}/4")
    assert "<bdi>12+30=</bdi>" in page
    assert page.index("<bdi>43&lt;end&gt;</bdi>") < page.index("<bdi>42&lt;end&gt;</bdi>")
    assert "<code>9 8 0</code>" in page  # the ids of 43<end>
    assert f'href="/blobs/artifacts/0x{round_shown.roots[4].hex()}"' in page


def test_findings_stand_beside_their_bounds_and_mark_the_rollout(told: TestClient, round_shown: Shown) -> None:
    page = seen(told, f"/why/jobs/{round_shown.round}/4")
    first, second, third = round_shown.seats
    assert re.search(r'<td class="n">6\.25</td><td class="n">1</td><td><svg.*?</svg>over', page, re.DOTALL)
    assert re.search(r'<td class="n">0\.03</td><td class="n">0\.1</td><td><svg.*?</svg>below', page, re.DOTALL)
    wrong, right = (page[page.index(f'id="rollout-{each}"') :] for each in (0, 1))
    for juror in (first, second):
        assert f"sampling_fraud, juror {juror}" in wrong[: wrong.index("</li>")]
    assert "sampling_fraud" not in right[: right.index("</li>")]
    assert f'href="/nodes/{third}"' in page
    assert "Not shown: the coordinator that this ledger asks does not have evidence" in page


def test_a_bundle_that_contradicts_its_vote_is_marked(told: TestClient, round_shown: Shown) -> None:
    page = seen(told, f"/why/jobs/{round_shown.round}/1")
    assert page.count("differs from its evidence") == 1
    assert "median difference of logprobs &lt;b&gt;" in page
    assert "differs from its evidence" not in seen(told, f"/why/jobs/{round_shown.round}/0")


def test_hostile_completions_are_shown_as_text(told: TestClient, round_shown: Shown) -> None:
    page = seen(told, f"/why/jobs/{round_shown.round}/1")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "⟨U+202E⟩txet denrut" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    long = seen(told, f"/why/jobs/{round_shown.round}/2")  # a completion of a million characters
    assert re.search("x{1000,4000}</bdi>", long)
    assert "of 65,000 characters" in long
    assert "The text of its first 65 tokens." in long


def test_a_job_with_many_rollouts_has_pages(told: TestClient, round_shown: Shown) -> None:
    path = f"/why/jobs/{round_shown.round}/3"
    first, last = seen(told, path), seen(told, f"{path}?first=16")
    assert [f'id="rollout-{number}"' in first for number in (0, 7, 8)] == [True, True, False]
    assert f"{path}?first=8#rollouts" in first
    assert [f'id="rollout-{number}"' in last for number in (15, 16, 19)] == [False, True, True]
    assert "Rollouts from" not in last
    assert "There is no rollout 64." in seen(told, f"{path}?first=64")
    both = seen(told, f"{path}?first=8")  # its prompt changes at rollout 10
    assert both.index("<bdi>12+30=</bdi>") < both.index('id="rollout-9"') < both.index("<bdi>7+1=</bdi>")


def test_without_a_relay_there_are_tokens_and_the_reason(round_shown: Shown, database: Database) -> None:
    with ledger_of(round_shown, database, [round_shown.coordinator.url], []) as client:
        page = seen(client, f"/why/jobs/{round_shown.round}/4")
    assert "Only tokens are shown: <bdi>this ledger asks no relay for tokenizer.json</bdi>" in page
    assert "<code>9 8 0</code>" in page
    assert "<pre" not in page


def test_without_bytes_a_page_says_so_and_never_asks_where_a_submission_points(
    told: TestClient, round_shown: Shown, database: Database, elsewhere: socket.socket
) -> None:
    with ledger_of(round_shown, database, [], []) as client:
        page = seen(client, f"/why/jobs/{round_shown.round}/4")
        node = seen(client, f"/nodes/{round_shown.story.cheat.node}")
    assert "this ledger asks no coordinator for it" in page
    assert "/&lt;artifacts&gt;/</bdi>, where this ledger does not ask" in page
    assert "published what they measured in bundles that are not on the chain" in page
    assert "this ledger asks no coordinator" in node
    with ledger_of(round_shown, database, ["http://127.0.0.1:9"], ["http://127.0.0.1:9"]) as client:
        page = seen(client, f"/why/jobs/{round_shown.round}/4")
        assert "does not answer" in page
        assert "127.0.0.1:9/" not in page
        assert client.get(f"/blobs/artifacts/0x{round_shown.roots[4].hex()}").status_code == 503
    with pytest.raises(BlockingIOError):
        elsewhere.accept()


def test_evidence_counts_only_with_its_jurors_signature_and_seat(told: TestClient, round_shown: Shown) -> None:
    market, juror = round_shown.story.market, round_shown.seats[0]
    page = seen(told, f"/why/jobs/{round_shown.round}/4")
    root = re.search(rf'/blobs/evidence/(0x[0-9a-f]+)">Bundle of juror {juror}<', page)
    assert root
    signed = parse_signed(told.get(f"/blobs/evidence/{root[1]}").content)
    key = round_shown.story.validators[juror].key.address
    of = (market.chain.chain_id, market.deployment.rounds, round_shown.round, 0, juror)
    assert set(read_bundle(signed, of, key).jobs) == set(range(6))
    with pytest.raises(Rejected, match="key"):
        read_bundle(signed, of, round_shown.story.honest.key.address)
    for wrong in ((1, *of[1:]), (*of[:3], 1, juror), (*of[:4], juror + 1)):
        with pytest.raises(Rejected, match="of another"):
            read_bundle(signed, wrong, key)


def test_bytes_are_passed_on_for_readers_and_evidence_is_never_kept_for_good(
    told: TestClient, round_shown: Shown
) -> None:
    juror = round_shown.seats[0]
    page = seen(told, f"/why/jobs/{round_shown.round}/4")
    root = re.search(rf'/blobs/evidence/(0x[0-9a-f]+)">Bundle of juror {juror}<', page)
    assert root
    artifact = told.get(f"/blobs/artifacts/0x{round_shown.roots[4].hex()}")  # a link that a reader follows
    evidence = told.get(f"/blobs/evidence/{root[1]}")
    assert parse_blob(artifact.content, round_shown.roots[4])
    assert parse_signed(evidence.content, bytes.fromhex(root[1][2:])).evidence.juror == juror
    for each, kept in ((artifact, "immutable"), (evidence, "no-cache")):
        assert each.headers["content-type"] == "application/octet-stream"
        assert each.headers["x-content-type-options"] == "nosniff"
        assert kept in each.headers["cache-control"]
    assert told.get("/blobs/artifacts/0x12").status_code == 422


def test_a_hash_that_the_chain_does_not_name_never_reaches_a_coordinator(
    round_shown: Shown, database: Database
) -> None:
    counting, asked = FastAPI(), list[str]()

    @counting.get("/{path:path}")
    def ask(path: str) -> Response:
        asked.append(path)
        return Response(status_code=404)

    with serving(counting) as url, ledger_of(round_shown, database, [url], []) as client:
        for kind, what in (("artifacts", "artifact"), ("evidence", "evidence"), ("rules", "rules")):
            answer = client.get(f"/blobs/{kind}/0x{'ab' * 32}")
            assert (answer.status_code, answer.json()["error"]) == (404, f"the chain names no {what} 0x{'ab' * 32}")
        assert asked == []
        named = client.get(f"/blobs/artifacts/0x{round_shown.roots[4].hex()}")
        assert (named.status_code, len(asked)) == (404, 1)
        assert "does not have the artifact" in named.json()["error"]


def bundles(round_shown: Shown, database: Database) -> dict[int, NamedSeat]:
    """The round's seats whose votes name evidence, by juror."""
    with database.reading() as connection:
        round_ = find_fact(connection, Round, round_shown.round)
        assert round_
        return {named.seat.juror: named for named in named_seats(connection, round_)}


def test_a_false_signature_does_not_hide_the_good_copy_of_another_coordinator(
    round_shown: Shown, database: Database
) -> None:
    real, false = round_shown.coordinator.url, FastAPI()
    root = bundles(round_shown, database)[round_shown.seats[0]].seat.evidence_root

    @false.get("/evidence/{name}")
    def lie(name: str) -> Response:
        with closing(BlobSource([real])) as honest:
            signed = parse_signed(honest.get("evidence", root), root)
        return Response(replace(signed, signature=bytes(65)).canonical)

    with serving(false) as url, ledger_of(round_shown, database, [url, real], []) as client:
        answer = client.get(f"/blobs/evidence/0x{root.hex()}")
        assert parse_signed(answer.content, root).signature != bytes(65)
        assert f"sampling_fraud, juror {round_shown.seats[0]}" in seen(client, f"/why/jobs/{round_shown.round}/4")
    with serving(false) as url, ledger_of(round_shown, database, [url], []) as client:
        assert client.get(f"/blobs/evidence/0x{root.hex()}").status_code == 404


def test_a_bundle_that_was_read_for_one_seat_is_refused_for_another(round_shown: Shown, database: Database) -> None:
    first, second, _ = round_shown.seats
    named = bundles(round_shown, database)[first]
    until = time.monotonic() + 20
    with closing(BlobSource([round_shown.coordinator.url])) as source:
        contents = Contents(source, round_shown.story.market.deployment)
        assert contents.bundle(named, until).jobs
        with pytest.raises(Rejected, match="of another seat"):
            contents.bundle(replace(named, seat=replace(named.seat, juror=second)), until)


def test_rounds_that_are_read_for_a_refusal_do_not_count_in_the_record(
    round_shown: Shown, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "RECORD_ROUNDS", 1)
    with database.reading() as connection:
        view = views.node_view(connection, round_shown.story.cheat.node, True)
    assert view
    assert [each.counted for each in view.rounds] == [True] + [False] * (len(view.rounds) - 1)
    assert len(view.rounds) > 1
    with closing(BlobSource([round_shown.coordinator.url])) as source:
        contents = Contents(source, round_shown.story.market.deployment)
        assert [each.job.job for each in contents.node(view.rounds, view.refusals).record.jobs] == [4, 5]
        biased = contents.node([replace(each, counted=False) for each in view.rounds], view.refusals)
    assert biased.record.problem == "no round of its jobs is settled"
    assert biased.findings


def test_evidence_is_held_against_the_key_that_its_juror_had_when_it_voted(
    round_shown: Shown, database: Database, tmp_path: Path
) -> None:
    story, (first, second, _) = round_shown.story, round_shown.seats
    chain, market = story.market.chain, story.market
    before = bundles(round_shown, database)
    for juror, revoked in ((first, False), (second, True)):
        party = story.validators[juror]
        if revoked:
            market.send(party.owner, calls.revoke_key(market.deployment, party.node))
            continue
        key = market.make_wallet("fresh")
        owner = party.owner.address
        about = (chain.chain_id, chain.deployment.registry, owner, key.address, Role.VALIDATOR, 1, FOREVER)
        signature = key.sign_typed(auth.node_binding(*about))
        market.send(party.owner, calls.rotate_key(market.deployment, party.node, key.address, FOREVER, signature))
    with closing(Database(tmp_path / "rotated.sqlite", chain.deployment)) as rotated:
        sync(chain, rotated)
        with rotated.reading() as connection:
            nodes = [find_fact(connection, Node, juror) for juror in (first, second)]
        assert [node.key for node in nodes if node] == [key.address, "0x" + "0" * 40]
        assert bundles(round_shown, rotated) == before
        assert before[first].key == story.validators[first].key.address
        with ledger_of(round_shown, rotated, [round_shown.coordinator.url], []) as client:
            page = seen(client, f"/why/jobs/{round_shown.round}/4")
            raw = client.get(f"/blobs/evidence/0x{before[first].seat.evidence_root.hex()}")
    assert page.count("Not shown: ") == 1  # the third juror's
    assert raw.status_code == 200


def test_a_node_shows_its_refusals_with_values_and_its_record_against_the_bound(
    told: TestClient, round_shown: Shown
) -> None:
    page = seen(told, f"/nodes/{round_shown.story.cheat.node}")
    assert re.search(r'<td class="n">[67]\.25</td><td class="n">1</td><td><svg.*?</svg>over', page, re.DOTALL)
    assert "18.48 nats" in page  # two jobs of 9.24
    assert "28.73 nats" in page
    assert "1 bundle could not be read" in page
    honest = seen(told, f"/nodes/{round_shown.story.honest.node}")
    assert "0 nats" in honest
    assert "Jobs due" in honest


def test_earnings_are_summed_by_day(round_shown: Shown, database: Database, told: TestClient) -> None:
    honest = round_shown.story.honest
    with database.reading() as connection:
        days = credits_by_day(connection, node=honest.node)
        moved = credits_by_day(connection, owner=honest.owner.address)
        assert credits_by_day(connection, node=round_shown.story.cheat.node) == ()
    assert sum(day.came for day in days) == sum(day.came for day in moved) > sum(day.went for day in moved) > 0
    assert abs((days[-1].day - datetime.now(UTC).date()).days) <= 1
    assert days[-1].before == moved[-1].before == 0
    assert max(len(days), len(moved)) <= 2  # two, where the chain's midnight fell within the round
    for path, shown_days in ((f"/nodes/{honest.node}", days), (f"/credits/{honest.owner.address}", moved)):
        page = seen(told, path)
        for day in shown_days:
            assert f'<data value="{day.before}">{day.day}</data>' in page


def test_an_outsiders_record_is_that_of_a_validator_that_measured_the_same_jobs() -> None:
    chance = np.random.default_rng(7)
    sequential = Sequential(sigma=1e-3, clearing=0.05)
    ours, theirs = RecordStep(0.0, 0.0, 0.0), EvidenceState()
    for _ in range(50):
        flips = chance.integers(0, 3, 4).astype(np.uint32)
        some = np.zeros(4, np.float32)
        measured = Measurements(
            *(flips + 5, flips, np.minimum(flips, chance.integers(0, 3, 4)).astype(np.uint32)),
            *(some, some, some, chance.normal(0, 2, 4).astype(np.float32), some, some),
            *(np.zeros(4, np.uint32), np.zeros(0, np.float32), np.zeros(0, np.float32)),
        )
        ours = record_after(ours, step_of(measured), sequential)
        theirs = theirs.after(bounded(ratios_of(measured), sequential))
        assert (ours.choices, ours.upward, ours.downward) == (theirs.choices, theirs.upward, theirs.downward)


@pytest.mark.parametrize(
    "change",
    [
        {"decoder": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "CTC"}]}},
        {"decoder": {"type": "Replace", "pattern": {"String": "1"}, "content": "11"}},
        {"decoder": {"type": "Replace", "pattern": {"String": "1" * 2000}, "content": ""}},
        {"decoder": {"type": "BPEDecoder", "suffix": ""}},
        {"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 9}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}] * 8}},
        {"model": {"type": "WordLevel", "vocab": {"x" * 1025: 0}, "unk_token": "x"}},
        {"model": {"type": "Unigram", "vocab": [["日" * 342, -1.0]]}},
        {"added_tokens": [{"id": 0, "content": "x" * 1025}]},
        {"decoder": {"type": 7}},
        {"decoder": []},
        {"model": {"type": "WordLevel"}},
        {"model": 3},
        {"added_tokens": "no"},
    ],
)
def test_a_tokenizer_that_cannot_be_run_safely_is_refused(change: dict[str, object]) -> None:
    assert decoder_of(tokenizer())([6, 0]) == ("1<end>", 2)
    with pytest.raises(Rejected):
        decoder_of(json.dumps(json.loads(tokenizer()) | change).encode())


def test_tokens_become_the_text_that_the_library_makes_of_them_up_to_a_bound() -> None:
    words = {
        "\u00e6\u0139\u00a5": 0,
        "\u00e6\u0139": 1,
        "\u00a5": 2,
        "\u0120a": 3,
        "x" * 1024: 4,
    }  # 日, in two parts too
    added = [{"id": 5, "content": "<end>", "special": True, "normalized": False} | dict.fromkeys(STRIPS, False)]
    made = {"version": "1.0", "added_tokens": added, "decoder": {"type": "ByteLevel"} | dict.fromkeys(LEVELS, True)}
    data = json.dumps(made | {"model": {"type": "BPE", "vocab": words, "merges": []}})
    ids = [0, 3, 1, 2, 1, 77, 5]
    assert decoder_of(data.encode())(ids) == (Tokenizer.from_str(data).decode(ids, skip_special_tokens=False), len(ids))
    assert decoder_of(data.encode())([4] * 1000) == ("x" * (64 << 10), 64)


def test_a_tokenizer_is_read_once_however_many_ask_and_refused_once(
    round_shown: Shown, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[bytes]()

    def slow(data: bytes) -> texts.Decoder:
        made.append(data)
        time.sleep(0.2)
        return decoder_of(data)

    def refusing(data: bytes) -> texts.Decoder:
        made.append(data)
        raise Rejected("no tokenizer")

    with database.reading() as connection:
        round_, job = find_fact(connection, Round, round_shown.round), find_fact(connection, Job, round_shown.round, 4)
        assert round_
        assert job
        sources = job_sources(connection, round_, job)
    with closing(BlobSource([round_shown.coordinator.url], [round_shown.relay])) as source:
        for reading, problem in ((slow, ""), (refusing, "no tokenizer")):
            contents, until = Contents(source, round_shown.story.market.deployment), time.monotonic() + 20
            made.clear()
            monkeypatch.setattr(texts, "decoder_of", reading)
            with ThreadPoolExecutor(4) as pool:
                found = [each.result() for each in [pool.submit(contents._decoder, sources, until) for _ in range(4)]]
            assert {told for _, told in found} == {problem}
            assert len(made) == 1


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b"\xff", b" " * (16 << 20) + tokenizer()])
def test_bytes_that_are_no_tokenizer_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected):
        decoder_of(data)


def test_a_passage_keeps_its_lines_and_no_more_bytes_than_fit() -> None:
    assert passage("a\n<b>", 100) == "<bdi>a</bdi>\n<bdi>&lt;b&gt;</bdi>"
    for text in ("\u202e" * 100_000, "\n" * 100_000, "<" * 100_000, "\ud800" * 100_000, "日" * 100_000):
        assert len(passage(text, 4000).encode()) < 4200
        assert f"of {len(text):,} characters" in passage(text, 4000)
