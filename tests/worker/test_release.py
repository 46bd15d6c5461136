"""A worker whose run asks for a newer version: warned during the notice, without new jobs afterwards."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from coordinator.driver.wiring import keep_rules
from coordinator.store import Store
from protocol.chain.writing import calls
from protocol.node.release import own_version
from protocol.wire.rules import Rules, encode_rules, rules_hash, with_least_version
from tests.typing_in import typed_here
from tests.worker.farm import Farm

NOTICE_SECONDS = 3600


def announce(farm: Farm, rules: Rules) -> None:
    """The requester announces rules, which the coordinator serves at once."""
    swarm = farm.swarm
    terms = replace(swarm.chain.latest().run(swarm.run).terms, rules_hash=rules_hash(encode_rules(rules)))
    swarm.send(swarm.requester, calls.announce(swarm.chain.deployment, swarm.run, terms))
    keep_rules(Store(farm.settings.database), rules)


def checked(farm: Farm, *words: str) -> tuple[int, dict[str, object], str]:
    environment = {"ASSIZE_PROFILE": "", "PATH": os.environ["PATH"], "ASSIZE_RPC_URL": farm.swarm.anvil.url}
    environment |= {"ASSIZE_ADDRESSES": str(farm.directory / "addresses.json")}
    words = ("version", "--check", str(farm.swarm.run), "--coordinator", farm.url, "--json", *words)
    done = typed_here(list(words), environment)
    return done.code, json.loads(done.out), done.err


def test_a_worker_is_warned_during_the_notice_and_takes_no_new_jobs_once_its_version_is_too_old(farm: Farm) -> None:
    worker = farm.worker()
    code, row, _ = checked(farm)
    assert (code, row["least_version"], row["ok"]) == (0, None, True)
    assignment = farm.open_round(worker)
    announce(farm, with_least_version(farm.swarm.rules, "99.1"))
    worker.releases.look()
    (sentence,) = worker.activity.told()["behind"]
    assert f"run {farm.swarm.run} asks for assize 99.1 or later from " in sentence
    assert worker.available, "the rules in effect ask for nothing"
    code, row, said = checked(farm)
    assert (code, row["least_version"], row["coming_version"], row["ok"]) == (1, None, "99.1", False)
    assert sentence in said
    assert worker.tick()
    farm.driver.tick()
    assert farm.swarm.chain.latest().round(assignment.round).submitted, "jobs of before are handed in"

    farm.swarm.anvil.rpc.call("evm_increaseTime", hex(NOTICE_SECONDS + 1))
    farm.swarm.anvil.rpc.call("evm_mine")
    farm.swarm.rules = with_least_version(farm.swarm.rules, "99.1")
    farm.swarm.join(farm.party)
    worker.close()
    again = farm.worker()
    assert (
        again.too_old
        == f"run {farm.swarm.run} asks for assize 99.1 or later, and this is {own_version()}: see assize update"
    )
    assert not again.available
    code, row, _ = checked(farm)
    assert (code, row["least_version"], row["ok"]) == (1, "99.1", False)


def test_rules_that_the_coordinator_does_not_serve_yet_are_named_as_such_and_warn_of_nothing(farm: Farm) -> None:
    worker, swarm = farm.worker(), farm.swarm
    terms = replace(swarm.chain.latest().run(swarm.run).terms, rules_hash=b"\x09" * 32)
    swarm.send(swarm.requester, calls.announce(swarm.chain.deployment, swarm.run, terms))
    worker.releases.look()
    assert worker.activity.told()["behind"] == []
    code, row, _ = checked(farm)
    assert (code, row["coming_version"]) == (0, "not served by the coordinator yet")
