"""The explorer's pages: whole without a script, of one address with the API, and safe with hostile text."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from ledger.api.app import create_app
from ledger.explorer.links import Links, amount, legible, quoted, when
from ledger.explorer.negotiation import prefers_html
from ledger.explorer.rendering import POLICY, asset, assets
from ledger.explorer.timeline import spans
from ledger.facts import Appeal, Job, Round, Seat, Slash
from ledger.queries.lookup import every
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import EVENT, sync
from ledger.store.rows import find_fact, rows_of
from ledger.store.tables import TABLES
from protocol.wire.assignments import MAX_JOBS, Listing, pack_assignments
from tests.conftest import ROOT
from tests.ledger.scenario import HOSTILE, Story, checks_of, pages_of
from tests.ledger.spoiling import spoil
from tests.postgresql import new_database

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
HTML = {"Accept": BROWSER}
MOST_KIB = 200


@pytest.fixture(scope="module")
def database(everything: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    chain = everything.market.chain
    with closing(Database(tmp_path_factory.mktemp("explorer") / "ledger.sqlite", chain.deployment)) as opened:
        sync(chain, opened)
        yield opened


@pytest.fixture(scope="module")
def told(everything: Story, database: Database) -> Iterator[TestClient]:
    """The ledger of all of it, read once for the tests of this file."""
    chain = everything.market.chain
    with TestClient(create_app(chain, database, Follower(chain, database))) as client:
        yield client


@pytest.fixture
def in_postgresql(everything: Story, postgresql: str) -> Iterator[TestClient]:
    """The same ledger in PostgreSQL."""
    chain = everything.market.chain
    with closing(Database(new_database(postgresql), chain.deployment)) as opened:
        sync(chain, opened)
        yield TestClient(create_app(chain, opened, Follower(chain, opened)))


class Page(HTMLParser):
    """Links, ids and text of a page, and everything in it that could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.hidden: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes += given
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag in ("script", "link"):
            self.loaded.append(given.get("src") or given.get("href") or "inline")
        if given.get("type") == "hidden":
            self.hidden.append(given["name"] or "")
        if "id" in given:
            self.ids.append(given["id"] or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    @property
    def runs_nothing(self) -> bool:
        """True if the page has nothing that runs or is loaded, but the server's own scripts and style sheet."""
        tags = {"style", "iframe", "object", "embed", "base", "img"}
        handlers = [name for name in self.attributes if name == "style" or name.startswith("on")]
        known = {each.url for each in assets().values()} | {"data:,"}
        return not tags & set(self.tags) and not handlers and set(self.loaded) <= known


def test_every_page_answers_as_html_and_as_json(told: TestClient, everything: Story) -> None:
    for path in pages_of(everything):
        as_page, as_json = told.get(path, headers=HTML), told.get(path)
        assert (as_page.status_code, as_json.status_code) == (200, 200), (path, as_page.text[-600:])
        assert as_page.headers["content-type"] == "text/html; charset=utf-8"
        assert as_json.headers["content-type"] == "application/json"
        assert as_page.headers["vary"] == as_json.headers["vary"] == "Accept"
        assert len(as_page.content) <= MOST_KIB << 10, path


def test_a_page_is_the_same_from_either_database(
    told: TestClient, in_postgresql: TestClient, everything: Story
) -> None:
    as_of = "0x" + everything.market.chain.head().hash.hex()  # its time is that of the block, not of the clock

    def main(client: TestClient, path: str) -> str:
        answer = client.get(path + ("&" if "?" in path else "?") + f"as_of={as_of}", headers=HTML)
        return answer.text.partition("<main")[2].partition("<footer")[0]

    for path in pages_of(everything):
        if path not in ("/", "/audit"):  # which name the last audit of their server
            assert main(told, path) == main(in_postgresql, path), path


def test_only_a_request_that_prefers_html_gets_a_page(told: TestClient) -> None:
    plain = told.get("/rounds").content
    for accept in ("*/*", "application/json", "", "text/html;q=0.3, application/json", "text/css,*/*", "text/html;q=x"):
        assert told.get("/rounds", headers={"Accept": accept}).content == plain, accept
    del told.headers["accept"]
    try:
        assert told.get("/rounds").content == plain
    finally:
        told.headers["accept"] = "*/*"
    assert told.get("/health", headers=HTML).json()["status"] == "following"
    assert told.get("/", headers={"Accept": "*/*"}).json()["service"] == "Assize ledger"
    assert prefers_html(BROWSER)
    assert prefers_html("TEXT/HTML ; q=0.9, application/json;q=0.8")
    assert not prefers_html("text/html, application/json")


def test_the_page_of_a_check_may_ask_the_node_that_it_names_and_no_other(told: TestClient) -> None:
    for rpc, origin in (
        ("http://127.0.0.1:8545", "http://127.0.0.1:8545"),
        ("https://node.example/v1/a", "https://node.example"),
    ):
        answer = told.get("/check/rounds/1", params={"rpc": rpc}, headers=HTML)
        policy = POLICY.replace("connect-src 'self';", f"connect-src 'self' {origin};")
        assert answer.headers["content-security-policy"] == policy != POLICY
    for rpc in (
        "http://a b",
        "http://x;script-src",
        "http://x,y",
        "https://u@x",
        "ftp://x",
        "//x",
        "http://x?y",
        "x" * 400,
    ):
        refused = told.get("/check/rounds/1", params={"rpc": rpc}, headers=HTML)
        assert refused.status_code in (400, 422), rpc
        assert refused.headers["content-security-policy"] == POLICY


def test_pages_of_any_origin_may_read_the_api_and_nothing_else(told: TestClient) -> None:
    allowed = "access-control-allow-origin"
    for path in ("/rounds", "/health", "/rounds/9999", "/openapi.json"):
        answer = told.get(path, headers={"Origin": "null"})
        assert answer.headers[allowed] == "*", path
        assert "access-control-allow-credentials" not in answer.headers
    assert allowed not in told.get("/rounds", headers=HTML).headers
    assert allowed not in told.get("/static/explorer.css").headers
    assert allowed not in told.post("/audit", headers=HTML).headers
    assert allowed not in told.options("/rounds", headers={"Access-Control-Request-Method": "POST"}).headers


def test_every_page_is_strict_and_runs_nothing(told: TestClient, everything: Story) -> None:
    for path in (*pages_of(everything), *checks_of(everything), "/rounds/9999", "/nowhere", "/rounds?before=x"):
        answer = told.get(path, headers=HTML)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        page = Page(answer.text)
        assert page.runs_nothing, path
        assert {"header", "nav", "main", "footer", "h1"} <= set(page.tags), path
        assert page.tags.count("h1") == page.tags.count("main") == 1, path
        assert page.links[0] == "#main" in [f"#{each}" for each in page.ids], "the first link skips to the content"
        assert len(page.ids) == len(set(page.ids)), path


def test_every_internal_link_leads_somewhere(told: TestClient) -> None:
    asked, waiting = dict[str, list[str]](), ["/"]
    while waiting:
        path = waiting.pop()
        if path in asked:
            continue
        answer = told.get(path, headers=HTML)
        assert answer.status_code == 200, (path, Page(answer.text).text[:600])
        page = Page(answer.text)
        asked[path] = page.ids
        for link in page.links:
            target = urljoin(path, link)
            assert target.startswith("/"), (path, link)
            if link.startswith("#"):
                assert link[1:] in page.ids, (path, link)
            elif "as_of" not in target:  # that they are kept is another test's
                waiting.append(target)
    assert len(asked) > 150
    seen = {re.sub(r"0x[0-9a-f]+|\d+", "…", urlsplit(path).path, flags=re.IGNORECASE) for path in asked}
    assert {"/rounds/…", "/why/jobs/…/…", "/why/entries/…/…", "/transactions/…", "/checkpoints/…/…"} <= seen


def test_a_page_as_of_a_block_keeps_it_in_every_link(told: TestClient, everything: Story) -> None:
    chain = everything.market.chain
    head = chain.head().number
    older = "0x" + chain.block(head - 2).hash.hex()
    for path in pages_of(everything):
        if path.startswith("/search"):
            continue
        whole = path + ("&" if "?" in path else "?") + f"as_of={older}"
        answer = told.get(whole, headers=HTML)
        assert answer.status_code == 200, (whole, answer.text[-400:])
        page = Page(answer.text)
        kept = [parse_qs(urlsplit(link).query).get("as_of") for link in page.links if not link.startswith("#")]
        assert kept == [[older]] * len(kept), path
        assert f"As of block {head - 2:,}, not the newest" in page.text
        assert page.hidden.count("as_of") == page.tags.count("form") - 1, "all but the one that leads to the newest"


def test_hostile_text_is_shown_as_text(told: TestClient, everything: Story, tmp_path: Path) -> None:
    for path in ("/runs", "/runs/3"):
        page = Page(told.get(path, headers=HTML).text)
        assert page.runs_nothing
        assert "<script>alert(1)</script>" in page.text
        assert "␛[31m⟨U+202E⟩gnirts⟨U+2066⟩&amp;" in page.text
        assert "of 10," in page.text, "its length is told"
    chain = everything.market.chain
    with closing(Database(tmp_path / "hostile.sqlite", chain.deployment)) as spoilt:
        sync(chain, spoilt)
        spoil(spoilt)
        hostile = TestClient(create_app(chain, spoilt, Follower(chain, spoilt)))
        for path in pages_of(everything):
            answer = hostile.get(path, headers=HTML)
            assert answer.status_code == 200, (path, answer.text[-500:])
            assert Page(answer.text).runs_nothing, path
            assert "\x00" not in answer.text
            assert "\u202e" not in answer.text


@pytest.mark.parametrize("text", [HOSTILE[:200], "\ud800", "é" * 150, "\x00", "' OR 1=1 --", "0x" + "zz" * 20, "%"])
def test_hostile_questions_get_one_sentence(told: TestClient, text: str) -> None:
    asked = text.encode(errors="surrogatepass")
    for answer in (
        told.get("/search", params={"q": asked}, headers=HTML),
        told.get("/rounds", params={"before": asked}, headers=HTML),
        told.get("/runs", params={"as_of": asked}, headers=HTML),
    ):
        page = Page(answer.text)
        assert answer.status_code in (400, 404, 422)
        assert page.runs_nothing
        assert page.tags.count("h1") == 1


def test_no_page_links_to_another_host(told: TestClient) -> None:
    for path in ("//elsewhere.example/x", "/\\\\elsewhere.example", "///elsewhere.example/rounds"):
        page = Page(told.get(str(told.base_url) + path, headers=HTML).text)
        assert all(re.match(r"#|/(?![/\\])", link) for link in page.links), path


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        ("/rounds/9999", 404, "there is no round 9999"),
        ("/runs/9999", 404, "there is no run 9999"),
        ("/nodes/9999", 404, "there is no node 9999"),
        ("/checkpoints/1/99", 404, "there is no version 99 of run 1"),
        ("/why/jobs/9999/0", 404, "there is no job 0 in a round 9999"),
        ("/credits/0x00000000000000000000000000000000000000aa", 404, "there is no owner"),
        ("/transactions/0x" + "ab" * 32, 404, "there is no transaction"),
        ("/credits/alice", 422, "owner"),
        ("/rounds/x", 422, "round"),
        ("/rounds?before=zz", 400, "the cursor is not one that this list gave"),
        ("/search?q=nonsense", 400, "invalid search: expected a number"),
        ("/nowhere", 404, "there is no page /nowhere"),
        ("/static/explorer.0000.css", 404, "there is no page"),
    ],
)
def test_a_wrong_request_is_a_page_with_one_sentence(told: TestClient, path: str, code: int, sentence: str) -> None:
    answer = told.get(path, headers=HTML)
    assert answer.status_code == code
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert sentence in Page(answer.text).text


@pytest.mark.parametrize("name", ["path", "self", "text", "request", "view", "q"])
def test_a_question_nobody_asks_changes_no_page(told: TestClient, name: str) -> None:
    assert told.get(f"/rounds?{name}=x", headers=HTML).status_code == 200


def test_who_asks_for_an_audit_while_one_is_made_does_not_wait(told: TestClient) -> None:
    service = told.app.state.service  # type: ignore[attr-defined]
    with service._lock:
        began = time.monotonic()
        answers = [told.get("/audit"), told.get("/runs", headers=HTML)]
    assert time.monotonic() - began < 5
    assert answers[0].status_code in (200, 503), "the last report, or a sentence"
    assert answers[1].status_code == 200


def test_search_finds_by_number_pair_address_hash_and_transaction(told: TestClient, everything: Story) -> None:
    def found(text: str) -> set[str]:
        return {hit["path"] for hit in told.get("/search", params={"q": text}).json()}

    assert found("1") == {"/runs/1", "/rounds/1", "/nodes/1"}
    assert {"/why/jobs/1/0"} <= found("1/0")
    owner = everything.honest.owner.address
    assert found(owner.lower()) == {f"/credits/{owner}"}
    assert found(everything.honest.key.address) == {f"/nodes/{everything.honest.node}"}
    assert "/runs/1" in found(everything.coordinator.address)
    assert found("0x" + "02" * 32) >= {"/checkpoints/1/1"}
    assert found("0x" + "20" * 32) == {f"/why/jobs/{everything.rounds[0]}/0"}
    beacon = told.get(f"/rounds/{everything.rounds[0]}").json()["round"]["beacon"]
    assert found(beacon) == {f"/rounds/{everything.rounds[0]}"}
    slash = told.get("/slashes").json()["items"][0]
    assert found(slash["tx_hash"]) == {f"/transactions/{slash['tx_hash']}"}
    assert found("999999") == set()
    assert "Nothing is known by 999999" in Page(told.get("/search?q=999999", headers=HTML).text).text
    assert told.get(f"/search?q={everything.rounds[0]}/2", headers=HTML).url.path.startswith("/why/jobs/")


def test_a_round_shows_each_vote_with_its_reason(told: TestClient, everything: Story) -> None:
    answer = told.get(f"/rounds/{everything.rounds[0]}", headers=HTML)
    page = Page(answer.text)
    assert {"reason-accepted", "reason-sampling_fraud"} <= set(page.ids)
    assert page.links.count("#reason-sampling_fraud") == 4, "two jobs, two votes"
    assert "a token differs from the seeded choice by more than any honest engine gives" in page.text
    assert "validators 3" in page.text or "validators" in page.text
    assert "RoundTallied" in page.text


def test_a_nodes_page_has_its_margin_verdicts_and_what_silence_is_worth(told: TestClient, everything: Story) -> None:
    page = Page(told.get(f"/nodes/{everything.cheat.node}", headers=HTML).text)
    assert "short of bond" in page.text
    assert "sampling_fraud" in page.text
    assert "What a silent record is worth" in page.text
    assert "Jobs until condemned" in page.text


def test_an_audit_is_made_when_it_is_asked_for(told: TestClient) -> None:
    other = told.post("/audit", headers=HTML | {"Sec-Fetch-Site": "cross-site"})
    assert other.status_code == 403
    made = told.post("/audit", headers=HTML | {"Sec-Fetch-Site": "same-origin"})
    page = Page(made.text)
    assert made.status_code == 200
    assert [each.status_code for each in made.history] == [303]
    assert "Last report passed" in page.text
    assert "passed" in Page(told.get("/", headers=HTML).text).text
    assert told.post("/audit").status_code == 405, "of the API it is asked with GET"


def test_style_sheets_and_scripts_are_kept_for_good_under_the_hash_of_their_bytes(told: TestClient) -> None:
    top = Page(told.get("/", headers=HTML).text)
    assert {"explorer.css", "explorer.js"} <= {
        re.sub(r"\.[0-9a-f]{16}", "", path.rpartition("/")[2]) for path in top.loaded
    }
    for each in assets().values():
        for accept in ("text/css,*/*;q=0.1", BROWSER):
            answer = told.get(each.url, headers={"Accept": accept})
            assert (answer.content, answer.headers["cache-control"]) == (
                each.data,
                "public, max-age=31536000, immutable",
            )
            kind = answer.headers["content-type"].split(";")[0]
            kept = answer.headers.get("content-disposition", "").startswith("attachment")  # never shown as a page
            assert kind in ("text/css", "text/javascript") or (kind == "text/html" and kept)


def style() -> str:
    sheet = asset("explorer.css")
    assert sheet
    return sheet.data.decode()


GROUNDS = ("ground", "surface")
TEXTS = [(name, ground) for name in ("text", "muted", "link") for ground in GROUNDS]
TEXTS += [(tone, f"{tone}-ground") for tone in ("good", "bad", "warn", "idle")] + [("button-text", "button")]
SHAPES = [("focus", ground) for ground in GROUNDS] + [("muted", "ground"), ("bad", "ground"), ("focus", "idle-ground")]
SHAPES += [(name, "surface") for name in ("series-1", "series-2", "series-3", "series-4", "good", "idle", "bad")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_palette_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", style(), re.DOTALL)
    light, dark = (dict(re.findall(r"--([a-z0-9-]+): #([0-9a-f]{6});", block)) for block in blocks)
    assert light.keys() == dark.keys(), "each colour has a value in both"
    colours = light if scheme == "light" else dark
    for pairs, least in ((TEXTS, 4.5), (SHAPES, 3.0)):
        for one, other in pairs:
            assert contrast(colours[one], colours[other]) >= least, (one, other)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's ratio of two colours' luminance."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_largest_round_fits_a_page(told: TestClient, everything: Story, tmp_path: Path) -> None:
    chain, number = everything.market.chain, everything.rounds[0]
    with closing(Database(tmp_path / "large.sqlite", chain.deployment)) as large:
        sync(chain, large)
        with large.writing() as connection:
            round_ = find_fact(connection, Round, number)
            seat, job = find_fact(connection, Seat, number, 0, 3), find_fact(connection, Job, number, 0)
            appeal, slash = every(connection, Appeal)[0], every(connection, Slash)[0]
            assert round_
            assert seat
            assert job
            every_job = 2**MAX_JOBS - 1
            facts: list[Any] = [replace(round_, jobs=MAX_JOBS, submitted=every_job, attempt=3)]
            facts[0] = replace(facts[0], assignments=pack_assignments([Listing(1, MAX_JOBS)]))
            facts += [replace(job, job=each) for each in range(MAX_JOBS)]
            voted = {"state": "revealed", "accept": 0, "fraud": every_job, "reasons": b"\x08" * MAX_JOBS}
            facts += [replace(seat, attempt=at, juror=100 + each, **voted) for at in range(4) for each in range(15)]
            facts += [replace(appeal, appeal=10**6 + each, round=number) for each in range(MAX_JOBS)]
            facts += [replace(slash, log_index=10**6 + each, round=number) for each in range(MAX_JOBS)]
            for fact in facts:
                rows = rows_of(TABLES[type(fact)], connection.dialect)
                rows.upsert(connection, [rows.of_fact(fact)])
            event = connection.execute(select(EVENT).where(EVENT.c.name == "NodeSlashed")).first()
            assert event
            more = [dict(event._mapping) | {"log_index": 10**6 + each, "round": number} for each in range(1_000)]
            connection.execute(EVENT.insert(), more)
        client = TestClient(create_app(chain, large, Follower(chain, large)))
        as_of = "0x" + chain.head().hash.hex()
        for path in (f"/rounds/{number}", f"/rounds/{number}?first=224", f"/appeals?round={number}", "/slashes"):
            answer = client.get(path + ("&" if "?" in path else "?") + f"as_of={as_of}", headers=HTML)
            assert answer.status_code == 200
            assert len(answer.content) <= MOST_KIB << 10, (path, len(answer.content))
        assert Page(answer.text).links


def test_templates_style_sheets_and_scripts_are_part_of_a_wheel() -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = ROOT / "ledger" / "explorer"
    taken = {path for pattern in packaged["ledger.explorer"] for path in folder.glob(pattern)}
    sources = {path for path in folder.rglob("*") if "browser" not in path.relative_to(folder).parts}
    assert taken == {path for path in sources if path.suffix in (".html", ".css", ".js")}
    assert len(taken) > 20


def test_amounts_times_and_text_keep_what_they_shorten() -> None:
    assert 'title="1500000000000000001 wei' not in amount(10**18)
    assert "1.5 ASZ" not in amount(15 * 10**17 + 1)
    assert 'title="1.500000000000000001 ASZ = 1500000000000000001 wei"' in amount(15 * 10**17 + 1)
    assert 'datetime="2026-01-31T00:00:00Z"' in when(1_769_817_600)
    assert when(2**60) == f"second {2**60}"
    assert legible("a\x00\u202eb\ud800") == "a␀⟨U+202E⟩b⟨U+D800⟩"
    assert quoted("<b>", 2) == '<bdi>&lt;b</bdi><span class="muted">… 2 of 3 characters</span>'
    assert Links("0xab").url("/runs/<1>", run=1) == "/runs/%3C1%3E?run=1&as_of=0xab"
    assert spans((0, 1, 2, 4, 7, 8)) == "0–2, 4, 7–8"
