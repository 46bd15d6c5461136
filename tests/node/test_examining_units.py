"""Examination of a systemd unit's daemon by another version's doctor: it sees the files that the unit alone sees."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.errors import Rejected
from protocol.node.updating.daemons import RunningDaemon, examine_daemon

DYNAMIC = 61_184
"""The first number that systemd gives to dynamic users."""
AS_ROOT = os.geteuid() == 0
"""Others than root can neither have such a unit here nor update one: their daemons see what they see."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user of this machine may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def unit(state: Path) -> Iterator[RunningDaemon]:
    """A process that alone sees what is in its state folder, which its user owns, as systemd arranges it."""
    user = DYNAMIC if AS_ROOT else os.geteuid()
    hidden = f"mount -t tmpfs -o mode=700,uid={user},gid={user} none {state}; " if AS_ROOT else ""
    script = f"{hidden}echo 7 > {state}/node; chmod 644 {state}/node; cd {state}; echo there; exec sleep 60"
    namespace = ["unshare", "--mount"] if AS_ROOT else []
    with subprocess.Popen([*namespace, "sh", "-ec", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            environment = {"PATH": "/usr/bin:/bin"}
            yield RunningDaemon(
                process.pid, ("worker", "run"), str(state), environment, user, user, unit="assize-worker@left.service"
            )
        finally:
            process.kill()


def doctor(folder: Path, script: str) -> Path:
    """An environment whose doctor is a script."""
    program = folder / "environment" / "bin" / "assize"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh -e\n{script}\n")
    program.chmod(0o755)
    return program.parent.parent


def test_a_units_doctor_reads_the_state_that_the_unit_alone_sees_as_its_user(folder: Path) -> None:
    (state := folder / "state").mkdir(mode=0o700)
    with unit(state) as daemon:
        assert not AS_ROOT or not (state / "node").exists()
        script = f'''test "$*" = "worker doctor"; test "$(cat node)" = 7; test "$(cat {state}/node)" = 7
            test "$(id -u) $(id -G)" = "{daemon.uid} {daemon.gid if AS_ROOT else "$(id -G)"}"'''
        examine_daemon(daemon, doctor(folder, script))


def test_a_units_doctor_that_finds_fault_is_heard(folder: Path) -> None:
    (state := folder / "state").mkdir(mode=0o700)
    with unit(state) as daemon, pytest.raises(Rejected, match=r"assize-worker@left.service .*: no key in \d+"):
        examine_daemon(daemon, doctor(folder, "echo no key in $(id -u) >&2; exit 1"))
