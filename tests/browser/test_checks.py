"""What the reader's browser checks against a node: honest ledgers, lying ones, and the same from a file on disk."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from playwright.sync_api import Browser, Page, Route, expect
from pydantic_core import from_json, to_json

from tests.browser.conftest import Reader, served
from tests.browser.proven import Proven, a_manifest, forged, prove
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import ROOT
from tests.ledger.scenario import Story

FILE = ROOT / "ledger" / "explorer" / "static" / "built" / "check.html"
ASSUMED = "The addresses are the ledger’s own."
Told = dict[str, Any]
Lie = Callable[[str, Any], Any]
"""Path and honest JSON of an answer to the answer given."""


@pytest.fixture(scope="module")
def proven(everything: Story) -> Proven:
    """``everything``, with a round whose bytes are all there."""
    return prove(everything)


@pytest.fixture(scope="module")
def honest(proven: Proven, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of its ledger."""
    with served(proven.story, tmp_path_factory.mktemp("checked")) as url:
        yield url


@pytest.fixture(scope="module")
def between(honest: str) -> Iterator[Between]:
    """A server that speaks for the ledger."""
    with closing(Between(int(honest.rpartition(":")[2]))) as made:
        yield made


@contextmanager
def answering(between: Between, blobs: dict[str, bytes], lie: Lie | None = None) -> Iterator[None]:
    """Serves these bytes, and everything else as the ledger does, or as ``lie`` makes it."""

    def interfere(asked: Asked, forward: Forward) -> Answer | None:
        path = urlsplit(asked.path).path
        open_to_all = {"Access-Control-Allow-Origin": "*"}
        if path.startswith("/blobs/"):
            return Answer(200 if path in blobs else 404, open_to_all, blobs.get(path, b""))
        answer = forward(asked)
        if lie is not None and answer.status == 200 and answer.headers["content-type"] == "application/json":
            answer = replace(answer, body=to_json(lie(path, from_json(answer.body))))
        return replace(answer, headers={**answer.headers, **open_to_all})

    with between.interfering(interfere):
        yield


def findings(page: Page) -> dict[str, list[str]]:
    """Waits for the end of a check; returns its lines by their mark."""
    page.locator("#summary[class]").wait_for()
    lines = page.locator("#findings li")
    marks = lines.evaluate_all("items => items.map(item => [item.className, item.textContent])")
    return {mark: [text for each, text in marks if each == mark] for mark in ("good", "bad", "unknown")}


def checked(reader: Reader, made: Proven, thing: str) -> dict[str, list[str]]:
    """Checks a thing on a ledger's own page."""
    rpc = made.story.market.anvil.url
    return findings(reader.open(f"/check/{thing}?{urlencode({'rpc': rpc})}"))


def checked_from_disk(page: Page, ledger: str, made: Proven, thing: str) -> dict[str, list[str]]:
    """Checks a thing of a ledger with the one file, and an address file of the reader's own."""
    page.goto(FILE.as_uri())
    page.fill("#ledger", ledger)
    page.fill("#thing", thing)
    page.fill("#rpc", made.story.market.anvil.url)
    addresses = json.dumps(made.story.market.deployment.to_json()).encode()
    page.set_input_files("#file", {"name": "addresses.json", "mimeType": "application/json", "buffer": addresses})
    expect(page.locator("#addresses")).not_to_have_value("")
    page.click("#again")
    return findings(page)


def entries_of(made: Proven, honest: str) -> list[str]:
    """Places of the pay of the honest node, of the cheat's slash, and of credits that the requester bought."""

    def told(path: str) -> Any:
        return requests.get(honest + path, timeout=10).json()

    story, buyer = told(f"/rounds/{made.round}"), made.story.requester.address
    paid = next(each for each in story["payments"] if each["node"] == made.story.honest.node)
    bought = told(f"/credits/{buyer}/entries")["items"][0]
    return [f"{each['block_number']}/{each['log_index']}" for each in (paid, story["slashes"][0], bought)]


def things(made: Proven, honest: str) -> list[str]:
    """What can be checked of the round whose bytes are all there."""
    jobs = [f"jobs/{made.round}/{job}" for job in (0, 1)]
    versions = [f"checkpoints/{made.run}/{version}" for version in (0, 1)]
    return [f"rounds/{made.round}", *jobs, *(f"entries/{place}" for place in entries_of(made, honest)), *versions]


def test_all_that_an_honest_ledger_says_is_green(
    between: Between, proven: Proven, honest: str, reading: Callable[..., Reader]
) -> None:
    reader = reading(between.url)
    reader.own += (proven.story.market.anvil.url,)
    with answering(between, proven.blobs):
        for thing in things(proven, honest):
            found = checked(reader, proven, thing)
            assert not found["bad"], thing
            (assumed,) = found["unknown"]
            assert ASSUMED in assumed
            assert len(found["good"]) >= 3, thing
    assert not reader.problems


def test_rounds_that_ended_in_any_way_are_green(
    honest: str, proven: Proven, everything: Story, reading: Callable[..., Reader]
) -> None:
    reader = reading(honest)
    reader.own += (proven.story.market.anvil.url,)
    for number in (*everything.rounds[1:], everything.rounds[-1] + 1, everything.rounds[-1] + 2, proven.round - 1):
        found = checked(reader, proven, f"rounds/{number}")
        assert not found["bad"], number
        assert len(found["unknown"]) == 1, number
    assert not reader.problems
    assert "✓ checked" in reader.page.inner_text("#findings")


def test_a_check_as_of_a_block_is_of_that_block(honest: str, proven: Proven, reading: Callable[..., Reader]) -> None:
    chain = proven.story.market.chain
    head = chain.head().number
    query = {"rpc": proven.story.market.anvil.url, "as_of": "0x" + chain.block(head - 1).hash.hex()}
    found = findings(reading(honest).open(f"/check/rounds/{proven.round}?{urlencode(query)}"))
    assert f"up to block {head - 1}." in found["good"][0]
    assert "The node has newer events" in found["unknown"][1]
    assert not found["bad"]


def test_a_check_asks_nobody_but_the_ledger_and_the_node_named(
    honest: str, proven: Proven, reading: Callable[..., Reader]
) -> None:
    reader = reading(honest)
    asked: set[str] = set()
    reader.page.on("request", lambda request: asked.add("{0.scheme}://{0.netloc}".format(urlsplit(request.url))))
    checked(reader, proven, f"jobs/{proven.round}/0")
    rpc = proven.story.market.anvil.url
    assert asked == {honest, rpc}
    refused = "url => fetch(url).then(() => 'asked', error => String(error))"
    assert "Failed to fetch" in reader.page.evaluate(refused, "http://127.0.0.1:9/")
    reader.open(f"/check/rounds/{proven.round}")
    assert "Failed to fetch" in reader.page.evaluate(refused, rpc), "no node was named"
    reader.open(f"/rounds/{proven.round}?rpc={rpc}")
    assert "Failed to fetch" in reader.page.evaluate(refused, rpc), "not a page of a check"


# Lies


def flipped_vote(made: Proven) -> Lie:
    """A juror's vote on the second job, turned from fraud to accepted, wherever the ledger tells it."""
    juror = made.jurors[0]

    def lie(path: str, told: Any) -> Any:
        if path == "/events":
            for each in told["items"]:
                if each["name"] == "VoteRevealed" and each["payload"]["juror"] == str(juror):
                    each["payload"] |= {"accept": "3", "fraud": "0", "reasons": "0x"}
        if path == f"/rounds/{made.round}":
            for seat in told["seats"]:
                seat |= {"accept": "0x3", "fraud": "0x0", "reasons": "0x"} if seat["juror"] == juror else {}
        return told

    return lie


def moved_credit(made: Proven) -> Lie:
    """The pay of the honest node, to another owner."""
    rich, poor = made.story.cheat.owner.address, made.story.honest.owner.address

    def lie(path: str, told: Any) -> Any:
        text = json.dumps(told)
        named = path in ("/events", f"/rounds/{made.round}") or path.endswith("/entries")
        return json.loads(text.replace(poor, rich)) if named else told

    return lie


def forged_leaf(made: Proven) -> Lie:
    """The honest node's claim, with the root of another artifact."""

    def lie(path: str, told: Any) -> Any:
        real = next(iter(made.blobs)).rpartition("0x")[2]
        return json.loads(json.dumps(told).replace(real, "ab" * 32))

    return lie


def foreign_event(made: Proven) -> Lie:
    """One more payment, said to be in the block and the transaction of a real one."""

    def lie(path: str, told: Any) -> Any:
        if path == "/events":
            paid = [each for each in told["items"] if each["name"] == "CreditsEarned"]
            told["items"] += [{**each, "log_index": each["log_index"] + 90} for each in paid]
        return told

    return lie


def hidden_event(made: Proven) -> Lie:
    """A vote that the ledger leaves out."""

    def lie(path: str, told: Any) -> Any:
        if path == "/events":
            told["items"] = [each for each in told["items"] if each["payload"].get("juror") != str(made.jurors[1])]
        return told

    return lie


def sweeter_fact(made: Proven) -> Lie:
    """True events, but another verdict in the table that a page shows."""

    def lie(path: str, told: Any) -> Any:
        if path == f"/rounds/{made.round}":
            told["jobs"][1]["verdict"] = "accepted"
        return told

    return lie


LIES: dict[str, tuple[Callable[[Proven], Lie], str, str]] = {
    "a flipped vote": (flipped_vote, "rounds", "VoteRevealed"),
    "a moved credit": (moved_credit, "rounds", "CreditsEarned"),
    "a moved credit, asked for itself": (moved_credit, "entries", "CreditsEarned"),
    "a forged leaf": (forged_leaf, "rounds", "Submitted"),
    "a foreign event": (foreign_event, "rounds", "in no receipt of the node"),
    "a hidden event": (hidden_event, "rounds", 'the claim is "missing"'),
    "a verdict that no event gives": (sweeter_fact, "rounds", "verdict of job 1"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_ledger_that_lies_before_an_honest_node_turns_red(
    name: str, between: Between, proven: Proven, honest: str, browser: Browser
) -> None:
    """With the file from the reader's own disk, as its scripts would lie too."""
    lie, kind, sign = LIES[name]
    (thing, *_) = [each for each in things(proven, honest) if each.startswith(kind)]
    with closing(browser.new_context()) as context, answering(between, proven.blobs, lie(proven)):
        found = checked_from_disk(context.new_page(), between.url, proven, thing)
    assert any(sign in line for line in found["bad"]), found


def test_a_forged_artifact_turns_a_job_red(between: Between, proven: Proven, reading: Callable[..., Reader]) -> None:
    with answering(between, forged(proven)):
        found = checked(reading(between.url), proven, f"jobs/{proven.round}/0")
    assert len(found["bad"]) == 1
    assert "root of the head" in found["bad"][0]


def test_a_false_manifest_turns_a_checkpoint_red(
    between: Between, proven: Proven, reading: Callable[..., Reader]
) -> None:
    false = a_manifest(7)
    address = f"/blobs/manifests/{proven.run}/1"
    unsigned = proven.blobs[address].replace(a_manifest(1).canonical, false.canonical)
    unpublished = proven.blobs[address].replace(proven.blobs[address][-20:-10], b"0" * 10)
    for blob, signs in ((unsigned, ("root of the manifest", "signer", "run and version")), (unpublished, ("signer",))):
        with answering(between, proven.blobs | {address: blob}):
            found = checked(reading(between.url), proven, f"checkpoints/{proven.run}/1")
        assert [line.split(":")[0].removeprefix("✗ differs ") for line in found["bad"]] == list(signs)


def test_another_jurors_evidence_turns_a_job_red(
    between: Between, proven: Proven, reading: Callable[..., Reader]
) -> None:
    first, second = [path for path in proven.blobs if "evidence" in path][:2]
    with answering(between, proven.blobs | {first: proven.blobs[second]}):
        found = checked(reading(between.url), proven, f"jobs/{proven.round}/1")
    assert any("root in the vote" in line for line in found["bad"])


def test_bytes_that_cannot_be_read_end_no_other_check(
    between: Between, proven: Proven, reading: Callable[..., Reader]
) -> None:
    address = next(path for path in proven.blobs if "evidence" in path)
    with answering(between, proven.blobs | {address: b'{"bundle":1}'}):
        found = checked(reading(between.url), proven, f"jobs/{proven.round}/1")
    assert "cannot be checked: the bytes are no signed document" in found["unknown"][1]
    assert sum("Evidence of juror" in line for line in found["good"]) == len(proven.jurors) - 1
    assert not found["bad"]


def test_bytes_that_cannot_be_had_are_said_not_passed(
    honest: str, proven: Proven, reading: Callable[..., Reader]
) -> None:
    found = checked(reading(honest), proven, f"jobs/{proven.round}/0")
    missing = [line for line in found["unknown"] if "cannot be had" in line]
    assert len(missing) == 1 + len(proven.jurors)
    assert not found["bad"]


def test_a_ledger_of_another_chain_turns_red(between: Between, proven: Proven, browser: Browser) -> None:
    def lie(path: str, told: Any) -> Any:
        return {**told, "block_hash": "0x" + "ab" * 32} if path == "/health" else told

    with closing(browser.new_context()) as context, answering(between, proven.blobs, lie):
        found = checked_from_disk(context.new_page(), between.url, proven, f"checkpoints/{proven.run}/1")
    assert not found["good"]
    assert any("its hash" in line for line in found["bad"])


def test_what_was_not_compared_is_called_neither_green_nor_equal(
    honest: str, proven: Proven, reading: Callable[..., Reader]
) -> None:
    reader = reading(honest)
    reader.own += (proven.story.market.anvil.url,)
    appeal = requests.get(honest + "/appeals", timeout=10).json()["items"][0]["appeal"]
    for thing in (f"jobs/{proven.round}/200", f"jobs/{appeal}/0"):
        found = checked(reader, proven, thing)
        assert any("has no job" in line for line in found["unknown"]), thing
        assert not any("was not submitted" in line for line in found["good"])
    nobody = reading(honest).open(f"/check/rounds/{proven.round}?{urlencode({'rpc': 'http://127.0.0.1:9'})}")
    assert not findings(nobody)["good"]
    assert nobody.locator("#summary").inner_text().startswith("Nothing was checked (node http://127.0.0.1:9)")


def test_a_node_that_keeps_little_is_enough_but_for_the_draw(
    honest: str, proven: Proven, reading: Callable[..., Reader]
) -> None:
    """It answers logs of at most fifty blocks at once, and no call as of an older block."""

    def answer(asked: Told) -> Told | None:
        refused = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "not here"}}
        span = asked["params"][0] if asked["method"] == "eth_getLogs" else {"toBlock": "0x0", "fromBlock": "0x0"}
        wide = int(span["toBlock"], 16) - int(span["fromBlock"], 16) > 50
        old = asked["method"] == "eth_call" and asked["params"][1] != "latest"
        return refused if wide or old else None

    def keep_little(route: Route) -> None:
        calls = route.request.post_data_json
        real = {each["id"]: each for each in route.fetch().json()} if route.request.method == "POST" else {}
        body = [answer(each) or real[each["id"]] for each in calls or []]
        route.fulfill(
            body=to_json(body), headers={"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
        )

    reader = reading(honest)
    reader.page.route(proven.story.market.anvil.url + "/", keep_little)
    found = checked(reader, proven, f"rounds/{proven.round}")
    assert not found["bad"]
    _, draw = found["unknown"]
    assert "as an archive node would" in draw
    assert not [line for line in found["good"] if line.startswith("Draws")]
    assert len(found["good"]) == 9


# The file


def test_the_file_from_disk_checks_any_ledger(honest: str, proven: Proven, browser: Browser) -> None:
    with closing(browser.new_context()) as context:
        page = context.new_page()
        found = checked_from_disk(page, honest, proven, f"rounds/{proven.round}")
        assert len(found["good"]) >= 10
        assert not found["bad"]
        assert not found["unknown"]
        assert page.inner_text("#summary").startswith("Nothing differs")


def test_the_ledger_gives_the_file_away_and_the_command_names_its_hash(
    honest: str, proven: Proven, reading: Callable[..., Reader]
) -> None:
    reader = reading(honest)
    reader.open(f"/check/rounds/{proven.round}")
    with reader.page.expect_download() as download:
        reader.page.click("a[download]")
    assert download.value.suggested_filename == "assize-check.html"
    digest = hashlib.sha256(download.value.path().read_bytes()).hexdigest()
    said = subprocess.check_output([sys.executable, ROOT / "assize.py", "version"], text=True)
    assert digest in said


@pytest.mark.parametrize(
    "rpc", ["ftp://node", "http://a@node", "http://node;script-src", "http://node/?key", "//node", "http://node *", "x"]
)
def test_what_is_no_address_of_a_node_is_refused(rpc: str, honest: str, reading: Callable[..., Reader]) -> None:
    page = reading(honest).open("/check/rounds/1?" + urlencode({"rpc": rpc}))
    assert "invalid RPC URL" in page.inner_text("main")


def test_without_scripts_the_page_says_what_to_do(honest: str, reading: Callable[..., Reader]) -> None:
    page = reading(honest, java_script_enabled=False).open("/check/rounds/1")
    assert "assize ledger audit" in page.inner_text("noscript, main")


def test_the_check_is_small_enough_to_read() -> None:
    """At most 600 lines of code: blank lines, comments, imports and lone closing brackets aside."""
    folder = ROOT / "ledger" / "explorer" / "browser" / "src"
    sources = [folder / "check.js", *(folder / "checking").iterdir()]
    aside = re.compile(r"/\*\*.*?\*/|^\s*//[^\n]*|^import [^\n]*|^[\s\])};,]*$", re.DOTALL | re.MULTILINE)
    texts = [path.read_text() for path in sources]
    assert sum(bool(line.strip()) for text in texts for line in aside.sub("", text).splitlines()) <= 600
    assert max(len(line) for text in texts for line in text.splitlines()) <= 120
    imported = {name for text in texts for name in re.findall(r"from '([^.'][^']*)'", text)}
    assert {name.rpartition("/")[0] for name in imported} == {"@noble/curves", "@noble/hashes"}
