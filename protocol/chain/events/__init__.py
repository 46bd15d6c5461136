"""One frozen value per event, named and ordered as in ``contracts/src/interfaces``, with fields in snake case.

Types as in ``structs``. Defining a subclass of ``Event`` registers it in ``EVENTS``.
"""

from __future__ import annotations

# Star imports, so that each event is named once, where it is defined.
from protocol.chain.events.admin import *  # noqa: F403
from protocol.chain.events.base import EVENTS as EVENTS
from protocol.chain.events.base import Event as Event
from protocol.chain.events.base import Log as Log
from protocol.chain.events.credits import *  # noqa: F403
from protocol.chain.events.market import *  # noqa: F403
from protocol.chain.events.registry import *  # noqa: F403
from protocol.chain.events.rounds import *  # noqa: F403
from protocol.chain.events.token import *  # noqa: F403
from protocol.chain.events.traps import *  # noqa: F403
