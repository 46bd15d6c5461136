"""TOPLOC: bytes and figures of the reference package, malformed bytes, and the forgeries it let through."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire.toploc import definition
from protocol.wire.toploc.codec import ENTRIES, MODULUS_FLOOR, PRIME, Distance, Proof, chunk_spans

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "toploc.json").read_text())
EACH_VECTOR = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
PAPER, PRODUCTION = (38, 10, 8), (60, 40, 40)  # most exponent mismatches, mantissa mean and median


def chunk_of(vector, side) -> np.ndarray:
    flat = np.zeros(vector["rows"] * vector["hidden"], dtype=np.uint16)
    flat[vector["positions"]] = vector[side]
    return flat.reshape(vector["rows"], vector["hidden"])


def bf16(values) -> np.ndarray:
    """Rounds to nearest even, as bits."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def trained_like(seed: int) -> np.ndarray:
    """Rows with a few loud channels of steady sign, as trained models have, over Gaussian ones."""
    random = np.random.default_rng(seed)
    rows = random.normal(0, 1, (32, 256))
    rows[:, :4] = np.array([40, -30, 25, -60]) * random.lognormal(0, 0.3, (32, 4))
    return rows


def noisy(rows: np.ndarray, share: float) -> np.ndarray:
    return rows * (1 + share * np.random.default_rng(1).normal(size=rows.shape))


def proof_of_values(positions_K, values_K, modulus=PRIME) -> Proof:
    """Any proof a forger likes: a polynomial through values of their own, under a modulus of their own."""
    coefficients = definition.interpolate(positions_K % modulus, bf16(values_K).astype(np.int64))
    return Proof(modulus, tuple(coefficients.tolist()))


def passes(distance: Distance, thresholds) -> bool:
    """The reference's verdict."""
    figures = (distance.exponent_mismatches, distance.mantissa_mean, distance.mantissa_median)
    return all(figure <= most for figure, most in zip(figures, thresholds, strict=True))


@EACH_VECTOR
def test_our_bytes_are_the_references(vector):
    assert definition.build(chunk_of(vector, "prover")).encode().hex() == vector["proof"]


@EACH_VECTOR
def test_our_figures_of_the_references_proof_are_the_references(vector):
    distance = definition.distance(chunk_of(vector, "verifier"), Proof.decode(bytes.fromhex(vector["proof"])))
    exponents, mean, median = vector["reference"]
    assert (distance.exponent_mismatches, distance.mantissa_median) == (exponents, median)
    assert distance.mantissa_mean == pytest.approx(mean)
    assert distance.modulus_canonical


@EACH_VECTOR
def test_a_proof_is_at_no_distance_from_its_own_rows(vector):
    rows = chunk_of(vector, "prover")
    distance = definition.distance(rows, definition.build(rows))
    assert (distance.rel, distance.exponent_mismatches, distance.mantissa_mean) == (0.0, 0, 0.0)
    assert distance.null > 0.0


@given(st.integers(MODULUS_FLOOR + 1, PRIME), st.integers(0, 2**32 - 1))
def test_a_proof_survives_its_encoding(modulus, seed):
    coefficients = np.random.default_rng(seed).integers(0, PRIME, ENTRIES).tolist()
    proof = Proof(modulus, tuple(coefficients))
    assert Proof.decode(proof.encode()) == proof


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.binary(min_size=258, max_size=258), st.integers(0, 2**32 - 1)))
def test_any_bytes_are_a_proof_or_rejected_and_never_a_crash(encoded):
    if isinstance(encoded, int):
        words = np.random.default_rng(encoded).integers(0, PRIME, 1 + ENTRIES)
        words[0] = 32769 + words[0] % 32729
        encoded = words.astype(">u2").tobytes()
    try:
        proof = Proof.decode(encoded)
    except Rejected:
        return
    distance = definition.distance(bf16(trained_like(0)), proof)
    assert 0.0 <= distance.rel <= 1.0
    assert 0.0 <= distance.null <= 1.0


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 257, id="short"),
        pytest.param(b"\xff\xd9" + b"\x00" * 257, id="long"),
        pytest.param(b"\x00" * 258, id="null proof"),
        pytest.param(b"\xff\xda" + b"\x00" * 256, id="modulus over p"),
        pytest.param(b"\x80\x00" + b"\x00" * 256, id="modulus too small"),
        pytest.param(b"\xff\xd9" + b"\xff\xd9" * 128, id="coefficient p"),
    ],
)
def test_malformed_bytes_are_rejected(encoded):
    with pytest.raises(Rejected):
        Proof.decode(encoded)


def test_claims_that_are_not_finite_count_as_wholly_wrong():
    for claim in (0x7F80, 0x7F81, 0xFF80, 0xFFD8):
        distance = definition.distance(bf16(trained_like(0)), Proof(PRIME, (claim, *[0] * 127)))
        assert distance.rel == 1.0


@pytest.mark.parametrize(
    ("rows", "spans"),
    [
        (0, []),
        (1, [(0, 1)]),
        (7, [(0, 7)]),
        (32, [(0, 32)]),
        (39, [(0, 39)]),
        (40, [(0, 32), (32, 40)]),
        (71, [(0, 32), (32, 71)]),
        (96, [(0, 32), (32, 64), (64, 96)]),
    ],
)
def test_short_last_spans_join_the_chunk_before(rows, spans):
    assert chunk_spans(rows) == spans


@given(st.integers(0, 2000))
def test_spans_cover_every_row_once(rows):
    spans = chunk_spans(rows)
    assert [row for start, stop in spans for row in range(start, stop)] == list(range(rows))


def test_of_equal_magnitudes_the_first_are_kept():
    positions_K, _ = definition.top_entries(bf16(np.where(np.arange(300).reshape(3, 100) % 2, -1.0, 1.0)))
    assert positions_K.tolist() == list(range(128))


@given(st.lists(st.integers(0, 300_000), min_size=2, max_size=128, unique=True))
def test_canonical_modulus_is_the_largest_without_a_clash(positions):
    modulus = definition.largest_modulus(np.array(positions), MODULUS_FLOOR)
    assert len({position % modulus for position in positions}) == len(positions)
    for larger in range(modulus + 1, PRIME + 1):
        assert len({position % larger for position in positions}) < len(positions)


def test_a_chunk_with_few_entries_proves_all_it_has():
    rows = bf16(np.random.default_rng(2).normal(size=(1, 16)))
    proof = definition.build(rows)
    assert proof.coefficients[16:] == (0,) * 112
    assert definition.distance(rows, proof).rel == 0.0


@pytest.mark.parametrize("value", [0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF])
def test_hidden_states_that_are_not_finite_fail_instead_of_becoming_a_null_proof(value):
    rows = bf16(trained_like(0))
    proof = definition.build(rows)
    rows[3, 5] = value
    with pytest.raises(Misconfigured):
        definition.build(rows)
    with pytest.raises(Unavailable):
        definition.distance(rows, proof)


def test_honest_noise_stays_far_below_what_a_forger_reaches():
    rows = trained_like(3)
    distance = definition.distance(bf16(noisy(rows, 0.02)), definition.build(bf16(rows)))
    assert distance.rel < 0.3 * distance.null
    assert passes(distance, PAPER)


def test_constant_polynomial_passes_the_reference_and_not_the_null_guard():
    """On Gaussian rows the top 128 share an exponent: one constant, without any computing, satisfies the reference."""
    rows = bf16(np.random.default_rng(4).normal(size=(32, 2048)))
    own = np.sort(np.abs(definition.values_at(rows, definition.top_entries(rows)[0])))
    forged = proof_of_values(np.arange(128), np.full(128, own[40]))
    distance = definition.distance(rows, forged)
    assert passes(distance, PRODUCTION)
    assert distance.rel > 0.3 * distance.null


def test_null_is_no_more_than_any_constant_reaches():
    rows = bf16(trained_like(5))
    positions, _ = definition.top_entries(rows)
    own = definition.values_at(rows, positions)
    null = definition.distance(rows, definition.build(rows)).null
    tried = [np.minimum(1, np.abs(c - np.abs(own)) / np.abs(own)).mean() for c in np.geomspace(0.5, 200, 3000)]
    assert null <= min(tried) + 1e-12
    assert null == pytest.approx(min(tried), rel=0.02)


def test_channel_template_passes_the_reference_and_not_the_null_guard():
    """Loud channels are much alike from text to text: their means alone satisfy the reference."""
    template = np.mean([trained_like(seed) for seed in range(20)], axis=(0, 1))
    rows = bf16(trained_like(99))
    positions = definition.top_entries(rows)[0]
    forged = proof_of_values(positions, template[positions % 256])
    distance = definition.distance(rows, forged, bf16(np.tile(template, (32, 1))))
    assert passes(distance, PRODUCTION)
    assert distance.rel >= distance.null - 0.01
    assert distance.rel > 0.3 * distance.null


def test_proof_of_another_rollout_is_measured_as_a_null():
    other, rows = bf16(trained_like(6)), bf16(trained_like(7))
    stolen = definition.build(other)
    distance = definition.distance(rows, stolen, other)
    assert distance.null <= distance.rel
    assert distance.rel > 0.3 * distance.null


def test_negated_activations_pass_the_reference_and_are_wholly_wrong_here():
    rows = trained_like(8)
    distance = definition.distance(bf16(rows), definition.build(bf16(-rows)))
    assert passes(distance, PAPER)
    assert distance.rel == 1.0


def test_modulus_of_the_workers_choice_is_flagged_though_every_value_is_right():
    rows = bf16(trained_like(9))
    positions, _ = definition.top_entries(rows)
    values = definition.values_at(rows, positions)
    forged = proof_of_values(positions, values, modulus=40_009)
    distance = definition.distance(rows, forged)
    assert distance.rel == 0.0
    assert passes(distance, PAPER)
    assert not distance.modulus_canonical


def test_modulus_of_an_honest_worker_is_canonical_though_noise_swaps_entries():
    """At H > 2046 moduli below p occur, and worker and verifier do not keep quite the same entries."""
    random = np.random.default_rng(10)
    moduli = set()
    for _ in range(20):
        rows = random.normal(size=(32, 4096))
        rows[:, [100, 61]] *= 2  # 16 rows and -39 channels apart is 65497 positions apart
        proof = definition.build(bf16(rows))
        moduli.add(proof.modulus)
        assert definition.distance(bf16(noisy(rows, 0.01)), proof).modulus_canonical
    assert len(moduli) > 1


def test_all_zero_rows_are_met_only_by_zeros():
    rows = np.zeros((8, 64), dtype=np.uint16)
    assert definition.distance(rows, definition.build(rows)).rel == 0.0
    assert definition.distance(rows, Proof(PRIME, (1, *[0] * 127))).rel == 1.0


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 128))
def test_interpolation_goes_through_its_points(seed, count):
    random = np.random.default_rng(seed)
    x, y = random.permutation(PRIME)[:count], random.integers(0, PRIME, count)
    coefficients = definition.interpolate(x, y)
    assert np.array_equal(definition.evaluate(coefficients.tolist(), x), y)
    assert len(coefficients) == 128
    assert coefficients.max() < PRIME
    assert coefficients.min() >= 0
