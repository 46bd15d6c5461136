"""One target under atheris (libFuzzer over instrumented bytecode), in a process of its own that a defect may end.

    python -m tests.fuzz.driver TARGET RUNS SEED FOLDER

Memory is capped by the kernel (RLIMIT_AS, above what the process holds before each input) and by libFuzzer (resident
size); an allocation beyond the cap is a ``MemoryError`` and so a defect. FOLDER gets ``figures.json``, the corpus, and
``crash-…`` for an input that finds a defect.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["protocol"]):
    from tests.fuzz.targets import TARGETS

CAP_BYTES = 64 << 20
"""Address space that parsing one input may take beyond what the process has, of which the fuzzer takes ever more."""
RESIDENT_LIMIT_MIB = 768
TIMEOUT_SECONDS = 5
REPORT_EVERY = 1000
DEEP, DEEP_SHARE = 64, 0.4
"""So many of the inputs that were taken are kept, and so often a mutation starts from one of them: coverage alone
favours inputs refused in ever new ways, and few of those can be changed without being refused early again."""


class Meter:
    """Runs inputs and writes down how long and how large they were."""

    def __init__(self, name: str, runs: int, folder: Path) -> None:
        self.target, self.runs, self.file = TARGETS[name], runs, folder / "figures.json"
        self.inputs = self.taken = 0
        self.slowest, self.began = 0.0, time.monotonic()
        self.deep = self.target.seeds()
        self.statm = os.open("/proc/self/statm", os.O_RDONLY)

    def __call__(self, data: bytes) -> None:
        """One input; an exception leaves it, and ends the process."""
        held = int(os.pread(self.statm, 64, 0).split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + CAP_BYTES, resource.RLIM_INFINITY))
        started = time.process_time()  # not the wall's: others share the processors
        try:
            if self.target.take(data):
                self.taken += 1
                self._keep(data)
        finally:
            self.slowest = max(self.slowest, time.process_time() - started)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            self.inputs += 1
            if self.inputs % REPORT_EVERY == 0 or self.inputs >= self.runs:
                self.write()

    def _keep(self, data: bytes) -> None:
        if len(self.deep) < DEEP:
            self.deep.append(data)
        else:
            self.deep[self.taken % DEEP] = data

    def write(self) -> None:
        """Leaves the figures so far."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        figures = {
            "inputs": self.inputs,
            "taken": self.taken,
            "seconds": round(time.monotonic() - self.began, 2),
            "slowest_ms": round(self.slowest * 1e3, 2),
            "peak_mib": round(peak / 2**20, 1),
        }
        self.file.write_text(json.dumps(figures))


def main() -> None:
    """Fuzzes until RUNS inputs are through or one finds a defect; libFuzzer ends the process."""
    name, runs, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    meter = Meter(name, runs, folder)
    for number, data in enumerate(meter.target.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
        assert meter.target.take(data), "our own encoding was refused"

    def mutated(data: bytes, longest: int, chance_seed: int) -> bytes:
        chance = random.Random(chance_seed)
        start = chance.choice(meter.deep) if chance.random() < DEEP_SHARE else data
        return meter.target.change(start, chance, lambda part: atheris.Mutate(part, longest))[:longest]

    options = (
        f"-runs={runs} -seed={seed} -max_len={meter.target.longest} -len_control=0 -mutate_depth=2"
        f" -timeout={TIMEOUT_SECONDS} -rss_limit_mb={RESIDENT_LIMIT_MIB} -artifact_prefix={folder}/ -verbosity=1"
    )
    atheris.Setup([sys.argv[0], *options.split(), str(corpus)], meter, custom_mutator=mutated)
    meter.began = time.monotonic()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
