"""The recheck's loop: follows rounds, judges a share of decided jobs again, compares bundles, and appeals.

    decided round ──> jobs chosen by a secret ──> fetch ──> judge ──> another verdict? predict an appeal ──> make it, or
                                                              │                                        say why not
                                                              └──> bundles of the round's jurors against its own rows

A job is written down once this is done, so that a restart goes on with the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog
from prometheus_client import Counter as Total

from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import State, verdict_in
from protocol.chain.writing.appealing import open_appeal
from protocol.chain.writing.sender import Sender
from protocol.errors import AssizeError, Rejected
from protocol.transport.blobs import BlobStores
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.evidence import Finding, SignedEvidence, parse_signed
from protocol.wire.fingerprints import Likeness
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, reasons_of
from validator.judging.claims import Claim
from validator.judging.fetching import Fetching
from validator.judging.judge import ExaminedJob, FetchedJob, PolicyVersion, examine, limits_of, rows_for
from validator.judging.registry import CHECKS
from validator.judging.runs import Runs
from validator.queue.judged_round import ATTEMPTS, JudgedRound, JudgingProgress
from validator.recheck.journal import CheckedJob, ComparedJuror, RecheckJournal
from validator.recheck.prediction import Prediction, doubt_of, is_chosen, objection, predict, verdict_of
from validator.review.contradictions import contradictions
from validator.review.replay import resemblances
from validator.rounds import FollowedRound, Rounds

CHECKED = Total("assize_recheck_jobs_checked", "Jobs checked again, by whether the verdict agrees", ["agrees"])
DOUBTED = Total("assize_recheck_jurors_in_doubt", "Jurors' bundles that do not show a prefill of their own")

log = structlog.get_logger()

SHOWN = "its prefill shows"
NOTHING_SHOWN = "the job has no fingerprint to compare"


class Rechecker:
    """Checks decided jobs of one run again; the daemon's loop calls ``tick``.

    Args:
        sender: sends the appeals.
        run: the run whose jobs are checked.
        share: share of the jobs that are checked, from 0 to 1.
        budget: most deposits of appeals in a day, in wei; 0 appeals never.
        patience_seconds: time for which an artifact that nobody serves is asked for.
        dry_run: simulate appeals instead of sending them.
    """

    def __init__(
        self,
        chain: Chain,
        sender: Sender,
        runs: Runs,
        coordinators: RunCoordinators,
        journal: RecheckJournal,
        run: int,
        share: float,
        budget: int,
        patience_seconds: float,
        dry_run: bool = False,
    ) -> None:
        self._chain, self._sender, self._runs, self._journal = chain, sender, runs, journal
        self._coordinators = coordinators
        self._run, self._share, self._budget = run, share, budget
        self._patience_seconds, self._dry_run = patience_seconds, dry_run
        self._fetching = Fetching(BlobStores(trusted=coordinators.urls))
        self._tail, self._rounds = Tail(chain), Rounds()
        self._first_looked: dict[tuple[int, int], float] = {}
        self._shown: dict[tuple[int, bytes], dict[int, SignedEvidence | str]] = {}
        self._failures = Counter[tuple[int, bytes]]()
        self._told: set[str] = set()

    def tick(self) -> bool:
        """Runs one pass over the decided rounds; returns whether there may be more to do at once."""
        self._sender.tend()
        self._follow()
        decided = [(followed, jobs) for followed in self._decided() if (jobs := self._chosen(followed))]
        self._forget_all_but({followed.number for followed, _ in decided})
        for followed, jobs in decided:
            try:
                if self._recheck(followed, jobs):
                    return True
            except AssizeError as error:
                self._tell(f"round {followed.number}: {error}")
            except Exception as error:  # hostile work in one round may not keep others from being checked
                log.error("recheck_failed", round=followed.number, error=repr(error), exc_info=True)
                self._count_failure(followed, jobs)
        return False

    def close(self) -> None:
        """Ends the fetches."""
        self._fetching.close()

    def _count_failure(self, followed: FollowedRound, jobs: Sequence[int]) -> None:
        """Gives up a round's jobs after ``ATTEMPTS`` failures of this machine to judge them."""
        self._failures[followed.number, followed.beacon] += 1
        if self._failures[followed.number, followed.beacon] < ATTEMPTS:
            return
        for job in jobs:
            place, stands = (followed.number, job, followed.beacon), followed.verdict(job).name
            self._journal.write(CheckedJob(*place, followed.leaves[job].node, stands, "", "", "judging failed here"))

    def _forget_all_but(self, rounds: set[int]) -> None:
        """Drops what was fetched for other rounds."""
        self._fetching.keep(rounds)
        self._first_looked = {key: since for key, since in self._first_looked.items() if key[0] in rounds}
        self._shown = {key: found for key, found in self._shown.items() if key[0] in rounds}

    def _follow(self) -> None:
        while answer := self._tail.poll():
            if isinstance(answer, Rollback):
                log.warning("rollback", to_block=answer.to_block)
                self._tail, self._rounds = Tail(self._chain), Rounds()
                continue
            for found in answer:
                self._rounds.fold(found.logs)
        if self._run in self._rounds.uris:
            self._coordinators.keep({self._run: self._rounds.uris[self._run]})

    def _decided(self) -> Iterator[FollowedRound]:
        """The rounds with a verdict: those that can still be appealed first, then settled ones, newest first."""
        for followed in (*self._rounds.live.values(), *reversed(self._rounds.replayable.values())):
            if followed.run == self._run and not followed.appeal and followed.state in (State.TALLIED, State.SETTLED):
                yield followed

    def _chosen(self, followed: FollowedRound) -> list[int]:
        number, beacon = followed.number, followed.beacon
        return [
            job
            for job in followed.submitted_jobs
            if is_chosen(self._journal.secret, number, beacon, job, self._share)
            and not self._journal.has(number, beacon, job)
        ]

    def _recheck(self, followed: FollowedRound, jobs: Sequence[int]) -> bool:
        """Checks what has arrived of a round's chosen jobs; returns whether there was anything."""
        context = self._runs.context(followed.run, followed.terms)
        root = self._rounds.manifest_roots[followed.run, followed.policy_version]
        asked = replace(followed, leaves={job: followed.leaves[job] for job in jobs})
        round_ = JudgedRound(asked, context, root, JudgingProgress())
        there = round_.weights_there()
        round_.settle_unreceipted()
        round_.settle_unfit()
        for judgement in round_.progress.judged.values():
            self._conclude(round_, ExaminedJob(judgement))
        arrived = [found for claim in round_.waiting if (found := self._look(round_, claim)) is not None]
        bundles = self._bundles(followed) if there and arrived else None
        if bundles is not None:
            policy = context.weights.policy(followed.policy_version, root)
            examined = examine(policy, context.rules, arrived)
            self._compare(round_, bundles, policy, examined)
            for one in examined:
                self._conclude(round_, one)
        return bool(round_.progress.judged) or bundles is not None

    def _look(self, round_: JudgedRound, claim: Claim) -> FetchedJob | None:
        """The job's artifact once it has arrived, or once it was waited for in vain."""
        context = round_.context
        found = self._fetching.look(claim, limits_of(context.rules, context.environment).file_bytes)
        if found is None and self._waited(claim.round, claim.job) > self._patience_seconds:
            found = Finding(Reason.UNAVAILABLE, f"no answer within {self._patience_seconds:g} s")
        return None if found is None else FetchedJob(claim, found)

    def _conclude(self, round_: JudgedRound, examined: ExaminedJob) -> None:
        followed, judgement = round_.followed, examined.judgement
        job, reason = judgement.claim.job, judgement.reason
        found, stands = verdict_of(reason), followed.verdict(job)
        outcome = "agrees" if found is stands else self._dispute(round_, examined)
        entry = CheckedJob(
            followed.number, job, followed.beacon, judgement.claim.node, stands.name, found.name, reason.name, outcome
        )
        self._journal.write(entry)
        CHECKED.labels("yes" if found is stands else "no").inc()
        tell = log.info if found is stands else log.warning
        place = {"round": entry.round, "job": job, "node": entry.node}
        tell("rechecked", **place, stands=entry.stands, found=entry.found, reason=reason.name, outcome=outcome)

    def _dispute(self, round_: JudgedRound, examined: ExaminedJob) -> str:
        """Appeals if that is worth it; returns what was done, or why not."""
        followed, job = round_.followed, examined.judgement.claim.job
        if followed.state is not State.TALLIED or not followed.terms.appeal_seats:
            return "not appealed: the round is settled, or its run offers no appeals"
        if followed.appealed >> job & 1:
            return "not appealed: somebody has appealed already"
        prediction = self._predict(round_, examined)
        now, place = time.time(), (followed.number, followed.beacon, job)
        doubt = doubt_of(
            CHECKS,
            round_.context.rules.thresholds,
            examined.measured,
            [reasons[job] for vote in _votes(followed).values() if job in (reasons := _reasons(vote, followed))],
        )
        against = objection(prediction, doubt, self._journal.spent(now, but=place), self._budget)
        if against is not None:
            return f"not appealed: {against}"
        return self._appeal(place, prediction, now)

    def _predict(self, round_: JudgedRound, examined: ExaminedJob) -> Prediction:
        followed, job = round_.followed, examined.judgement.claim.job
        return predict(
            followed.verdict(job),
            verdict_of(examined.judgement.reason),
            [verdict_in(vote.accept, vote.fraud, job) for vote in _votes(followed).values()],
            bool(followed.consumed >> job & 1),
            followed.terms,
            self._chain.latest().rounds_terms(),
        )

    def _appeal(self, place: tuple[int, bytes, int], prediction: Prediction, now: float) -> str:
        round_, beacon, job = place
        expects = f"expecting {prediction.final.name} and a profit of {tokens(prediction.profit)}"
        try:
            plan = open_appeal(self._sender, round_, job)
            if self._dry_run:
                run = plan.dry_run()
                return f"would send {run.first.description}, {expects}"
            self._journal.lock_deposit(round_, beacon, job, now, prediction.deposit)
            opened = plan.carry_out(f"recheck/{round_}/{job}/{beacon[:8].hex()}")
        except Rejected as error:
            return f"not appealed: {error}"
        return f"appealed as number {opened.appeal}, {expects}"

    def _bundles(self, followed: FollowedRound) -> Mapping[int, SignedEvidence | str] | None:
        """Returns the bundle of each juror that voted, or why there is none; None while one may still come."""
        found = self._shown.setdefault((followed.number, followed.beacon), {})
        late = self._waited(followed.number, -1) > self._patience_seconds
        for juror, vote in _votes(followed).items():
            if juror in found:
                continue
            try:
                found[juror] = parse_signed(
                    self._coordinators.of(self._run).evidence(vote.evidence_root), vote.evidence_root
                )
            except AssizeError as error:
                if not late:
                    return None
                found[juror] = f"its bundle cannot be had: {error}"
        return found

    def _waited(self, round_: int, job: int) -> float:
        """Returns the seconds since something was first asked for."""
        return time.monotonic() - self._first_looked.setdefault((round_, job), time.monotonic())

    def _compare(
        self,
        round_: JudgedRound,
        bundles: Mapping[int, SignedEvidence | str],
        policy: PolicyVersion,
        examined: Sequence[ExaminedJob],
    ) -> None:
        """Compares the bundle of each juror that voted with the rows found here."""
        for juror, bundle in bundles.items():
            for entry in _compared(juror, bundle, round_, policy, examined):
                self._journal.write(entry)
                if entry.in_doubt:
                    DOUBTED.inc()
                    place = {"round": entry.round, "job": entry.job, "juror": juror}
                    log.warning("juror_in_doubt", **place, shown=entry.shown)

    def _tell(self, problem: str) -> None:
        """Logs each problem once."""
        if problem not in self._told:
            log.warning("not_rechecked", error=problem)
        self._told.add(problem)


def _compared(
    juror: int,
    bundle: SignedEvidence | str,
    round_: JudgedRound,
    policy: PolicyVersion,
    examined: Sequence[ExaminedJob],
) -> Iterator[ComparedJuror]:
    """Yields the comparison of a juror's bundle, or of the reason that there is none, on each job examined here."""
    followed = round_.followed
    wrong = bundle if isinstance(bundle, str) else next(_contradictions(juror, bundle, round_), None)
    kept = {one.judgement.claim.job: rows_for(juror, one, policy) for one in examined}
    rows = {job: found for job, found in kept.items() if found is not None}
    found = (
        {}
        if wrong or isinstance(bundle, str)
        else {one.job: one for one in resemblances(bundle.evidence, round_, rows)}
    )
    for job in kept:
        place = (followed.number, job, followed.beacon, juror)
        if job not in found:
            yield ComparedJuror(*place, wrong or NOTHING_SHOWN, in_doubt=wrong is not None)
            continue
        counts = Counter(rollout.likeness for rollout in found[job].rollouts)
        equal, near, apart = (counts[each] for each in (Likeness.EQUAL, Likeness.NEAR, Likeness.APART))
        of = f"in {apart} of {counts.total()} rollouts"
        shown = f"its fingerprint is not that of a prefill {of}" if apart else SHOWN
        yield ComparedJuror(*place, shown, equal, near, apart, in_doubt=apart > 0)


def _contradictions(juror: int, bundle: SignedEvidence, round_: JudgedRound) -> Iterator[str]:
    """Yields what contradicts a bundle: another juror's bundle agrees with itself and with the chain."""
    followed, stated = round_.followed, bundle.evidence
    if (stated.round, stated.attempt, stated.juror) != (followed.number, followed.attempt, juror):
        yield f"the bundle is of juror {stated.juror} in attempt {stated.attempt} at round {stated.round}"
        return
    yield from contradictions(bundle, round_, followed.keys.get((followed.attempt, juror), ""))


def _votes(followed: FollowedRound) -> dict[int, Vote]:
    """Returns the votes of the committee that decided, by juror, without abstentions."""
    votes = {juror: followed.seats[followed.attempt, juror].vote for juror in followed.jurors}
    return {juror: vote for juror, vote in votes.items() if vote is not None and not vote.abstains}


def _reasons(vote: Vote, followed: FollowedRound) -> Mapping[int, Reason]:
    try:
        return reasons_of(vote, followed.submitted)
    except Rejected:  # unknown reason code
        return {}
