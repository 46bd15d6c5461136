"""Examinations of ``assize trainer doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.environments.environment import at_version, check_machine
from protocol.environments.registry import environment
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, gas
from protocol.node.doctor import Examination, Key, Result, examine, of_settings
from protocol.tensor.model import check_device, check_model
from protocol.transport.coordinator import CoordinatorClient, describe_coordinator
from protocol.wire.pins import check_directory
from trainer.memory import check_memory
from trainer.settings import TrainerSettings, read_recipe


def diagnose(settings: TrainerSettings) -> Iterator[Result]:
    """Examines disk, model, device, recipe, key, coordinator, chain and the run's rules."""
    key, url = Key(settings), settings.coordinator_url
    yield from examine(
        (
            *of_settings(settings),
            Examination("model", lambda: _model(settings), "check ASSIZE_TRAINER_MODEL"),
            Examination("device", lambda: _device(settings), "set ASSIZE_TRAINER_DEVICE=cpu"),
            Examination("recipe", lambda: _recipe(settings), "check ASSIZE_TRAINER_RUN_FILE"),
            key.examination(),
            *((_coordinator(lambda: url),) if url else ()),
        )
    )

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        return (
            *(() if url else (_coordinator(lambda: coordinator_uri(chain, settings.run)),)),
            Examination("trainer", lambda: _trainer(settings, chain, key), "use the key that the run names"),
            Examination("rules", lambda: _rules(settings, chain), "use the model that the run was opened with"),
            gas(chain, key),
        )

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _coordinator(url: Callable[[], str]) -> Examination:
    return Examination("coordinator", lambda: describe_coordinator(url()), "check ASSIZE_TRAINER_COORDINATOR_URL")


def _model(settings: TrainerSettings) -> str:
    check_model(settings.model)
    return str(settings.model)


def _device(settings: TrainerSettings) -> str:
    check_device(settings.device)
    return f"{settings.device}, {settings.threads} threads"


def _recipe(settings: TrainerSettings) -> str:
    return f"{read_recipe(settings.run_file).steps} steps"


def _trainer(settings: TrainerSettings, chain: Chain, key: Key) -> str:
    trainer = chain.latest().run(settings.run).terms.trainer
    if trainer != key.address:
        raise Misconfigured(f"run {settings.run} is trained by {trainer}: this key is {key.address}")
    return f"trains run {settings.run}"


def _rules(settings: TrainerSettings, chain: Chain) -> str:
    digest = chain.latest().run(settings.run).terms.rules_hash
    with closing(CoordinatorClient(coordinator_uri(chain, settings.run, settings.coordinator_url))) as client:
        rules = client.rules(digest)
    check_directory(settings.model, rules.pins)
    tasks = environment(rules.environment.name, rules.environment.params)
    check_machine(at_version(tasks, settings.model))
    check_memory(
        settings.model, read_recipe(settings.run_file), rules, settings.device, settings.evaluation_problems > 0
    )
    return f"rules of {rules.environment.name} match the chain and the model"
