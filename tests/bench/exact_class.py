"""``make exact-class``: this machine's determinism class against itself, in bfloat16, for two models."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from protocol.environments.arithmetic import Arithmetic
from protocol.wire.rules import ExactRules, encode_rules
from tests.bench.exact import SMOLLM2, builtin_rules, smollm2_rules
from tests.zoo.models import policies


def main() -> None:
    """Prints a table for each model, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of the built-in model; of SmolLM2 a twentieth")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    found = {}
    for rules, directory, tokens in (
        (builtin_rules(), policies(Arithmetic(3))[1], options.tokens),
        (smollm2_rules(), SMOLLM2, max(1, options.tokens // 20)),
    ):
        exact = rules.model.model_copy(update={"exact": ExactRules()})
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "rules.json"
            path.write_bytes(encode_rules(rules.model_copy(update={"model": exact})))
            words = ["--rules", path, "--model", directory, "--tokens", tokens, "--threads", options.threads]
            line = [sys.executable, "-m", "assize", "validator", "compare-class", *map(str, words)]
            done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
        *table, last = done.stdout.splitlines() or [""]
        print("\n".join(table), flush=True)
        if not last.startswith("{"):
            raise SystemExit(done.returncode or 1)
        found[directory.name] = json.loads(last)
    equal = not any(one["differing_tokens"] + one["differing_chunks"] for one in found.values())
    print(json.dumps({"equal": equal, **found}), flush=True)
    raise SystemExit(0 if equal else 1)


if __name__ == "__main__":
    main()
