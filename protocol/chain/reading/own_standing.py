"""Reads what an operator must keep filled: gas and bond of one key, and the newest version of its run; and the head.

A thread of its own reads them twice a minute for those who watch, so that no loop waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog
from prometheus_client import Gauge

from protocol.amounts import WEI
from protocol.chain.reading.client import Chain
from protocol.errors import AssizeError

LOOK_SECONDS = 30.0
"""Time between two looks, of some five views and two blocks each."""

GAS = Gauge("assize_gas_balance_coins", "Coin that the key holds for gas", ["key"])
BOND = Gauge("assize_bond_tokens", "Bond of the key's node", ["node"])
REQUIRED = Gauge("assize_bond_required_tokens", "Least bond at which the node is listed or drawn", ["node"])
LISTABLE = Gauge("assize_node_listable", "1 while the chain lets the node be listed or drawn", ["node"])
RUN_VERSION = Gauge("assize_run_version", "Newest version of the run's model on chain", ["run"])

log = structlog.get_logger()


class OwnStanding:
    """Looks up ``address``, its node if it has one, and ``runs``."""

    def __init__(self, chain: Chain, address: str, runs: Sequence[int] = (), seconds: float = LOOK_SECONDS) -> None:
        self._chain, self._address, self._runs, self._seconds = chain, address, runs, seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="own-standing", daemon=True)

    def start(self) -> Callable[[], None]:
        """Starts to look, and returns what ends it."""
        self._thread.start()
        return self.stop

    def stop(self) -> None:
        """Ends it; a look under way ends by itself."""
        self._stopped.set()

    def look(self) -> None:
        """Looks once. Raises ``Unavailable`` if the chain does not answer."""
        reader = self._chain.latest()
        GAS.labels(self._address).set(reader.native_balance(self._address) / WEI)
        if number := reader.node_by_key(self._address):
            node = reader.node(number)
            BOND.labels(str(number)).set(node.bond / WEI)
            REQUIRED.labels(str(number)).set(reader.required_bond(node.role, max(node.capacity, 1)) / WEI)
            LISTABLE.labels(str(number)).set(reader.is_listable(number))
        for run in self._runs:
            RUN_VERSION.labels(str(run)).set(reader.run(run).version)
        self._chain.head_and_final()  # shows both, also while a long pass asks for neither

    def _keep_looking(self) -> None:
        told = ""
        while not self._stopped.is_set():
            try:
                self.look()
                told = ""
            except AssizeError as error:
                if str(error) != told:
                    log.warning("standing_not_read", error=str(error))
                told = str(error)
            self._stopped.wait(self._seconds)
