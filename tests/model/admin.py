"""Who may pause, and where slashed bonds go."""

from __future__ import annotations

from eth_utils.crypto import keccak

from tests.model.transaction import NO_HASH, NOBODY, Refused, Transaction

PAUSER = keccak(text="PAUSER")
ADMIN = NO_HASH
"""The admin's own role."""


class Admin:
    """One admin, who is the first pauser too; its office does not change hands here."""

    def __init__(self, admin: str, treasury: str) -> None:
        self.admin, self.treasury = admin, treasury
        self.pausers = {admin}
        self.paused = False

    def pause(self, tx: Transaction) -> None:
        if tx.sender not in self.pausers:
            raise Refused("AccessControlUnauthorizedAccount", tx.sender, PAUSER)
        if self.paused:
            raise Refused("AlreadyPaused")
        self.paused = True

    def unpause(self, tx: Transaction) -> None:
        if tx.sender not in self.pausers:
            self._only_admin(tx)
        if not self.paused:
            raise Refused("NotPaused")
        self.paused = False

    def set_treasury(self, tx: Transaction, treasury: str) -> None:
        self._only_admin(tx)
        if treasury == NOBODY:
            raise Refused("NoTreasury")
        self.treasury = treasury

    def grant_role(self, tx: Transaction, role: bytes, account: str) -> None:
        """Only pausers are appointed here."""
        self._only_admin(tx)
        self.pausers.add(account)

    def _only_admin(self, tx: Transaction) -> None:
        if tx.sender != self.admin:
            raise Refused("AccessControlUnauthorizedAccount", tx.sender, ADMIN)
