"""A run on a chain of its own, and the coordinator's API over it as a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from coordinator.driver.wiring import DriverProcess
from coordinator.settings import CoordinatorSettings
from deploy.localnet.establish import SCRYPT_N
from deploy.localnet.processes import free_port
from protocol.chain.reading.client import Chain
from protocol.node.wallet import Keystores, Wallet
from tests.conftest import ROOT, Anvil, deploy_on, redis_server, until
from tests.coordinator.swarm import Swarm, write_settings


@contextmanager
def market() -> Iterator[Swarm]:
    """A run with two workers on a chain of its own, as its coordinator has mirrored it."""
    with run_on_anvil() as swarm:
        mirror(swarm, swarm.settings())
        yield swarm


@contextmanager
def run_on_anvil(*options: str, **changes: Any) -> Iterator[Swarm]:
    """A run with two workers on an anvil with these options; ``changes`` are those of the swarm."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as redis_url:
        folder = Path(name)
        anvil = Anvil(folder, *options)
        try:
            (folder / "password").write_text("password\n")

            def make_wallet(name: str) -> Wallet:
                wallet = Keystores(folder / "keystores").create(name, "password", SCRYPT_N)
                anvil.fund(wallet.address)
                return wallet

            with Chain(anvil.url, deploy_on(anvil)) as chain:
                swarm = Swarm(chain, anvil, make_wallet, redis_url, folder, **changes)
                yield swarm
                swarm.close()
        finally:
            anvil.stop()


def mirror(swarm: Swarm, settings: CoordinatorSettings) -> None:
    """Reads the chain into the coordinator's database, and opens a round if one is due."""
    driver = DriverProcess(settings, swarm.coordinator)
    driver.tick()
    driver.close()


@contextmanager
def server(settings: CoordinatorSettings, core: int | None = None) -> Iterator[tuple[int, int]]:
    """The coordinator's API as a process of its own, killed at the end, on one core if given; its port and pid."""
    port = free_port()
    file = settings_file(settings, port=port)
    with running([str(ROOT / "assize.py"), "coordinator", "serve", "--settings", str(file)], port, core) as pid:
        yield port, pid


def settings_file(settings: CoordinatorSettings, **changes: object) -> Path:
    """The settings as a file beside the state, with the keys in the folder above."""
    folder, file = settings.state_dir.parent, settings.state_dir / "coordinator.env"
    keys = {"keystore_directory": folder / "keystores", "password_file": folder / "password"}
    write_settings(file, settings.model_copy(update=keys | changes))
    return file


@contextmanager
def running(words: list[str], port: int, core: int | None = None) -> Iterator[int]:
    """A Python process that answers at ``port``, on one core if given; its pid."""
    command = [sys.executable, *words]
    if core is not None:
        pinned = f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.executable, sys.argv[1:])"
        command = [sys.executable, "-c", pinned, *command]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            until(lambda: _answers(client), 60, "the server to answer")
        yield process.pid
    finally:
        forked = psutil.Process(process.pid).children()
        for each in (process, *forked):
            each.kill()
        process.wait()
        psutil.wait_procs(forked)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code < 500
    except httpx.TransportError:
        return False
