"""``python -m deploy.adversaries NAME``: runs one as a worker, with a worker's settings."""

from __future__ import annotations

import sys

from deploy.adversaries import adversary
from protocol.node.console import guard
from worker.service import serve
from worker.settings import WorkerSettings


@guard
def main() -> None:
    """Runs the adversary named on the command line until stopped."""
    raise SystemExit(serve(WorkerSettings.read(), adversary(sys.argv[1])))


main()
