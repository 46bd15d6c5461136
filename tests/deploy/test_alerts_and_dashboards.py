"""The table of metrics, alert rules, dashboards and runbooks name what exists, and all that exists."""

from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from assize import front_door
from deploy.watching.dashboards import DASHBOARDS, FOLDER, as_file
from deploy.watching.metrics import ROOT, TABLE, metrics, named_in, table
from protocol.errors import Misconfigured
from protocol.node import console
from tests.alerts.rules import TIMES_SHORTER, shortened

METRICS = metrics()
SERIES = {name: metric for metric in METRICS for name in metric.series}
TARGET_LABELS = {"role", "instance", "job", "le"}
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/watching/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]


def unknown(query: str) -> list[str]:
    """What a query names that no metric of ours is, or has."""
    named = named_in(query)
    return [name for name in named if name not in SERIES] + [
        f"{name}{{{label}}}"
        for name, labels in named.items()
        if name in SERIES
        for label in labels - {*SERIES[name].labels, *TARGET_LABELS}
    ]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in found}


def test_make_alerts_shortens_every_age_that_a_rule_compares() -> None:
    age, ages = re.compile(r"time\(\) - [^>]+> (\d+)"), 0
    shorter = [rule["expr"] for group in shortened()["groups"] for rule in group["rules"]]
    for rule, short in zip(RULES, shorter, strict=True):
        full = [int(seconds) for seconds in age.findall(rule["expr"])]
        left = [int(seconds) for seconds in age.findall(short)]
        assert len(full) == rule["expr"].count("time()"), rule["alert"]
        assert left == [each // TIMES_SHORTER for each in full], rule["alert"]
        ages += len(full)
    assert ages > 0, "no rule compares an age"


def test_the_table_has_a_line_for_each_metric_and_a_metric_for_each_line() -> None:
    assert TABLE.read_text() == table(METRICS), "make it anew: python -m deploy.watching"


def test_names_follow_prometheus_conventions_and_no_two_metrics_share_one() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"assize_[a-z_]+", metric.name), metric
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert not re.search(r"_(ms|milliseconds|minutes|gib|mib|wei)(_|$)", metric.name), metric
        assert metric.meaning
        assert not {"url", "path", "address", "round", "job", "hash"} & set(metric.labels), "strangers choose those"


def test_a_metric_whose_name_is_not_written_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker/one.py").write_text(
        'from prometheus_client import Counter as Total\nA = Total("assize_a", "An a", ["b"])\n'
    )
    (found,) = metrics(tmp_path)
    assert (found.name, found.kind, found.labels, found.role) == ("assize_a_total", "counter", ("b",), "worker")
    (tmp_path / "worker/one.py").write_text('from prometheus_client import Gauge\nA = Gauge(f"assize_{1}", "An a")\n')
    with pytest.raises(Misconfigured, match="line 2"):
        metrics(tmp_path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_metrics_that_exist_a_severity_and_a_runbook_that_exists(rule: dict[str, Any]) -> None:
    assert unknown(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in headings(ROOT / page)


def test_every_alert_has_a_test_and_every_test_an_alert() -> None:
    tests = yaml.safe_load((ROOT / "deploy/watching/alerts_test.yaml").read_text())["tests"]
    assert {test["name"] for test in tests} == {rule["alert"] for rule in RULES}
    for test in tests:
        quiet, fires = test["alert_rule_test"]
        assert quiet["exp_alerts"] == []
        assert fires["exp_alerts"] != []
        assert all(unknown(series["series"]) == [] for series in test["input_series"])


def test_dashboards_are_those_of_the_code_and_ask_for_metrics_that_exist() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(DASHBOARDS)
    for role in DASHBOARDS:
        text = (FOLDER / f"{role}.json").read_text()
        assert text == as_file(role), "make it anew: python -m deploy.watching"
        asked = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
        assert [problem for query in asked for problem in unknown(query)] == []
        assert all(f'role=~"{role}.*"' in query for query in asked)


RUNBOOKS = ("deploy/watching", "coordinator", "worker", "validator", "trainer", "ledger")
PAGES = [ROOT / folder / "README.md" for folder in RUNBOOKS]


def quoted(page: Path) -> set[str]:
    """The commands of ours that a page quotes, in a block or in a line, without comments and what a pipe follows."""
    text = page.read_text()
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = [*lines, *re.findall(r"`(assize [^`]+)`", " ".join(prose.split()))]
    return {re.split(r"\s+#|\s*[|&]|\s*\$\(", line)[0] for line in found if line.startswith("assize ")}


@functools.cache
def loaded(part: str) -> Any:
    """The command line with one part of it loaded."""
    return typer.main.get_command(front_door([part]))


def lacking(command: str, part: Any, words: list[str]) -> str:
    """Which arguments a command lacks."""
    if "--help" in words:
        return ""
    given = part.make_parser(part.context_class(part)).parse_args([word for word in words if word != "--network"])[0]
    asked = [each for each in part.params if each.param_type_name == "argument" and each.required]
    return "".join(f"{command}: lacks {each.name}" for each in asked if not given.get(each.name))


def refusal(command: str) -> str:
    """Why the command line refuses a command, or nothing; it is parsed, not carried out."""
    words = shlex.split(command)[1:]
    if words[0].isupper() or words[:1] == ["ROLE"]:
        return ""
    context = typer.Context(part := loaded(words[0]), info_name="assize")
    while hasattr(part, "commands"):
        if not words or words[0].startswith("-"):
            return ""
        if (part := part.get_command(context, word := words.pop(0))) is None:
            return f"{command}: unknown {word}"
    known = {name for each in part.params for name in (*each.opts, *each.secondary_opts)}
    options = {each.partition("=")[0] for each in words if re.match(r"--[a-z]", each)}
    if strange := options - known - {"--help", "--network"}:
        return "".join(f"{command}: unknown {option}" for option in strange)
    return lacking(command, part, words)


@pytest.mark.parametrize("page", PAGES, ids=RUNBOOKS)
def test_every_command_that_a_runbook_quotes_is_one_of_ours(page: Path) -> None:
    commands = quoted(page)
    assert commands
    assert [problem for command in sorted(commands) if (problem := refusal(command))] == []


def test_a_command_with_a_wrong_word_or_option_is_refused() -> None:
    assert "unknown fly" in refusal("assize worker fly")
    assert "unknown --fast" in refusal("assize worker drain --fast")
    assert "lacks whose" in refusal("assize wallet sent")
    assert refusal("assize worker drain --cancel") == ""


def test_every_exit_code_has_a_runbook() -> None:
    codes = {value for name, value in vars(console).items() if name.startswith("EXIT_")}
    assert len(codes) == 5
    assert {f"exit-code-{code}" for code in codes} <= headings(PAGES[0])


def test_what_may_befall_any_role_has_a_runbook_and_each_role_says_what_it_keeps() -> None:
    shared = {
        *("losing-a-key", "a-compromised-node-key", "moving-a-node-to-another-machine"),
        *("restoring-from-nothing-but-keystores", "a-chain-that-reorganises-deeply", "upgrading", "shutting-down"),
    }
    assert shared <= headings(PAGES[0])
    assert all("moving-restoring-shutting-down" in headings(page) for page in PAGES[1:])
    assert all("](../deploy/watching/README.md)" in page.read_text() for page in PAGES[1:])
