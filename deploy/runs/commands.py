"""``assize run new``: writes a run of one's own, opens and starts it if wanted; ``assize run up`` starts it again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.amounts import digits_of, positive_wei, tokens, wei_of
from protocol.errors import Misconfigured
from protocol.node.commands import connection
from protocol.node.commands.asking import Questions, refuse_unseen_figures
from protocol.node.commands.connection import DEFAULT_RPC, Addresses, AsJson, FeeCap, PasswordFile, RpcUrl
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from deploy.runs.choices import ProtocolBounds
    from deploy.runs.new_run import NewRun
    from deploy.runs.opening import Parties
    from protocol.node.commands.run_file import RunFileTerms
    from protocol.wire.rules import Rules

app = typer.Typer()

DEFAULT_URI, DEFAULT_ORIGIN = "http://127.0.0.1:8001", "http://127.0.0.1:8710"
DEFAULT_JOBS, DEFAULT_STEPS = 16, 100
Ask = Callable[..., Any]
"""``Questions.answer``."""


@app.command("new")
@guard
def new_run(
    addresses: Addresses,
    folder: Annotated[Path, typer.Argument(help="Folder to write the run to.")],
    model: Annotated[Path | None, typer.Option(help="Hugging Face directory of the model to start from.")] = None,
    tasks: Annotated[Path | None, typer.Option(help="File of tasks, as assize tasks build writes it.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Train on each task of the file once.")] = False,
    environment: Annotated[str | None, typer.Option(help="Environment that sets the tasks, without a file.")] = None,
    params: Annotated[str | None, typer.Option(help='Its parameters as JSON, such as {"digits": 3}.')] = None,
    base: Annotated[
        Path | None, typer.Option("--rules", help="Calibrated rules to start from; else the built-in run's.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put prompts into the model's chat template.")] = False,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of a completion; else of --rules.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Rollouts of one prompt; else as in --rules.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Prompts of one job; else as in --rules.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs-per-round", min=1, max=256, help="Most jobs of a round.")] = None,
    price: Annotated[str | None, typer.Option("--price-per-unit", help="Pay for a unit, such as 1000000wei.")] = None,
    juror_fee: Annotated[str | None, typer.Option(help="Most that a juror earns in a round, such as 0.5.")] = None,
    committee: Annotated[int | None, typer.Option(help="Seats of a committee, an odd number.")] = None,
    appeal_seats: Annotated[int | None, typer.Option(help="Seats of an appeal's committee; 0 offers none.")] = None,
    work_seconds: Annotated[int | None, typer.Option(min=1, help="Time to generate.")] = None,
    draw_seconds: Annotated[int | None, typer.Option(min=1, help="Time to draw a committee.")] = None,
    commit_seconds: Annotated[int | None, typer.Option(min=1, help="Time to judge and commit.")] = None,
    reveal_seconds: Annotated[int | None, typer.Option(min=1, help="Time to reveal.")] = None,
    challenge_seconds: Annotated[int | None, typer.Option(min=0, help="Time to appeal.")] = None,
    escrow: Annotated[str | None, typer.Option(help="Tokens to fund the run with, such as 500.")] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="Coordinator's keystore or address; else KEYSTORE-coordinator.")
    ] = None,
    trainer: Annotated[str | None, typer.Option(help="Trainer's keystore or address; else KEYSTORE-trainer.")] = None,
    uri: Annotated[str | None, typer.Option(help="URL at which nodes reach the coordinator.")] = None,
    origin: Annotated[str, typer.Option(help="URL at which the trainer will serve weights.")] = DEFAULT_ORIGIN,
    steps: Annotated[int, typer.Option(min=1, help="Versions to train.")] = DEFAULT_STEPS,
    open_: Annotated[
        bool, typer.Option("--open", help="Open and fund the run; keys that are missing are made.")
    ] = False,
    start: Annotated[bool, typer.Option("--start", help="Open it, then start its coordinator and trainer.")] = False,
    keystore: Annotated[
        str | None, typer.Option(envvar=["ASSIZE_KEYSTORE", "ETH_KEYSTORE"], help="Requester's keystore, to open it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take the defaults and ask nothing.")] = False,
    password_file: PasswordFile = None,
    fee_cap_gwei: FeeCap = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Write a run file with terms that the contract takes: asks for what no option gives; --open opens and funds it."""
    options = dict(locals())
    _check_together(options)
    run, parties = _asked(options)
    _finish(run, parties, options)


@app.command("up")
@guard
def up(
    folder: Annotated[Path, typer.Argument(help="Folder of the run, as `assize run new --open` wrote it.")] = Path(),
    password_file: PasswordFile = None,
) -> None:
    """Start a run's coordinator and trainer, with a Redis of their own; say what they wait for. Ctrl-C ends them."""
    from deploy.runs.running import run_services
    from protocol.node.wallet import read_password

    run_services(folder, read_password(password_file) if password_file is not None else None)


def _check_together(options: Mapping[str, Any]) -> None:
    if options["as_json"] and options["start"]:
        raise Misconfigured("--json ends with its one line and --start runs on: give --open, then assize run up FOLDER")
    if options["open_"]:
        refuse_unseen_figures(options["as_json"], options["yes"])
    if options["tasks"] is not None and (options["environment"] or options["params"] or options["chat"]):
        raise Misconfigured(
            "invalid --tasks with --environment, --params or --chat: a file of tasks has its own, and chat templates "
            "applied; leave them out"
        )
    if options["once"] and options["tasks"] is None:
        raise Misconfigured("invalid --once without --tasks: it is for tasks from a file")
    _url(options["origin"])


def _asked(options: Mapping[str, Any]) -> tuple[NewRun, Parties | None]:
    """Returns the run that options and answers describe; with it its parties, if it is to be opened."""
    from deploy.runs.choices import usual_escrow
    from deploy.runs.new_run import NewRun, read_bounds

    ask = Questions(options["yes"]).answer
    with connection.connected(options["rpc"], options["addresses"]) as chain:
        bounds = read_bounds(chain)
    model, rules, max_units = _asked_work(ask, options)
    terms = _asked_terms(ask, options, bounds, max_units)
    escrow = ask(options["escrow"], "escrow", "--escrow", tokens(usual_escrow(terms)), positive_wei)
    uri = ask(options["uri"], "URL of the coordinator", "--uri", DEFAULT_URI, _url)
    opens = options["open_"] or options["start"]
    parties = _asked_parties(ask, options, opens)
    addresses = (_address(parties.coordinator, opens), _address(parties.trainer, opens))
    run = NewRun(options["folder"], model, rules, terms, *addresses, uri, escrow, options["steps"])
    return run, parties if opens else None


def _asked_parties(ask: Ask, options: Mapping[str, Any], opens: bool) -> Parties:
    """Returns the keystores or addresses of the parties; keystores need not be there yet if the run is opened now."""
    from deploy.runs.opening import Parties
    from protocol.node.commands.own_keys import placed

    requester = options["keystore"]
    if opens:
        requester = placed(ask(requester, "keystore of the requester", "--keystore NAME", None, _keystore))

    def named(role: str) -> str:
        usual = f"{requester}-{role}" if requester and os.sep not in requester else None
        check = _keystore if options["start"] else partial(_address, may_be_made=opens)
        return placed(ask(options[role], f"{role} (keystore or address)", f"--{role}", usual, check))

    return Parties(requester or "", named("coordinator"), named("trainer"))


def _asked_work(ask: Ask, options: Mapping[str, Any]) -> tuple[Path, Rules, int]:
    """Returns the model, the rules of its work, and the most units of a job."""
    from deploy.runs.choices import most_units
    from deploy.runs.new_run import MEASURED, model_with_tasks, rules_for
    from deploy.tasks.in_rules import read_tasks, with_tasks
    from protocol.environments.registry import ENVIRONMENTS, environment
    from protocol.tensor.directory import shape_of
    from protocol.tensor.model import check_model, load_tokenizer
    from protocol.wire.rules import TASKS, with_checkpoint

    given = None if options["model"] is None else str(options["model"])
    model = Path(ask(given, "model directory", "--model", None, _directory))
    check_model(model)
    name, params = options["environment"], {}
    if (path := options["tasks"]) is None:
        named = f"environment ({', '.join(ENVIRONMENTS)})"
        name = ask(name, named, "--environment", next(iter(ENVIRONMENTS)))
        if name == TASKS:
            path, name = Path(ask(None, "file of tasks", "--tasks", None)), None
        else:
            params = _json(ask(options["params"], "its parameters as JSON", "--params", "{}", _json))
    work = {
        "max_tokens": options["max_tokens"],
        "samples_per_group": options["samples"],
        "groups_per_job": options["groups"],
    }
    rules = rules_for(options["base"] or MEASURED, model, name, params, work)
    if path is not None:
        tasks = read_tasks(path, model, options["once"])
        model = model_with_tasks(model, path, options["folder"])
        rules = with_checkpoint(with_tasks(rules, tasks), model)
    if options["chat"]:
        from protocol.tensor.chat import with_chat

        rules = with_chat(rules, load_tokenizer(model))
    shape = shape_of(model)
    if strange := [token for token in rules.stop_tokens if token >= shape.vocab]:
        raise Misconfigured(f"rules: stop_tokens: {strange[0]} is not in the model's vocabulary of {shape.vocab}")
    if options["base"] is None:
        typer.echo("thresholds: the built-in model's; measure this one's with assize validator calibrate", err=True)
    longest = environment(rules.environment.name, rules.environment.params).most_prompt_tokens(rules)
    return model, rules, most_units(rules, shape, longest)


def _asked_terms(ask: Ask, options: Mapping[str, Any], bounds: ProtocolBounds, max_units: int) -> RunFileTerms:
    """Returns terms that the contract takes."""
    from deploy.runs import choices
    from protocol.node.commands.run_file import RunFileTerms
    from protocol.wire.canonical import validating

    jobs = ask(options["jobs"], "most jobs of a round", "--jobs-per-round", DEFAULT_JOBS)
    price = f"{choices.usual_price(bounds, max_units)}wei"
    fee = digits_of(choices.usual_fee(bounds))
    money = {
        "price_per_unit": wei_of(ask(options["price"], "price of a unit", "--price-per-unit", price, positive_wei)),
        "juror_fee": wei_of(ask(options["juror_fee"], "most that a juror earns", "--juror-fee", fee, wei_of)),
    }
    seats = ask(options["committee"], "seats of a committee", "--committee", choices.usual_committee(bounds))
    usual = choices.usual_appeal_seats(bounds, seats)
    appeals = ask(options["appeal_seats"], "seats of an appeal, 0 for none", "--appeal-seats", usual)
    windows = {
        f"{name}_seconds": ask(options[f"{name}_seconds"], f"seconds to {name}", f"--{name}-seconds", seconds)
        for name, seconds in choices.usual_windows(bounds, appeals).items()
    }
    numbers = {"jobs_per_round": jobs, "max_units": max_units, "committee": seats, "appeal_seats": appeals}
    with validating("the run's terms", Misconfigured):
        terms = RunFileTerms.model_validate(numbers | money | windows)
    choices.check_terms(terms, bounds)
    return terms


def _finish(run: NewRun, parties: Parties | None, options: Mapping[str, Any]) -> None:
    """Writes the run; opens, funds and starts it if wanted; says what comes next."""
    from deploy.runs.new_run import write_run

    figures: dict[str, object] = {"model_root": run.model_root} | _costs(run, options["as_json"])
    if parties is None:
        path = write_run(run)
        opening = f"assize run open --file {path} --keystore NAME"
        then = [opening, f"assize run fund RUN '{run.escrow}' --keystore NAME"]
        _tell({"run_file": str(path)} | figures, then, options["as_json"])
        return
    ask = Questions(options["yes"])
    if not options["as_json"]:
        show({"escrow_wei": positive_wei(run.escrow)} | figures, False, f"run of {run.model}")
    ask.confirm("Open and fund it?")
    password = _open(run, parties, ask, options, figures)
    if options["start"]:
        from deploy.runs.running import run_services

        run_services(run.folder, password)


def _url(text: str) -> None:
    from protocol.transport.http import is_http

    if not is_http(text):
        raise Misconfigured(f"invalid URL {text!r}: expected http(s)://host[:port]")


def _keystore(text: str) -> None:
    if text.startswith("0x"):
        raise Misconfigured(f"invalid keystore {text}: expected the name or file of a key, which signs here")


def _directory(text: str) -> None:
    from protocol.wire.pins import check_names

    if not Path(text).is_dir():
        raise Misconfigured(f"invalid model directory {text}: expected a Hugging Face directory")
    check_names(path.name for path in Path(text).iterdir() if path.is_file() and not path.name.startswith("."))


def _address(text: str, may_be_made: bool = False) -> str:
    """Returns the address that a person means, as typed or a keystore's; empty for one that is made or opened later."""
    from protocol.node.wallet import Keystores

    if text.startswith("0x"):
        return connection.address_of(text)
    keystores = Keystores()
    missing = os.sep not in text and text not in (*keystores.names(), *keystores.foundry_names())
    if may_be_made and (missing or keystores.stated_address(text) is None):
        return ""
    return keystores.address_of(text)


def _json(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise Misconfigured(f"invalid parameters {text!r}: expected a JSON object such as {{}}")
    return given


def _costs(run: NewRun, as_json: bool) -> dict[str, object]:
    """Returns what a job and a round cost at most, and the whole run about: some rounds have little to learn from."""
    from deploy.runs.choices import ROUNDS_A_STEP, round_cost, round_seconds
    from protocol.times import spell

    rounds = math.ceil(ROUNDS_A_STEP * run.steps)
    seconds = rounds * round_seconds(run.terms)
    return {
        "a_job_pays_at_most_wei": run.terms.max_units * run.terms.price_per_unit,
        "a_round_costs_at_most_wei": round_cost(run.terms),
        "steps": run.steps,
        "rounds_about": rounds,
        "the_run_costs_about_wei": rounds * round_cost(run.terms),
        **({"windows_last_about_seconds": seconds} if as_json else {"its_windows_last_about": spell(seconds)}),
    }


def _open(
    run: NewRun, parties: Parties, ask: Questions, options: Mapping[str, Any], figures: Mapping[str, object]
) -> str:
    """Makes the keys that are missing, writes the run, opens and funds it, and writes the profile of its folder.

    Returns the keys' password.
    """
    from deploy.runs.new_run import next_commands, write_run
    from deploy.runs.opening import open_run, write_profile
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.fees import Fees
    from protocol.node.commands.joining.steps import settled_sender
    from protocol.node.commands.own_keys import OwnKeys
    from protocol.node.profile import Profile, ProfileNetwork, chosen_network

    say = partial(typer.echo, err=options["as_json"])
    profile = Profile.current()
    keys = OwnKeys(profile, parties.requester, options["password_file"], ask, say)
    owner = keys.opened(parties.requester)
    made = {role: keys.opened(name).address for role, name in parties.kept().items()}
    run = replace(run, coordinator=made.get("coordinator", run.coordinator), trainer=made.get("trainer", run.trainer))
    path = write_run(run, resumes=True)
    network = ProfileNetwork(chosen_network() or profile.default or "main", options["rpc"], options["addresses"])
    fees = Fees.capped(options["fee_cap_gwei"])
    with Chain.connect(network.rpc, network.addresses) as chain, settled_sender(chain, owner, fees) as sender:
        number = open_run(run, sender, sorted(made.values()), say)
    settings = write_profile(run, number, network, parties, keys, options["origin"])
    row = {"run": number, "escrow_wei": positive_wei(run.escrow), "run_file": str(path), "profile": str(settings)}
    _tell({**row, **figures}, next_commands(run, number), options["as_json"])
    return keys.password()


def _tell(row: dict[str, object], then: list[str], as_json: bool) -> None:
    if as_json:
        show(row | {"next": then}, True)
        return
    show(row, False)
    typer.echo("next:")
    for command in then:
        typer.echo(f"  {command}")
