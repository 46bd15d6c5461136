"""The terms that the rounds are played on: those of a public network (contracts/README.md), and what checking costs."""

from __future__ import annotations

from dataclasses import replace

from protocol.chain.structs import ProtocolTerms, RunTerms
from tests.model import parties

TOKEN = 10**18
HOUR, DAY = 3600, 86_400

VALIDATORS, WORKERS = 40, 4
"""Nodes at the start, each of an owner of its own."""
MARGIN = 250 * TOKEN
"""What a validator posts above the least bond."""
JOBS_PER_WORKER = 4
JOBS = WORKERS * JOBS_PER_WORKER
BAD_JOBS = 0.01
"""Share of all jobs that are fraudulent whatever strategy is played: one outsider cheats now and then."""

UNITS = 1000
JOB_PAY = TOKEN // 4
CHECKED_PER_GENERATED = 4.30
"""Tokens that vLLM checks in the time that it generates one (BENCHMARKS.md, `make bench-verify`)."""
CHECK_COST = round(JOB_PAY / CHECKED_PER_GENERATED)
"""Of one job, for one juror: generating it costs what it pays, and checking it a fraction of that."""

TRAPS_PER_NEEDED = 2
"""Planted faults over the rate at which a lazy juror loses as much as it saves (``TRAP_RATE``)."""

PROTOCOL: ProtocolTerms = replace(
    parties.TERMS,
    registry=replace(
        parties.TERMS.registry,
        bond_per_job=10 * TOKEN,
        validator_bond=1000 * TOKEN,
        activation_delay=HOUR,
        unbonding_delay=7 * DAY,
    ),
    market=replace(
        parties.TERMS.market,
        notice_seconds=2 * DAY,
        max_round_seconds=3 * DAY,
        min_commit_seconds=600,
        min_reveal_seconds=300,
        min_juror_fee=TOKEN // 10,
        max_strikes=20,
    ),
    rounds=replace(
        parties.TERMS.rounds,
        fraud_slash=10 * TOKEN,
        absence_penalty=5 * TOKEN,
        overturn_penalty=50 * TOKEN,
        appeal_bond=20 * TOKEN,
        appeal_bounty=10 * TOKEN,
    ),
)

TRAP_RATE = CHECK_COST / PROTOCOL.rounds.overturn_penalty
"""Share of jobs that must be planted faults for a lazy juror to gain nothing: cost of a check over that of a miss."""

RUN: RunTerms = replace(
    parties.run_terms("the honest run's rules", committee=5, appeal_seats=9),
    price_per_unit=JOB_PAY // UNITS,
    juror_fee=TOKEN,
    max_units=UNITS,
    work_seconds=1800,
    draw_seconds=600,
    commit_seconds=1800,
    reveal_seconds=600,
    challenge_seconds=HOUR,
)
