"""Errors become one sentence and a code; values become tables or JSON."""

from __future__ import annotations

import json
import re
import socket

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.structs import RegistryTerms, Role
from protocol.errors import AssizeError, Misconfigured, Rejected, Unavailable
from protocol.node.console import guard, jsonable, show
from protocol.node.telemetry import configure, serve_metrics


@pytest.mark.parametrize(
    ("error", "code"), [(Rejected("bad bytes"), 1), (Misconfigured("set it"), 2), (Unavailable("gone"), 3)]
)
def test_an_error_is_a_sentence_and_a_code(error: AssizeError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    @guard
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as left:
        command()
    assert left.value.code == code
    assert capsys.readouterr().err == f"assize: {error}\n"


def test_json_has_wei_as_strings_and_bytes_as_hex(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"amount_wei": 5, "root": b"\xab", "role": Role.WORKER, "done": True, "none": None}], as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"amount_wei": "5", "root": "0xab", "role": "worker", "done": True, "none": None}
    ]


def test_a_table_holds_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"node": 1, "bond_wei": 10**18, "fee_wei": 10**15}], as_json=False)
    printed = capsys.readouterr().out
    assert "bond" in printed
    assert "1 ASZ" in printed
    assert "0.001 coin" in printed
    show([], as_json=False)
    assert capsys.readouterr().out == "none\n"


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_nothing_that_one_must_copy_is_cut_in_a_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    owner, root, link = "0x" + "ab" * 20, b"\xcd" * 32, "[link=x]not markup[/link]"
    rows = [{"node": number, "owner": owner, "root": root, "bond_wei": 16 * 10**18, "uri": link} for number in (1, 2)]
    for shown in (rows, rows[0]):
        show(shown, as_json=False)
        printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert max(map(len, printed.splitlines())) <= columns
        joined = re.sub(r"[\s│┃]", "", printed)
        for value in (owner, "0x" + root.hex(), "16ASZ", re.sub(r"\s", "", link)):
            assert value in joined


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show([{"owner": "0x" + "ab" * 20, "root": b"\xcd" * 32}], as_json=False)
    assert "0x" + "cd" * 32 in capsys.readouterr().out


def test_a_value_of_the_chain_is_shown_by_its_fields() -> None:
    assert jsonable(RegistryTerms(10**18, 2, 3, 4)) == {
        "bond_per_job": str(10**18),
        "validator_bond": 2,
        "activation_delay": 3,
        "unbonding_delay": 4,
    }


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.binary() | st.text(), st.lists))
def test_anything_shown_is_json(value: object) -> None:
    json.dumps(jsonable(value))


def test_a_taken_metrics_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Misconfigured, match="cannot serve metrics on port"):
            serve_metrics(taken.getsockname()[1])


def test_an_unknown_log_level_is_one_sentence() -> None:
    with pytest.raises(Misconfigured, match="invalid log level 'loud'"):
        configure(level="loud")


@pytest.mark.parametrize(("as_json", "line"), [(False, "round 97  accepted 6\n"), (True, None)])
def test_a_terminal_shows_some_events_as_lines_of_their_own_and_a_log_does_not(
    as_json: bool, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {"round_ended": lambda event: f"round {event['round']}  accepted {event['accepted']}"}
    configure("worker", as_json=as_json, lines=shown)
    structlog.get_logger().info("round_ended", round=97, accepted=6)
    structlog.reset_defaults()
    told = capsys.readouterr().err
    if line is not None:
        assert told == line
    else:
        assert json.loads(told)["accepted"] == 6
