"""Match of a node's offer with a run: its price, its engine and class, its memory, and its speed. PURE.

An offer is the node's own word, and can only cost the node jobs: each rule here excludes it or lowers its number of
jobs. None gives it more than its bond and capacity do, so that no claim takes a job from another node.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.api import Offer
from protocol.wire.rules import Rules

SHARE_OF_PHASE = 0.8
"""Share of a work phase in which a node's jobs have to be made: uploads and signatures take the rest."""


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """Needs of a run's jobs: engines, the determinism class, bytes of the weights, and most tokens of a job.

    Without a class the canary is None; 0 bytes or tokens ask for nothing.
    """

    engines: tuple[str, ...] = ()
    canary: bytes | None = None
    weights_bytes: int = 0
    most_tokens: int = 0

    @classmethod
    def of(cls, rules: Rules) -> JobNeeds:
        """Returns the needs that a run's rules state."""
        exact, pins = rules.model.exact, rules.model.checkpoint or ()
        return cls(
            engines=rules.model.worker_engines,
            canary=bytes.fromhex(exact.canary[2:]) if exact is not None and exact.canary else None,
            # A file may hold float32 of what is computed in bfloat16.
            weights_bytes=sum(each.size for each in pins) // (2 if rules.model.dtype == "bfloat16" else 1),
            most_tokens=rules.rollouts_per_job * rules.max_tokens,
        )


def mismatch(offer: Offer | None, needs: JobNeeds, price_wei: int, work_seconds: int) -> str:
    """Returns the reason for which a node cannot or will not do the run's jobs; empty if it can, or makes no offer.

    Args:
        offer: the node's offer.
        needs: of the run's jobs.
        price_wei: price of a unit in the run.
        work_seconds: length of its work phases; 0 while unknown.
    """
    if offer is None:
        return ""
    if int(offer.least_price_wei) > price_wei:
        return f"its least price is {offer.least_price_wei} wei a unit, the run pays {price_wei}"
    if offer.engine and needs.engines and offer.engine not in needs.engines:
        return f"its engine is {offer.engine}, the run allows {', '.join(needs.engines)}"
    if offer.canary is not None and needs.canary is not None and offer.canary != needs.canary:
        return f"is of determinism class 0x{offer.canary.hex()[:8]}…, the run asks for 0x{needs.canary.hex()[:8]}…"
    if 0 < offer.memory_bytes < needs.weights_bytes:
        return f"has {_gib(offer.memory_bytes)} GiB of memory, the weights alone take {_gib(needs.weights_bytes)}"
    if most_jobs(offer, needs, work_seconds) == 0:
        return f"makes {offer.tokens_per_second:g} tokens a second, too few for one job in {work_seconds} s"
    return ""


def most_jobs(offer: Offer | None, needs: JobNeeds, work_seconds: int) -> int | None:
    """Returns how many jobs the node can make in a work phase, by its own measurement; None if that is unknown."""
    if offer is None or offer.tokens_per_second is None or not work_seconds:
        return None
    tokens = min(offer.tokens_per_job or needs.most_tokens, needs.most_tokens)
    return int(SHARE_OF_PHASE * work_seconds * offer.tokens_per_second / tokens) if tokens else None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
