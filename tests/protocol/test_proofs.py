"""Proofs and distances on tensors: the definition's results, for many rollouts at once."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.tensor import proofs, selection
from protocol.wire.toploc import definition
from protocol.wire.toploc.codec import Distance, Proof, chunk_spans, decode_fields

torch.set_num_threads(1)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def hidden(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).bfloat16()


def bits(rows: torch.Tensor) -> np.ndarray:
    return rows.cpu().view(torch.int16).numpy().view(np.uint16)


def distances(rows: torch.Tensor, given: list[bytes]) -> list[Distance]:
    return proofs.distances_batch(rows, [len(rows)], [given])[0]


def chunks(rows: torch.Tensor) -> list[np.ndarray]:
    return [bits(rows[start:stop]) for start, stop in chunk_spans(len(rows))]


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(0, 80), min_size=1, max_size=5),
    width=st.sampled_from([1, 5, 16, 64]),
    seed=st.integers(0, 1000),
)
def test_proofs_and_distances_of_a_batch_are_those_of_the_reference(device, lengths, width, seed):
    rows = hidden(sum(lengths), width, seed)
    verifier = (rows.float() * (1 + 0.02 * hidden(sum(lengths), width, seed + 1).float())).bfloat16()
    previous = [None, *range(len(lengths) - 1)]
    built = proofs.build_proofs_batch(rows.to(device), lengths)
    measured = proofs.distances_batch(verifier.to(device), lengths, built, previous)
    own = [chunks(rollout) for rollout in verifier.split(lengths)]
    for number, rollout in enumerate(rows.split(lengths)):
        assert built[number] == [definition.build(chunk).encode() for chunk in chunks(rollout)]
        before = own[number - 1] if number else []
        for index, chunk in enumerate(own[number]):
            proof, guess = Proof.decode(built[number][index]), before[index] if index < len(before) else None
            assert measured[number][index] == definition.distance(chunk, proof, guess)


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 45), min_size=1, max_size=4),
    width=st.sampled_from([1, 7, 64, 300]),
    values=st.sampled_from([1, 2, 9, 1000]),
    count=st.sampled_from([1, 128, 256]),
    seed=st.integers(0, 1000),
)
def test_compiled_selection_takes_what_the_definition_takes(lengths, width, values, count, seed):
    rows = (hidden(sum(lengths), width, seed).float() * values).round().bfloat16()  # few values: many ties
    cut = selection.cut(rows, lengths)
    compiled = selection.select(cut, count)
    for chunk, (start, stop) in enumerate(zip(cut.starts_C, cut.stops_C, strict=True)):
        positions_E, bits_E = definition.top_entries(bits(rows[start:stop]), count)
        held = slice(compiled.counts_C[chunk])
        assert np.array_equal(compiled.positions_CE[chunk, held], positions_E)
        assert np.array_equal(compiled.bits_CE[chunk, held], bits_E)


@settings(deadline=None, max_examples=50)
@given(
    rows=st.integers(1, 64),
    width=st.sampled_from([1, 3, 64, 4096]),
    seed=st.integers(0, 1000),
    forged=st.booleans(),
    modulus=st.integers(32_769, 65_497),
    guessed=st.integers(1, 64),
)
def test_compiled_polynomials_and_distances_are_the_definitions_to_the_last_bit(
    rows, width, seed, forged, modulus, guessed
):
    own_TH, random = hidden(rows, width, seed), np.random.default_rng(seed)
    guess_TH = torch.from_numpy(random.choice([0.0, 1.0, -2.5, 1e30], (guessed, width))).bfloat16()
    built, guess_built = proofs.build_proofs_batch(torch.cat([own_TH, guess_TH]), [rows, guessed])
    assert built == [definition.build(chunk).encode() for chunk in chunks(own_TH)]
    if forged:
        fields = random.integers(0, 65_497, (len(built), 129)).tolist()
        built = [Proof(modulus, tuple(coefficients)).encode() for _, *coefficients in fields]
    both_TH = torch.cat([own_TH, guess_TH])
    measured, _ = proofs.distances_batch(both_TH, [rows, guessed], [built, guess_built], [1, None])
    guesses = [*chunks(guess_TH), None, None]
    assert measured == [
        definition.distance(chunk, Proof.decode(proof), guess)
        for chunk, proof, guess in zip(chunks(own_TH), built, guesses, strict=False)
    ]


@settings(deadline=None, max_examples=20)
@given(
    lengths=st.lists(st.integers(0, 80), min_size=1, max_size=4),
    width=st.sampled_from([1, 5, 64]),
    seed=st.integers(0, 1000),
)
def test_without_numba_the_definition_gives_the_same_results(lengths, width, seed):
    rows, previous = hidden(sum(lengths), width, seed), [None, *range(len(lengths) - 1)]
    cut, built = selection.cut(rows, lengths), proofs.build_proofs_batch(rows, lengths)
    assert cut.by_rollout(proofs.build_by_definition(cut), len(lengths)) == built
    fields_CF = decode_fields([proof for given in built for proof in given])
    measured = proofs.measure_by_definition(cut, fields_CF, cut.same_chunk_of(previous))
    assert cut.by_rollout(measured, len(lengths)) == proofs.distances_batch(rows, lengths, built, previous)


def test_one_rollout_is_a_batch_of_one():
    rows = hidden(70, 32)
    assert proofs.build_proofs(rows) == proofs.build_proofs_batch(rows, [70])[0]
    assert [distance.rel for distance in distances(rows, proofs.build_proofs(rows))] == [0.0, 0.0]


def test_wider_floats_are_rounded_to_bf16_first():
    rows = torch.randn(40, 32, generator=torch.Generator().manual_seed(3))
    assert proofs.build_proofs(rows) == proofs.build_proofs(rows.bfloat16())


@pytest.mark.parametrize("device", DEVICES)
def test_of_equal_magnitudes_the_first_are_kept_on_every_device(device):
    rows = (torch.arange(32 * 300).reshape(32, 300) % 2 * 2 - 1).bfloat16()
    assert proofs.build_proofs(rows.to(device)) == [definition.build(bits(rows)).encode()]


def test_hidden_states_that_are_not_finite_fail_instead_of_becoming_a_null_proof():
    rows = hidden(64, 32)
    built = proofs.build_proofs(rows)
    rows[40, 7] = torch.nan
    with pytest.raises(Misconfigured):
        proofs.build_proofs(rows)
    with pytest.raises(Unavailable):
        distances(rows, built)


@pytest.mark.parametrize("change", [lambda given: given[:1], lambda given: [], lambda given: [*given, given[0]]])
def test_missing_and_extra_proofs_are_rejected(change):
    rows = hidden(64, 32)
    with pytest.raises(Rejected, match="needs 2 proofs"):
        distances(rows, change(proofs.build_proofs(rows)))


def test_null_proofs_are_rejected_naming_the_rollout():
    rows = hidden(64, 32)
    built = proofs.build_proofs_batch(rows, [32, 32])
    with pytest.raises(Rejected, match="rollout 1"):
        proofs.distances_batch(rows, [32, 32], [built[0], [bytes(258)]])


def test_rows_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError):
        proofs.build_proofs_batch(hidden(10, 4), [4, 5])


def test_a_job_of_64_rollouts_is_proved_and_checked_within_60_milliseconds_each():
    lengths = [55] * 64
    rows = hidden(sum(lengths), 128)
    built = proofs.build_proofs_batch(rows, lengths)
    building, checking = [], []
    for _ in range(5):
        started = time.thread_time()
        proofs.build_proofs_batch(rows, lengths)
        building.append(time.thread_time() - started)
        started = time.thread_time()
        proofs.distances_batch(rows, lengths, built, previous=[None, *range(63)])
        checking.append(time.thread_time() - started)
    assert min(building) < 0.06
    assert min(checking) < 0.06
