"""Examinations of ``assize validator doctor``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from protocol.amounts import tokens
from protocol.broadcast.sources import Sources
from protocol.chain.events import RunOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import events_of
from protocol.chain.structs import Role
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, node_examinations, node_of
from protocol.node.doctor import Examination, Key, Result, examine, of_settings
from protocol.tensor.model import check_device
from protocol.times import clock
from protocol.transport.coordinator import describe_coordinator
from protocol.transport.run_coordinators import RunCoordinators
from validator.machine_class import class_for
from validator.queue.exchange import Exchange
from validator.settings import ValidatorSettings

LARGEST_ANSWER_BYTES = 1 << 20


def diagnose(settings: ValidatorSettings) -> Iterator[Result]:
    """Examines disk, device, queue, key, coordinators, chain, node, and the rules and weights of every run served."""
    key = Key(settings)
    local = [
        *of_settings(settings),
        Examination("device", lambda: _device(settings.device), "set ASSIZE_VALIDATOR_DEVICE=cpu"),
        key.examination(),
        *(
            Examination(
                f"coordinator {url}",
                functools.partial(describe_coordinator, url),
                "check ASSIZE_VALIDATOR_COORDINATOR_URLS",
            )
            for url in settings.coordinator_urls
        ),
    ]
    if settings.queue_url:
        local.append(Examination("queue", lambda: _queue(settings.queue_url), "check ASSIZE_VALIDATOR_QUEUE_URL"))
    yield from examine(local)

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        listable = Examination("listable", lambda: _listable(chain, key))
        slot = Examination("slot", lambda: _slot(chain, key))
        serves = Examination("serves", lambda: _serves(chain, key), "join a run with: assize run join RUN NODE")
        runs = (each for run in _runs_of_interest(chain, key) for each in _of_run(settings, chain, run))
        return (*node_examinations(chain, key, Role.VALIDATOR), listable, slot, serves, *runs)

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _device(device: str) -> str:
    check_device(device)
    return f"{device}, {torch.get_num_threads()} threads"


def _queue(url: str) -> str:
    with closing(Exchange(url)) as exchange:
        exchange.check()
    return "answers"


def _listable(chain: Chain, key: Key) -> str:
    node = node_of(chain, key.address)
    if not chain.latest().is_listable(node):
        raise Misconfigured(f"node {node} cannot be drawn: it is not active yet, retired, or its bond is too small")
    return f"node {node} can be drawn"


def _slot(chain: Chain, key: Key) -> str:
    node, reader = node_of(chain, key.address), chain.latest()
    known = reader.node(node)
    newcomer, until = reader.contest(known.slot)
    if newcomer == node:
        return (
            f"waits for slot {known.slot}; from {clock(until)} on, unless it was matched: assize node displace {node}"
        )
    if reader.holder(known.slot) != node:
        raise Misconfigured(
            f"node {node} does not hold slot {known.slot}; register another, and withdraw the bond in time"
        )
    if newcomer:
        amount = tokens(reader.node(newcomer).bond - known.bond)
        raise Misconfigured(
            f"node {newcomer} contests slot {known.slot} and displaces node {node} unless {amount} are added "
            f"before {clock(until)}, with: assize stake deposit {node} '{amount}'"
        )
    return f"holds slot {known.slot}, which nobody contests"


def _serves(chain: Chain, key: Key) -> str:
    node = node_of(chain, key.address)
    runs = _runs_of_interest(chain, key)
    behind = [run for run in _open_runs(chain) if run not in runs and any(chain.latest().joined_at(run, node))]
    if behind:
        raise Misconfigured(
            f"the rules at which node {node} joined the runs {', '.join(map(str, behind))} are no longer in effect, so"
            f" that anyone may end its service there; join again, or leave with: assize run leave RUN {node}"
        )
    if not runs:
        raise Misconfigured(f"node {node} serves no open run, so that it is never drawn")
    return f"may be drawn in the runs {', '.join(map(str, runs))}"


def _runs_of_interest(chain: Chain, key: Key) -> list[int]:
    """Returns the open runs that the key's node serves; before there is a node, all of them."""
    reader = chain.latest()
    try:
        node = reader.node_by_key(key.address)
    except Misconfigured:
        node = 0
    return [run for run, rules in _open_runs(chain).items() if not node or reader.joined_at(run, node) in rules]


def _open_runs(chain: Chain) -> dict[int, set[bytes]]:
    """Returns the hashes of the rules of each open run, in effect and announced: a validator may have joined both."""
    reader = chain.latest()
    runs = enumerate(reader.runs(range(1, reader.run_count() + 1)), 1)
    present = {number: run.terms.rules_hash for number, run in runs if not run.closed}
    return {run: {rules, reader.announced(run)[0].rules_hash} - {bytes(32)} for run, rules in present.items()}


def _of_run(settings: ValidatorSettings, chain: Chain, run: int) -> tuple[Examination, ...]:
    look = functools.partial(_run, settings, chain, run)
    examined = Examination(f"run {run}", look, "check rules and relays of the run")
    if settings.queue_url:  # its background workers judge, maybe elsewhere
        return (examined,)
    return examined, Examination(f"class of run {run}", functools.partial(_class, settings, chain, run))


def _class(settings: ValidatorSettings, chain: Chain, run: int) -> str:
    with _coordinators(settings, chain, run) as coordinators:
        url = coordinators.of(run).base_url
    return class_for(chain, run, url, settings.sources, settings.device)


@contextmanager
def _coordinators(settings: ValidatorSettings, chain: Chain, run: int) -> Iterator[RunCoordinators]:
    opened = events_of(chain, "Market", RunOpened, run, chain.deployment.start_block)
    with closing(RunCoordinators(settings.coordinator_urls)) as coordinators:
        coordinators.keep({run: opened[0].uri} if opened else {})
        yield coordinators


def _run(settings: ValidatorSettings, chain: Chain, run: int) -> str:
    terms = chain.latest().run(run).terms
    with _coordinators(settings, chain, run) as coordinators:
        client = coordinators.of(run)
        rules = client.rules(terms.rules_hash)
        urls = settings.sources or client.run(run).weights_from
    with closing(Sources(urls)) as sources:
        path = f"/runs/{run}/checkpoints/latest"
        answering = sum(sources.get(url, path, LARGEST_ANSWER_BYTES) is not None for url in sources.urls)
    return f"rules of {rules.environment.name} match the chain, sources of weights that answer: {answering}"
