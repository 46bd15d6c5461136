"""``python -m deploy.adversaries NAME``: runs an adversary as a worker or a validator, with that service's settings."""

from __future__ import annotations

import sys
from functools import partial

from deploy.adversaries import FAULTY_VALIDATORS, adversary, faulty_validator
from protocol.node.console import guard


@guard
def main() -> None:
    """Runs the adversary named on the command line until stopped."""
    name = sys.argv[1]
    raise SystemExit(_validate(name) if name in FAULTY_VALIDATORS else _work(name))


def _work(name: str) -> int:
    from deploy.adversaries.listening import Listener
    from deploy.adversaries.replaying import Thief
    from worker.service import serve
    from worker.settings import WorkerSettings

    settings, kind = WorkerSettings.read(), adversary(name)
    if issubclass(kind, Thief):
        listener = Listener(settings.rpc_url, settings.addresses, settings.coordinator_url)
        return serve(settings, partial(kind, overheard=listener))
    return serve(settings, kind)


def _validate(name: str) -> int:
    from validator.service import serve
    from validator.settings import ValidatorSettings

    return serve(ValidatorSettings.read(), faulty_validator(name))


main()
