"""An address on one deployment, without its key: it reads, plans and simulates."""

from __future__ import annotations

from protocol.chain.reading.client import Chain
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.simulation import Simulation, simulate
from protocol.errors import Rejected


class Account:
    """An address whose key is elsewhere: with a Safe, or an offline signer. ``Sender`` is one that holds the key.

    Args:
        chain: the deployment.
        address: the checksummed address.
        fees: the bidding rules; None takes the defaults.
    """

    signing_seconds = 7 * 24 * 3600
    """Time until a transaction is mined at the latest, for which other keys' consent to it must be valid."""

    def __init__(self, chain: Chain, address: str, fees: Fees | None = None) -> None:
        self.chain = chain
        self.fees = fees or Fees()
        self._address = address

    @property
    def address(self) -> str:
        """Checksummed address of the key."""
        return self._address

    @property
    def identity(self) -> str:
        """Key and chain in words; with the chain's start, as a restarted chain of the same id has other nonces."""
        return f"{self.address} on chain {self.chain.chain_id} from 0x{self.chain.deployment.start_hash.hex()[:16]}"

    def simulate(self, call: Call) -> Simulation:
        """Simulates the call on the pending state, whoever pays for its gas; raises as ``simulation.simulate`` does."""
        return simulate(self.chain, self.address, self.fees, call, pays_gas=False)

    def send_once(self, key: str, call: Call) -> Receipt:
        """Refuses: sending takes the key.

        Raises:
            Rejected: always.
        """
        raise Rejected(f"cannot send {call.description}: only the address {self.address} is given, not its key")
