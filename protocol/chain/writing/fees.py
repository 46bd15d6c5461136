"""EIP-1559 fees under a cap, raised step by step for pending transactions. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import Unavailable

BUMP_PERCENT = 15
"""Increase of both fees of a replacement; nodes require at least 10."""

GWEI = 10**9

USUAL_TIP, MOST_TIP = GWEI, 50 * GWEI
"""Tip in wei per gas where a node suggests none, and the most that is taken of what one suggests."""


@dataclass(frozen=True, slots=True)
class Fees:
    """Bidding rules of a sender, in wei per gas and seconds.

    Args:
        cap: highest bid.
        resend_seconds: broadcast the same bytes again after this long without inclusion.
        replace_seconds: sign a replacement at higher fees after this long.
    """

    cap: int = 200 * GWEI
    resend_seconds: float = 3.0
    replace_seconds: float = 45.0

    @classmethod
    def capped(cls, gwei: int | None) -> Fees:
        """Returns the default fees under a cap in gwei per gas; None keeps the default cap."""
        return cls() if gwei is None else cls(cap=gwei * GWEI)

    def bid(self, base_fee: int, tip: int) -> int:
        """Returns twice the base fee plus the tip, within the cap: enough for six full blocks in a row.

        Where the cap leaves less than the ``tip``, it leaves that much.

        Raises:
            Unavailable: the next block already costs more than the cap.
        """
        if base_fee >= self.cap:
            raise Unavailable(
                f"underpriced: gas costs {base_fee} wei now, the cap is {self.cap}; "
                "wait, or raise the cap (a daemon's setting FEE_CAP_GWEI, a command's --fee-cap-gwei)"
            )
        return min(2 * base_fee + tip, self.cap)

    def raised(self, max_fee: int, priority_fee: int) -> tuple[int, int] | None:
        """Returns both fees of a replacement, or None if they exceed the cap."""
        higher = max_fee * (100 + BUMP_PERCENT) // 100 + 1
        return None if higher > self.cap else (higher, priority_fee * (100 + BUMP_PERCENT) // 100 + 1)


def tip_of(answer: object) -> int:
    """Returns the tip to a block's producer in wei per gas, from what a node suggests, a number or an error."""
    return min(int(answer, 16), MOST_TIP) if isinstance(answer, str) else USUAL_TIP
