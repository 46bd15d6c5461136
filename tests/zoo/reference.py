"""What the `toploc` package itself says of proofs, in a process of its own, because some bytes crash it.

``python reference.py FILE``: the file is a pickled list of jobs, each a list of (rows, proofs) with rows bf16 bits as
int16 (T, H) and proofs of those rows. For each job it prints a line of JSON: index, chunks verified, and how many
of them pass at the paper's and at the production validator's thresholds. It imports nothing of ours.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

PAPER, PRODUCTION = (38, 10.0, 8.0), (60, 40.0, 40.0)
"""Most exponent mismatches, largest mean and largest median mantissa difference of a chunk."""
CHUNK_ROWS, ENTRIES = 32, 128


def passed(results: list[Any], bounds: tuple[int, float, float]) -> int:
    """How many chunks are within the bounds."""
    most, mean, median = bounds
    return sum(
        each.exp_mismatches <= most and each.mant_err_mean <= mean and each.mant_err_median <= median
        for each in results
    )


def main(path: Path, first: int) -> None:
    """Prints a line for each job from the ``first`` on."""
    import torch
    from toploc import verify_proofs_bytes

    torch.set_num_threads(1)
    for index, job in list(enumerate(pickle.loads(path.read_bytes())))[first:]:
        results = []
        for rows_TH, proofs in job:
            bits_TH = torch.from_numpy(rows_TH).view(torch.bfloat16)
            try:
                results += verify_proofs_bytes(bits_TH, proofs, max(CHUNK_ROWS, len(bits_TH)), ENTRIES, True)
            except Exception as error:  # whatever it raises is its answer
                results = [error]
                break
        if results and isinstance(results[0], Exception):
            print(json.dumps({"job": index, "raised": type(results[0]).__name__}), flush=True)
        else:
            counts = {"paper": passed(results, PAPER), "production": passed(results, PRODUCTION)}
            print(json.dumps({"job": index, "chunks": len(results), **counts}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
