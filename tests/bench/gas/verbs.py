"""The verbs outside a plain round's life: an appeal and what follows from it, checkpoints, and what is done once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from protocol.chain.structs import Consumption, Role
from protocol.chain.writing import calls
from protocol.wire.reasons import Reason
from protocol.wire.votes import vote_on
from tests.bench.gas.network import CAPACITY, ETHER, FOREVER, TERMS, GasNetwork, Member, new_key, rules
from tests.bench.gas.rounds import GasRound

COMMITTEE = 3
JOBS = 64


def appealed_round(network: GasNetwork, workers: Sequence[Member]) -> None:
    """A worker condemned appeals and is restored: the first committee pays, the round ends by ``finish``.

    A checkpoint made from the round's other jobs is published while the appeal is pending.
    """
    at, judged = network.deployment, GasRound(network, COMMITTEE, workers, JOBS, fraudulent=1)
    judged.run_to_verdict()
    appellant = workers[0].owner
    network.chain.send(appellant, calls.drip(at, appellant, ETHER))
    network.chain.send(appellant, calls.approve(at, "Credits", ETHER))
    network.chain.send(appellant, calls.buy(at, ETHER))
    network.once("appeal", appellant, calls.appeal(at, judged.number, 0, 0, judged.settled(0)))
    run, root = network.runs[COMMITTEE], secrets.token_bytes(32)
    consumed = [Consumption(judged.number, judged.vote.accept)]
    network.once("publish", network.trainer, calls.publish(at, run, 1, root, consumed))
    judged.settle()
    judged.judge(judged.number + 1, vote_on({0: Reason.ACCEPTED}, secrets.token_bytes(32)), "appeal: ")
    network.once("finish", network.coordinator, calls.finish(at, judged.number, judged.assignments))
    for verb, gas in judged.gas.verbs.items():
        if verb.startswith("appeal: "):
            network.note(verb, gas)


def one_time_verbs(network: GasNetwork, workers: Sequence[Member]) -> None:
    """Leaving, changing keys and terms, ending a run: each once, at the end of everything."""
    at, leaver, run = network.deployment, workers[1], network.runs[COMMITTEE]
    network.once("leave", leaver.owner, calls.call(at, "Market", "leave", run, leaver.node))
    _change_keys(network, leaver)
    network.once("redeem", leaver.owner, calls.redeem(at, leaver.owner, 1))
    network.once("sweep", network.coordinator, calls.call(at, "Registry", "sweep"))
    network.once("retire", leaver.owner, calls.retire(at, leaver.node))
    network.once("announce", network.requester, calls.announce(at, run, network.terms(COMMITTEE, rules(9))))
    network.once("close run", network.requester, calls.close_run(at, run))
    network.once("refund", network.requester, calls.refund_run(at, run, 1))
    network.chain.pass_seconds(TERMS.registry.unbonding_delay)
    network.once("withdraw", leaver.owner, calls.withdraw(at, leaver.node))


def _change_keys(network: GasNetwork, member: Member) -> None:
    key = new_key()
    signature = network.binding(member.owner, key, Role.WORKER, CAPACITY)
    call = calls.rotate_key(network.deployment, member.node, key.address, FOREVER, signature)
    network.once("rotateKey", member.owner, call)
    network.once("revokeKey", member.owner, calls.revoke_key(network.deployment, member.node))
