"""An auditor's first ten minutes, as ledger/README.md has them: from a slash to an export checked elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Reader
from tests.conftest import ROOT
from tests.ledger.scenario import Story


def test_an_auditor_finds_a_slash_reads_why_checks_it_and_takes_the_books_along(
    explorer: str, everything: Story, reading: Callable[..., Reader], tmp_path: Path
) -> None:
    market = everything.market
    reader = reading(explorer)
    reader.own += (market.anvil.url,)
    page = reader.open("/")
    expect(page.locator(".state")).to_contain_text("at the head of the chain")

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Slashes").click()
    row = page.get_by_role("row").filter(has_text="fraud").filter(has=page.get_by_role("link", name="why")).last
    row.get_by_role("link", name="why").click()
    expect(page.locator(".story")).to_contain_text("of its bond for fraud")

    page.get_by_role("link", name="Check it in this browser").click()
    page.get_by_label("URL of your node's JSON-RPC").fill(market.anvil.url)
    page.get_by_role("button", name="Check against this node").click()
    page.locator("#summary[class]").wait_for()
    assert not page.locator("#findings .bad").count(), page.locator("#findings").inner_text()
    assert page.locator("#findings .good").count() > 5
    assert not reader.problems

    addresses, books = tmp_path / "addresses.json", tmp_path / "books"
    market.deployment.save(addresses)
    at = ("--addresses", addresses, "--rpc", market.anvil.url)
    exported = assize(tmp_path, "ledger", "export", "--out", books, "--db", tmp_path / "auditor.sqlite", *at)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(books, elsewhere / "books")
    verified = assize(elsewhere, "ledger", "verify-export", "books")
    replayed = assize(elsewhere, "ledger", "replay", "--against", "books", *at)
    assert exported["state_hash"] == verified["state_hash"] == replayed["state_hash"]


def assize(folder: Path, *words: object) -> dict[str, object]:
    """Runs a command in a folder as on a machine of its own, without a profile; returns its line of JSON."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")}
    command = [sys.executable, str(ROOT / "assize.py"), *map(str, words), "--json"]
    given |= {"HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))
