"""The determinism class of this machine as a worker of a run: behind the doctor, and ``assize worker class``."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.chain.reading.client import Chain
from protocol.node.commands.weights import offered


def class_for(chain: Chain, run: int, coordinator: str | None, sources: Sequence[str], device: str) -> str:
    """Returns in words that this machine is of the run's class, or that the run has none.

    Args:
        chain: the deployment.
        run: the run.
        coordinator: URL that serves its rules; None is the one that it names on chain.
        sources: URLs of its weights, of which the tensors are not fetched; none are those that the coordinator names.
        device: device that would serve it.

    Raises:
        AnotherClass: this machine is not of the class.
        Unavailable: coordinator or sources do not answer.
    """
    with offered(chain, run, None, coordinator, list(sources) or None) as offer:
        if offer.rules.model.exact is None:
            return "the rules name no determinism class: any machine will do"
        from protocol.tensor.determinism import class_in_words  # torch takes seconds, which no other run needs

        return class_in_words(offer.rules, offer.fetch_without_tensors, device)
