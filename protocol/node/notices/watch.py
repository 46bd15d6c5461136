"""``assize notices run``: reads the chain, writes notices into the journal, sends them.

Until a target has taken a message, it is tried again with growing pauses; messages that it has not taken after a day
are dropped. Targets do not wait for one another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace

import structlog

from protocol.chain.block import Block
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.chain.reading.cursor import Cursor
from protocol.chain.reading.lookup import rules_in_view
from protocol.chain.reading.tail import Rollback, Tail
from protocol.errors import AssizeError, Misconfigured
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon
from protocol.node.notices.conditions import Seen, conditions
from protocol.node.notices.fold import Followed, take
from protocol.node.notices.journal import NoticeJournal, Place
from protocol.node.notices.notice import Notice, NoticeFigures, NoticeKind
from protocol.node.notices.settings import NoticesSettings
from protocol.node.notices.targets import Target, read_targets
from protocol.node.release import behind
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.rules import Rules

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 900.0
"""Pause after a target's first failure, doubled after each further one, and the longest."""
GIVEN_UP_SECONDS = 86_400
"""Age at which a message that its target does not take is dropped."""
VIEWS_AT_ONCE = 500
YOUNG_BLOCKS = 100
"""Blocks after the deployment's first during which everything is read; its contracts come into being in several."""

log = structlog.get_logger()


@dataclass
class _Pause:
    """A target's failures in a row, and when it is tried again (monotonic seconds)."""

    failures: int = 0
    until: float = 0.0


class NoticeSender:
    """Follows one deployment and sends what concerns the followed. ``tick`` is one pass."""

    def __init__(
        self,
        chain: Chain,
        journal: NoticeJournal,
        first: Followed,
        targets: Sequence[Target],
        figures: NoticeFigures,
        kinds: Sequence[NoticeKind] = tuple(NoticeKind),
        coordinators: Sequence[CoordinatorClient] = (),
    ) -> None:
        self._chain, self._journal, self._first, self._targets = chain, journal, first, targets
        self._figures, self._kinds, self._coordinators = figures, frozenset(kinds), coordinators
        self._known_rules: dict[bytes, Rules] = {}
        self._pauses = {target.id: _Pause() for target in targets}
        for key in journal.interrupted():
            log.warning("delivery_unclear", notice=key, why="the process ended while it was being sent")
        place = journal.place() or _first_place(chain, first)
        self._place = Place(place.cursor, _adapted(chain, place.followed, first))
        self._tail = Tail(chain, place.cursor)

    def tick(self) -> bool:
        """Reads on, looks at conditions, sends. Returns whether there may be more to read."""
        more = self._read_on()
        if not more:
            self._look()
        self._deliver()
        return more

    def close(self) -> None:
        """Closes the connections and the journal."""
        for client in self._coordinators:
            client.close()
        self._journal.close()
        self._chain.close()

    def _read_on(self) -> bool:
        found = self._tail.poll(cursor=self._place.cursor)  # the tail is ahead of it after a failed write
        if isinstance(found, Rollback):
            self._roll_back(found)
            return True
        if not found:
            return False
        place = Place(self._tail.cursor, deepcopy(self._place.followed))
        notices = [notice for block in found for each in block.logs for notice in take(place.followed, each)]
        self._journal.advance(place, self._wanted(notices), int(time.time()))
        self._place = place
        return True

    def _roll_back(self, rollback: Rollback) -> None:
        place = self._journal.place(rollback.to_block)
        if place is None:
            raise Misconfigured("a reorganisation went further back than the journal: move notices.sqlite away")
        self._journal.go_back(rollback.to_block)
        self._place = Place(place.cursor, _adapted(self._chain, place.followed, self._first))

    def _wanted(self, notices: Sequence[Notice]) -> list[Notice]:
        return [notice for notice in notices if notice.kind in self._kinds]

    def _look(self) -> None:
        head, final = self._chain.head_and_final()
        seen = look_up(self._chain.pinned(head), head, self._place.followed, self._silences())
        seen = replace(seen, behind=self._behind(seen.now))
        found = conditions(self._place.followed, seen, self._figures)
        wanted = {key: each for key, each in found.items() if each is None or each.kind in self._kinds}
        self._journal.look(wanted, head.number, final, int(time.time()))

    def _silences(self) -> dict[int, float]:
        """Returns the seconds since the last heartbeat of each followed node that a coordinator has heard of."""
        found: dict[int, float] = {}
        for client in self._coordinators:
            try:
                nodes = client.status().nodes
            except AssizeError as error:
                log.warning("coordinator_unavailable", error=str(error))
                continue
            heard = {each.node: each.last_seen_seconds for each in nodes if each.node in self._place.followed.nodes}
            for node, seconds in heard.items():
                if seconds is not None:
                    found[node] = min(seconds, found.get(node, seconds))
        return found

    def _behind(self, now: int) -> dict[int, str]:
        """Returns for each followed run whose rules a coordinator serves whether they ask for a newer version."""
        found: dict[int, str] = {}
        for run in self._place.followed.runs:
            for each in rules_in_view(self._chain.latest(), run, now):
                if (rules := self._rules(each.rules_hash)) is not None:
                    found[run] = found.get(run) or behind(run, rules, each.effective_at)
        return found

    def _rules(self, digest: bytes) -> Rules | None:
        for client in self._coordinators:
            if digest in self._known_rules:
                break
            with suppress(AssizeError):  # another run's, or silent: it is asked again at the next look
                self._known_rules[digest] = client.rules(digest)
        return self._known_rules.get(digest)

    def _deliver(self) -> None:
        for target in self._targets:
            pause = self._pauses[target.id]
            if time.monotonic() >= pause.until:
                self._deliver_to(target, pause)

    def _deliver_to(self, target: Target, pause: _Pause) -> None:
        for notice, at in self._journal.waiting(target.id):
            self._journal.mark(notice, target.id, "sending")
            if target.send(notice.title, notice.text):
                self._journal.mark(notice, target.id, "delivered")
                log.info("delivered", notice=notice.key, target=target.name)
                pause.failures = 0
                continue
            late = time.time() - at > GIVEN_UP_SECONDS
            self._journal.mark(notice, target.id, "dropped" if late else "waiting")
            pause.failures += 1
            seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(pause.failures - 1, 20))
            pause.until = time.monotonic() + seconds
            log.warning("not_delivered", notice=notice.key, target=target.name, dropped=late, again_in=seconds)
            return


def look_up(reader: Reader, head: Block, followed: Followed, silences: Mapping[int, float]) -> Seen:
    """Looks up at one block what conditions are about."""
    numbers, runs = sorted(followed.nodes), sorted(followed.runs)
    nodes = dict(zip(numbers, reader.nodes(numbers), strict=True)) if numbers else {}
    needs = [(node.role, max(node.capacity, 1)) for node in nodes.values()]
    owners = sorted({*followed.owners, *followed.nodes.values()} - {""})
    return Seen(
        now=max(head.timestamp, int(time.time())),
        nodes=nodes,
        required=dict(zip(numbers, reader.views("Registry", "requiredBond", needs), strict=True)) if needs else {},
        runs=dict(zip(runs, reader.runs(runs), strict=True)) if runs else {},
        credits=dict(zip(owners, reader.views("Credits", "balanceOf", [(each,) for each in owners]), strict=True)),
        silent_seconds=silences,
    )


def _first_place(chain: Chain, first: Followed) -> Place:
    """Returns the place to begin at: the newest final block, or the deployment's first one where none is later."""
    _, final = chain.head_and_final()
    tail = Tail(chain)
    if final <= tail.cursor.number + YOUNG_BLOCKS:
        return Place(tail.cursor, replace(deepcopy(first), asked=_asked(first)))
    block = chain.block(final)
    followed = _with_parties(chain.pinned(block), deepcopy(first))
    return Place(Cursor(block.number, block.hash), followed)


def _adapted(chain: Chain, kept: Followed, first: Followed) -> Followed:
    """Returns what was followed, changed to what the settings ask for now."""
    if kept.asked == _asked(first):
        return kept
    fresh = _with_parties(chain.latest(), deepcopy(first))
    fresh.rounds, fresh.last_reserved, fresh.seen = kept.rounds, kept.last_reserved, kept.seen
    fresh.drop_others()
    return fresh


def _asked(first: Followed) -> str:
    """Returns the owners, nodes and runs that the settings name, as text that can be compared."""
    return repr((sorted(first.owners), sorted(first.nodes), sorted(first.named)))


def _with_parties(reader: Reader, followed: Followed) -> Followed:
    """Adds the nodes and runs of the followed owners, and the runs that those nodes have joined."""
    followed.asked = _asked(followed)
    every = range(1, reader.node_count() + 1)
    owners = {number: node.owner for number, node in zip(every, reader.nodes(every), strict=True)}
    for missing in followed.nodes.keys() - owners.keys():
        raise Misconfigured(f"there is no node {missing}: ASSIZE_NOTICES_NODES names it")
    followed.nodes |= {
        node: owner for node, owner in owners.items() if owner in followed.owners or node in followed.nodes
    }
    runs = range(1, reader.run_count() + 1)
    followed.named |= {
        run for run, each in zip(runs, reader.runs(runs), strict=True) if each.requester in followed.owners
    }
    pairs = [(run, node) for run in runs for node in sorted(followed.nodes)]
    for start in range(0, len(pairs), VIEWS_AT_ONCE):
        part = pairs[start : start + VIEWS_AT_ONCE]
        for (run, node), rules in zip(part, reader.views("Market", "joinedAt", part), strict=True):
            if any(rules):
                followed.joined.setdefault(run, set()).add(node)
    return followed


def build(settings: NoticesSettings) -> Daemon:
    """Returns the daemon, ready to run.

    Raises:
        Misconfigured: nothing is followed, or a target's URL is wrong.
        Unavailable: the chain does not answer.
    """
    first = followed_first(settings)
    targets = read_targets(settings.urls_file)
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    journal = NoticeJournal(settings.state_dir, [target.id for target in targets])
    clients = [CoordinatorClient(url) for url in settings.coordinator_urls]
    notifier = NoticeSender(chain, journal, first, targets, settings.figures(), settings.kinds, clients)
    health = settings.state_dir / HEALTH_FILE
    return Daemon("notices", notifier.tick, settings.interval_seconds, health, close=notifier.close)


def followed_first(settings: NoticesSettings) -> Followed:
    """Returns what the settings ask to follow; owners of nodes named by number are looked up later."""
    from protocol.node.commands.connection import address_of

    if not (settings.owners or settings.nodes or settings.runs):
        raise Misconfigured("nothing to watch: set ASSIZE_NOTICES_OWNERS, ASSIZE_NOTICES_NODES or ASSIZE_NOTICES_RUNS")
    owners = {address_of(owner) for owner in settings.owners}
    return Followed(owners, dict.fromkeys(settings.nodes, ""), set(settings.runs))
