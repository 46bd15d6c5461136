"""The chaos network with a metrics port at each process, and nobody who cheats at first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deploy.localnet.processes import ProcessSpec, free_port
from tests.alerts.prometheus import Prometheus
from tests.chaos.network import Network

VARIABLES = {
    "coordinator": "ASSIZE_COORDINATOR_API_METRICS_PORT",
    "coordinator-driver": "ASSIZE_COORDINATOR_METRICS_PORT",
    "trainer": "ASSIZE_TRAINER_METRICS_PORT",
    "relay": "ASSIZE_RELAY_METRICS_PORT",
    "ledger": "ASSIZE_LEDGER_METRICS_PORT",
}
ROLES = {"coordinator": "coordinator-api", "coordinator-driver": "coordinator"}


class Watched(Network):
    """A network whose processes are scraped: ``targets`` is each one's role and port, by name."""

    def __init__(self, root: Path, model: Path) -> None:
        super().__init__(root, model)
        self.parties = tuple(replace(party, adversary=None) for party in self.parties)
        self.targets: dict[str, tuple[str, int]] = {}
        for name, variable in VARIABLES.items():
            self._watch(name, ROLES.get(name, name), variable)
        for party in self.parties:
            self._watch(party.name, party.role, f"ASSIZE_{party.role.upper()}_METRICS_PORT")

    def add(self, service: ProcessSpec, role: str, prometheus: Prometheus) -> None:
        """Starts another process, and scrapes it."""
        self._watch(service.name, role, f"ASSIZE_{role.upper()}_METRICS_PORT")
        self.supervisor.start(service)
        prometheus.scrape(self.targets)

    def drop(self, name: str, prometheus: Prometheus) -> None:
        """Ends such a process."""
        del self.targets[name]
        prometheus.scrape(self.targets)
        self.supervisor.end(name)

    def _watch(self, name: str, role: str, variable: str) -> None:
        port = free_port()
        self.targets[name] = (role, port)
        self.supervisor.more[name] = {**self.supervisor.more.get(name, {}), variable: str(port)}
