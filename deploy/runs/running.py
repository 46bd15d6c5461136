"""``assize run up``: the processes of a requester's own run under one supervisor, and what they wait for, in lines.

    redis                a queue on a free port, which holds leases only
    coordinator          its API and its driver, unless another machine has its key
    trainer              which serves the weights, too

All of them take their settings from the profile in the run's folder. Logs are in ``state/logs``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from deploy.localnet.outcome import Metrics
from deploy.localnet.processes import ProcessSpec, Supervisor, free_port, wait_until_listening
from deploy.localnet.services import assize, redis_binary
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.node.console import EXIT_INTERRUPTED
from protocol.node.profile import FILE_NAME, PROFILE_VARIABLE, Profile
from protocol.node.wallet import read_password
from protocol.times import clock
from protocol.transport.coordinator import CoordinatorClient

LOOK_SECONDS = 1.0
NEEDED = {
    "coordinator": ("run", "port", "keystore", "rules"),
    "trainer": ("run", "state_dir", "coordinator_url", "keystore", "model"),
}
"""What the profile of a run's folder says of each daemon. Without a keystore one would sign with the requester's."""


def run_services(folder: Path, password: str | None) -> NoReturn:
    """Starts what the profile in a run's folder describes, and says what happens until Ctrl-C.

    Args:
        folder: the run's.
        password: of the daemons' keys; None to take the files that the profile names, else to ask.

    Raises:
        Misconfigured: the folder is none of a run, or a port is taken.
        Unavailable: a process ended; the message has the end of its log.
    """
    profile = profile_of(folder)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _leave)
    coordinator, trainer = profile.table("coordinator"), profile.table("trainer")
    # A second one here would write over what the first has noted.
    free_port(coordinator["port"] if coordinator else trainer.get("origin_port"))
    with _password_in_a_file(profile, password) as secret, Supervisor(profile.path.parent / "state") as supervisor:
        _start(profile, secret, supervisor)
        say(f"up: run {trainer['run']}, logs in {supervisor.root / 'logs'}; Ctrl-C ends it")
        watch = RunWatch(profile, supervisor)
        while True:
            for line in watch.look():
                say(line)
            time.sleep(LOOK_SECONDS)


def say(line: str) -> None:
    """Prints a line with the time of day."""
    print(f"{clock(int(time.time()))}  {line}", flush=True)


@dataclass
class RunWatch:
    """News of a run that is up: why no round opens, rounds by outcome, versions."""

    profile: Profile
    supervisor: Supervisor
    waits: str = ""
    jobs: tuple[int, int, int] = (0, 0, 0)
    version: int = field(init=False)

    def __post_init__(self) -> None:
        self.version = len(self._steps())

    def look(self) -> list[str]:
        """Returns a line for each change since the last look.

        Raises:
            Unavailable: a process ended.
        """
        for name, status in self.supervisor.fallen():
            raise Unavailable(f"{name} ended with status {status}:\n{self.supervisor.log_tail(name)}")
        return [*self._coordinator(), *self._trainer()]

    def _coordinator(self) -> Iterator[str]:
        with closing(CoordinatorClient(self.profile.table("trainer")["coordinator_url"])) as client:
            try:
                status = client.status()
            except (Rejected, Unavailable):  # it has not read the run from the chain yet
                return
        if status.waiting != self.waits and status.waiting:
            yield f"no round opens: {status.waiting}"
        jobs = (status.jobs_accepted, status.jobs_void, status.jobs_fraud)
        if jobs != self.jobs:
            yield f"{status.rounds_settled} rounds  accepted {jobs[0]}  void {jobs[1]}  fraud {jobs[2]}"
        self.waits, self.jobs = status.waiting, jobs

    def _trainer(self) -> Iterator[str]:
        steps = self._steps()
        for step in steps[self.version :]:
            yield f"version {step['version']}  reward {step['reward']:.3f}"
        self.version = len(steps)

    def _steps(self) -> tuple[dict[str, Any], ...]:
        return Metrics.read(self.profile.table("trainer")["state_dir"] / "metrics.jsonl").steps


def profile_of(folder: Path) -> Profile:
    """Returns the profile of a run's folder; raises ``Misconfigured`` if it lacks what its daemons need."""
    path = folder.absolute() / FILE_NAME
    profile = Profile.read(path)
    tables = {role: profile.table(role) for role in roles_of(profile)}
    missing = [f"{name} in [{role}]" for role, table in tables.items() for name in NEEDED[role] if name not in table]
    if missing:
        raise Misconfigured(
            f"{path} has no {missing[0]}: expected the folder of a run whose coordinator and trainer have their keys "
            "here, or the trainer alone: assize run new FOLDER --open"
        )
    return profile


def roles_of(profile: Profile) -> tuple[str, ...]:
    """Returns the roles that run here: the trainer, and the coordinator unless another machine has its key."""
    return tuple(role for role in NEEDED if role == "trainer" or profile.table(role))


def _start(profile: Profile, secret: Path | None, supervisor: Supervisor) -> None:
    shared = {PROFILE_VARIABLE: str(profile.path)}
    for role in roles_of(profile) if secret is not None else ():
        shared[f"ASSIZE_{role.upper()}_PASSWORD_FILE"] = str(secret)
    if "coordinator" in roles_of(profile):
        _start_coordinator(profile.table("coordinator"), shared, supervisor)
    supervisor.start(ProcessSpec("trainer", assize("trainer", "run"), shared))


def _start_coordinator(own: Mapping[str, Any], shared: dict[str, str], supervisor: Supervisor) -> None:
    if own.get("redis_url") is None:
        port = free_port()
        words = (redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", "")
        queue = ProcessSpec("redis", (*words, "--dir", str(supervisor.root)))
        supervisor.start(queue)
        wait_until_listening(queue, port, supervisor)
        shared["ASSIZE_COORDINATOR_REDIS_URL"] = f"redis://127.0.0.1:{port}"
    api = ProcessSpec("coordinator", assize("coordinator", "serve"), shared)
    supervisor.start(api)
    wait_until_listening(api, own["port"], supervisor)
    supervisor.start(ProcessSpec("coordinator-driver", assize("coordinator", "drive"), shared))


@contextlib.contextmanager
def _password_in_a_file(profile: Profile, password: str | None) -> Iterator[Path | None]:
    """Yields a private file with the password of the daemons' keys; None if the profile names one for each of them."""
    if password is None and all("password_file" in profile.table(role) for role in roles_of(profile)):
        yield None
        return
    password = password or read_password(None, "password of the coordinator's and the trainer's keys")
    with tempfile.NamedTemporaryFile("w", prefix="assize-") as file:
        file.write(password + "\n")
        file.flush()
        yield Path(file.name)


def _leave(number: int, frame: object) -> None:
    """Unwinds the stack, so that the supervisor ends every process."""
    sys.stderr.write(os.linesep)
    raise SystemExit(EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number)
