"""What a sender bids: EIP-1559 fees under a cap, raised step by step for what stays pending. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import Unavailable

BUMP_PERCENT = 15
"""Added to both fees of a replacement; nodes ask for 10 at least."""

GWEI = 10**9


@dataclass(frozen=True, slots=True)
class Fees:
    """How a sender bids, in wei per gas and seconds.

    Args:
        cap: never bid more than this.
        priority: tip to the block's producer.
        resend_seconds: broadcast the same bytes again after this long without being mined.
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
        """Twice the base fee and the tip: enough for six full blocks in a row, within the cap.

        Raises:
            Unavailable: even the next block costs more than the cap.
        """
        if base_fee + self.priority > self.cap:
            raise Unavailable(
                f"underpriced: gas costs {base_fee + self.priority} wei now, the cap is {self.cap}; "
                "wait, or raise the cap (a daemon's setting FEE_CAP_GWEI, a command's --fee-cap-gwei)"
            )
        return min(2 * base_fee + self.priority, self.cap)

    def raised(self, max_fee: int, priority_fee: int) -> tuple[int, int] | None:
        """Both fees of a replacement; None where the cap allows none."""
        higher = max_fee * (100 + BUMP_PERCENT) // 100 + 1
        return None if higher > self.cap else (higher, priority_fee * (100 + BUMP_PERCENT) // 100 + 1)
