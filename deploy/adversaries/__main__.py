"""``python -m deploy.adversaries NAME``: runs an adversary with the settings of the service that it stands for."""

from __future__ import annotations

import sys
from functools import partial

from deploy.adversaries import FAULTY_TRAINERS, FAULTY_VALIDATORS, adversary, faulty_publisher, faulty_validator
from protocol.node.console import guard


@guard
def main() -> None:
    """Runs the adversary named on the command line until stopped."""
    name = sys.argv[1]
    run = _validate if name in FAULTY_VALIDATORS else _train if name in FAULTY_TRAINERS else _work
    raise SystemExit(run(name))


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


def _train(name: str) -> int:
    from trainer.service import serve
    from trainer.settings import TrainerSettings

    return serve(TrainerSettings.read(), faulty_publisher(name))


main()
