"""``make images``: builds an image a role with buildah, and tries each by `buildah run`; a table, then a line of JSON.

    built   from deploy/images/Containerfile by deploy/images/build: layers, size, user, no tool that builds
    help    of the role's command, and nothing but /tmp and the state folder that its user may write to
    demo    `make demo STEPS=5` in the image with everything, from a copy of the repository
    doctor  of each role, against a network that the demo image keeps up; exits 0
    health  of each role's daemon, started from its own image in that network until `assize health` exits 0

Containers of buildah's chroot isolation are in this machine's network and process tables, which is why they meet on
loopback. worker-cuda is not built: its packages are some gigabytes of CUDA, and there is no GPU to try them on. The
quick test holds its stage to the code (tests/deploy/test_packages.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from deploy.localnet import services
from deploy.localnet.parties import Party
from deploy.localnet.processes import free_port
from deploy.localnet.services import NetworkLayout
from protocol.node.console import show
from tests.conftest import ROOT

KEPT = ROOT / ".images"
COPY = KEPT / "demo"
"""The copy of the repository, which containers see as DEMO."""
DEMO = Path("/demo")
MOUNTED = ("--volume", f"{COPY}:{DEMO}")
STATE = "/var/lib/assize"
USER = 10001
ROLES = {
    "coordinator": ("coordinator", "serve"),
    "worker-cpu": ("worker", "run"),
    "validator": ("validator", "run"),
    "trainer": ("trainer", "run"),
    "relay": ("relay", "serve"),
    "ledger": ("ledger", "serve"),
}
LINTED = "worker-cuda"
MOST_LAYERS = 4
WRITABLE = {"/tmp", "/var/tmp", "/run/lock", STATE}
"""Folders that the base lets everyone write to, and the state folder; the root file system can be read-only."""
BUILDERS = ("gcc", "cc", "make", "pip", "pip3", "git", "curl")
STARTING_SECONDS = 240
HEALTHY_SECONDS = 300

HEALTHY = """
timeout -k 5 {most} assize {words} >/tmp/log 2>&1 & daemon=$!
until assize health {place} 2>/tmp/said; do
    kill -0 $daemon 2>/dev/null && sleep 1 && continue
    wait $daemon; echo "daemon: exit code $?"; cat /tmp/said; tail -n 3 /tmp/log
    exit 1
done
kill $daemon; wait $daemon; exit 0
"""


@dataclass(slots=True)
class Image:
    """One image and what was found of it; ``failed`` says what was not as it should be."""

    target: str
    megabytes: int = 0
    layers: int = 0
    seconds: float = 0.0
    checks: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def note(self, check: str, ok: bool, said: str = "") -> None:
        """Notes the outcome of a check; ``said`` is kept of one that failed."""
        self.checks.append(check)
        if not ok:
            self.failed.append(f"{check}: {said.strip()[-300:]}")


def main() -> int:
    """Builds and tries all images, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*ROLES, "demo"])
    parser.add_argument("--as-built", action="store_true", help="try images that are there as they are")
    options = parser.parse_args()
    only = options.only
    began = time.monotonic()
    targets = [target for target in (*ROLES, "demo") if only in (None, target)]
    subprocess.run((ROOT / "deploy" / "images" / "build", "--wheels", *targets), check=True)
    images = []
    for target in targets:
        images.append(build(target, options.as_built))
        print(f"{target}: {'; '.join(images[-1].failed) or 'built'}, {images[-1].seconds:.0f} s", flush=True)
    if not any(each.failed for each in images) and only in (None, "demo"):
        try_live(images)
    rows: list[dict[str, Any]] = [
        {
            "image": each.target,
            "MB": each.megabytes,
            "layers": each.layers,
            "seconds": round(each.seconds),
            "checks": ", ".join(each.checks),
            "failed": "; ".join(each.failed),
        }
        for each in images
    ]
    show(rows, False, f"images; {LINTED} is linted, not built: gigabytes of CUDA packages, and no GPU here")
    told = {"images": rows, "linted": [LINTED], "seconds": round(time.monotonic() - began)}
    print(json.dumps(told | {"ok": not any(each.failed for each in images)}))
    return 1 if any(each.failed for each in images) else 0


def buildah(*words: str) -> list[str]:
    """Returns a command line of buildah with the storage of ``deploy/images/build``."""
    storage = ("--root", str(KEPT / "storage"), "--runroot", str(KEPT / "run"), "--storage-driver", "vfs")
    return ["nice", "-n", "15", "buildah", *storage, *words]


def build(target: str, as_built: bool) -> Image:
    """Builds an image, unless it is there and is to be taken as it is, and tries what needs no network."""
    image, began = Image(target), time.monotonic()
    there = subprocess.run(buildah("inspect", "--type", "image", f"assize-{target}"), capture_output=True)
    if there.returncode != 0 or not as_built:
        made = subprocess.run((ROOT / "deploy" / "images" / "build", target), capture_output=True, text=True)
        image.seconds = time.monotonic() - began
        image.note("built", made.returncode == 0, made.stderr)
        if image.failed:
            return image
    told = json.loads(output(buildah("inspect", "--type", "image", f"assize-{target}")))
    manifest = json.loads(told["Manifest"])
    image.layers = len(manifest["layers"])
    image.megabytes = sum(layer["size"] for layer in manifest["layers"]) // 10**6
    image.note("layers", image.layers <= MOST_LAYERS, str(image.layers))
    image.note("user", told["Docker"]["config"]["User"] == f"{USER}:{USER}", told["Docker"]["config"]["User"])
    with container(target) as run:
        part = ROLES.get(target, ("localnet",))[0]
        helped = run(f"assize {part} --help")
        image.note("help", "Usage: assize" in helped.stdout, helped.stderr)
        writes = set(run("find / -xdev -type d -writable 2>/dev/null").stdout.split())
        more = {each for each in writes if not each.startswith(("/proc", "/sys", "/dev"))} - WRITABLE - {str(DEMO)}
        image.note("read-only", not more, ", ".join(sorted(more)))
        tools = run(f"command -v {' '.join(BUILDERS)}").stdout.split()
        image.note("no tools", target == "demo" or not tools, " ".join(tools))
        empty = run(f"assize health {STATE}")
        image.note("health of none", empty.returncode == 3 and "no daemon has run" in empty.stderr, empty.stderr)
        if target != "demo":
            told_nothing = run(f"assize {part} doctor" if part != "relay" else "assize relay serve")
            sentence = told_nothing.returncode in (1, 2) and "Traceback" not in told_nothing.stderr
            image.note("unconfigured", sentence, told_nothing.stderr)
    return image


def output(words: list[str]) -> str:
    """Returns the output of a command; raises ``SystemExit`` with its words if it fails."""
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"assize: {' '.join(words)} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout


@dataclass(frozen=True, slots=True)
class Container:
    """A container of an image; ``mounts`` are buildah's options for what it sees of this machine."""

    name: str
    mounts: tuple[str, ...]

    def words(self, line: str, variables: Mapping[str, str]) -> list[str]:
        """Returns the command that runs a shell line in it."""
        settings = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
        return buildah("run", "--isolation", "chroot", *self.mounts, *settings, self.name, "--", "sh", "-c", line)

    def __call__(self, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a shell line in it."""
        return subprocess.run(self.words(line, variables), capture_output=True, text=True)


@contextmanager
def container(target: str, mounts: tuple[str, ...] = ()) -> Iterator[Container]:
    """Yields a new container of an image."""
    name = output(buildah("from", f"assize-{target}")).strip()
    try:
        yield Container(name, mounts)
    finally:
        subprocess.run(buildah("rm", name), capture_output=True)


def try_live(images: list[Image]) -> None:
    """Runs the demo in its image, then keeps a network up in it and starts every role from the role's own image."""
    copy_repository()
    demo = next(each for each in images if each.target == "demo")
    with ExitStack() as stack:
        run = stack.enter_context(container("demo", MOUNTED))
        began = time.monotonic()
        ran = run("make demo STEPS=5")
        demo.note("make demo STEPS=5", ran.returncode == 0, ran.stdout[-600:] + ran.stderr)
        print(f"make demo STEPS=5 in assize-demo, {time.monotonic() - began:.0f} s:", *ran.stdout.splitlines()[-1:])
        if demo.failed:
            return
        # The trainer takes over from the network's, whose weights the relay fetches.
        roles = sorted((each for each in images if each.target in ROLES), key=lambda each: each.target == "trainer")
        # Each is a copy of its whole image, which the network would slow down.
        containers = [stack.enter_context(container(each.target, MOUNTED)) for each in roles]
        with live_network(run) as layout:
            for each, of_role in zip(roles, containers, strict=True):
                try_role(each, of_role, layout)


def copy_repository() -> None:
    """Copies the files that git knows, the chain's program and the pages' scripts, for the images' user."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = output(["git", "-C", str(ROOT), "ls-files", "-z"]).split("\0")
    for name in filter(None, listed):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name, follow_symlinks=False)
    for folder in ("contracts/node_modules/@foundry-rs", "ledger/explorer/static/built"):
        shutil.copytree(ROOT / folder, COPY / folder, symlinks=True, dirs_exist_ok=True)
    (COPY / ".venv").symlink_to("/opt/assize")  # whose stamps say that its packages are those of the pins
    for stamp in ("contracts/node_modules/.stamp", "ledger/explorer/static/built/.stamp"):
        (COPY / stamp).touch()
    for path in (COPY, *COPY.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)


@contextmanager
def live_network(run: Container) -> Iterator[NetworkLayout]:
    """Yields the layout of a network that the demo image keeps up, on ports of this machine's loopback."""
    line = "exec .venv/bin/python assize.py localnet up --root .live --model .localnet/model"
    with (KEPT / "live.log").open("w") as log:
        words = run.words(line, {"ASSIZE_PROFILE": str(DEMO / "assize.toml")})
        up = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        yield live_layout(up)
    finally:
        stop(COPY / ".live", up)


def live_layout(up: subprocess.Popen[bytes]) -> NetworkLayout:
    """Waits until the network's last service has started, and returns its layout."""
    until = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < until and up.poll() is None:
        try:
            told = json.loads((COPY / ".live" / "network.json").read_text())["services"]
            ports = {name: int(each["url"].rpartition(":")[2]) for name, each in told.items() if each["url"]}
            ports["origin"] = ports.pop("trainer")
        except (OSError, ValueError, KeyError):
            time.sleep(1)
            continue
        live = DEMO / ".live"
        return NetworkLayout(live, ports, DEMO / "deploy" / "runs" / "builtin.toml", live / "rules.json")  # type: ignore[arg-type]
    raise SystemExit(f"assize: the network did not come up: see {KEPT / 'live.log'}")


def stop(root: Path, up: subprocess.Popen[bytes]) -> None:
    """Ends the network by its supervisor, as `assize localnet down` does."""
    try:
        os.kill(json.loads((root / "network.json").read_text())["supervisor"], signal.SIGTERM)
    except (OSError, ValueError, KeyError):
        os.killpg(up.pid, signal.SIGTERM)
    up.wait(60)


def end_trainer() -> None:
    """Ends the network's trainer: of one run there is one at a time."""
    process = psutil.Process(json.loads((COPY / ".live" / "network.json").read_text())["services"]["trainer"]["pid"])
    process.terminate()
    process.wait(60)


def try_role(image: Image, run: Container, layout: NetworkLayout) -> None:
    """Runs a role's doctor against the network, then its daemon until it is healthy, both in the role's image."""
    words, port = ROLES[image.target], free_port()
    server = image.target in ("coordinator", "relay", "ledger")
    variables = {"OMP_NUM_THREADS": "1", **variables_of(image.target, layout, port)}
    place = f"http://127.0.0.1:{port}" if server else variables.get("ASSIZE_TRAINER_STATE_DIR", STATE)
    if image.target == "trainer":
        end_trainer()
    examined = run(f"assize {words[0]} doctor", **variables)
    image.note("doctor", examined.returncode == 0, examined.stdout + examined.stderr)
    healthy = run(HEALTHY.format(most=HEALTHY_SECONDS, words=" ".join(words), place=place), **variables)
    image.note("health", healthy.returncode == 0, healthy.stdout + healthy.stderr)


def variables_of(target: str, layout: NetworkLayout, port: int) -> dict[str, str]:
    """Returns a role's settings in the network, with a port of its own, and the image's state folder.

    The trainer goes on from the state of the network's own: the chain is ahead of any other.
    """
    made = json.loads((COPY / ".live" / "parties.json").read_text())
    ledger = {"ASSIZE_LEDGER_RPC_URL": layout.url("chain"), "ASSIZE_LEDGER_ADDRESSES": str(layout.addresses)}
    settings: Mapping[str, str] = {
        "coordinator": lambda: services.coordinator(layout, 16, 1, None)[0].environment,
        "worker-cpu": lambda: services.node(layout, Party("worker-1", "worker")).environment,
        "validator": lambda: services.node(layout, Party("validator-1", "validator")).environment,
        "trainer": lambda: services.trainer(layout, 1).environment,
        "relay": lambda: services.relay(layout, made["trainer"]).environment,
        "ledger": lambda: ledger,
    }[target]()
    role = ROLES[target][0].upper()
    own = {f"ASSIZE_{role}_PORT": str(port)} if target in ("coordinator", "relay", "ledger") else {}
    own |= {"ASSIZE_TRAINER_ORIGIN_PORT": str(port)} if target == "trainer" else {}
    own |= {f"ASSIZE_{role}_DRAIN_SECONDS": "0"} if role in ("WORKER", "VALIDATOR") else {}
    left_out = "_STATE_DIR" if target != "trainer" else ()
    return {name: value for name, value in settings.items() if not name.endswith(left_out)} | own


if __name__ == "__main__":
    sys.exit(main())
