"""Every metric of the code, read from its source: name, type, labels, role and meaning.

A metric is declared at the top of a module as ``NAME = Counter("assize_…", "Meaning", ["label"])``, or as a value of a
dict there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("METRICS.md")
PACKAGES = ("protocol", "coordinator", "worker", "trainer", "validator", "ledger", "deploy")
SUFFIXES = {"Counter": "_total", "Info": "_info", "Gauge": "", "Histogram": "", "Summary": ""}
"""Kind of metric to what Prometheus adds to its name."""

PLACES = (
    ("coordinator/api/artifacts.py", "coordinator serve, precheck"),
    ("coordinator/api", "coordinator serve"),
    ("coordinator", "coordinator drive"),
    ("validator/recheck", "recheck"),
    ("protocol/broadcast/relay.py", "relay"),
    ("protocol/broadcast", "relay, trainer"),
    ("protocol/chain/writing", "all that send"),
    ("protocol/chain/reading/own_standing.py", "all that send"),
    ("protocol/chain", "all that read the chain"),
    ("protocol/node/daemon.py", "all with a loop"),
    ("protocol/transport", "all that serve HTTP"),
    ("protocol", "all"),
)
"""Folder or file to the roles that have its metrics, the first that fits; a service's own folder otherwise."""

_SELECTOR = re.compile(r"\b(assize_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")

HEAD = """# Metrics

Made by `python -m deploy.watching` from the code, and checked against it by the tests. Every role serves them in
Prometheus' format at `http://metrics_host:metrics_port/metrics`, by default not at all, and else on 127.0.0.1:
`metrics_port` is a setting of each (`--metrics-port` of `assize relay serve` and `assize ledger serve`;
`api_metrics_port` of `assize coordinator serve`, with `api_processes` the ports after it too, `precheck_metrics_port`
of `precheck`, beside the driver's `metrics_port`). Not secret, but keep them off public addresses. The library adds
figures of the process, `process_…` and `python_…`. A counter may go back to 0 when its process starts anew.

"""


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    """One metric as Prometheus names it. ``labels`` are its own; a scrape adds ``job`` and ``instance``."""

    name: str
    kind: str
    labels: tuple[str, ...]
    role: str
    meaning: str

    @property
    def series(self) -> frozenset[str]:
        """Names of its series in a query."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return frozenset(self.name + part for part in parts)


def metrics(root: Path = ROOT) -> list[Metric]:
    """Returns the metrics by name.

    Raises:
        Misconfigured: one's name, meaning or labels are not written out where it is declared.
    """
    files = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return sorted({each for path in files for each in _declared(path, path.relative_to(root))})


def _declared(path: Path, place: Path) -> Iterator[Metric]:
    text = path.read_text()
    if "prometheus_client" not in text:
        return
    tree = ast.parse(text)
    kinds = {
        name.asname or name.name: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
        for name in node.names
        if name.name in SUFFIXES
    }
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds:
            yield _metric(call, kinds[call.func.id], place)


def _metric(call: ast.Call, kind: str, place: Path) -> Metric:
    try:
        name, meaning, *rest = [ast.literal_eval(each) for each in call.args]
    except ValueError:
        raise Misconfigured(f"{place}, line {call.lineno}: write the metric's name, meaning and labels out") from None
    labels = (*(rest[0] if rest else ()), *(("version",) if kind == "Info" else ()))
    shown = "gauge" if kind == "Info" else kind.lower()
    return Metric(name + SUFFIXES[kind], shown, tuple(labels), role_of(place), meaning)


def role_of(place: Path) -> str:
    """Returns the roles that have a module's metrics. PURE."""
    path = place.as_posix()
    return next((role for start, role in PLACES if path.startswith(start)), place.parts[0])


def named_in(query: str) -> dict[str, set[str]]:
    """Returns the metrics of ours that a query in PromQL names, and the labels that it asks of each. PURE."""
    found: dict[str, set[str]] = {}
    for name, asked in _SELECTOR.findall(query):
        found.setdefault(name, set()).update(_LABEL.findall(asked))
    return found


def table(found: list[Metric]) -> str:
    """Returns the page with the table. PURE."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.role} | {each.meaning} |" for each in found
    ]
    return HEAD + "\n".join(["| name | type | labels | role | meaning |", "|---|---|---|---|---|", *rows]) + "\n"
