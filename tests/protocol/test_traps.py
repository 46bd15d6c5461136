"""The tree of traps, the rate that is needed, and the private file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Misconfigured
from protocol.node.trap_file import FAULTS, TrapFile, planned, sure_faults
from protocol.wire.traps import Trap, TrapKind, leaf_of, proof_of, rate_needed, root_of, traps_needed
from tests.coordinator.swarm import RULES

CONTRACT = "0x" + "ab" * 20
hashes = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40, unique=True)


def climbed(leaf: bytes, proof: list[bytes]) -> bytes:
    """As OpenZeppelin's MerkleProof climbs."""
    for neighbour in proof:
        leaf = keccak(min(leaf, neighbour) + max(leaf, neighbour))
    return leaf


@given(hashes, st.data())
def test_every_leaf_has_a_proof_and_nothing_else_has(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    assert climbed(leaves[index], proof_of(leaves, index)) == root_of(leaves)
    assert climbed(keccak(leaves[index]), proof_of(leaves, index)) != root_of(leaves)


def test_a_leaf_commits_to_all_that_it_says() -> None:
    trap = Trap(3, 5, 9, TrapKind.OTHER_SEED, b"\1" * 32)
    others = [
        Trap(4, 5, 9, TrapKind.OTHER_SEED, b"\1" * 32),
        Trap(3, 6, 9, TrapKind.OTHER_SEED, b"\1" * 32),
        Trap(3, 5, 8, TrapKind.OTHER_SEED, b"\1" * 32),
        Trap(3, 5, 9, TrapKind.DECOY, b"\1" * 32),
        Trap(3, 5, 9, TrapKind.OTHER_SEED, b"\2" * 32),
    ]
    hashed = [leaf_of(1, CONTRACT, trap), leaf_of(2, CONTRACT, trap), leaf_of(1, "0x" + "cd" * 20, trap)]
    assert len({*hashed, *(leaf_of(1, CONTRACT, other) for other in others)}) == 8


@given(st.integers(1, 10**6), st.integers(1, 10**18), st.integers(1, 10**18))
def test_so_many_traps_make_looking_away_a_loss(jobs: int, cost: int, penalty: int) -> None:
    if cost >= penalty:
        with pytest.raises(Misconfigured, match="no rate of traps is enough"):
            rate_needed(cost, penalty)
    else:
        assert traps_needed(jobs, cost, penalty) * penalty > jobs * cost


def some(**changes: object) -> TrapFile:
    values = {
        "chain_id": 1,
        "contract": CONTRACT,
        "run": 2,
        "nodes": (3, 4),
        "kinds": 5,
        "decoys": 5,
        "rounds": range(7, 20),
        "bounty_wei": 100,
        "open_by": 10**9,
    }
    return planned(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fraud", "kinds"), [(0.0043, FAULTS), (12.0, (TrapKind.OTHER_PROMPTS,)), (None, (TrapKind.OTHER_PROMPTS,))]
)
def test_faults_of_sampling_are_sure_only_where_the_bound_of_fraud_is_below_the_noise(
    fraud: float | None, kinds: tuple[TrapKind, ...]
) -> None:
    bounds = RULES.thresholds.model_copy(update={"sampling_fraud": fraud})
    assert sure_faults(RULES.model_copy(update={"thresholds": bounds})) == kinds
    assert {entry.kind for entry in some(kinds=50, faults=kinds).traps} == {TrapKind.DECOY, *kinds}


def test_a_plan_has_its_traps_and_decoys_within_its_rounds() -> None:
    file = some()
    assert sum(entry.kind is TrapKind.DECOY for entry in file.traps) == 5
    assert len({entry.salt for entry in file.traps}) == 10
    assert all(7 <= entry.first <= entry.last == 19 and entry.node in (3, 4) for entry in file.traps)
    assert not any(trap.covers(8) for trap in file.given() if trap.kind is TrapKind.DECOY)


def test_the_file_is_private_reads_back_and_is_never_overwritten(tmp_path: Path) -> None:
    file, path = some(), tmp_path / "traps.json"
    file.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TrapFile.read(path) == file
    with pytest.raises(Misconfigured, match="exists: give another file"):
        file.write(path)


@pytest.mark.parametrize("content", ["", "[]", '{"format": "assize/traps/1"}', '{"format": "other"}'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "traps.json"
    path.write_text(content)
    with pytest.raises(Misconfigured, match="invalid trap file"):
        TrapFile.read(path)
    with pytest.raises(Misconfigured, match="cannot read the trap file"):
        TrapFile.read(tmp_path / "none.json")
