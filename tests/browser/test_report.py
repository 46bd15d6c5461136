"""The report of a run: one file, whole from the reader's own disk, and the run's page in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledger.commands.requester import app
from tests.browser.conftest import Reader, served
from tests.browser.test_pages import look_at, looks_sound
from tests.ledger.scenario import Story
from tests.ledger.shown import Shown, shown

LEDGER = "https://ledger.example"


@pytest.fixture(scope="module")
def trained(told_once: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A run with two versions after the first, whose bytes and rewards can be had."""
    with shown(told_once, tmp_path_factory.mktemp("trained"), versions=2) as told:
        yield told


@pytest.fixture(scope="module")
def written(trained: Shown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that ``assize run report`` writes."""
    folder = tmp_path_factory.mktemp("report")
    chain, addresses, out = trained.story.market.chain, folder / "addresses.json", folder / "run.html"
    chain.deployment.save(addresses)
    words = ["report", trained.run, "--html", out, "--ledger", LEDGER, "--addresses", addresses, *trained.options]
    words += ["--rpc", trained.story.market.anvil.url, "--db", folder / "ledger.sqlite"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert f"the run's page is written to {out}" in done.stdout
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert again.exit_code == 2
    assert again.stderr.splitlines() == [f"assize: {out} exists: give another file"]
    return out


def test_the_report_is_one_file_that_loads_nothing(
    written: Path, trained: Shown, reading: Callable[..., Reader]
) -> None:
    reader = reading("nowhere")
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    page = reader.page
    page.goto(written.as_uri())
    assert asked == [written.as_uri()]
    assert page.title() == f"Run {trained.run} · Assize report"
    charts = page.get_by_role("img", name=re.compile("Line chart"))
    assert charts.count() == 4
    assert "Version 1 to 2. Mean reward: 0.25 to 0.5, newest 0.5." in charts.first.text_content()  # type: ignore[operator]
    said = page.locator(".sample").all_inner_texts()
    assert len(said) == 2
    assert ("Version 0" in said[0], "Version 2" in said[1]) == (True, True)
    assert all("12+30=" in each and "42<end>" in each for each in said)
    links = page.eval_on_selector_all("main a", "links => links.map(link => link.getAttribute('href'))")
    assert links
    assert all(link.startswith(LEDGER + "/") for link in links)
    assert page.evaluate("document.scripts.length") == 0
    assert [each for each in reader.problems if ": asked " not in each] == [], "nothing is said to the console"
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert any("Content Security Policy" in each for each in reader.problems), "not even a script could ask for more"


def test_the_report_is_sound_to_look_at(written: Path, reading: Callable[..., Reader]) -> None:
    page = reading("file://").page
    page.goto(written.as_uri())
    looks_sound(page, "report")


def test_the_runs_page_shows_rewards_and_completions(
    trained: Shown, reading: Callable[..., Reader], tmp_path: Path
) -> None:
    with served(trained.story, tmp_path, *trained.options) as url:
        reader = reading(url)
        page = reader.open(f"/runs/{trained.run}")
        for _ in range(20):
            if page.get_by_text("0.500").count():
                break
            page.wait_for_timeout(500)
            page.reload()
        assert page.get_by_text("0.500").count()
        assert page.locator(".sample").count() == 2
        look_at(reader, [f"/runs/{trained.run}"])
