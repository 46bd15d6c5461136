"""``make bench-capture``: the odds that a holder of validator slots has the majority of a committee.

A committee of m seats is drawn without repetition from 256 slots, s of them hostile, so the hostile seats follow the
hypergeometric law. A block producer that discards d blocks chooses among d + 1 draws. Exact, without sampling.
"""

from __future__ import annotations

import json
from math import comb

from rich.console import Console
from rich.table import Table

SLOTS = 256
SEATS = (3, 5, 7, 9, 11, 13, 15)
SHARES = (0.10, 0.20, 0.33)
DISCARDED = (0, 1, 2, 4, 8)


def majority_odds(slots: int, hostile: int, seats: int) -> float:
    """Returns the probability that more than half of ``seats`` drawn from ``slots`` are among the ``hostile`` ones."""
    ways = sum(
        comb(hostile, taken) * comb(slots - hostile, seats - taken) for taken in range(seats // 2 + 1, seats + 1)
    )
    return ways / comb(slots, seats)


def best_of(odds: float, draws: int) -> float:
    """Returns the probability that at least one of ``draws`` independent draws succeeds."""
    return 1 - (1 - odds) ** draws


def main() -> None:
    """Prints the odds as a table, then as one line of JSON."""
    table = Table("slots held", "seats", *(f"{count} discarded" for count in DISCARDED), title="odds of a majority")
    capture: dict[str, dict[str, list[float]]] = {}
    for share in SHARES:
        rows = capture.setdefault(f"{share:.2f}", {})
        for seats in SEATS:
            odds = majority_odds(SLOTS, round(share * SLOTS), seats)
            rows[str(seats)] = [best_of(odds, count + 1) for count in DISCARDED]
            table.add_row(f"{share:.0%}", str(seats), *(f"{value:.3%}" for value in rows[str(seats)]))
    Console(width=100).print(table)
    print(json.dumps({"slots": SLOTS, "discarded": DISCARDED, "capture": capture}))


if __name__ == "__main__":
    main()
