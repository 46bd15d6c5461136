"""EIP-1559 fees under a cap, raised step by step for pending transactions. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import Unavailable

BUMP_PERCENT = 15
"""Increase of both fees of a replacement; nodes require at least 10."""

GWEI = 10**9


@dataclass(frozen=True, slots=True)
class Fees:
    """Bidding rules of a sender, in wei per gas and seconds.

    Args:
        cap: highest bid.
        priority: tip to the block's producer.
        resend_seconds: broadcast the same bytes again after this long without inclusion.
        replace_seconds: sign a replacement at higher fees after this long.
    """

    cap: int = 200 * GWEI
    priority: int = GWEI
    resend_seconds: float = 3.0
    replace_seconds: float = 45.0

    @classmethod
    def capped(cls, gwei: int | None) -> Fees:
        """Returns the default fees under a cap in gwei per gas; None keeps the default cap."""
        return cls() if gwei is None else cls(cap=gwei * GWEI)

    def bid(self, base_fee: int) -> int:
        """Returns twice the base fee plus the tip, within the cap: enough for six full blocks in a row.

        Raises:
            Unavailable: the next block already costs more than the cap.
        """
        if base_fee + self.priority > self.cap:
            raise Unavailable(
                f"underpriced: gas costs {base_fee + self.priority} wei now, the cap is {self.cap}; "
                "wait, or raise the cap (a daemon's setting FEE_CAP_GWEI, a command's --fee-cap-gwei)"
            )
        return min(2 * base_fee + self.priority, self.cap)

    def raised(self, max_fee: int, priority_fee: int) -> tuple[int, int] | None:
        """Returns both fees of a replacement, or None if they exceed the cap."""
        higher = max_fee * (100 + BUMP_PERCENT) // 100 + 1
        return None if higher > self.cap else (higher, priority_fee * (100 + BUMP_PERCENT) // 100 + 1)
