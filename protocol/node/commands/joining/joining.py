"""One membership from nothing to a running daemon: what a person wants, what it costs, and what is done for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from protocol.amounts import WEI, coin, tokens, wei_of
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.simulation import present_bid
from protocol.errors import AssizeError, Misconfigured, Rejected
from protocol.node.commands.asking import Questions
from protocol.node.commands.joining import steps as joining_steps
from protocol.node.commands.joining.launching import Launch, refuse_another_class
from protocol.node.commands.joining.steps import Joiner, settled_sender
from protocol.node.commands.own_keys import OwnKeys, placed
from protocol.node.commands.weights import rules_of
from protocol.node.console import show
from protocol.node.membership import (
    JoinOptions,
    JoinStep,
    Membership,
    gas_needed,
    jobs_expected,
    refuse_unpayable,
    remaining_steps,
    tokens_missing,
    usual_capacity,
)
from protocol.node.profile import Profile, ProfileNetwork
from protocol.node.wallet import Keystores, Wallet
from protocol.times import clock, spell
from protocol.wire.rules import DEFAULT_ENGINE

DEFAULT_MARGIN = "10"
KEY_GAS_WEI = WEI // 50
"""Coin that the session key is given: some hundred transactions at one gwei."""


class Joining:
    """A membership of one role in one run."""

    def __init__(
        self, role: str, options: JoinOptions, profile: Profile, network: ProfileNetwork, chain: Chain, ask: Questions
    ) -> None:
        self.name, self.role = role, Role[role.upper()]
        self.options, self.profile, self.network, self.chain, self.ask = options, profile, network, chain, ask
        self.run, self.terms = self._run()
        self.wallet = placed(ask.answer(options.wallet, "wallet of the owner", "--wallet NAME", self._usual_wallet()))
        self.keys = OwnKeys(profile, self.wallet, options.password_file, ask, self._say)
        self.key = placed(options.key or self._usual_key())
        self.wanted = self._membership()
        self.settings = self._settings()

    def carry_out(self) -> tuple[int, str]:
        """Shows the figures, has them agreed to, and takes the steps; returns the node and the keys' password."""
        joining_steps.refuse_another(self.profile, self.name, self.settings)
        self._refuse_another_class()
        fees = Fees.capped(self.options.fee_cap_gwei)
        gas_price = present_bid(self.chain, fees)
        if not self.options.as_json:
            show(self._figures(gas_price), False, f"join run {self.run} as a {self.name}")
        self.ask.confirm("Go on?")
        owner, key = self.keys.opened(self.wallet), self.keys.opened(self.key)
        with settled_sender(self.chain, owner, fees) as sender:
            joiner = Joiner(self.chain, sender, key, self.role, self.wanted)
            held = joiner.look()
            steps = remaining_steps(self.wanted, held)
            refuse_unpayable(steps, self.wanted, held, gas_price, owner.address)
            taken = [step for step in steps if self._takes(joiner, step)]
            node = joiner.node()
        if waiting := joining_steps.waiting_for_slot(self.chain, node):
            self._say(waiting)
        self._write_profile()
        if self.options.as_json:
            show(self._result(node, owner, key, taken), True)
        return node, self.keys.password()

    def start(self, node: int, password: str) -> None:
        """Has the role's doctor look, then becomes its daemon.

        Raises:
            Rejected: the doctor found something that waiting does not mend.
        """
        launch = Launch(self.name, self.profile.path, self.network.name, password)
        waits = joining_steps.waiting_for_slot(self.chain, node)
        active = not waits and joining_steps.wait_until_active(self.chain, node, self._say)
        if not waits and not active:
            active_at = self.chain.latest().node(node).active_at
            self._say(f"node {node} takes part from {clock(active_at)} on; its daemon waits for that")
        elif active and not launch.doctor():
            raise Rejected(f"the doctor found the above: mend it, then type this again, or: assize {self.name} run")
        self._say(f"starting it; Ctrl-C ends it, and `assize {self.name} run` starts it again")
        launch.daemon()

    # What a person wants

    def _run(self) -> tuple[int, RunTerms]:
        reader = self.chain.latest()
        runs = dict(enumerate(reader.runs(range(1, reader.run_count() + 1)), 1))
        open_runs = [number for number, run in runs.items() if not run.closed]
        if not open_runs:
            raise Rejected(f"no run is open on the network {self.network.name}")

        def is_open(run: int) -> None:
            if run not in open_runs:
                state = "closed" if run in runs else "unknown"
                raise Misconfigured(f"run {run} is {state}: expected one of {', '.join(map(str, open_runs))}")

        known = f"run, one of {', '.join(map(str, open_runs))}"
        only = open_runs[0] if len(open_runs) == 1 and self.options.run is None else self.options.run
        chosen = self.ask.answer(only, known, "--run RUN", None, is_open, int)
        return chosen, runs[chosen].terms

    def _usual_wallet(self) -> str | None:
        names = Keystores().names()
        return self.profile.keystore or (names[0] if len(names) == 1 else None)

    def _usual_key(self) -> str:
        there = self.profile.table(self.name)
        if "keystore" in there and there.get("network") == self.network.name and self.options.wallet is None:
            return str(there["keystore"])
        if os.sep in self.wallet:
            raise Misconfigured(
                f"the wallet {self.wallet} is a file, which gives no name: name the session key with --key"
            )
        return f"{self.wallet}-{self.name}"

    def _membership(self) -> Membership:
        reader, key = self.chain.pinned(self.chain.head()), self._key_address()
        number = reader.node_by_key(key) if key else 0
        node = reader.node(number) if number else None
        if node and self.options.capacity not in (None, node.capacity):
            raise Misconfigured(
                f"node {number} was registered for {node.capacity} jobs in flight, which stays: leave --capacity out, "
                "or name another key with --key"
            )
        if self.role is Role.WORKER:
            self.market = joining_steps.market_of(self.chain, self.run, number)
            capacity = node.capacity if node else self._capacity()
            return Membership(self.run, capacity, reader.required_bond(self.role, capacity), 0, KEY_GAS_WEI)
        margin = self.ask.answer(
            self.options.margin, "margin above the bond, in tokens", "--margin", DEFAULT_MARGIN, wei_of
        )
        contested = None if node else reader.next_contest()  # a node that is there has its slot
        bond = contested[1] if contested else reader.required_bond(self.role, 1)
        return Membership(self.run, 1, bond, wei_of(margin), KEY_GAS_WEI)

    def _capacity(self) -> int:
        def is_some(capacity: int) -> None:
            if capacity < 1:
                raise Misconfigured(f"invalid capacity {capacity}: expected 1 or more")

        usual = usual_capacity(*self.market)
        return self.ask.answer(self.options.capacity, "most jobs in flight", "--capacity", usual, is_some)

    def _key_address(self) -> str | None:
        """Returns the session key's address; opens a keystore that does not state it. None before it is made."""
        if not self.keys.exists(self.key):
            return None
        return self.keys.stated(self.key) or self.keys.opened(self.key).address

    def _settings(self) -> dict[str, Any]:
        """Returns the role's settings: each as typed, else as the profile has it, else its default."""
        there, options = self.profile.table(self.name), self.options
        place = options.state_dir or joining_steps.own_state_dir(there) or self._usual_state_dir()
        found: dict[str, Any] = {"network": self.network.name, "keystore": self.key, "state_dir": place}
        if options.password_file is not None:
            found["password_file"] = options.password_file
        if self.role is Role.WORKER:
            engine = self.ask.answer(options.engine, "engine", "--engine", there.get("engine", DEFAULT_ENGINE))
            found |= {"run": self.run, "engine": engine}
        return found | {"device": options.device or there.get("device", "cpu")}

    def _usual_state_dir(self) -> Path:
        """Returns a folder of this deployment alone: a restarted local chain numbers its rounds anew."""
        return self.profile.path.parent / "state" / f"{self.name}-{self.chain.deployment.label}"

    def _refuse_another_class(self) -> None:
        """Ends the command, before anything is sent, where this machine's results would be refused in the run."""
        try:
            rules = rules_of(self.chain, self.run)
        except AssizeError as error:  # the chain alone is needed to join
            self._say(f"the run's rules were not read: {error}")
            return
        if rules.model.exact is not None:
            refuse_another_class(self.name, self.network, self.run, self.settings["device"])

    # What it costs

    def _figures(self, gas_price: int) -> dict[str, object]:
        owner, key = self.keys.stated(self.wallet), self.keys.stated(self.key)
        held = joining_steps.foothold(
            self.chain, self.chain.pinned(self.chain.head()), owner, key, self.role, self.wanted
        )
        steps = remaining_steps(self.wanted, held)
        place = {"network": f"{self.network.name}, chain {self.chain.chain_id}"}
        place |= {"owner": self.keys.described(self.wallet), "session_key": self.keys.described(self.key)}
        bond = {"bond_wei": self.wanted.bond} | ({"margin_wei": self.wanted.margin} if self.wanted.margin else {})
        return (
            place
            | {"coordinator": coordinator_uri(self.chain, self.run), "rules_hash": self.terms.rules_hash}
            | ({"jobs_in_flight": self.wanted.capacity} if self.role is Role.WORKER else {})
            | bond
            | {"still_to_pay_wei": tokens_missing(self.wanted, held)}
            | {"gas, at most": coin(gas_needed(steps, self.wanted, gas_price))}
            | self._prospects()
            | {"steps": "\n".join((*steps, "write the profile", "examine and start it"))}
        )

    def _prospects(self) -> dict[str, object]:
        reader = self.chain.latest()
        delays, penalties = reader.registry_terms(), reader.rounds_terms()
        if self.role is Role.WORKER:
            others, jobs = self.market
            share = f"; about {jobs_expected(self.wanted.capacity, others, jobs):.1f} jobs a round" if jobs else ""
            earns = f"up to {tokens(self.terms.price_per_unit * self.terms.max_units)} a job{share}"
            loses = f"{tokens(penalties.fraud_slash)} a job found fraudulent"
        else:
            earns = f"up to {tokens(self.terms.juror_fee)} a round in which it has a seat"
            loses = f"{tokens(penalties.absence_penalty)} a seat left empty"
        return {
            "earns": earns,
            "loses": loses,
            "takes part": f"{spell(delays.activation_delay)} after it is registered",
            "bond returned": f"{spell(delays.unbonding_delay)} after it is retired",
        }

    # What is done

    def _takes(self, joiner: Joiner, step: JoinStep) -> bool:
        """Takes a step that was agreed to, unless those before it left it undue: a newcomer waits for a slot."""
        due = step in remaining_steps(self.wanted, joiner.look())
        if due:
            self._say(joiner.take(step))
        return due

    def _write_profile(self) -> None:
        wallet: dict[str, Any] = {"keystore": self.wallet}
        if self.options.password_file is not None:
            wallet["password_file"] = self.options.password_file
        joining_steps.write_role(self.profile.path, self.name, self.settings, wallet)
        self._say(f"{self.profile.path} has the settings of this {self.name}")

    def _result(self, node: int, owner: Wallet, key: Wallet, steps: Sequence[str]) -> dict[str, object]:
        found = {"node": node, "run": self.run, "role": self.name, "owner": owner.address, "key": key.address}
        bond = self.chain.latest().node(node).bond
        return found | {"bond_wei": bond, "steps": list(steps), "profile": str(self.profile.path)}

    def _say(self, line: str) -> None:
        typer.echo(line, err=self.options.as_json)
