"""What the doctor finds, on a real network and on none."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.localnet.processes import free_port
from protocol.errors import Misconfigured
from protocol.node.doctor import Result
from protocol.node.wallet import Keystores
from protocol.wire.api import Hardware
from tests.worker.farm import Farm
from worker.doctor import describe, diagnose
from worker.settings import WorkerSettings

PASSWORD = "a password for tests"


@pytest.fixture
def settings(farm: Farm, tmp_path: Path) -> WorkerSettings:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    keystores = Keystores(tmp_path / "keystores")
    keystores.keep("worker", bytes(farm.party.key._account.key), PASSWORD, scrypt_n=2**4)
    return farm.worker_settings(keystore_directory=keystores.directory, password_file=tmp_path / "password")


def found(settings: WorkerSettings, **changes: object) -> dict[str, Result]:
    return {result.name: result for result in diagnose(settings.model_copy(update=changes))}


def test_the_hardware_report_names_this_machine() -> None:
    hardware = describe()
    assert hardware.cpu_cores >= 1
    assert hardware.memory_bytes > 1 << 28
    assert set(hardware.software) >= {"torch", "transformers"}
    assert Hardware.model_validate_json(hardware.model_dump_json()) == hardware


def test_a_worker_that_can_work_passes_every_check(settings: WorkerSettings) -> None:
    findings = found(settings)
    assert [check for check, finding in findings.items() if not finding.ok] == []
    assert {"memory", "disk", "device", "key", "chain", "clock", "node", "bond", "joined", "gas", "coordinator"} < set(
        findings
    )


def test_each_thing_that_is_wrong_is_one_finding_and_the_rest_is_looked_at_still(
    settings: WorkerSettings, farm: Farm, tmp_path: Path
) -> None:
    port = free_port()
    no_chain = found(settings, rpc_url=f"http://127.0.0.1:{port}")
    assert not no_chain["chain"].ok
    assert str(port) in no_chain["chain"].detail
    assert no_chain["coordinator"].ok
    no_coordinator = found(settings, coordinator_url=f"http://127.0.0.1:{port}")
    assert not no_coordinator["coordinator"].ok
    assert no_coordinator["joined"].ok
    (tmp_path / "wrong").write_text("elephant\n")
    wrong_password = found(settings, password_file=tmp_path / "wrong")
    assert not wrong_password["key"].ok
    assert "password" in wrong_password["key"].detail
    no_url = found(settings, coordinator_url="elephant")
    assert not no_url["coordinator"].ok
    assert "elephant" in no_url["coordinator"].detail
    other_run = found(settings, run=77)
    assert not all(finding.ok for finding in other_run.values())
    assert all("\n" not in finding.detail for finding in (no_chain | no_coordinator | other_run).values())


def test_a_validator_key_without_gas_is_told_apart(settings: WorkerSettings, farm: Farm, tmp_path: Path) -> None:
    key = farm.swarm.validators[0].key
    Keystores(tmp_path / "keystores").keep("juror", bytes(key._account.key), PASSWORD, scrypt_n=2**4)
    farm.swarm.chain.rpc.call("anvil_setBalance", key.address, "0x0")
    findings = found(settings, keystore="juror")
    assert not findings["node"].ok
    assert "validator" in findings["node"].detail
    assert findings["joined"].ok, "validators join runs as well"
    assert not findings["gas"].ok


def test_a_device_that_is_not_here_is_said(settings: WorkerSettings) -> None:
    assert found(settings)["device"].ok
    assert found(settings, device="cuda")["device"].ok == bool(describe().accelerators)
    with pytest.raises(Misconfigured, match="ASSIZE_WORKER_DEVICE"):
        WorkerSettings.read(None, **settings.model_dump(exclude={"device"}), device="abacus")
