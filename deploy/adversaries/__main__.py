"""``python -m deploy.adversaries NAME``: runs one as a worker or a validator, with its settings."""

from __future__ import annotations

import sys

from deploy.adversaries import FAULTY_VALIDATORS, adversary, faulty_validator
from protocol.node.console import guard


@guard
def main() -> None:
    """Runs the adversary named on the command line until stopped."""
    name = sys.argv[1]
    raise SystemExit(_validate(name) if name in FAULTY_VALIDATORS else _work(name))


def _work(name: str) -> int:
    from worker.service import serve
    from worker.settings import WorkerSettings

    return serve(WorkerSettings.read(), adversary(name))


def _validate(name: str) -> int:
    from validator.service import serve
    from validator.settings import ValidatorSettings

    return serve(ValidatorSettings.read(), faulty_validator(name))


main()
