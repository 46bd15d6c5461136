"""Start of a role that has joined: its doctor and its daemon, on the network that was joined."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from protocol.node.profile import NETWORK_VARIABLE, Profile, ProfileNetwork

OVERRIDING = ("RPC_URL", "ADDRESSES", "KEYSTORE", "STATE_DIR")
"""Ends of the role's variables that would send it elsewhere than where it joined."""


def refuse_another_class(role: str, network: ProfileNetwork, run: int, device: str) -> None:
    """Has ``assize ROLE class`` look, and leaves with its exit code unless this machine may serve the run.

    In a process of its own, as it computes; it prints the sentence that says why not.
    """
    environment = {name: value for name, value in os.environ.items() if name != NETWORK_VARIABLE}
    environment |= {"ASSIZE_RPC_URL": network.rpc, "ASSIZE_ADDRESSES": str(network.addresses)}  # URLs may hold a key
    words = [*_front_door(), role, "class", str(run), "--device", device]
    done = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


@dataclass(frozen=True, slots=True)
class Launch:
    """A role as it is started.

    Args:
        role: worker or validator.
        path: the profile, which has the role's table.
        network: the network that it joined on.
        password: opens its session key.
    """

    role: str
    path: Path
    network: str
    password: str

    def doctor(self) -> bool:
        """Runs ``assize ROLE doctor``, which prints its findings; returns whether all is well."""
        words = [*_front_door(), self.role, "doctor"]
        with self._password_pipe() as (environment, pipe):
            return subprocess.run(words, env=environment, pass_fds=pipe, check=False).returncode == 0

    def daemon(self) -> NoReturn:
        """Becomes ``assize ROLE run``."""
        with self._password_pipe() as (environment, pipe):
            for inherited in pipe:
                os.set_inheritable(inherited, True)
            sys.stdout.flush()
            words = [*_front_door(), self.role, "run"]
            os.execve(words[0], words, environment)

    @contextmanager
    def _password_pipe(self) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
        """Yields an environment in which the password comes from a pipe, unless the profile names a file with it."""
        environment = launch_environment(self.role, self.network, os.environ)
        if "password_file" in Profile.read(self.path).table(self.role):
            yield environment, ()
            return
        reading, writing = os.pipe()
        os.write(writing, self.password.encode() + b"\n")
        os.close(writing)
        try:
            yield environment | {f"ASSIZE_{self.role.upper()}_PASSWORD_FILE": f"/dev/fd/{reading}"}, (reading,)
        finally:
            os.close(reading)


def launch_environment(role: str, network: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment in which a role takes the network that it joined, and its own table's key. PURE."""
    dropped = {f"ASSIZE_{role.upper()}_{end}" for end in OVERRIDING}
    return {name: value for name, value in environment.items() if name not in dropped} | {NETWORK_VARIABLE: network}


def _front_door() -> tuple[str, str]:
    return sys.executable, sys.argv[0]
