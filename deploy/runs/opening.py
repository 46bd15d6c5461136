"""Opening of a new run: gas and tokens that a local chain gives, run and escrow, and the profile of its folder."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deploy.runs.new_run import RULES_FILE, RUN_FILE, NewRun, run_toml
from protocol.amounts import positive_wei, tokens
from protocol.chain.reading.client import Chain
from protocol.chain.writing import actions, calls
from protocol.chain.writing.faucet import give_gas, gives_tokens
from protocol.chain.writing.plans import Plan
from protocol.chain.writing.sender import Sender, key_of
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.interruption import saying_how_far
from protocol.node.commands.own_keys import OwnKeys
from protocol.node.profile import FILE_NAME, Profile, ProfileNetwork
from protocol.node.profile_edit import set_network, set_table
from protocol.node.wallet import default_directory
from protocol.wire.rules import encode_rules, rules_hash

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Parties:
    """Keystores of a run's requester, coordinator and trainer; an address where a key is held elsewhere."""

    requester: str
    coordinator: str
    trainer: str

    def kept(self) -> dict[str, str]:
        """Returns the keystores of coordinator and trainer that are at hand, by role."""
        named = {"coordinator": self.coordinator, "trainer": self.trainer}
        return {role: name for role, name in named.items() if not name.startswith("0x")}


def open_run(run: NewRun, sender: Sender, others: list[str], say: Say) -> int:
    """Opens and funds a run; returns its number. On a local chain the keys are given what they lack.

    Called again with the same run in the same folder, it goes on where it was ended.

    Args:
        run: as written.
        sender: the requester's.
        others: addresses of the keys that need gas besides.
        say: told of each step.

    Raises:
        Misconfigured: the folder is that of another run.
        Rejected: the requester holds less than the escrow, and no faucet gives it.
    """
    chain, escrow = sender.chain, positive_wei(run.escrow)
    for address in (sender.address, *others):
        give_gas(chain.rpc, address)
    terms = run.terms.on_chain(run.coordinator, run.trainer, rules_hash(encode_rules(run.rules)))
    intent = "run-new/" + hashlib.sha256(f"{run.folder.absolute()}\n{run_toml(run)}".encode()).hexdigest()[:32]
    opening = actions.open_run(sender, terms, run.model_root, run.uri)
    if sender.progress(key_of(f"{intent}/open", opening.calls[-1])) is None:  # before anything is opened
        _refuse_a_second(run.folder)
        _provide_escrow(chain, sender, escrow, say)
    number: int = _sent(sender, opening, f"{intent}/open").run
    say(f"opened run {number}")
    funding = calls.fund_run(chain.deployment, number, escrow)
    if sender.progress(key_of(f"{intent}/fund", funding)) is None:  # a run whose escrow is spent is not funded again
        _provide_escrow(chain, sender, escrow, say)
        _sent(sender, actions.fund_run(sender, number, escrow), f"{intent}/fund")
        say(f"funded run {number} with {tokens(escrow)}")
    return number


def _refuse_a_second(folder: Path) -> None:
    there = Profile.read(folder.absolute() / FILE_NAME).table("trainer").get("run")
    if there is not None:
        raise Misconfigured(
            f"{folder} is the folder of run {there}: start it with: assize run up {folder}; another run needs another "
            "folder"
        )


def _provide_escrow(chain: Chain, sender: Sender, escrow: int, say: Say) -> None:
    held = chain.latest().balance_of(sender.address)
    if held >= escrow:
        return
    if not gives_tokens(chain):
        raise Rejected(
            f"{sender.address} holds {tokens(held)} and the escrow is {tokens(escrow)}: send it tokens, or give a "
            "smaller --escrow"
        )
    _sent(sender, actions.drip(sender, escrow - held), f"run-new/{secrets.token_hex(8)}")
    say(f"took {tokens(escrow - held)} from the faucet")


def _sent(sender: Sender, plan: Plan[Any], intent: str) -> Any:
    with saying_how_far(sender, intent, plan.calls, resumes=True):
        return plan.carry_out(intent)


def write_profile(
    run: NewRun, number: int, network: ProfileNetwork, parties: Parties, keys: OwnKeys, origin: str
) -> Path:
    """Writes the profile of an open run's folder, with the settings of its coordinator and trainer; returns its path.

    A password file that the keys were opened with is named for each of them; without one the daemons ask. A coordinator
    whose key is held elsewhere runs there, with settings of its own.
    """
    folder = run.folder.absolute()
    path = folder / FILE_NAME
    place = Path(os.path.abspath(keys.password_file)) if keys.password_file is not None else None
    password: dict[str, Any] = {} if place is None else {"password_file": place}
    set_network(path, network.name, network.rpc, network.addresses)
    set_table(path, "wallet", {"keystore": parties.requester, "keystore_directory": default_directory()} | password)
    kept, settings = parties.kept(), _settings(run, number, origin, folder)
    for role, values in settings.items():
        if role == "coordinator" and role not in kept:
            continue
        own = {"keystore": kept[role]} | password if role in kept else {}
        set_table(path, role, {"run": number, "state_dir": folder / "state" / role, **own, **values})
    return path


def _settings(run: NewRun, number: int, origin: str, folder: Path) -> Mapping[str, Mapping[str, Any]]:
    return {
        "coordinator": {
            "rules": folder / RULES_FILE,
            **_listening(run.uri, "host", "port", 8000),
            "origin": origin,
            "jobs_per_round": run.terms.jobs_per_round,
        },
        "trainer": {
            "model": run.model.absolute(),
            "run_file": folder / RUN_FILE,
            "coordinator_url": run.uri,
            **_listening(origin, "origin_host", "origin_port", 8710),
        },
    }


def _listening(url: str, host: str, port: str, usual: int) -> dict[str, Any]:
    """Returns the settings by which a server is reached at a URL: all of this host's addresses, where it names one."""
    parts = urlsplit(url)
    everywhere = {} if parts.hostname in ("127.0.0.1", "localhost", "::1") else {host: "0.0.0.0"}
    return everywhere | {port: parts.port or usual}
