"""Rewards of an owner that exceed what chance gives: a comparison that raises an alarm, and samples that condemn. PURE.

    round      log e-values of one owner's groups in one settled round, for each tilt: E[e] <= 1 under honest work
    evidence   R = (R + 1) e, round after round, averaged over the tilts: a Shiryaev-Roberts test, which begins anew at
               every round, so that earlier honest work does not offset a cheat. R after t rounds is at most t in
               expectation, so it reaches exp(h) within t rounds with probability at most t exp(-h), whenever one stops
    compared   the owner's group means among those of all owners under one version, source by source. Other owners can
               do worse on purpose, so this evidence only decides which rounds a juror samples
    sampled    the owner's rewards for each prompt among the juror's own, sampled from the same version with noise of
               its own. It starts anew after every round that was not sampled, so that the evidence is never above that
               of a juror that samples all rounds: nothing is gained by choosing which rounds to sample

Both rest on exchange: prompts follow from the beacon and noise from the job, so under honest work any subset of the
pooled values was as likely as any other to be the owner's. The e-value is exp(tilt * sum of the owner's values) over
its mean over all subsets of that size. It is exact, needs no variance, rises with the owner's values only, and is 1
where all values are equal. In a pool of rewards 0 and 1 it is the likelihood ratio of Fisher's noncentral
hypergeometric law: a cheat that multiplies the odds of a right answer by exp(tilt).

Source: Hemerik and Goeman (2018) for exchange; Shin, Ramdas and Rinaldo (2024) for e-detectors.

Axes: T tilts, R rounds, N values of the owner, M values of others, J size of a subset, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COMPARED_TILTS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
"""Tilts of the comparison, in standard deviations of the pool: leads over the others of about 0.015 to 0.3."""

SAMPLED_TILTS = np.array([0.2, 0.4, 0.8, 1.6])
"""Tilts of the samples, per unit of reward: log odds, for uplifts of about 0.03 to 0.3."""

ALARM_ROUNDS = 10_000
"""Least number of rounds, on average, between alarms on an honest owner among honest ones; they cost samples only."""

CLEARING_TILT, CLEARING_ROUNDS = 1, 1_000
"""Index of the sampled tilt by which a condemned owner would go on steering, an uplift of about 0.09, and the least
number of rounds until it is cleared if it does. Honest work of 20 jobs clears it, where rewards vary: sooner than a
coordinator ceases to list a node for its void jobs."""

CLEARING_GROUPS = 64
"""Least number of groups that a condemned owner makes before it is cleared."""

SAMPLES_SHARE = 2
"""Samples of the juror for each of the owner's: two thirds of what unlimited ones would tell."""

ENDING_SHARE = 0.5
"""Share of its bound at which an alarm ends, so that samples are not broken off where the evidence wavers."""

LogE = NDArray[np.float64]
"""Log e-values in nats by tilt, [T]."""


@dataclass(frozen=True, slots=True)
class GroupRewards:
    """Rewards of one group, at least 0; none of them: the job is missing or was not accepted."""

    owner: str
    source: str
    rewards: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean reward, zero without any."""
        return math.fsum(self.rewards) / max(1, len(self.rewards))


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """Rewards for one prompt: ``own`` of the owner, none where its job is missing, and ``sampled`` by the juror."""

    own: tuple[float, ...]
    sampled: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundRewards:
    """Log e-values of an owner in one settled round; ``sampled`` is None until the juror has sampled every group.

    ``honesty`` is what the round says for an owner that is condemned, in nats, from ``present`` groups that it made.
    """

    round: int
    compared: LogE
    sampled: LogE | None = None
    honesty: float = 0.0
    present: int = 0


def log_e_values(own_N: Sequence[float], others_M: Sequence[float], tilts_T: NDArray[np.float64]) -> LogE:
    """Returns, for each tilt, the log e-value of the owner's values among all of them; 0 without others.

    The mean over subsets adds one value at a time: a subset of J among i values lacks the last with chance (i - J) / i.
    """
    pool = np.array([*own_N, *others_M], dtype=np.float64)
    if not len(own_N) or not len(others_M):
        return np.zeros(len(tilts_T))
    logs = np.outer(tilts_T, pool - pool.mean())
    sizes = np.arange(1, len(own_N) + 1)
    mean_TJ = np.full((len(tilts_T), len(own_N) + 1), -np.inf)
    mean_TJ[:, 0] = 0.0
    for count, log_T in enumerate(logs.T, 1):
        with np.errstate(divide="ignore"):
            lacks = np.log(np.maximum(count - sizes, 0) / count)
        has = np.log(sizes / count) + log_T[:, None]
        mean_TJ[:, 1:] = np.logaddexp(mean_TJ[:, 1:] + lacks, mean_TJ[:, :-1] + has)
    return np.asarray(logs[:, : len(own_N)].sum(axis=1) - mean_TJ[:, -1])


def compared(owner: str, groups: Iterable[GroupRewards]) -> LogE:
    """Returns the log e-values of the owner's group means among those of others in a round, all of one version.

    A missing group of the owner counts as zero, so that leaving out the worst gains nothing; one of others is left out,
    so that their outages do not make the owner look better.
    """
    own: dict[str, list[float]] = {}
    others: dict[str, list[float]] = {}
    for group in groups:
        if group.owner == owner:
            own.setdefault(group.source, []).append(group.mean)
        elif group.rewards:
            others.setdefault(group.source, []).append(group.mean)
    evidence = np.zeros(len(COMPARED_TILTS))
    for source, means in own.items():
        rest = others.get(source, [])
        if deviation := float(np.std(means + rest)):
            evidence = evidence + log_e_values(means, rest, COMPARED_TILTS / deviation)
    return evidence


def sampled(groups: Iterable[SampledGroup]) -> LogE:
    """Returns the log e-values of an owner's rewards in a round, each group among the juror's samples of its prompt."""
    evidence = np.zeros(len(SAMPLED_TILTS))
    for group in groups:
        own = group.own or (0.0,) * (len(group.sampled) // SAMPLES_SHARE)
        evidence = evidence + log_e_values(own, group.sampled, SAMPLED_TILTS)
    return evidence


def honesty(groups: Iterable[SampledGroup]) -> float:
    """Returns the evidence in nats that an owner does not steer by ``CLEARING_TILT``, from the groups that it made."""
    own_and_drawn = ((group.own, group.sampled) for group in groups if group.own)
    return -math.fsum(log_e_values(own, drawn, SAMPLED_TILTS)[CLEARING_TILT] for own, drawn in own_and_drawn)


def evidence_after(rounds: Iterable[LogE | None]) -> list[float]:
    """Returns the evidence in nats after each round; it starts anew after a round without e-values."""
    after: list[float] = []
    log_r: LogE | None = None
    for log_e in rounds:
        log_r = _after(log_r, log_e)
        after.append(-math.inf if log_r is None else _log_mean(log_r))
    return after


def condemned_since(past: Sequence[RoundRewards], bound: float) -> int | None:
    """Returns the number of rounds of ``past`` after which the juror's samples condemned the owner, if they still do.

    Honest work of t rounds reaches ``bound`` with probability at most t exp(-bound). From then on the likelihood ratio
    is read the other way, as a CUSUM: an owner that goes on steering by ``CLEARING_TILT`` is cleared once in
    ``CLEARING_ROUNDS`` rounds on average, if ever, and nobody by less than ``CLEARING_GROUPS`` groups: doing worse on
    purpose does not pay. An owner that is cleared begins anew.
    """
    clear = math.log(CLEARING_ROUNDS)
    log_r: LogE | None = None
    since, clearing, present = None, 0.0, 0
    for count, each in enumerate(past, 1):
        if since is None:
            log_r = _after(log_r, each.sampled)
            if log_r is not None and _log_mean(log_r) >= bound:
                since, clearing, present = count, 0.0, 0
        elif each.sampled is not None:
            clearing, present = max(0.0, clearing + each.honesty), present + each.present
            if clearing >= clear and present >= CLEARING_GROUPS:
                since, log_r = None, None
    return since


def evidence_of(past: Sequence[RoundRewards]) -> float:
    """Returns the evidence in nats of a juror's samples after the latest round; -inf where that was not sampled."""
    return next(iter(evidence_after(each.sampled for each in past)[-1:]), -math.inf)


def to_sample(past: Sequence[RoundRewards], bound: float) -> list[RoundRewards]:
    """Returns the rounds that the juror has to sample and has not, newest first.

    They are all since the owner was condemned, or else those behind an alarm. Their window begins where the comparison
    speaks loudest, and ends with the latest round.
    """
    since = condemned_since(past, bound)
    if since is not None:
        return [each for each in reversed(past[since:]) if each.sampled is None]
    alarm, loud = False, math.log(ALARM_ROUNDS)
    for evidence in evidence_after(each.compared for each in past):
        alarm = evidence >= (ENDING_SHARE * loud if alarm else loud)
    if not alarm:
        return []
    since_RT = np.cumsum([each.compared for each in reversed(past)], axis=0)
    length = 1 + max(range(len(past)), key=lambda back: _log_mean(since_RT[back]))
    return [each for each in reversed(past[-length:]) if each.sampled is None]


def _after(log_r: LogE | None, log_e: LogE | None) -> LogE | None:
    if log_e is None:
        return None
    return log_e if log_r is None else np.asarray(np.logaddexp(log_r, 0.0) + log_e)


def _log_mean(log_T: LogE) -> float:
    return float(np.logaddexp.reduce(log_T)) - math.log(len(log_T))
