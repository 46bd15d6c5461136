"""Bundles come back bit for bit, hash to their root, and are refused in any other form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from protocol.wire.evidence import (
    Evidence,
    Finding,
    JobEvidence,
    JobFingerprint,
    Measurements,
    SignedEvidence,
    parse_signed,
    sign,
)
from protocol.wire.fingerprints import PROJECTIONS
from protocol.wire.reasons import Reason

KEY = Wallet("juror", b"\x07" * 32)
F32 = np.float32
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
COUNTS = [name for name, kind in Measurements.__annotations__.items() if kind == "U32"]


def bundle(jobs: tuple[JobEvidence, ...]) -> Evidence:
    return Evidence(
        chain_id=31337,
        rounds="0x5FbDB2315678afecb367f032d93F642f64180aa3",
        run=1,
        round=2**90,
        attempt=0,
        juror=3,
        policy_version=4,
        manifest_root=b"\x01" * 32,
        rules_hash=b"\x02" * 32,
        thresholds={"sampling_fraud": None, "sampling_void": 0.01},
        jobs=jobs,
    )


@st.composite
def measurements(draw: st.DrawFn) -> Measurements:
    chunks = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    n, c = len(chunks), sum(chunks)
    counts = st.integers(0, 2**32 - 1)

    def column(name: str) -> Any:
        size = c if name.endswith("_C") else n
        if name == "chunks_N":
            return np.array(chunks, np.uint32)
        if name in COUNTS:
            return np.array(draw(st.lists(counts, min_size=size, max_size=size)), np.uint32)
        return np.array(draw(st.lists(FLOATS, min_size=size, max_size=size)), F32)

    return Measurements(**{name: column(name) for name in Measurements.__slots__})


findings = st.builds(
    Finding,
    st.sampled_from(list(Reason)),
    st.text(max_size=20),
    st.none() | st.integers(0, 500),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
job_evidence = st.builds(
    JobEvidence,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=32, max_size=32),
    st.sampled_from(list(Reason)),
    st.integers(0, 2**64 - 1),
    st.none() | st.integers(0, 2**64 - 1),
    st.lists(findings, max_size=3).map(tuple),
    st.none() | measurements(),
)


@st.composite
def fingerprints(draw: st.DrawFn) -> JobFingerprint:
    gaps = draw(st.lists(FLOATS, max_size=3))
    projections = draw(st.lists(FLOATS, min_size=PROJECTIONS * len(gaps), max_size=PROJECTIONS * len(gaps)))
    engine = draw(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20))
    figures = (np.array(projections, F32), np.array(gaps, F32))
    return JobFingerprint(draw(st.integers(0, 255)), engine, draw(st.binary(min_size=32, max_size=32)), *figures)


@given(st.lists(job_evidence, max_size=3).map(tuple), st.lists(fingerprints(), max_size=3).map(tuple))
def test_evidence_comes_back_bit_for_bit(jobs: tuple[JobEvidence, ...], shown: tuple[JobFingerprint, ...]) -> None:
    signed = SignedEvidence(replace(bundle(jobs), fingerprints=shown), bytes(65))
    again = parse_signed(signed.canonical, signed.evidence.root)
    assert again.canonical == signed.canonical
    assert again.evidence.root == signed.evidence.root


def test_a_finding_of_whole_numbers_comes_back() -> None:
    job = replace(EMPTY_JOB, findings=(Finding(Reason.UNITS, "units differ", None, 5, 6),))
    signed = SignedEvidence(bundle((job,)), bytes(65))
    assert parse_signed(signed.canonical).evidence == signed.evidence


def test_a_signature_is_the_jurors_and_nobody_elses() -> None:
    signed = parse_signed(sign(bundle(()), KEY).canonical)
    signed.verify(KEY.address)
    with pytest.raises(Rejected, match="signed by"):
        signed.verify(Wallet("other", b"\x08" * 32).address)


def test_another_root_is_refused() -> None:
    with pytest.raises(Rejected, match="hashes to"):
        parse_signed(sign(bundle(()), KEY).canonical, bytes(32))


def test_bytes_that_are_not_canonical_are_refused() -> None:
    value = json.loads(sign(bundle(()), KEY).canonical)
    with pytest.raises(Rejected):
        parse_signed(json.dumps(value).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected):
        parse_signed(data)


@given(st.data())
def test_a_mangled_bundle_is_refused(data: st.DataObject) -> None:
    value = json.loads(sign(bundle((EMPTY_JOB,)), KEY).canonical)
    place: Any = value["bundle"]
    if data.draw(st.booleans()):
        place = place["jobs"][0]
    name = data.draw(st.sampled_from(sorted(place)))
    place[name] = data.draw(st.none() | st.integers() | st.text() | st.lists(st.integers(), max_size=2) | st.booleans())
    mangled = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    try:
        again = parse_signed(mangled)
    except Rejected:
        return
    assert again.canonical == mangled


EMPTY_JOB = JobEvidence(0, 1, bytes(32), Reason.SHAPE, 5, None, (Finding(Reason.SHAPE, "x", None, 1.0, 2.0),), None)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(Rejected):
        parse_signed(sign(bundle((EMPTY_JOB,)), KEY).canonical.replace(b"1.0,2.0", f"1.0,{number}".encode()))


@pytest.mark.parametrize(("name", "values"), [("llr_N", [0.0, 1.0]), ("rel_C", [0.5]), ("llr_N", [float("inf")])])
def test_columns_nobody_can_compute_with_are_refused(name: str, values: list[float]) -> None:
    columns = {one: np.zeros(1, np.uint32 if one in COUNTS else F32) for one in Measurements.__slots__}
    columns |= {"rel_C": np.zeros(0, F32), "null_C": np.zeros(0, F32)} | {name: np.array(values, F32)}
    job = replace(EMPTY_JOB, measurements=Measurements(**columns))
    with pytest.raises(Rejected, match=name):
        parse_signed(sign(bundle((job,)), KEY).canonical)


@pytest.mark.parametrize(
    ("engine", "projections", "gaps", "said"),
    [
        ("torch", [0.0] * 7, [0.0], "7 projections for 1 rollouts, not 8 each"),
        ("torch", [0.0] * 8, [0.0, 0.0], "8 projections for 2 rollouts"),
        ("torch", [float("nan")] * 8, [0.0], "not finite"),
        ("torch", [0.0] * 8, [float("inf")], "not finite"),
        ("\x1b[2J", [0.0] * 8, [0.0], "engine"),
        ("x" * 161, [0.0] * 8, [0.0], "engine"),
        ("", [0.0] * 8, [0.0], "engine"),
    ],
)
def test_fingerprints_nobody_can_compare_or_show_are_refused(
    engine: str, projections: list[float], gaps: list[float], said: str
) -> None:
    shown = JobFingerprint(0, engine, bytes(32), np.array(projections, F32), np.array(gaps, F32))
    with pytest.raises(Rejected, match=said):
        parse_signed(sign(replace(bundle(()), fingerprints=(shown,)), KEY).canonical)
