"""A daemon under real wheels of this repository: updated, kept where the doctor fails, and taken back where it does not
come up. `make test-update` runs it, as building and installing wheels takes a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from protocol.errors import Misconfigured, Unavailable
from protocol.node.updating.command import _exchange, _keep, _start_left
from protocol.node.updating.daemons import RunningDaemon, _as_user, doctor_words, find_daemons, typed_words
from protocol.node.updating.environments import environment_link, requirement_of, satisfied_extras
from tests.conftest import ROOT, until
from tests.coordinator.conftest import redis_process, redis_url, swarm
from tests.coordinator.swarm import Swarm
from tests.coordinator.test_processes import environment

__all__ = ["environment", "redis_process", "redis_url", "swarm"]

PACKAGES = ("protocol", "coordinator", "worker", "trainer", "validator", "ledger", "deploy", "contracts/abi")
BROKEN_DOCTOR = '\n\ndef diagnose(settings):\n    raise Misconfigured("no such luck")\n'
BROKEN_DAEMON = '\n\ndef build(settings):\n    raise Misconfigured("cannot drive")\n'


def wheel(folder: Path, version: str, broken: str = "", how: str = "") -> Path:
    """A wheel of this repository with another version; ``how`` is appended to the file ``broken``."""
    source = folder / f"source-{version}"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "*.part"))
    for name in ("assize.py", "README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, source / name)
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "', f'version = "{version}" # ', 1))
    if broken:
        with (source / broken).open("a") as file:
            file.write(how)
    words = [
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run([sys.executable, *words], check=True)
    shutil.rmtree(source)
    return folder / f"assize-{version}-py3-none-any.whl"


@dataclass
class Machine:
    """A person's machine: an environment with an older version, and pip that installs wheels alone."""

    folder: Path
    environment: dict[str, str]

    @property
    def link(self) -> Path:
        return self.folder / "venv"

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [str(self.link / "bin" / "assize"), *words]
        return subprocess.run(line, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=300)

    def version(self) -> str:
        return str(json.loads(self.types("version", "--json").stdout)["version"])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return {
        "first": wheel(folder, "0.2.0"),
        "good": wheel(folder, "0.3.0"),
        "ill": wheel(folder, "0.4.0", "coordinator/doctor.py", BROKEN_DOCTOR),
        "stuck": wheel(folder, "0.5.0", "coordinator/driver/wiring.py", BROKEN_DAEMON),
    }


@pytest.fixture
def machine(tmp_path: Path, wheels: dict[str, Path], environment: dict[str, str]) -> Machine:
    """The first version in an environment that is not behind a link yet."""
    installed = Path(sysconfig.get_paths()["purelib"])
    others = tmp_path / "others"  # everything but assize and pip, so that nothing is fetched
    others.mkdir()
    for entry in installed.iterdir():
        if not entry.name.lower().startswith(("assize", "__editable__", "pip")):
            (others / entry.name).symlink_to(entry)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")}
    inherited |= environment | {
        "PYTHONPATH": str(others),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "ASSIZE_PROFILE": "",
    }
    made = Machine(tmp_path, inherited)
    subprocess.run([sys.executable, "-m", "venv", str(made.link)], check=True)
    pip = [str(made.link / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheels["first"])]
    subprocess.run(pip, env=inherited, check=True)
    return made


@pytest.fixture
def driving(machine: Machine, swarm: Swarm) -> Iterator[Path]:
    """``assize coordinator drive`` of the first version, started by hand; its health file."""
    health = swarm.settings().state_dir / "health.json"
    log = (machine.folder / "drive.log").open("ab")
    words = [str(machine.link / "bin" / "assize"), "coordinator", "drive"]
    process = subprocess.Popen(words, env=machine.environment, cwd=machine.folder, stdout=log, stderr=log)
    until(health.exists, 60, "the driver")
    yield health
    pid = json.loads(health.read_text())["pid"]
    os.kill(pid, signal.SIGTERM)
    if pid != process.pid:
        until(lambda: not Path(f"/proc/{pid}").exists(), 30, "the end of the driver")
    process.wait(30)
    log.close()


@pytest.mark.long
def test_daemons_are_drained_and_go_on_from_the_new_version_or_stay_with_the_old_one(
    machine: Machine, driving: Path, swarm: Swarm, wheels: dict[str, Path]
) -> None:
    state, first = str(driving.parent), json.loads(driving.read_text())["pid"]

    ill = machine.types("update", "--to", str(wheels["ill"]), "--state-dir", state)
    assert ill.returncode == 1, ill.stderr
    assert "no such luck" in ill.stderr
    assert "nothing was changed, and 0.2.0 goes on" in ill.stderr
    assert json.loads(driving.read_text())["pid"] == first, "the daemon was not even drained"
    assert machine.link.is_symlink()

    stuck = machine.types("update", "--to", str(wheels["stuck"]), "--state-dir", state)
    assert stuck.returncode == 1, stuck.stderr
    assert "ended as soon as it was started" in stuck.stderr
    assert "the version in use is 0.2.0 again" in stuck.stderr
    second = json.loads(driving.read_text())["pid"]
    assert second != first
    assert Path(f"/proc/{second}/cmdline").read_bytes().endswith(b"coordinator\0drive\0")
    assert machine.version() == "0.2.0"

    good = machine.types("update", "--to", str(wheels["good"]), "--state-dir", state, "--json")
    assert good.returncode == 0, good.stderr
    told = json.loads(good.stdout)
    assert (told["from"], told["to"], len(told["daemons"])) == ("0.2.0", "0.3.0", 1)
    assert machine.version() == "0.3.0"
    third = json.loads(driving.read_text())["pid"]
    assert third not in (first, second)
    assert b"ASSIZE_COORDINATOR_RUN" in Path(f"/proc/{third}/environ").read_bytes()
    log = (machine.folder / "drive.log").read_text()
    assert log.count('"event": "stopped"') == 2, "it ended in order each time"
    head = swarm.chain.head().number
    until(lambda: '"problem": ""' in driving.read_text(), 30, f"the driver at block {head}")
    kept = sorted(path.name for path in machine.folder.glob("venv-*"))
    assert len(kept) == 2, "the version in use, and the one before it"
    assert not list(machine.folder.glob(".venv*"))


@pytest.mark.long
def test_an_update_that_was_killed_on_its_way_starts_what_it_had_drained(
    machine: Machine, driving: Path, wheels: dict[str, Path]
) -> None:
    state, first = str(driving.parent), json.loads(driving.read_text())["pid"]
    line = [str(machine.link / "bin" / "assize"), "update", "--to", str(wheels["stuck"]), "--state-dir", state]
    with subprocess.Popen(line, env=machine.environment, cwd=machine.folder, stderr=subprocess.PIPE) as process:
        until(lambda: not _alive(first), 120, "the drain")
        process.kill()
    assert (machine.folder / ".venv.drained").stat().st_mode & 0o777 == 0o600
    machine.link.unlink()  # wherever it had come to, a person goes back by hand
    machine.link.symlink_to(min(machine.folder.glob("venv-*")))
    nothing = machine.types("update", "--to", "x")
    assert (nothing.returncode, nothing.stderr.count("invalid version 'x'")) == (2, 1)
    again = machine.types("update", "--to", str(wheels["good"]), "--state-dir", state)
    assert again.returncode == 0, again.stderr
    assert "starting again: assize coordinator drive" in again.stderr
    assert machine.version() == "0.3.0"


def _alive(pid: int) -> bool:
    time.sleep(0.02)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


STUB = """#!{python}
import json, os, pathlib, signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
pathlib.Path("health.json").write_text(json.dumps({{"pid": os.getpid()}}))
while len(told) < 2 and not (told and os.path.exists("done")):
    time.sleep(0.01)
print("told", len(told), flush=True)
"""


@dataclass
class Stubs:
    """Daemons behind a link that end once they were told to and a file is there, or at once if told twice."""

    folder: Path

    def __post_init__(self) -> None:
        self.link, self.kept = self.folder / "venv", self.folder / ".venv.drained"
        self.old, self.made = self.environment("old"), self.environment("made")
        self.link.symlink_to(self.old)

    def environment(self, name: str) -> Path:
        program = self.folder / name / "bin" / "assize"
        program.parent.mkdir(parents=True)
        (program.parent / "python").symlink_to(sys.executable)
        program.write_text(STUB.format(python=self.link / "bin" / "python"))
        program.chmod(0o755)
        return self.folder / name

    def start(self, name: str) -> RunningDaemon:
        (place := self.folder / name).mkdir()
        with (place / "log").open("ab") as log:
            groups = {"extra_groups": [44]} if os.geteuid() == 0 else {}
            line = [str(self.link / "bin" / "assize"), "relay", "serve"]
            subprocess.Popen(line, cwd=place, stdout=log, stderr=log, **groups)  # type: ignore[call-overload]
        until((place / "health.json").exists, 20, "the daemon")
        return next(each for each in find_daemons(self.link, [place]) if each.pid == self.pid(name))

    def pid(self, name: str) -> int:
        return int(json.loads((self.folder / name / "health.json").read_text())["pid"])

    def living(self, name: str) -> list[int]:
        pids = (int(process.name) for process in Path("/proc").glob("[0-9]*") if _place(process) == self.folder / name)
        return [pid for pid in pids if _alive(pid)]

    def let_end(self, name: str) -> None:
        (self.folder / name / "done").touch()

    def log(self, name: str) -> list[str]:
        return (self.folder / name / "log").read_text().splitlines()


OUTLIVING = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
"""Daemons outlive the command that starts them."""


@pytest.fixture
def stubs(tmp_path: Path) -> Iterator[Stubs]:
    yield Stubs(tmp_path)
    for health in tmp_path.glob("*/health.json"):
        (health.parent / "done").touch()
        with suppress(ProcessLookupError):
            os.kill(int(json.loads(health.read_text())["pid"]), signal.SIGTERM)


@OUTLIVING
def test_daemons_that_drain_longer_than_the_update_waits_are_started_again_once_they_have_ended(stubs: Stubs) -> None:
    daemon = stubs.start("a")
    timer = threading.Timer(1.0, stubs.let_end, ["a"])
    timer.start()
    with pytest.raises(Unavailable, match=r"still draining after 0 s: assize relay serve .* is .* again"):
        _exchange(stubs.link, stubs.old, stubs.made, [daemon], stubs.kept, 0.1)
    timer.join()
    assert _alive(stubs.pid("a"))
    assert stubs.pid("a") != daemon.pid
    assert stubs.log("a") == ["told 1"], "it ended with its jobs handed in"
    assert (stubs.link.resolve(), stubs.kept.exists()) == (stubs.old, False)


@OUTLIVING
def test_after_an_update_that_was_killed_the_next_one_tells_no_daemon_to_end_a_second_time(stubs: Stubs) -> None:
    daemon = stubs.start("a")
    _keep(stubs.kept, [daemon])
    os.kill(daemon.pid, signal.SIGTERM)
    with pytest.raises(Unavailable, match="still draining"):
        _start_left(stubs.kept, stubs.link, 0.1)
    assert _alive(daemon.pid)
    assert stubs.kept.exists(), "the next update still knows of it"
    stubs.let_end("a")
    _start_left(stubs.kept, stubs.link, 30)
    assert (stubs.log("a"), stubs.kept.exists()) == (["told 1"], False)
    assert _alive(stubs.pid("a"))


@OUTLIVING
def test_a_daemon_keeps_the_groups_that_it_is_in_besides_its_own(stubs: Stubs) -> None:
    daemon = stubs.start("a")
    groups = {44} if os.geteuid() == 0 else set(os.getgroups())
    assert set(daemon.groups) == groups
    kept = RunningDaemon.of(json.loads(json.dumps(daemon.kept())))
    assert kept == daemon
    if os.geteuid() == 0:
        assert _as_user(replace(kept, uid=1))["extra_groups"] == [44], "such as that of the graphics cards"


@OUTLIVING
def test_a_daemon_that_was_started_before_another_failed_to_start_goes_back_too(stubs: Stubs) -> None:
    first, second = stubs.start("a"), stubs.start("b")
    (stubs.old / "log").mkdir()
    second = replace(second, output=str(stubs.link / "log" / "b"))  # a folder that only the old environment has
    for name in "ab":
        stubs.let_end(name)
    with pytest.raises(Misconfigured, match=r"cannot write .* again"):
        _exchange(stubs.link, stubs.old, stubs.made, [first, second], stubs.kept, 30)
    assert [stubs.living(name) for name in "ab"] == [[stubs.pid("a")], [stubs.pid("b")]], "none of the new version"
    assert not stubs.kept.exists()


def _place(process: Path) -> Path | None:
    try:
        return (process / "cwd").readlink()
    except OSError:
        return None


def test_an_environment_behind_a_link_is_known_by_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("venv-20261127T101500", "other-20261127T101500", "plain"):
        (tmp_path / name).mkdir()
    (tmp_path / "venv").symlink_to("venv-20261127T101500")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    for running, found in (
        ("venv-20261127T101500", "venv"),  # as the scripts that pip writes name it
        ("venv", "venv"),
        ("other-20261127T101500", "other-20261127T101500"),
        ("plain", "plain"),
    ):
        monkeypatch.setattr(sys, "prefix", str(tmp_path / running))
        assert environment_link() == tmp_path / found


def test_a_server_is_found_by_its_command_line_and_those_that_it_forked_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    python = tmp_path / "venv" / "bin" / "python"
    python.symlink_to(sys.executable)
    (tmp_path / "assize").write_text("import os, time\nos.fork()\nprint(flush=True)\ntime.sleep(600)\n")
    line = [python, tmp_path / "assize", "relay", "serve", "--port", "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.read(2) == b"\n\n"
            (found,) = find_daemons(tmp_path / "venv", [])
            assert (found.pid, found.words[:2], found.folder) == (process.pid, ("relay", "serve"), str(tmp_path))
            assert find_daemons(tmp_path / "other", []) == []
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_extras_are_those_all_of_whose_packages_are_there() -> None:
    requires = [
        "numpy",
        'fastapi; extra == "relay"',
        "numba>=0.65; extra == 'relay'",
        'torch==2.13.0; extra == "worker"',
    ]
    assert satisfied_extras(requires, {"numpy", "fastapi", "numba"}.__contains__) == ["relay"]
    assert satisfied_extras(requires, {"fastapi", "torch"}.__contains__) == ["worker"]


@pytest.mark.parametrize("to", ["", "x", "-r evil.txt", "1.0 --index-url=http://x", "1.0; rm", "../x", "git+ssh://x"])
def test_what_is_neither_a_version_nor_a_wheel_never_reaches_pip(to: str) -> None:
    with pytest.raises(Misconfigured, match="invalid version"):
        requirement_of(to, ["worker"])


def test_a_version_or_the_newest_is_asked_for_with_the_extras_in_use(tmp_path: Path) -> None:
    assert requirement_of("0.3.1", ["worker", "objects"]) == "assize[objects,worker]==0.3.1"
    assert requirement_of(None, []) == "assize"
    with pytest.raises(Misconfigured, match="no such file"):
        requirement_of(str(tmp_path / "assize-1-py3-none-any.whl"), [])


def test_a_daemon_is_known_by_what_was_typed_and_examined_by_the_doctor_of_its_role() -> None:
    assert typed_words(["/v/bin/python", "/v/bin/assize", "worker", "run"]) == ("worker", "run")
    assert typed_words(["/v/bin/python", "-m", "assize", "relay", "serve"]) == ("relay", "serve")
    assert typed_words(["/usr/bin/vim", "notes", "more", "assize"]) == ()
    assert doctor_words(["worker", "run", "--settings", "a"]) == ("worker", "doctor", "--settings", "a")
    assert doctor_words(["worker", "fleet", "f.toml", "--json"]) == ("worker", "fleet", "f.toml", "--check")
    assert doctor_words(["recheck", "run", "--dry-run"]) == ("recheck", "doctor")
    assert doctor_words(["relay", "serve"]) == ("version",)
