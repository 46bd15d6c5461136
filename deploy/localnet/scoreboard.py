"""Figures of a local network by party, folded from the chain, for the live view and the outcome."""

from __future__ import annotations

from deploy.localnet.live import Figures
from deploy.localnet.outcome import RunFigures
from deploy.localnet.parties import Party
from ledger import facts
from ledger.book import MemoryBook
from ledger.fold import fold
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Tail
from protocol.chain.structs import Cause
from protocol.wire.assignments import jobs_in

OVER = ("settled", "void")
REFUSED = ("fraud", "void")


class Scoreboard:
    """In-memory fold of the chain's events, for one run of known parties."""

    def __init__(
        self, chain: Chain, run: int, parties: tuple[Party, ...], nodes: dict[str, int], rollouts_per_job: int
    ) -> None:
        self.chain, self.run, self.parties, self.nodes = chain, run, parties, nodes
        self.rollouts_per_job = rollouts_per_job
        self._restart()

    def _restart(self) -> Tail:
        self.book, self.tail = MemoryBook(), Tail(self.chain)
        return self.tail

    def refresh(self) -> None:
        """Folds new events."""
        for log in self.tail.follow(self._restart):
            fold(self.book, log)

    def figures(self) -> Figures:
        """Returns the figures of the live view."""
        jobs = [job.verdict for job in self.book.all(facts.Job)]
        rounds = [round_.state for round_ in self.book.all(facts.Round) if not round_.parent]
        return Figures(
            rounds_open=self.rounds_unsettled(),
            rounds_settled=rounds.count("settled"),
            jobs_accepted=jobs.count("accepted"),
            jobs_void=jobs.count("void") + jobs.count("unavailable"),
            jobs_fraud=jobs.count("fraud"),
            credits=self._credits(),
            slashed={party.name: self.slashed(party) for party in self.parties},
        )

    def run_figures(self) -> RunFigures:
        """Returns the figures of the outcome."""
        rounds = [round_ for round_ in self.book.all(facts.Round) if not round_.parent]
        jobs = list(self.book.all(facts.Job))
        trained = {(each.round, job) for each in self.book.all(facts.Consumption) for job in jobs_in(each.jobs)}
        cheats = {self.nodes[party.name] for party in self.parties if party.adversary}
        void = self._rollouts(jobs, "void", "unavailable")
        void_of_cheats = self._rollouts([job for job in jobs if job.node in cheats], "void", "unavailable")
        return RunFigures(
            rounds=len(rounds),
            steps=max((each.version for each in self.book.all(facts.Checkpoint)), default=0),
            rollouts_accepted=self._rollouts(jobs, "accepted"),
            rollouts_trained=len(trained) * self.rollouts_per_job,
            rollouts_fraud=self._rollouts(jobs, "fraud"),
            rollouts_void=void,
            honest_rollouts_void=void - void_of_cheats,
            cheat_rollouts_trained=sum(job.node in cheats and (job.round, job.job) in trained for job in jobs)
            * self.rollouts_per_job,
            cheat_rounds_before_caught=rounds_before_caught(jobs, rounds, cheats),
            cheat_slashed_wei=sum(self.slashed(party) for party in self.parties if party.adversary),
            honest_slashed_wei=sum(self.slashed(party, Cause.FRAUD) for party in self.parties if party.honest),
            penalties_wei=sum(self.slashed(party, Cause.ABSENCE) for party in self.parties),
            credits=self._credits(),
        )

    def rounds_unsettled(self) -> int:
        """Returns the number of rounds that have not ended."""
        return sum(round_.state not in OVER for round_ in self.book.all(facts.Round) if not round_.parent)

    def rollouts_submitted(self) -> int:
        """Returns the number of rollouts submitted."""
        return sum(1 for _ in self.book.all(facts.Job)) * self.rollouts_per_job

    def _rollouts(self, jobs: list[facts.Job], *verdicts: str) -> int:
        return sum(job.verdict in verdicts for job in jobs) * self.rollouts_per_job

    def _credits(self) -> dict[str, int]:
        """Returns the credits earned by each party's node, in wei."""
        earned = dict.fromkeys(self.nodes.values(), 0)
        for entry in self.book.all(facts.CreditEntry):
            if entry.kind in ("worked", "judged") and entry.node in earned:
                earned[entry.node] += entry.amount
        return {party.name: earned[self.nodes[party.name]] for party in self.parties}

    def slashed(self, party: Party, *causes: Cause) -> int:
        """Returns the amount slashed from a party's node, in wei, for any of ``causes`` or at all."""
        named = {cause.name.lower() for cause in causes}
        return sum(
            slash.amount
            for slash in self.book.all(facts.Slash)
            if slash.node == self.nodes[party.name] and (not named or slash.cause in named)
        )


def rounds_before_caught(jobs: list[facts.Job], rounds: list[facts.Round], cheats: set[int]) -> int:
    """Returns the number of judged rounds with a cheat's work before the first that refused it. PURE."""
    judged = {round_.round for round_ in rounds if round_.state in ("tallied", "settled")}
    theirs = [job for job in jobs if job.node in cheats and job.round in judged]
    caught = {job.round for job in theirs if job.verdict in REFUSED}
    first = min(caught, default=None)
    return len({job.round for job in theirs if first is None or job.round < first})
