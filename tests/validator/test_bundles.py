"""Bundles that votes name: fetched in the background, believed only where signature, root and place are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import Misconfigured, Unavailable
from protocol.node.wallet import Wallet
from protocol.wire import evidence
from protocol.wire.evidence import Evidence, JobEvidence, Measurements
from protocol.wire.reasons import Reason
from validator.records.bundles import GIVE_UP_SECONDS, WAIT_SECONDS, Bundles
from validator.records.record import NamedBundle, Ratios, SettledRound

CHAIN_ID, ROUNDS = 31337, "0x5FbDB2315678afecb367f032d93F642f64180aa3"
BEACON, RULES_HASH = b"\x0b" * 32, b"\x02" * 32


def job(llr: float = 1.5) -> JobEvidence:
    one, none = np.ones(1, np.uint32), np.zeros(0, np.float32)
    columns = dict.fromkeys(Measurements.__slots__, np.zeros(1, np.float32))
    counts = {"tokens_N": one, "flips_N": one, "up_N": one, "chunks_N": 0 * one, "rel_C": none, "null_C": none}
    measured = Measurements(**columns | counts | {"llr_N": np.array([llr], np.float32)})
    return JobEvidence(0, 7, b"\x05" * 32, Reason.ACCEPTED, 10, 10, (), measured)


def bundle(juror: int = 1) -> Evidence:
    rows = (job(), replace(job(), job=1, measurements=None), replace(job(), job=2, node=8))
    return Evidence(CHAIN_ID, ROUNDS, 1, 4, 0, juror, 0, b"\x03" * 32, RULES_HASH, {}, rows)


def settled(*bundles: NamedBundle) -> SettledRound:
    return SettledRound(4, BEACON, 1, RULES_HASH, 0, 90, bundles, {0: 7, 1: 7, 2: 7}, {}, frozenset())


class Clock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Bundles]]:
    """Opens what was learnt in one directory, over a store; closes it at the end."""
    made: list[Bundles] = []

    def make(store: dict[bytes, bytes]) -> Bundles:
        def fetch(run: int, root: bytes) -> bytes:
            if root not in store:
                raise Unavailable("not there")
            return store[root]

        made.append(Bundles(fetch, CHAIN_ID, ROUNDS, tmp_path / "state", clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


def settle_down(bundles: Bundles, of: SettledRound, clock: Clock, steps: int = 4) -> None:
    """Looks again and again, the clock moving on, as ticks do."""
    for _ in range(steps):
        for named in of.bundles:
            bundles.look(of, named)
            for fetch in list(bundles._fetches.values()):
                fetch.future.exception(timeout=10)
        clock.now += 1.0


def test_a_bundle_is_read_once_and_survives_a_restart(
    opened: Callable[..., Bundles], make_wallet: Callable[[str], Wallet], clock: Clock
) -> None:
    key = make_wallet("juror")
    signed = evidence.sign(bundle(), key)
    named = NamedBundle(1, key.address, signed.evidence.root)
    store, of = {named.root: signed.canonical}, settled(named)
    bundles = opened(store)
    assert bundles.look(of, named) is None, "not in this tick"
    settle_down(bundles, of, clock)
    said = bundles.look(of, named)
    assert said is not None
    assert said.keys() == {0}, "job 1 was not measured, job 2 is not that node's"
    assert said[0].choices == 1.5
    store.clear()
    assert opened(store).look(of, named) == said
    again = opened(store)
    again.forget(of)
    assert again.look(replace(of, beacon=b"\x0c" * 32), named) is None, "a reorganised round is another one"


@pytest.mark.parametrize(
    "change", [{"round": 5}, {"attempt": 1}, {"juror": 2}, {"run": 2}, {"chain_id": 1}, {"rules_hash": b"\x09" * 32}]
)
def test_a_bundle_of_another_place_counts_as_none(
    change: dict[str, object], opened: Callable[..., Bundles], make_wallet: Callable[[str], Wallet], clock: Clock
) -> None:
    key = make_wallet("juror")
    signed = evidence.sign(replace(bundle(), **change), key)  # type: ignore[arg-type]
    named = NamedBundle(1, key.address, signed.evidence.root)
    bundles, of = opened({named.root: signed.canonical}), settled(named)
    settle_down(bundles, of, clock)
    assert bundles.look(of, named) is None


def test_a_juror_that_names_anothers_bundle_has_none_and_takes_nothing_from_it(
    opened: Callable[..., Bundles], make_wallet: Callable[[str], Wallet], clock: Clock
) -> None:
    key, copycat = make_wallet("juror"), make_wallet("copycat")
    signed = evidence.sign(bundle(), key)
    root = signed.evidence.root
    theirs, own = NamedBundle(2, copycat.address, root), NamedBundle(1, key.address, root)
    bundles, of = opened({root: signed.canonical}), settled(theirs, own)
    settle_down(bundles, of, clock)
    assert bundles.look(of, theirs) is None
    assert bundles.look(of, own) is not None


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 100, b'{"bundle":{},"signature":"0x' + b"0" * 130 + b'"}'])
def test_any_bytes_count_as_no_bundle(data: bytes, opened: Callable[..., Bundles], clock: Clock) -> None:
    named = NamedBundle(1, "0x" + "1" * 40, b"\x01" * 32)
    bundles, of = opened({named.root: data}), settled(named)
    settle_down(bundles, of, clock)
    assert bundles.look(of, named) is None


def test_what_does_not_come_is_awaited_asked_for_again_and_in_the_end_given_up(
    opened: Callable[..., Bundles], make_wallet: Callable[[str], Wallet], clock: Clock
) -> None:
    key = make_wallet("juror")
    signed = evidence.sign(bundle(), key)
    named = NamedBundle(1, key.address, signed.evidence.root)
    store: dict[bytes, bytes] = {}
    bundles, of = opened(store), settled(named)
    assert bundles.awaited(of, named)
    settle_down(bundles, of, clock)
    assert bundles.awaited(of, named)
    clock.now += WAIT_SECONDS
    assert not bundles.awaited(of, named), "no vote waits longer"
    assert not bundles.given_up(of, named)
    store[named.root] = signed.canonical
    settle_down(bundles, of, clock, 30)
    assert bundles.look(of, named) is not None, "late is better than never"
    lost = replace(named, root=b"\x07" * 32)
    settle_down(bundles, settled(lost), clock)
    clock.now += GIVE_UP_SECONDS
    settle_down(bundles, settled(lost), clock, 60)
    assert bundles.given_up(of, lost)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="settled rounds"):
        Bundles(lambda run, root: b"", CHAIN_ID, ROUNDS, tmp_path / "file")


def test_ratios_are_kept_to_the_last_bit(opened: Callable[..., Bundles], clock: Clock, tmp_path: Path) -> None:
    bundles = opened({})
    key, said = ("4", BEACON, 1, b"\x01" * 32), {3: Ratios(0.1 + 0.2, -1e-300, 1 / 3)}
    bundles._keep(key, said)
    assert bundles._kept(key) == said
