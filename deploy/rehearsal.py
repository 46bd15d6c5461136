"""``assize worker rehearse``: own jobs judged by one's own validator, before a token is staked.

    worker      newest weights and rules ──> jobs under a beacon of its own ──> artifacts and claims in a folder
    validator   in a process of its own: folder ──> judgements, as a juror makes them

Nothing is sent to chain or coordinator; no key, bond or node is needed.
"""

from __future__ import annotations

import json as as_text
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import Unavailable
from protocol.node.console import EXIT_REFUSED, guard, show
from protocol.node.doctor import AsJson
from protocol.wire.rules import decode_rules, encode_rules

app = typer.Typer()

CLAIMS, RULES = "claims.json", "rules.json"
JUDGE_SECONDS = 3600.0
"""Longest that judging may take."""


@app.command()
@guard
def rehearse(
    run: Annotated[int, typer.Argument(min=1, help="The run to rehearse for.")],
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs to make and have judged.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and noise.")] = 1,
    settings: Annotated[Path | None, typer.Option("--settings", help="File of ASSIZE_WORKER_… settings.")] = None,
    json: AsJson = False,
) -> None:
    """Make jobs with the run's newest weights and have them judged under its rules; exit 1 if one is refused."""
    from worker.settings import EstimateSettings

    read = EstimateSettings.read(settings, run=run)
    with tempfile.TemporaryDirectory(prefix="assize-rehearsal-") as name:
        make(read, Path(name), jobs, seed)
        rows = judged_apart(Path(name), read.device)
    show(rows, json, f"{jobs} jobs under the rules of run {run}")
    if any(row["verdict"] != "accepted" for row in rows):
        raise SystemExit(EXIT_REFUSED)


def make(settings: Any, folder: Path, jobs: int, seed: int) -> None:
    """Makes jobs as a worker does, and writes artifacts and claims into ``folder``."""
    from protocol.chain.reading.client import Chain
    from protocol.wire.specimens import beacon_of
    from worker.measuring import prepare
    from worker.prover import Work

    with closing(Chain.connect(settings.rpc_url, settings.addresses)) as chain:
        ready = prepare(settings, chain)
    beacon = beacon_of(seed)
    work = Work(0, 0, tuple(range(jobs)), beacon, ready.version, ready.root, ready.terms.max_units)
    claims = []
    for done in ready.producer.make(work):
        (folder / f"{done.job}.blob").write_bytes(done.blob)
        place = {"chain_id": ready.deployed.chain_id, "rounds": ready.deployed.rounds, "round": 0, "node": 0}
        roots = {"beacon": beacon.hex(), "manifest_root": ready.root.hex(), "root": done.root.hex()}
        claims.append(place | roots | {"job": done.job, "units": done.units, "max_units": work.max_units})
    (folder / RULES).write_bytes(encode_rules(ready.rules))
    (folder / CLAIMS).write_text(as_text.dumps({"weights": str(ready.directory), "claims": claims}))


def judged_apart(folder: Path, device: str) -> list[dict[str, Any]]:
    """Has a folder of jobs judged in a process of its own; returns a row for each.

    Raises:
        Unavailable: that process failed, or judges for longer than ``JUDGE_SECONDS``.
    """
    command = [sys.executable, "-m", "deploy.rehearsal", str(folder), device]
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=JUDGE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"judging took longer than {JUDGE_SECONDS:g} s and was ended: ask for fewer jobs") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise Unavailable(f"the validator's process ended with exit code {done.returncode}: {last[0]}")
    rows: list[dict[str, Any]] = as_text.loads(done.stdout.splitlines()[-1])
    return rows


def judge_folder(folder: Path, device: str) -> list[dict[str, Any]]:
    """Judges the jobs in ``folder`` as a juror does."""
    import torch

    from validator.judging.claims import Claim
    from validator.judging.judge import FetchedJob, judge
    from validator.judging.weights import load_policy

    torch.set_num_threads(1)
    told = as_text.loads((folder / CLAIMS).read_text())
    rules = decode_rules((folder / RULES).read_bytes())
    fetched = []
    for each in told["claims"]:
        words: dict[str, Any] = {name: bytes.fromhex(each.pop(name)) for name in ("beacon", "manifest_root", "root")}
        claim = Claim(**each, **words, signed_beacon=words["beacon"], uri="", claimed_before=False)
        fetched.append(FetchedJob(claim, (folder / f"{claim.job}.blob").read_bytes()))
    policy = load_policy(Path(told["weights"]), rules, device)
    return [row_of(one, rules) for one in judge(policy, rules, fetched)]


def row_of(judgement: Any, rules: Any) -> dict[str, Any]:
    """Returns a judgement as shown: verdict, reason, and what was measured beside its limit."""
    from protocol.wire.reasons import Reason

    reason, numbers = judgement.reason, judgement.evidence.measurements
    verdict = "accepted" if reason is Reason.ACCEPTED else "fraud" if reason.fraud else "void"
    row = {"job": judgement.claim.job, "verdict": verdict, "reason": reason.sentence, "measured": None, "limit": None}
    finding = next((one for one in judgement.evidence.findings if one.reason is reason), None)
    if finding is not None:
        row |= {"measured": round(float(finding.observed), 6), "limit": round(float(finding.limit), 6)}
    if numbers is not None:
        row |= {
            "margin": beside(numbers.margin_max_N, rules.thresholds.sampling_void),
            "logprobs": beside(numbers.logprob_median_N, rules.thresholds.logprob_median),
            "activations": beside(numbers.rel_C, rules.thresholds.toploc),
        }
    return row


def beside(column: Any, limit: float) -> str:
    """Returns the largest of a job's measurements beside the rules' limit."""
    return f"{float(column.max(initial=0)):.3g} of {limit:.3g}"


if __name__ == "__main__":
    print(as_text.dumps(judge_folder(Path(sys.argv[1]), sys.argv[2])))
