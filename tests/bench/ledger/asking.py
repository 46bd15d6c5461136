"""What an API is asked: every list of its OpenAPI document at both ends and in the middle, and why."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

MOST = 500
"""Items of a page when a list is walked through; pages that are measured have as many as come unasked."""
VOID_JOB = 2
"""Of the rounds that the chain is grown by; some of those that it begins with have fewer jobs."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the requests for one thing, in milliseconds."""

    median: float
    p95: float


def lists(document: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    """Addresses of all lists; of those that can be narrowed, narrowed too."""
    for path, item in document["paths"].items():
        names = {each["name"] for each in item["get"].get("parameters", ()) if each["in"] == "query"}
        fields = _fields(document, item["get"])
        if "next" in fields:
            address = path.format_map(known)
            yield address
            for name in sorted(names - {"limit", "after", "as_of"}):
                yield f"{address}?{name}={known[name]}"


def places(http: httpx.Client, address: str) -> tuple[dict[str, str], int]:
    """Addresses of the first page, one in the middle and the last of a list; and how long it is."""
    cursors, length, after = [""], 0, None
    while True:
        page = _page(http, address, after, limit=MOST)
        length += len(page["items"])
        after = page["next"]
        if after is None:
            break
        cursors.append(after)
    last = cursors[-1]
    while (following := _page(http, address, last or None)["next"]) is not None:
        last = following
    found = {"first": "", "middle": cursors[len(cursors) // 2], "last": last}
    return {where: _address(address, cursor or None) for where, cursor in found.items()}, length


def timed(http: httpx.Client, questions: dict[str, list[str]], times: int) -> dict[str, Latency]:
    """Asks each question so many times. They take turns, so that a busy moment of the machine is nobody's own."""
    took: dict[str, list[float]] = {question: [] for question in questions}
    for turn in range(times):
        for question, addresses in questions.items():
            address = addresses[turn % len(addresses)]
            started = time.perf_counter()
            answer = http.get(address)
            took[question].append(1000 * (time.perf_counter() - started))
            assert answer.status_code == 200, f"{address}: {answer.status_code}"
    return {question: _latency(each) for question, each in took.items()}


def _latency(took: list[float]) -> Latency:
    return Latency(statistics.median(took), statistics.quantiles(took, n=20, method="inclusive")[-1])


def whys(http: httpx.Client, worker: str, count: int) -> dict[str, list[str]]:
    """Addresses of explanations, of things spread over the whole chain."""
    entries = _spread(http, f"/credits/{worker}/entries", count)
    slashes, rounds = _spread(http, "/slashes", count), _spread(http, "/rounds", count)
    judged = [each["round"] for each in rounds if not each["parent"] and each["jobs"] > VOID_JOB]
    return {
        "why a credit": [_entry(each) for each in entries],
        "why a slash": [_entry(each) for each in slashes],
        "why a void job": [f"/why/jobs/{round_}/{VOID_JOB}" for round_ in judged],
    }


def _spread(http: httpx.Client, address: str, count: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for place in dict.fromkeys(places(http, address)[0].values()):
        items += http.get(place).json()["items"]
    return items[:: max(1, len(items) // count)][:count]


def _entry(item: dict[str, Any]) -> str:
    return f"/why/entries/{item['block_number']}/{item['log_index']}"


def _fields(document: dict[str, Any], operation: dict[str, Any]) -> set[str]:
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    return set(document["components"]["schemas"].get(name, {}).get("properties", ()))


def _page(http: httpx.Client, address: str, after: str | None, limit: int | None = None) -> dict[str, Any]:
    answer = http.get(_address(address, after, limit))
    assert answer.status_code == 200, f"{address}: {answer.text}"
    page: dict[str, Any] = answer.json()
    return page


def _address(address: str, after: str | None, limit: int | None = None) -> str:
    given = {name: value for name, value in (("after", after), ("limit", limit)) if value is not None}
    query = "&".join(f"{name}={value}" for name, value in given.items())
    return address + ("&" if "?" in address else "?") * bool(query) + query
