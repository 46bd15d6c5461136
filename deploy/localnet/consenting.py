"""Consent of the local network's validators to runs that others open on it, so that these find a committee."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from deploy.localnet.parties import Party
from deploy.localnet.services import NetworkLayout
from protocol.chain.reading.client import Chain
from protocol.chain.writing import actions
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected, Unavailable
from protocol.node.wallet import Keystores, read_password

LOOK_SECONDS = 2.0


class ConsentingValidators:
    """The network's own honest validators: each joins every open run at its present rules, once it may.

    Args:
        layout: has their owners' keys.
        chain: the network's.
        parties: its parties.
        nodes: node ids by party.
    """

    def __init__(self, layout: NetworkLayout, chain: Chain, parties: Sequence[Party], nodes: Mapping[str, int]) -> None:
        self.layout, self.chain = layout, chain
        self.owners = {nodes[party.name]: party.owner for party in parties if party.role == "validator"}
        self._next_look = 0.0
        self._refused = set[tuple[int, int, bytes]]()

    def look(self) -> list[int]:
        """Joins the runs that were opened, or whose rules changed, since the last look; returns those joined now.

        A join that fails is not tried again until the rules change: the validator was put out of that run, or the
        rules changed meanwhile.
        """
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_SECONDS
        reader = self.chain.latest()
        numbers = range(1, reader.run_count() + 1)
        runs = zip(numbers, reader.runs(numbers), strict=True)
        # Its own run was joined when it was opened.
        agreed = {number: run.terms.rules_hash for number, run in runs if not run.closed and number != self.layout.run}
        pairs = [(run, node) for run in agreed for node in self.owners]
        joined = dict(zip(pairs, reader.views("Market", "joinedAt", pairs), strict=True))
        missing = [(run, node) for run, node in pairs if joined[run, node] != agreed[run]]
        return sorted({run for run, node in missing if self._joins(run, node, agreed[run])})

    def _joins(self, run: int, node: int, rules_hash: bytes) -> bool:
        if (run, node, rules_hash) in self._refused:
            return False
        owner = self.owners[node]
        wallet = Keystores(self.layout.keystores).open(owner, read_password(self.layout.password_file))
        journal = self.layout.root / "state" / "setup" / f"{owner}.db"
        with closing(Sender(self.chain, wallet, journal)) as sender:
            try:
                # A new intent each time: a validator that left a run may join it again.
                actions.join_run(sender, run, node, rules_hash).carry_out(f"join/{secrets.token_hex(8)}")
            except Rejected:
                self._refused.add((run, node, rules_hash))
                return False
            except Unavailable:  # the next look tries again
                return False
        return True
