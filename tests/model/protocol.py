"""The six contracts of the model, put together. A call happens as a whole or not at all."""

from __future__ import annotations

import pickle
import re
from typing import Any

from protocol.chain.deployment import Deployment
from protocol.chain.structs import ProtocolTerms
from tests.model.admin import Admin
from tests.model.market import Market
from tests.model.money import Credits, Token
from tests.model.registry import Registry
from tests.model.rounds import Rounds
from tests.model.transaction import Refused, Transaction


class Protocol:
    """The state of a deployment. Attributes are named as the contracts are, in lower case."""

    def __init__(self, at: Deployment, terms: ProtocolTerms, admin: str, treasury: str) -> None:
        self.token = Token()
        self.admin = Admin(admin, treasury)
        self.credits = Credits(self.token, at.credits, at.market, at.registry)
        self.registry = Registry(
            self.token, self.admin, self.credits, at.registry, at.rounds, at.chain_id, terms.registry
        )
        self.market = Market(self.registry, self.credits, at.market, at.rounds, terms.market)
        self.rounds = Rounds(self.admin, self.registry, self.market, at.rounds, at.chain_id, terms.rounds)
        self.registry.market, self.market.rounds = self.market, self.rounds

    def call(self, tx: Transaction, contract: str, verb: str, *arguments: Any) -> Refused | None:
        """Carries out one call, or returns why it is refused; then nothing has changed."""
        before = self.saved()
        try:
            getattr(getattr(self, contract.lower()), _snake(verb))(tx, *arguments)
        except Refused as refused:
            self.__dict__ = self.restored(before).__dict__
            return refused
        return None

    def saved(self) -> bytes:
        """The whole state, for `restored`."""
        return pickle.dumps(self)

    @staticmethod
    def restored(saved: bytes) -> Protocol:
        """A state saved before."""
        loaded = pickle.loads(saved)
        assert isinstance(loaded, Protocol)
        return loaded


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()
