"""A real coordinator's API before a story's chain, with artifacts and evidence in its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.driver.wiring import keep_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import EvidenceRow
from protocol.transport.blobs import DirectoryBlobs
from protocol.wire.evidence import SignedEvidence
from protocol.wire.rules import Rules
from tests.conftest import serving
from tests.ledger.scenario import Story


class Keeping:
    """A coordinator: its URL, and what goes into its stores."""

    def __init__(self, url: str, directory: Path, store: Store) -> None:
        self.url, self._store = url, store
        self._artifacts, self._evidence = (DirectoryBlobs(directory / name) for name in ("artifacts", "evidence"))

    def keep_artifact(self, root: bytes, blob: bytes) -> None:
        """Stores a blob under a root, its own or another."""
        self._artifacts.put(root, blob)

    def keep_evidence(self, root: bytes, signed: SignedEvidence) -> None:
        """Stores a juror's evidence under a root, its own or another."""
        bundle = signed.evidence
        with self._store.writing() as session:
            session.merge(EvidenceRow(root=root, round=bundle.round, attempt=bundle.attempt, juror=bundle.juror))
        self._evidence.put(root, signed.canonical)

    def keep_rules(self, rules: Rules) -> None:
        """Stores a run's rules."""
        keep_rules(self._store, rules)


@contextmanager
def coordinating(story: Story, directory: Path) -> Iterator[Keeping]:
    """Serves the coordinator of the story's run; nobody drives it."""
    market = story.market
    rules, addresses = directory / "rules.json", directory / "addresses.json"
    market.chain.deployment.save(addresses)
    settings = CoordinatorSettings(
        rpc_url=market.anvil.url,
        addresses=addresses,
        keystore="coordinator",
        state_dir=directory,
        run=market.run,
        rules=rules,
    )
    store = Store(settings.database)
    service = CoordinatorService(settings, store, market.chain.deployment, story.coordinator)
    with serving(create_app(service)) as url:
        yield Keeping(url, directory, store)
