"""Several nodes of one owner on one machine: their file, restarts, bonds, and two real processes under a real fleet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from protocol.amounts import WEI
from protocol.chain.structs import Role
from protocol.chain.writing.actions import drip, register_node
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured
from protocol.node.wallet import Keystores, Wallet
from protocol.node.watching import View
from tests.conftest import ROOT, TOKEN, until
from tests.typing_in import typed_here
from tests.worker.farm import Farm
from worker.engines.registry import make_engine
from worker.fleet import restarts
from worker.fleet.bonds import BondKeeper, Spending, to_add
from worker.fleet.fleet_file import Fleet, read_fleet
from worker.fleet.restarts import (
    LONGEST_PAUSE_SECONDS,
    STEADY_SECONDS,
    failures_after,
    loop_sentence,
    pause_after,
    reason_of,
    worst_code,
)
from worker.fleet.supervising import FleetSupervisor
from worker.service import check_devices

PASSWORD = "pw"
OWNER = '[bond]\nkeystore = "owner"\npassword_file = "password"\n'
SHARED = 'run = 1\naddresses = "addresses.json"\npassword_file = "password"\n'


def written(folder: Path, *nodes: str, top: str = "", bond: str = "") -> Path:
    """A fleet of nodes a, b, … with these lines each."""
    tables = [
        f'[nodes.{name}]\nkeystore = "{name}"\n{SHARED}{lines}\n' for name, lines in zip("abcd", nodes, strict=False)
    ]
    (folder / "fleet.toml").write_text("\n".join((top, *tables, bond)))
    return folder / "fleet.toml"


def read(path: Path, cores: int = 8, **environment: str) -> Fleet:
    return read_fleet(path, None, environment, cores)


def test_each_node_has_a_folder_a_port_and_devices_of_its_own(tmp_path: Path) -> None:
    top = 'state_dir = "here"\nmetrics_port = 9300'
    gpus = 'devices = [0, 1, 2, 3]\nengine = "vllm"\ntensor_parallel = 2\npipeline_parallel = 2'
    fleet = read(written(tmp_path, gpus, "threads = 3", "", "", top=top))
    a, b, c, d = fleet.nodes
    assert [node.settings.state_dir for node in fleet.nodes] == [tmp_path / "here" / name for name in "abcd"]
    assert [node.settings.metrics_port for node in fleet.nodes] == [9300, 9301, 9302, 9303]
    assert (a.variables["CUDA_VISIBLE_DEVICES"], a.settings.device, a.settings.parallel) == ("0,1,2,3", "cuda", 4)
    assert (b.variables["OMP_NUM_THREADS"], b.variables["CUDA_VISIBLE_DEVICES"]) == ("3", "")
    assert c.variables["OMP_NUM_THREADS"] == d.variables["OMP_NUM_THREADS"] == "2", "three share eight cores"
    assert "OMP_NUM_THREADS" not in a.variables
    assert a.variables["ASSIZE_WORKER_PASSWORD_FILE"] == str(tmp_path / "password")
    assert a.variables["ASSIZE_WORKER_TENSOR_PARALLEL"] == "2"


@pytest.mark.parametrize(
    ("lines", "top", "bond", "words"),
    [
        (["= 1"], "", "", "at line 7"),
        ([], "", "", "nodes: "),
        (["threads = 0"], "", "", "[nodes.a]: threads: "),
        (["devices = [0]\nthreads = 2"], "", "", "[nodes.a]: threads and devices: expected one of them"),
        (["treads = 2"], "", "", "[nodes.a]: unknown key 'treads': expected one of"),
        (['device = "cuda"'], "", "", "unknown key 'device': expected devices, a list of GPUs, or threads"),
        (["devices = [0, 1]"], "", "", "2 devices for tensor_parallel 1 times pipeline_parallel 1: expected 1"),
        (["devices = [0]\ntensor_parallel = 2"], "", "", "engine 'transformers' computes on one device"),
        (['engine = "vllm"\ntensor_parallel = 2'], "", "", "divided over gpus only"),
        (['devices = [0]\nengine = "vllm"\npipeline_parallel = 2'], "", "", "expected 2"),
        (['engine = "vlm"'], "", "", "[nodes.a]: engine: "),
        (["devices = [0]", "devices = [0]"], "", "", "device '0' is given out twice"),
        (["", 'state_dir = "fleet/a"'], "", "", "is given out twice"),
        (["metrics_port = 9301", ""], "metrics_port = 9300", "", "metrics_port '9301' is given out twice"),
        (["devices = [4]"], "", "", "device '4': expected one of those in CUDA_VISIBLE_DEVICES=0,1"),
        (['devices = ["0;rm"]'], "", "", "[nodes.a]: devices.0."),
        ([""], "drain_seconds = 0", "", "drain_seconds: "),
        ([""], "unknown = 1", "", "unknown: "),
        (
            [""],
            "",
            '[bond]\nkeystore = "o"\npassword_file = "p"\nmost_a_day = "much"',
            "[bond]: most_a_day: invalid amount",
        ),
        ([""], "", '[bond]\nkeystore = "o"', "bond.password_file: "),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_line_or_key(
    tmp_path: Path, lines: list[str], top: str, bond: str, words: str
) -> None:
    path = written(tmp_path, *lines, top=top, bond=bond)
    with pytest.raises(Misconfigured) as refused:
        read(path, CUDA_VISIBLE_DEVICES="0,1")
    assert words in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_node_without_a_password_file_is_refused_as_nobody_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[nodes.a]\nkeystore = "a"\nrun = 1\naddresses = "x"\n')
    with pytest.raises(Misconfigured, match=r"\[nodes.a\]: no password_file"):
        read(path)


def test_a_worker_on_fewer_devices_than_its_engine_needs_is_refused_before_the_engine_starts(tmp_path: Path) -> None:
    four = 'devices = [0, 1, 2, 3]\nengine = "vllm"\ntensor_parallel = 2\npipeline_parallel = 2'
    (node,) = read(written(tmp_path, four)).nodes
    with pytest.raises(Misconfigured, match="0 CUDA devices found for tensor_parallel 2 times pipeline_parallel 2"):
        check_devices(node.settings)
    with pytest.raises(Misconfigured, match="computes on one device"):
        make_engine("transformers", "float32", parallel=(2, 1))


def test_a_file_that_is_not_there_ends_the_command_with_code_2(tmp_path: Path) -> None:
    done = typed_here(["worker", "fleet", str(tmp_path / "none.toml")], os.environ | {"ASSIZE_PROFILE": ""})
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "cannot read the fleet" in done.err


@given(st.integers(1, 10_000), st.floats(0, 10 * STEADY_SECONDS))
def test_pauses_grow_to_their_limit_and_begin_anew_after_steady_work(failures: int, lasted: float) -> None:
    assert pause_after(failures) <= pause_after(failures + 1) <= LONGEST_PAUSE_SECONDS
    assert failures_after(failures, lasted) == (1 if lasted >= STEADY_SECONDS else failures + 1)


def test_a_reason_is_the_last_error_of_a_log_else_its_last_words_else_the_signal() -> None:
    logged = ['{"event": "misconfigured", "error": "no key"}', '{"event": "stopped"}']
    assert reason_of(logged, 2) == "no key"
    assert reason_of(["assize: no run 9", ""], 2) == "no run 9"
    assert reason_of(["Traceback", "MemoryError: 3 GiB"], 1) == "exit code 1: MemoryError: 3 GiB"
    assert reason_of([], -9) == "killed by signal 9"
    assert len(reason_of(["assize: " + "x" * 10_000], 1)) == 300
    assert loop_sentence("a", 4, "no key", 8) == "node a ended 4 times in a row: no key; the next start is in 8 s"


def test_the_exit_code_of_a_fleet_is_the_worst_of_its_nodes() -> None:
    assert [worst_code(codes) for codes in ([0, 0], [0, 3], [3, 2], [0, -9], [1, 3])] == [0, 3, 2, 1, 3]


def test_no_more_is_added_in_a_day_than_the_file_says_and_a_new_day_begins_at_nothing(tmp_path: Path) -> None:
    now = [86_400.0 * 3]
    spending = Spending(tmp_path / "bond.json", lambda: now[0])
    assert (to_add(5, 0, 10), to_add(5, 5, 10), to_add(6, 5, 10), to_add(5, 11, 10)) == (5, 5, 0, 0)
    begun = spending.begin(1, 7)
    again = Spending(tmp_path / "bond.json", lambda: now[0])
    assert (again.today(), again.pending(1), again.pending(2)) == (7, begun, None)
    spending.begin(2, 3)
    spending.end(1, moved=True)
    assert (spending.today(), spending.pending(1)) == (10, None)
    spending.end(2, moved=False)
    assert spending.today() == 7
    yesterdays = spending.begin(3, 2)
    now[0] += 86_400
    assert (spending.today(), spending.pending(3)) == (0, yesterdays)
    spending.begin(4, 1)
    spending.end(3, moved=False)
    assert spending.today() == 1, "what failed of yesterday's frees nothing of today's"
    (tmp_path / "bond.json").write_text("{}")
    with pytest.raises(Misconfigured, match="does not say what was added today"):
        spending.today()


@pytest.fixture
def keys(farm: Farm, tmp_path: Path) -> Keystores:
    """Keystores of the farm's worker, and of one that no node has."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    keystores = Keystores(tmp_path / "keystores")
    keystores.keep("a", bytes(farm.party.key._account.key), PASSWORD, scrypt_n=2**4)
    keystores.create("b", PASSWORD, scrypt_n=2**4)
    return keystores


def slash(farm: Farm, node: int, amount: int) -> None:
    """Takes tokens of a node's bond, as the contract of rounds does for fraud."""
    deployment, rpc = farm.swarm.chain.deployment, farm.swarm.anvil.rpc
    selector = keccak(text="slash(uint32,uint256,uint8,uint256)")[:4]
    words = encode(["uint32", "uint256", "uint8", "uint256"], [node, 1, 0, amount * TOKEN])
    farm.swarm.anvil.fund(deployment.rounds)
    rpc.call("anvil_impersonateAccount", deployment.rounds)
    registry = deployment.address_of("Registry")
    rpc.call(
        "eth_sendTransaction", {"from": deployment.rounds, "to": registry, "data": "0x" + (selector + words).hex()}
    )


def fleet_of(farm: Farm, folder: Path, bond: str = "", more: str = "") -> Path:
    lines = (
        f'[nodes.{name}]\nkeystore = "{name}"\nkeystore_directory = "keystores"\npassword_file = "password"\n'
        f'run = {farm.swarm.run}\nrpc_url = "{farm.swarm.anvil.url}"\naddresses = "addresses.json"\n'
        f'coordinator_url = "{farm.url}"\nthreads = 1\ndrain_seconds = 0\n'
        for name in "ab"
    )
    (folder / "fleet.toml").write_text("\n".join((*lines, bond, more)))
    return folder / "fleet.toml"


@pytest.fixture
def bonded(
    farm: Farm, tmp_path: Path, keys: Keystores, make_wallet: Callable[[str], Wallet], monkeypatch: pytest.MonkeyPatch
) -> tuple[Fleet, int, str]:
    """A fleet of another's node and one's own that may add 3 tokens a day; the own one's id, and its owner."""
    monkeypatch.setenv("ASSIZE_KEYSTORE_DIR", str(keys.directory))
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path / "state"))
    chain, owner, key = farm.swarm.chain, make_wallet("owner"), make_wallet("key")
    keys.keep("owner", bytes(owner._account.key), PASSWORD, scrypt_n=2**4)
    keys.keep("b-key", bytes(key._account.key), PASSWORD, scrypt_n=2**4)
    sender = Sender(chain, owner, tmp_path / "owner.sqlite")
    drip(sender, 100 * TOKEN).carry_out("drip")
    node = register_node(sender, key, Role.WORKER, 4).carry_out("register").node
    sender.close()
    path = fleet_of(farm, tmp_path, OWNER + 'most_a_day = "3 ASZ"')
    path.write_text(path.read_text().replace('keystore = "b"', 'keystore = "b-key"'))
    fleet = read(path)
    fleet.state_dir.mkdir()
    return fleet, node, owner.address


def test_a_bond_that_was_slashed_is_added_to_up_to_the_cap_and_only_that_of_a_node_of_ones_own(
    farm: Farm, bonded: tuple[Fleet, int, str]
) -> None:
    (fleet, node, _), chain = bonded, farm.swarm.chain
    keeper = BondKeeper(fleet)
    keeper.look()
    assert keeper.problems() == (), "nothing is missing"
    for number, amount in ((node, 2), (farm.party.node, 1)):
        slash(farm, number, amount)
        keeper.look()
    reader = chain.latest()
    assert reader.node(node).bond == reader.required_bond(Role.WORKER, 4)
    (other,) = keeper.problems()
    assert f"(id {farm.party.node})" in other
    assert "its owner is" in other, "whoever adds to another's bond gives the tokens away"
    assert Spending(fleet.state_dir / "bond.json").today() == 2 * WEI
    slash(farm, node, 2)
    keeper.look()
    assert any("2 ASZ of today's 3 ASZ are added; see why" in problem for problem in keeper.problems())
    assert chain.latest().node(node).bond == reader.required_bond(Role.WORKER, 4) - 2 * TOKEN
    assert set(keeper.told()) == {"a", "b"}


def test_a_deposit_that_is_not_mined_is_waited_for_at_the_next_looks_and_not_sent_a_second_time(
    farm: Farm, bonded: tuple[Fleet, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (fleet, node, owner), chain, rpc = bonded, farm.swarm.chain, farm.swarm.anvil.rpc
    monkeypatch.setattr(Sender, "__init__", partialmethod(Sender.__init__, wait_seconds=0.2))

    def sent() -> int:
        return int(rpc.call("eth_getTransactionCount", owner, "pending"), 16)

    def look() -> tuple[str, ...]:
        """A look of a fleet that was started anew; what it says of the own node."""
        keeper = BondKeeper(fleet)
        keeper.look()
        return tuple(problem for problem in keeper.problems() if f"(id {node})" in problem)

    slash(farm, node, 2)
    before = sent()
    rpc.call("evm_setAutomine", False)
    try:
        assert ["it stays pending" in problem for problem in (*look(), *look())] == [True, True]
        assert sent() == before + 1, "the approval alone"
        slash(farm, node, 1)  # what the bond lacks is another amount from here on
        rpc.call("evm_mine")
        assert ["it stays pending" in problem for problem in (*look(), *look())] == [True, True]
        assert sent() == before + 2
        rpc.call("evm_mine")
    finally:
        rpc.call("evm_setAutomine", True)
    look()
    look()
    reader, spending = chain.latest(), Spending(fleet.state_dir / "bond.json")
    assert reader.node(node).bond == reader.required_bond(Role.WORKER, 4)
    assert (spending.today(), spending.pending(node), sent()) == (3 * WEI, None, before + 4)


def test_a_node_that_ends_again_and_again_is_one_sentence_and_ends_with_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fleet := read(written(tmp_path, ""))).nodes[0].variables["ASSIZE_WORKER_NONSENSE"] = "1"  # type: ignore[index]
    monkeypatch.setattr(restarts, "FIRST_PAUSE_SECONDS", 0.01)
    views: list[View] = []

    def show(view: View) -> None:
        views.append(view)
        if view.notes and not view.figures["draining"]:
            signal.raise_signal(signal.SIGTERM)

    with capture_logs() as lines:
        assert _run(fleet, show) == 2
    (loop,) = [line for line in lines if line["event"] == "node_loops"]
    assert "node a ended 3 times in a row: unknown setting ASSIZE_WORKER_NONSENSE: expected one of" in loop["error"]
    assert views[-1].figures["nodes"][0]["over"]
    health = json.loads((fleet.state_dir / "health.json").read_text())
    assert (health["daemon"], health["pid"]) == ("fleet", os.getpid())


LEFT = """
import json, os, pathlib, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
here = pathlib.Path(sys.argv[1])
(here / "health.json").write_text(json.dumps({"daemon": "worker", "pid": os.getpid()}))
while len(told) < 2 and not (told and (here / "done").exists()):
    time.sleep(0.01)
sys.exit(len(told))
"""


def test_a_worker_that_an_earlier_fleet_left_is_told_to_drain_once_however_soon_this_fleet_is_told_so_too(
    tmp_path: Path,
) -> None:
    fleet = read(written(tmp_path, ""))
    (place := fleet.nodes[0].settings.state_dir).mkdir(parents=True)
    left = subprocess.Popen([sys.executable, "-c", LEFT, str(place), "worker", "run"])
    until((place / "health.json").exists, 20, "the worker")
    views: list[View] = []

    def show(view: View) -> None:
        views.append(view)
        if len(views) == 1:
            signal.raise_signal(signal.SIGTERM)
        if len(views) == 3:
            (place / "done").touch()
            left.wait(20)

    assert _run(fleet, show) == 0
    assert left.wait(20) == 1, "one SIGTERM"


@pytest.mark.long
def test_a_fleet_restarts_a_node_that_ends_says_why_once_and_the_others_go_on(
    farm: Farm, tmp_path: Path, keys: Keystores
) -> None:
    path = fleet_of(farm, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_WORKER_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "assize", "worker", "fleet", str(path), "--json"],
        cwd=ROOT,
        env=environment | {"ASSIZE_PROFILE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        looks = _looks_until(
            process, lambda nodes: nodes["b"]["restarts"] >= 1 and nodes["a"]["now"].startswith("waiting")
        )
        assert "belongs to no node: register one" in looks["b"]["reason"]
        assert looks["a"]["restarts"] == 0
        with pytest.raises(Misconfigured, match="another fleet runs in"):
            FleetSupervisor(read(path), BondKeeper(read(path)))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    finally:
        process.terminate()  # a second time, if it has not ended: its nodes end at once
        process.wait(30)
    assert process.returncode == 2, log
    events = [json.loads(line) for line in log.splitlines()]
    ended = [event for event in events if event["event"] == "node_ended"]
    assert [event["code"] for event in ended if event["node"] == "a"] == [0]
    with pytest.raises(ProcessLookupError):
        os.kill(looks["a"]["pid"], 0)


def _run(fleet: Fleet, show: Callable[[View], None]) -> int:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return FleetSupervisor(fleet, BondKeeper(fleet)).run(show)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _looks_until(process: subprocess.Popen[str], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    assert process.stdout is not None
    give_up = time.monotonic() + 60
    for line in process.stdout:
        nodes = {each["node"]: each for each in json.loads(line)["nodes"]}
        if holds(nodes):
            return nodes
        assert time.monotonic() < give_up, nodes
    raise AssertionError(process.communicate()[1])
