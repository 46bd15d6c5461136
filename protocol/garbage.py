"""Collection of garbage: seldom while modules are imported, and in processes that keep much and must answer soon.

A collection looks at every object of its generation. What is imported stays, so all looks at it find nothing.
"""

from __future__ import annotations

import atexit
import gc

USUAL = gc.get_threshold()
"""Python's own: objects made between two collections of the youngest, and how often these lead to older ones."""
LOADING = (10_000, *USUAL[1:])
RARELY = 300
"""Collections of the second generation between two of all three."""


def collect_seldom_while_loading() -> None:
    """Looks for garbage once in 10,000 new objects, until `collect_as_usual`, and not once more as the process ends."""
    gc.set_threshold(*LOADING)
    atexit.register(gc.freeze)


def collect_as_usual() -> None:
    """Ends `collect_seldom_while_loading`, in a process that goes on."""
    if gc.get_threshold() == LOADING:
        gc.set_threshold(*USUAL)


def collect_rarely() -> None:
    """Keeps the collector from what is loaded so far, and from all the rest but once in a while.

    With a thousand nodes it would otherwise stop the process for half a second every few seconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*USUAL[:2], RARELY)
