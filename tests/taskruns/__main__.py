"""``make task-runs``: SmolLM2 in the market on tasks from files.

reasoning   chain sums of reasoning-gym, of two numbers below ten: 20 steps, and what they gained on held-out ones
two         mathematics and programs, a source each: some versions; then an auditor computes the rewards of each again
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from deploy.localnet.services import ROOT
from protocol.errors import Misconfigured
from protocol.node.console import guard
from tests.environments.mbpp_like import TASKS

MODEL, RUN_FILE = ROOT / "models" / "smollm2", ROOT / "deploy" / "runs" / "smollm2.toml"
SUMS = "reasoning-gym/chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1&size=4000"
HELD_OUT, PROBLEMS = 0.3, 48
GAIN, VERSIONS = 0.25, 3
PATIENCE_SECONDS = 1800


@guard
def main() -> int:
    """Prints figures as they come, and one line of JSON; returns 1 if a run did not do what it should."""
    parser = argparse.ArgumentParser(prog="make task-runs", description=__doc__)
    parser.add_argument("--only", choices=["reasoning", "two"])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    console, figures = Console(stderr=not sys.stdout.isatty(), width=110), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="assize-tasks-") as folder:
        if given.only != "two":
            figures["reasoning"] = reasoning(Path(folder), given.seed, console)
        if given.only != "reasoning":
            figures["two"] = two_sources(Path(folder), console)
    holds = all(each["holds"] for each in figures.values())
    print(json.dumps(figures | {"holds": holds}), flush=True)
    return int(not holds)


def reasoning(folder: Path, seed: int, console: Console) -> dict[str, Any]:
    """Trains on a procedural task to the end of the run file's steps."""
    tasks, run_file = folder / "sums.parquet", _run_file(folder / "sums.toml", PROBLEMS)
    _assize("tasks", "build", SUMS, "--model", MODEL, "--out", tasks, "--held-out", HELD_OUT)
    words = ["localnet", "run", "--run-file", run_file, "--model", MODEL, "--tasks", tasks, "--root", folder / "sums"]
    words += ["--seed", seed, "--adversary", "random-tokens", "--evaluate-every", 5]
    outcome = json.loads(_assize(*words, allowed=(0, 1)).splitlines()[-1])
    gain = outcome["accuracy_after"] - outcome["accuracy_before"]
    console.print(f"reasoning: {outcome['accuracy_before']:.3f} to {outcome['accuracy_after']:.3f}")
    holds = gain >= GAIN and outcome["audit"] == "ok" and outcome["honest_rollouts_void"] == 0
    return {"gain": round(gain, 4), "holds": holds, "outcome": outcome}


def two_sources(folder: Path, console: Console) -> dict[str, Any]:
    """Trains on mathematics and programs for some versions, and audits the rewards of each while the network is up."""
    programs, tasks, root = folder / "programs.jsonl", folder / "two.parquet", folder / "two"
    rows = ({"question": task.question, "answer": "", "verifier": "code", "info": task.info} for task in TASKS)
    programs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["tasks", "build", f"sums={SUMS}:3", f"programs={programs}:1", "--model", MODEL, "--out", tasks]
    _assize(*words, "--held-out", HELD_OUT)
    run_file = _run_file(folder / "two.toml", PROBLEMS // 4)
    words = ["localnet", "up", "--run-file", run_file, "--model", MODEL, "--tasks", tasks, "--root", root]
    line = [sys.executable, str(ROOT / "assize.py"), *map(str, words), "--adversary", "random-tokens"]
    environment = os.environ | {"ASSIZE_PROFILE": str(folder / "assize.toml")}
    with (folder / "up.log").open("w") as log:
        network = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for_versions(network, root, folder / "up.log")
        chain = ["--addresses", root / "addresses.json", "--rpc", _url(root, "chain"), "--json"]
        audits = [json.loads(_assize("ledger", "rewards", 1, version, *chain)) for version in range(1, VERSIONS + 1)]
    finally:
        network.terminate()
        network.wait()
    steps = [line for line in _metrics(root) if line["kind"] == "step"]
    console.print(f"two: rewards by source {steps[-1]['sources']}; audited {[each['rollouts'] for each in audits]}")
    seen = {source for step in steps for source in step["sources"]}
    holds = all(each["differing"] == 0 for each in audits) and seen == {"sums", "programs"}
    return {"audits": audits, "sources": [step["sources"] for step in steps], "holds": holds}


def _run_file(path: Path, problems: int) -> Path:
    """Writes SmolLM2's run file with so many problems of evaluation, and the gain as its goal."""
    read = RUN_FILE.read_text().replace("problems = 256", f"problems = {problems}")
    read = read.replace("accuracy = 0.50", "accuracy = 0.0").replace("gain = 0.20", f"gain = {GAIN}")
    path.write_text(read.replace('"smollm2-rules.json"', json.dumps(str(RUN_FILE.with_name("smollm2-rules.json")))))
    return path


def _wait_for_versions(network: subprocess.Popen[bytes], root: Path, log: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while sum(line["kind"] == "step" for line in _metrics(root)) < VERSIONS:
        if network.poll() is not None or time.monotonic() > until:
            raise Misconfigured(f"the network made too few versions: {log.read_text()[-300:]}")
        time.sleep(2)


def _metrics(root: Path) -> list[dict[str, Any]]:
    found = list(root.glob("**/trainer/metrics.jsonl"))
    return [json.loads(line) for line in found[0].read_text().splitlines()] if found else []


def _url(root: Path, service: str) -> str:
    return str(json.loads((root / "network.json").read_text())["services"][service]["url"])


def _assize(*words: object, allowed: Sequence[int] = (0,)) -> str:
    """Runs ``assize`` and returns its output; raises ``Misconfigured`` with its end if it fails."""
    line = [sys.executable, str(ROOT / "assize.py"), *map(str, words)]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in allowed:
        raise Misconfigured(f"`assize {' '.join(map(str, words[:2]))}` failed, see above: {done.stdout[-300:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
