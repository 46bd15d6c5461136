"""One API under requests made from its own OpenAPI document; whatever comes, it answers, and never with a 5xx.

Half of the requests keep to the document, half break it somewhere. Parameters take, every other time, a value that the
API itself gave: ids, owners and cursors found in its answers before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

TIMEOUT_SECONDS = 60
TAG = re.compile(r"""<([a-z][^\s/<>"]*)((?:[^<>"]|"[^"]*")*)>""", re.IGNORECASE)
"""A tag as the pages write it, its values in quotes: name, then attributes."""
OWN = re.compile(r""" src="/static/[a-z_]+\.[0-9a-f]{16}\.js"(?: defer| type="module")*""")
"""Attributes of a script of the pages' own."""
FOREIGN = ("iframe", "object", "embed", "base", "style")
"""Elements that no page has."""
ATTRIBUTE = re.compile(r"""([^\s="<>/]+)(?:="([^"]*)")?""")
RUNS = re.compile(r"\s*(?:javascript|vbscript|data:text)", re.IGNORECASE)
"""Beginning of an address that would run in a browser."""
LOOSE = re.compile(r"<[a-z].{0,80}", re.IGNORECASE | re.DOTALL)
"""What begins as a tag."""

schemathesis.serializer.alias("application/vnd.apache.parquet", "application/octet-stream")

Known = dict[str, list[Any]]
"""Values that parameters of a name may take."""

Document = dict[str, Any]
"""An OpenAPI document."""

Sign = Callable[[str, str, bytes], Mapping[str, str]]
"""Method, path with query, and body, to the headers that sign them."""


@dataclass(slots=True)
class Asked:
    """What one operation answered: how often which status, and what it should not have."""

    operation: str
    statuses: dict[int, int] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)


def ask_everything(
    url: str, examples: int, known: Known | None = None, sign: Sign | None = None, pages: Document | None = None
) -> list[Asked]:
    """Asks every operation ``examples`` times.

    Args:
        known: what parameters of a name may take; None asks the API's own lists first.
        sign: signs every other request.
        pages: describes the explorer's pages, which are asked for instead, and whether they are safe to show.
    """
    everything = []
    with _client() as session:
        document = session.get(f"{url}/openapi.json", timeout=TIMEOUT_SECONDS).json() if pages is None else pages
        found = harvest(url) if known is None else known
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = result.ok()
            if pages is not None and operation.method.upper() != "GET":
                continue
            one = Asked(f"{operation.method.upper()} {operation.path}")
            everything.append(one)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                cases = operation.as_strategy(generation_mode=mode)
                _ask(session, cases, one, url, max(1, examples // 2), found, sign, pages is not None)
    return everything


def _ask(
    session: requests.Session,
    cases: Any,
    asked: Asked,
    url: str,
    examples: int,
    known: Known,
    sign: Sign | None,
    pages: bool,
) -> None:
    @seed(1)
    @settings(max_examples=examples, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(cases, st.data())
    def once(case: Case, data: st.DataObject) -> None:
        for values in (case.path_parameters, case.query, case.body if isinstance(case.body, dict) else None):
            for name in values or {}:
                if name == "wait":
                    values[name] = 0  # it would be waited for
                elif known.get(name) and data.draw(st.booleans()):
                    values[name] = data.draw(st.sampled_from(known[name]))
        try:
            prepared = session.prepare_request(requests.Request(**_request_of(case, url)))
            if sign is not None and data.draw(st.booleans()):
                prepared.headers.update(sign(str(prepared.method), prepared.path_url, _body_of(prepared)))
            if pages:
                prepared.headers["Accept"] = "text/html"
        except (requests.exceptions.RequestException, UnicodeError):
            assume(False)  # no client could send it
        answer = _answer_to(session, prepared)
        asked.statuses[answer.status_code] = asked.statuses.get(answer.status_code, 0) + 1
        if answer.status_code >= 500:
            asked.defects.append(
                f"{prepared.method} {prepared.url} {prepared.headers} {prepared.body!r}: {answer.text}"
            )
        elif (defect := (_unsafe if pages else _unsaid)(answer)) is not None:
            asked.defects.append(f"{prepared.method} {prepared.url}: {defect}: {answer.text!r}")

    with suppress(Unsatisfiable):  # nothing in the request can be broken
        once()


def _answer_to(session: requests.Session, prepared: requests.PreparedRequest) -> requests.Response:
    """Sends a request, once more if the answer is lost: a refusal closes the connection before the body is read."""
    with suppress(requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return session.send(prepared, timeout=TIMEOUT_SECONDS)
    return session.send(prepared, timeout=TIMEOUT_SECONDS)


def _request_of(case: Case, url: str) -> dict[str, Any]:
    told = case.as_transport_kwargs(base_url=url)
    return {
        name: told[name] for name in ("method", "url", "headers", "params", "cookies", "data", "json") if name in told
    }


def _body_of(prepared: requests.PreparedRequest) -> bytes:
    body = prepared.body or b""
    return body if isinstance(body, bytes) else str(body).encode()


def _unsaid(answer: requests.Response) -> str | None:
    """What is wrong with an answer of the API below 500."""
    return "refused without a sentence" if answer.status_code >= 400 and not _says_why(answer) else None


def _unsafe(answer: requests.Response) -> str | None:
    """What is wrong with a page: another type, no policy, or anything of a request that a browser would run."""
    if not answer.headers.get("Content-Type", "").startswith("text/html"):
        return "no page"
    if "default-src 'none'" not in answer.headers.get("Content-Security-Policy", ""):
        return "a page without its policy"
    found = next(running(answer.text), None)
    return None if found is None else f"a page with {found!r}"


def running(page: str) -> Iterator[str]:
    """Yields what would run in a page, and what begins as a tag but is none that the pages write."""
    for tag in TAG.finditer(page):
        name, attributes = tag[1].lower(), tag[2]
        foreign = name in FOREIGN or (name == "script" and not OWN.fullmatch(attributes))
        if foreign or any(map(_acts, ATTRIBUTE.finditer(attributes))):
            yield tag[0]
    if loose := LOOSE.search(TAG.sub("", page)):
        yield loose[0]


def _acts(attribute: re.Match[str]) -> bool:
    """Tells whether an attribute would run something in a browser."""
    name = attribute[1].lower()
    leads = name in ("href", "src", "action", "formaction")
    return name.startswith("on") or name in ("style", "srcdoc") or (leads and bool(RUNS.match(attribute[2] or "")))


def _says_why(answer: requests.Response) -> bool:
    try:
        return bool(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return False


def _client() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session


def harvest(url: str) -> Known:
    """Returns values for parameters by their names, from every list of an API that takes none."""
    known: Known = {}
    with _client() as session:
        document = session.get(f"{url}/openapi.json", timeout=TIMEOUT_SECONDS).json()
        for path in [path for path, item in document["paths"].items() if "get" in item and "{" not in path]:
            answer = session.get(url + path, params={"limit": 2}, timeout=TIMEOUT_SECONDS)
            try:
                for name, value in _leaves(answer.json(), path.strip("/").removesuffix("s")):
                    if value not in known.setdefault(name, []):
                        known[name].append(value)
            except ValueError:
                continue  # metrics are no JSON
    known["before"] = known.get("after", [])
    return known


def _leaves(value: Any, within: str) -> Iterator[tuple[str, Any]]:
    """Values by the names that parameters have for them: a list's ``id`` is a node, a round, a run."""
    names = {"next": "after", "block_number": "block", "block_hash": "as_of", "log_index": "log"}
    names |= {"id": within, "juror": "node"}
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                yield from _leaves(inner, within)
            elif inner is not None and not isinstance(inner, bool):
                yield names.get(name, name), inner
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, within)
