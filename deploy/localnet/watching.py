"""Watching the jurors of a local run: the requester plants a fault in its own worker's job, and a recheck runs beside.

    before the run   choose the trap and a decoy, and announce them
    each look        open the leaves that are due; appeal a trap that was missed
    at the end       count the planted faults found, the verdicts checked again and the fingerprints compared

The trap file lies in the network's state folder: the worker plants by it, and the trainer leaves its jobs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from deploy.localnet.parties import ETHER, REQUESTER
from deploy.localnet.services import NetworkLayout
from ledger import facts
from ledger.book import MemoryBook
from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.writing.appealing import open_appeal
from protocol.chain.writing.plans import plan_of
from protocol.chain.writing.sender import Sender
from protocol.chain.writing.trapping import opening, reports, set_traps
from protocol.node.trap_file import planned, sure_faults
from protocol.node.wallet import Keystores, read_password
from protocol.wire.rules import Rules
from validator.recheck.journal import RecheckJournal

LEAST_STEPS = 3
"""A shorter run may end before a round that the trap names."""
LONGEST_WINDOW = 8
"""Rounds over which the trap is spread."""
BOUNTY = 10 * ETHER
OPEN_DAYS = 30
RECHECKED_JOBS = 40
"""Jobs that the recheck chooses in the whole run, on average."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Figures of watching the jurors. Fingerprints are counted by rollout and juror.

    faults_found      planted faults judged fraud and opened, ``finders`` jurors sharing their bounties
    verdicts_apart    jobs on which the recheck finds another verdict
    bundles_in_doubt  bundles that are missing, contradict themselves or the chain, or are of no prefill
    """

    faults_planted: int = 0
    faults_found: int = 0
    finders: int = 0
    jobs_rechecked: int = 0
    verdicts_apart: int = 0
    fingerprints_equal: int = 0
    fingerprints_near: int = 0
    bundles_in_doubt: int = 0

    def sentences(self) -> Iterator[str]:
        """Yields what was seen, for the report."""
        yield (
            f"The requester planted {self.faults_planted} fault in a job of its own worker; "
            f"{self.faults_found} found and opened, its bounty of {tokens(BOUNTY)} shared by {self.finders} jurors."
        )
        yield (
            f"`assize recheck` judged {self.jobs_rechecked} jobs again: another verdict on {self.verdicts_apart}, "
            f"jurors' bundles in doubt {self.bundles_in_doubt}; of the jurors' fingerprints {self.fingerprints_equal} "
            f"are this machine's bit for bit, and {self.fingerprints_near} those of another honest prefill."
        )

    def broken(self) -> Iterator[str]:
        """Yields a sentence for each expectation on honest jurors that was not met."""
        if not self.faults_planted:
            yield "no fault was planted"
        if self.faults_found != self.faults_planted:
            yield f"{self.faults_found} of {self.faults_planted} planted faults were found"
        if self.verdicts_apart:
            yield f"a recheck finds other verdicts on {self.verdicts_apart} of {self.jobs_rechecked} jobs"
        if self.bundles_in_doubt:
            yield f"{self.bundles_in_doubt} bundles do not show that their jurors ran the model"
        if not self.fingerprints_equal + self.fingerprints_near:
            yield "no juror's fingerprint was compared"


def share_rechecked(steps: int, jobs_per_round: int) -> float:
    """Returns the share of jobs that a recheck looks at, so that runs of any length compare about as many."""
    return min(1.0, RECHECKED_JOBS / (steps * jobs_per_round))


class JurorWatch:
    """Traps of the requester in a run of its own, and the figures of its recheck.

    Args:
        node: worker of the requester, which plants.
        steps: checkpoints of the run; the traps lie in the rounds before the last.
    """

    def __init__(
        self, layout: NetworkLayout, chain: Chain, node: int, steps: int, rules: Rules, say: Callable[[str], None]
    ) -> None:
        self._layout, self._chain, self._say = layout, chain, say
        first = chain.latest().round_count() + 2
        self._file = planned(
            chain_id=chain.chain_id,
            contract=chain.deployment.traps,
            run=layout.run,
            nodes=(node,),
            kinds=1,
            decoys=1,
            rounds=range(first, first + min(LONGEST_WINDOW, steps - 1)),
            bounty_wei=BOUNTY,
            open_by=chain.head().timestamp + OPEN_DAYS * 86_400,
            faults=sure_faults(rules),
        )
        self._seen: list[tuple[int, str]] = []

    def set(self) -> None:
        """Writes the trap file and announces its traps."""
        file, traps = self._file, self._file.given()
        file.write(self._layout.traps)
        with self._sender() as sender:
            set_traps(sender, file.run, traps, file.bounty_wei, file.first, file.open_by).carry_out("traps/set")

    def look(self, book: MemoryBook) -> None:
        """Opens what is due, and appeals a trap that was missed, if a round was opened or decided since."""
        seen = [(round_.round, round_.state) for round_ in book.all(facts.Round)]
        if seen == self._seen:
            return
        self._seen = seen
        file, traps = self._file, self._file.given()
        for report, call in opening(self._chain, file.run, traps):
            with self._sender() as sender:
                plan_of(sender, call).carry_out(f"traps/open/{report.index}")
            if report.round:
                kind = report.trap.kind.sentence
                self._say(f"round {report.round}: job {report.job} was planted by the requester: {kind}; found")
        for report in reports(self._chain, file.run, traps):
            if report.state == "missed":
                with self._sender() as sender:
                    open_appeal(sender, report.round, report.job).carry_out(f"traps/appeal/{report.index}")
                self._say(f"round {report.round}: the planted job {report.job} was missed; the requester appeals")

    def watched(self, book: MemoryBook) -> Watched:
        """Returns the figures of the run so far."""
        opened = [each for each in book.all(facts.OpenedTrap) if each.round]
        with closing(RecheckJournal(self._layout.state("recheck"))) as journal:
            jobs, jurors = list(journal.jobs()), list(journal.jurors())
        return Watched(
            faults_planted=sum(1 for each in reports(self._chain, self._file.run, self._file.given()) if each.round),
            faults_found=len(opened),
            finders=sum(each.finders for each in opened),
            jobs_rechecked=len(jobs),
            verdicts_apart=sum(each.stands != each.found for each in jobs),
            fingerprints_equal=sum(each.equal for each in jurors),
            fingerprints_near=sum(each.near for each in jurors),
            bundles_in_doubt=sum(each.in_doubt for each in jurors),
        )

    def _sender(self) -> closing[Sender]:
        wallet = Keystores(self._layout.keystores).open(REQUESTER, read_password(self._layout.password_file))
        journal = self._layout.state("requester") / "sender.db"
        journal.parent.mkdir(parents=True, exist_ok=True)
        return closing(Sender(self._chain, wallet, journal))
