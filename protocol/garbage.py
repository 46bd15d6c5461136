"""Collection of garbage in processes that keep much and must answer soon."""

from __future__ import annotations

import gc

RARELY = 300
"""Collections of the second generation between two of all three."""


def collect_rarely() -> None:
    """Keeps the collector from what is loaded so far, and from all the rest but once in a while.

    With a thousand nodes it would otherwise stop the process for half a second every few seconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], RARELY)
