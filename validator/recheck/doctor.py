"""Examinations of ``assize recheck doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, gas
from protocol.node.doctor import Examination, Key, Result, examine, of_settings
from protocol.tensor.model import check_device
from protocol.transport.coordinator import describe_coordinator
from validator.recheck.settings import RecheckSettings


def diagnose(settings: RecheckSettings) -> Iterator[Result]:
    """Examines disk, device, key, chain, the run and its coordinator, and what appeals cost."""
    key = Key(settings)
    yield from examine(
        (
            *of_settings(settings),
            Examination("device", lambda: _device(settings.device), "set ASSIZE_RECHECK_DEVICE=cpu"),
            key.examination(),
        )
    )

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        appeals = (Examination("budget", lambda: _budget(settings, chain, key), "buy credits, or lower budget_wei"),)
        return (
            Examination("run", lambda: _run(settings, chain), "check ASSIZE_RECHECK_RUN"),
            Examination("coordinator", lambda: _coordinator(settings, chain), "check ASSIZE_RECHECK_COORDINATOR_URLS"),
            *((gas(chain, key), *appeals) if settings.budget_wei else ()),
        )

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _device(device: str) -> str:
    check_device(device)
    return device


def _run(settings: RecheckSettings, chain: Chain) -> str:
    terms = chain.latest().run(settings.run).terms
    if settings.budget_wei and not terms.appeal_seats:
        raise Misconfigured(f"run {settings.run} offers no appeals: set budget_wei to 0, which only reports")
    return f"checks {settings.share:.0%} of the jobs of run {settings.run}"


def _coordinator(settings: RecheckSettings, chain: Chain) -> str:
    url = settings.coordinator_urls[0] if settings.coordinator_urls else coordinator_uri(chain, settings.run)
    return describe_coordinator(url)


def _budget(settings: RecheckSettings, chain: Chain, key: Key) -> str:
    reader = chain.latest()
    held = reader.credits_of(key.address) + reader.balance_of(key.address)
    if held < settings.budget_wei:
        raise Misconfigured(f"{tokens(held)} for deposits: the budget is {tokens(settings.budget_wei)} a day")
    return f"{tokens(held)} for deposits, {tokens(settings.budget_wei)} a day"
