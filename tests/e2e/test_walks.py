"""The walks that the READMEs tell: short, complete as they stand, and true.

The provider's and the auditor's are walked in ``test_market``, on the network that it has up; the longer ones here.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.walks import ROOT, blocks, checkout, commands, newcomer, terminal

READMES = ("worker", "validator", "trainer", "coordinator", "ledger", "deploy")
START, JOIN, LOOK = 0, 1, 2
"""Blocks of the READMEs of worker, validator and trainer; the validator's has no third terminal."""


def typed(readme: str, *numbers: int) -> list[str]:
    """The commands of some blocks of a README."""
    found = blocks(readme)
    return [command for number in numbers for command in commands(found[number])]


@pytest.mark.parametrize("role", READMES)
def test_no_block_leaves_anything_to_be_guessed(role: str) -> None:
    for block in blocks(f"{role}/README.md"):
        assert "…" not in block
        assert "..." not in block


def test_a_provider_types_eleven_commands_and_no_variable_to_an_explained_credit() -> None:
    walk = typed("worker/README.md", START, JOIN, LOOK)
    assert len(walk) <= 11
    assert walk[-1].startswith("assize ledger why")
    assert not any("ASSIZE_" in command for command in walk)


def test_a_validator_types_six_commands_and_no_variable_to_a_vote() -> None:
    walk = typed("validator/README.md", START, JOIN)
    assert len(walk) <= 6
    assert not any("ASSIZE_" in command for command in walk)


def test_a_requester_types_eight_commands_and_no_variable_to_a_version() -> None:
    walk = typed("trainer/README.md", START, JOIN, LOOK)
    assert len(walk) <= 8
    assert not any("ASSIZE_" in command for command in walk)


def test_an_auditor_types_four_commands_and_no_variable_to_an_audit() -> None:
    walk = typed("ledger/README.md", 1)
    assert len(walk) <= 4
    assert walk[-1].startswith("auditor/bin/assize ledger audit")
    assert not any("ASSIZE_" in command for command in walk)


def test_commands_are_counted_as_a_person_types_them() -> None:
    block = "# why\nassize a \\\n    --b\n\ncat > f <<END\n# kept\nx\nEND\nassize c   # that\n"
    assert commands(block) == ["assize a --b", "cat > f <<END\n# kept\nx", "assize c   # that"]


@pytest.mark.long
@pytest.mark.e2e
def test_a_validator_walks_as_its_readme_says_to_a_first_vote_and_fee(small_model: Path, tmp_path: Path) -> None:
    folder, found = checkout(tmp_path / "checkout"), blocks("validator/README.md")
    environment = newcomer(folder, ASSIZE_LOCALNET_MODEL=str(small_model))
    with terminal(folder, "first", environment) as first, terminal(folder, "second", environment) as second:
        first.types(found[START])
        first.waits_for("up: ", 180)
        second.types(found[JOIN])
        second.waits_for('"event": "judged"', 180)
        second.waits_for("Rounds.reveal", 120)
        with terminal(folder, "third", environment) as third:
            third.types(found[START].splitlines()[0])
            until_it_works = "until assize ledger why vera --json 2> /dev/null; do sleep 2; done"
            assert "earns" in third.finishes(until_it_works, 180)
    assert "Traceback" not in first.shown() + second.shown()


@pytest.mark.long
@pytest.mark.e2e
def test_a_requester_walks_as_its_readme_says_to_a_first_version(small_model: Path, tmp_path: Path) -> None:
    folder, found = checkout(tmp_path / "checkout"), blocks("trainer/README.md")
    environment = newcomer(folder, ASSIZE_LOCALNET_MODEL=str(small_model))
    with ExitStack() as opened:
        first, second, third = (
            opened.enter_context(terminal(folder, name, environment)) for name in ("first", "second", "third")
        )
        first.types(found[START])
        first.waits_for("up: ", 180)
        second.types(found[JOIN])
        second.waits_for("up: run 2", 300)
        third.types(found[LOOK])
        second.waits_for("version 1  reward", 600)
    assert "Traceback" not in first.shown() + second.shown() + third.shown()


def test_the_readmes_name_only_parts_that_are_there() -> None:
    from assize import PARTS

    words = [
        command.split() for role in READMES for block in blocks(f"{role}/README.md") for command in commands(block)
    ]
    called = {each[1] for each in words if each[0] in ("assize", "auditor/bin/assize")}
    assert called <= set(PARTS), called - set(PARTS)
    assert ROOT.is_dir()
