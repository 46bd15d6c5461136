"""Libraries of the pages' scripts: from the registry by hashes, under licences that let anyone pass them on."""

from __future__ import annotations

import json

import pytest

from tests.conftest import ROOT

BUNDLED = {"MIT", "0BSD", "BSD-0-Clause"}
"""Licences of the libraries that become part of a page."""
LOCKS = ("ledger/explorer/browser", "tests/browser")


def packages(folder: str) -> dict[str, dict[str, object]]:
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())
    return {path: each for path, each in lock["packages"].items() if path}


@pytest.mark.parametrize("folder", LOCKS)
def test_every_package_has_a_hash_and_no_address(folder: str) -> None:
    found = packages(folder)
    assert found
    for path, package in found.items():
        assert str(package["integrity"]).startswith("sha512-"), path
        assert "resolved" not in package, path


def test_what_becomes_part_of_a_page_may_be_passed_on() -> None:
    for path, package in packages(LOCKS[0]).items():
        installed = ROOT / ".venv" / "explorer" / path / "package.json"
        if installed.exists():  # the bundler has a package for each platform
            assert package["license"] == json.loads(installed.read_text())["license"]
        assert package["license"] in BUNDLED, path
