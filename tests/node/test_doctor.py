"""The doctor of every role: one table, one exit code, and a way to mend what is wrong."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import start_http_server

from coordinator.doctor import diagnose as coordinator_doctor
from deploy.localnet.processes import free_port
from ledger.doctor import diagnose as ledger_doctor
from ledger.settings import LedgerSettings
from protocol.errors import Misconfigured, Unavailable
from protocol.node.commands.relay_doctor import RelaySettings
from protocol.node.commands.relay_doctor import diagnose as relay_doctor
from protocol.node.console import EXIT_REFUSED
from protocol.node.doctor import Examination, Result, disk, examine, metrics_port, report
from protocol.node.wallet import Keystores, Wallet
from tests.coordinator.conftest import redis_process, redis_url
from tests.worker.conftest import farm, small_model
from tests.worker.farm import Farm
from trainer.doctor import diagnose as trainer_doctor
from trainer.settings import TrainerSettings
from validator.recheck.doctor import diagnose as recheck_doctor
from validator.recheck.settings import RecheckSettings

__all__ = ["farm", "redis_process", "redis_url", "small_model"]

PASSWORD = "a password for tests"
MACHINE = {"disk", "state folder", "metrics"}
CHAIN = {"chain", "rpc 1", "clock", "finality", "logs"}
RUN_FILE = '[recipe]\npreset = "builtin"\n'


def keyed(farm: Farm, folder: Path, name: str, key: Wallet) -> dict[str, Any]:
    """Settings that every role has, with a keystore of this name."""
    (folder / "password").write_text(PASSWORD + "\n")
    keystores = Keystores(folder / "keystores")
    keystores.keep(name, bytes(key._account.key), PASSWORD, scrypt_n=2**4)
    given = {"keystore": name, "keystore_directory": keystores.directory, "password_file": folder / "password"}
    return given | {"rpc_url": farm.swarm.anvil.url, "addresses": folder / "addresses.json"}


def failed(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if not result.ok}


def by_name(results: Any) -> dict[str, Result]:
    return {result.name: result for result in results}


def test_an_examination_that_fails_says_why_and_how_to_mend_it_and_the_rest_goes_on() -> None:
    def broken() -> str:
        raise Unavailable("no answer")

    results = list(examine((Examination("one", broken, "start it"), Examination("two", lambda: "fine"))))
    assert results == [Result("one", False, "no answer", "start it"), Result("two", True, "fine")]


def test_one_lost_connection_is_no_finding() -> None:
    answers = iter((Unavailable("disconnected"), "fine"))

    def look() -> str:
        answer = next(answers)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    assert list(examine((Examination("one", look),))) == [Result("one", True, "fine")]


def test_the_report_exits_only_if_something_failed(capsys: pytest.CaptureFixture[str]) -> None:
    report([Result("one", True, "fine")], True)
    assert json.loads(capsys.readouterr().out) == [{"check": "one", "ok": True, "found": "fine", "mend": ""}]
    with pytest.raises(SystemExit) as left:
        report([Result("one", True, "fine"), Result("two", False, "no answer", "start it")], False)
    assert left.value.code == EXIT_REFUSED
    assert "start it" in capsys.readouterr().out


def test_the_disk_of_a_folder_to_be_made_is_that_of_the_nearest_one(tmp_path: Path) -> None:
    assert str(tmp_path) in disk(tmp_path / "not" / "yet").look()


def test_a_coordinator_that_can_drive_passes_and_what_is_wrong_is_told_apart(farm: Farm, tmp_path: Path) -> None:
    settings = farm.settings.model_copy(update=keyed(farm, tmp_path, "coordinator", farm.swarm.coordinator))
    results = by_name(coordinator_doctor(settings))
    assert failed(results) == set(), results
    own = {"key", "database", "redis", "store", "coordinator", "rules", "escrow", "gas"}
    assert MACHINE | CHAIN | own == set(results)
    silent = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}/0"})
    assert failed(by_name(coordinator_doctor(silent))) == {"redis"}
    other = settings.model_copy(update=keyed(farm, tmp_path, "worker", farm.party.key))
    found = by_name(coordinator_doctor(other))
    assert "coordinator" in failed(found)
    assert farm.party.key.address in found["coordinator"].detail
    assert found["coordinator"].mend


def test_a_trainer_that_can_train_passes_and_what_is_wrong_is_told_apart(farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN_FILE)
    settings = TrainerSettings(
        **keyed(farm, tmp_path, "trainer", farm.swarm.trainer),
        state_dir=tmp_path / "trainer",
        run=farm.swarm.run,
        model=farm.model,
        run_file=tmp_path / "run.toml",
        coordinator_url=farm.url,
    )
    results = by_name(trainer_doctor(settings))
    assert failed(results) <= {"gas"}, results
    assert {"model", "recipe", "key", "coordinator", "chain", "trainer", "rules", "gas"} <= set(results)
    nowhere = settings.model_copy(update={"model": tmp_path / "nowhere", "coordinator_url": "elephant"})
    found = by_name(trainer_doctor(nowhere))
    assert {"model", "coordinator", "rules"} <= failed(found)
    other = settings.model_copy(update=keyed(farm, tmp_path, "worker", farm.party.key))
    assert "trainer" in failed(by_name(trainer_doctor(other)))


def test_a_ledger_needs_chain_clock_and_database(farm: Farm, tmp_path: Path) -> None:
    url, addresses = farm.swarm.anvil.url, tmp_path / "addresses.json"
    good = by_name(ledger_doctor(LedgerSettings(url, addresses, str(tmp_path / "ledger.sqlite"))))
    assert failed(good) == set(), good
    assert {"disk", "metrics", "database"} | CHAIN == set(good)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as older, older:
        older.execute("""UPDATE position SET deployment = json_set(deployment, '$.tables', 1)""")
    outdated = by_name(ledger_doctor(LedgerSettings(url, addresses, str(tmp_path / "ledger.sqlite"))))
    assert failed(outdated) == set(), outdated
    assert "made by another version" in outdated["database"].detail
    (tmp_path / "garbage").write_bytes(b"elephant" * 512)
    garbage = by_name(ledger_doctor(LedgerSettings(url, addresses, str(tmp_path / "garbage"))))
    assert failed(garbage) == {"database"}
    gone = by_name(ledger_doctor(LedgerSettings(f"http://127.0.0.1:{free_port()}", addresses, None)))
    assert failed(gone) == {"chain"}
    assert set(gone) == {"disk", "metrics", "chain"}


def test_a_clock_behind_the_chain_is_told(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    stored = str(tmp_path / "ledger.sqlite")
    results = by_name(ledger_doctor(LedgerSettings(farm.swarm.anvil.url, tmp_path / "addresses.json", stored)))
    assert not results["clock"].ok
    assert "ahead of this machine's clock" in results["clock"].detail
    assert results["clock"].mend


def test_a_key_that_does_not_open_fails_with_the_reason(farm: Farm, tmp_path: Path) -> None:
    given = keyed(farm, tmp_path, "coordinator", farm.swarm.coordinator) | {"keystore": "nobody"}
    settings = farm.settings.model_copy(update=given)
    with pytest.raises(Misconfigured):
        settings.wallet()
    assert "nobody" in by_name(coordinator_doctor(settings))["key"].detail


def test_each_of_several_rpc_endpoints_is_examined(farm: Farm, tmp_path: Path) -> None:
    silent = f"http://127.0.0.1:{free_port()}"
    urls = f"{farm.swarm.anvil.url},{silent}"
    results = by_name(ledger_doctor(LedgerSettings(urls, tmp_path / "addresses.json", str(tmp_path / "l.sqlite"))))
    assert failed(results) == {"rpc 2"}
    assert silent in results["rpc 2"].detail
    assert "10000 blocks at once" in results["logs"].detail


def test_a_metrics_port_is_free_or_ours_or_another_programs() -> None:
    port = free_port()
    assert "is free" in metrics_port(port, "127.0.0.1").look()
    server, thread = start_http_server(port, addr="127.0.0.1")
    assert "running role" in metrics_port(port, "127.0.0.1").look()
    server.shutdown()
    server.server_close()
    thread.join()
    with socket.create_server(("127.0.0.1", taken := free_port())), pytest.raises(Misconfigured, match=str(taken)):
        metrics_port(taken, "127.0.0.1").look()
    with pytest.raises(Misconfigured, match=r"192\.0\.2\.1"):
        metrics_port(port, "192.0.2.1").look()


def test_a_recheck_that_can_appeal_passes_and_what_is_wrong_is_told_apart(farm: Farm, tmp_path: Path) -> None:
    settings = RecheckSettings(
        **keyed(farm, tmp_path, "watcher", farm.swarm.coordinator),
        state_dir=tmp_path / "recheck",
        run=farm.swarm.run,
        coordinator_urls=(farm.url,),
    )
    results = by_name(recheck_doctor(settings))
    assert failed(results) == set(), results
    assert MACHINE | CHAIN | {"device", "key", "run", "coordinator"} == set(results)
    poor = settings.model_copy(update={"budget_wei": 10**30, "coordinator_urls": ("elephant",)})
    assert {"budget", "coordinator"} <= failed(by_name(recheck_doctor(poor)))


def test_a_relay_whose_upstream_answers_passes_and_what_is_wrong_is_told_apart(farm: Farm, tmp_path: Path) -> None:
    trainer = farm.swarm.trainer.address
    keyed(farm, tmp_path, "relay", farm.swarm.trainer)
    settings = RelaySettings(
        *([farm.origin_url], [trainer], tmp_path / "addresses.json", [farm.swarm.run], tmp_path / "relay"),
        *("127.0.0.1", free_port(), f"file://{tmp_path}/objects", 0, "127.0.0.1"),
    )
    results = by_name(relay_doctor(settings))
    assert failed(results) == set(), results
    assert MACHINE | {"deployment", "trainers", "port", "upstream 1", "objects"} == set(results)
    silent = f"http://127.0.0.1:{free_port()}"
    wrong = replace(settings, upstream=[farm.origin_url, silent], trainer=[], addresses=tmp_path / "nowhere")
    assert failed(by_name(relay_doctor(wrong))) == {"upstream 2", "trainers", "deployment"}
