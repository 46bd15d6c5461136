"""Builds and runs a recheck from its settings."""

from __future__ import annotations

from contextlib import closing

import torch

from protocol.chain.reading.client import Chain
from protocol.chain.reading.own_standing import OwnStanding
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.node.activity import HEALTH_FILE
from protocol.node.console import show
from protocol.node.daemon import Daemon
from protocol.node.telemetry import configure, serve_metrics
from protocol.transport.run_coordinators import RunCoordinators
from validator.judging.runs import Runs
from validator.recheck.journal import RecheckJournal
from validator.recheck.rechecker import Rechecker
from validator.recheck.settings import RecheckSettings


def serve(settings: RecheckSettings, dry_run: bool) -> int:
    """Runs until stopped; returns the exit code."""
    configure("recheck", settings.log_level)
    serve_metrics(settings.metrics_port, settings.metrics_host, settings.state_dir)
    return build(settings, dry_run).run()


def build(settings: RecheckSettings, dry_run: bool = False) -> Daemon:
    """Returns the daemon, ready to run; raises ``Misconfigured`` or ``Unavailable``, naming what is missing."""
    torch.set_num_threads(1)
    wallet = settings.wallet()
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    journal = RecheckJournal(settings.state_dir)
    coordinators = RunCoordinators(settings.coordinator_urls)
    sender = Sender(chain, wallet, settings.state_dir / "sender.sqlite", Fees.capped(settings.fee_cap_gwei))
    runs = Runs(coordinators, chain.deployment, settings.state_dir / "weights", settings.sources, settings.device)
    rechecker = Rechecker(
        chain,
        sender,
        runs,
        coordinators,
        journal,
        run=settings.run,
        share=settings.share,
        budget=settings.budget_wei,
        patience_seconds=settings.patience_seconds,
        dry_run=dry_run,
    )

    def close() -> None:
        for part in (rechecker, runs, coordinators, sender, chain, journal):
            part.close()

    if settings.metrics_port:
        OwnStanding(chain, wallet.address, (settings.run,)).start()
    health_file = settings.state_dir / HEALTH_FILE
    return Daemon("recheck", rechecker.tick, settings.interval_seconds, health_file, close=close)


def show_journal(settings: RecheckSettings, as_json: bool) -> None:
    """Shows the jobs checked and the jurors compared so far, newest first."""
    with closing(RecheckJournal(settings.state_dir)) as journal:
        jobs = [
            {
                "round": one.round,
                "job": one.job,
                "node": one.node,
                "stands": one.stands.lower(),
                "found": one.found.lower(),
                "reason": one.reason.lower(),
                "outcome": one.outcome,
            }
            for one in journal.jobs()
        ]
        jurors = [
            {
                "round": one.round,
                "job": one.job,
                "juror": one.juror,
                "bundle": one.shown,
                "rollouts_equal": one.equal,
                "rollouts_near": one.near,
                "rollouts_apart": one.apart,
            }
            for one in journal.jurors()
        ]
    if as_json:
        show({"jobs": jobs, "jurors": jurors}, True)
        return
    show(jobs, False, "jobs checked")
    show(jurors, False, "jurors compared")
