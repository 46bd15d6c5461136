"""Agreement of images, compose file, manifests and units with the code: commands, settings and extras that exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from starlette.routing import Route

from assize import front_door
from coordinator.api.routes import router
from coordinator.commands import UPLOAD_SECONDS
from coordinator.settings import CoordinatorSettings
from ledger.api.app import UNTAGGED
from ledger.settings import STATE_DIR_VARIABLE
from protocol.broadcast.server import create_app
from protocol.broadcast.version_store import VersionStore
from protocol.node.profile import Profile
from protocol.node.settings import NodeSettings
from protocol.transport.listening import GRACE_SECONDS
from tests.conftest import ROOT
from trainer.settings import TrainerSettings
from validator.recheck.settings import RecheckSettings
from validator.settings import ValidatorSettings
from worker.settings import WorkerSettings

DEPLOY = ROOT / "deploy"
SETTINGS: tuple[type[NodeSettings], ...] = (
    *(CoordinatorSettings, WorkerSettings, ValidatorSettings),
    *(RecheckSettings, TrainerSettings),
)
LONGEST_END = {
    "worker": WorkerSettings.model_fields["drain_seconds"].default,
    "validator": ValidatorSettings.model_fields["drain_seconds"].default,
    "coordinator": UPLOAD_SECONDS,
    **dict.fromkeys(("coordinator-drive", "trainer", "relay", "ledger"), GRACE_SECONDS),
}
"""Seconds that each role's own limits let it take at most once it is told to end."""
OTHERS = {"ASSIZE_PROFILE", STATE_DIR_VARIABLE}
"""Variables that belong to no class of settings and to no option."""


def containerfile() -> dict[str, list[tuple[str, str]]]:
    """Each stage's instructions, in order; the first is its FROM."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "images" / "Containerfile").read_text(), flags=re.M).replace("\\\n", " ")
    stages: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            _, _, name = rest.partition(" AS ")
        stages.setdefault(name, []).append((word, rest.strip()))
    return stages


STAGES = containerfile()
TARGETS = [name for name, steps in STAGES.items() if steps[0] == ("FROM", f"role AS {name}")]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
BLOCKS = re.findall(r"^```\n(.*?)^```", (DEPLOY / "README.md").read_text(), re.M | re.S)
UNITS = sorted((DEPLOY / "systemd").rglob("*.service"))


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted((DEPLOY / "kubernetes").rglob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def containers() -> Iterator[dict[str, Any]]:
    for each in documents():
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield from each["spec"]["template"]["spec"]["containers"]


def command(words: Sequence[str]) -> click.Command:
    """Returns the command that these words call, options and arguments included; fails if there is none."""
    found: Any = typer.main.get_command(front_door(words))
    rest = list(words)
    while hasattr(found, "commands"):
        assert set(rest[:1]) & set(found.commands), f"assize {shlex.join(words)}"
        found = found.commands[rest.pop(0)]
    _, left, _ = found.make_parser(found.context_class(found)).parse_args(rest)
    assert left == [], f"assize {shlex.join(words)}"
    return found  # type: ignore[no-any-return]


def known_variables() -> set[str]:
    own = {f"{kind.model_config['env_prefix']}{name}".upper() for kind in SETTINGS for name in kind.model_fields}
    options = [each for words in (("relay", "serve"), ("ledger", "serve")) for each in command(words).params]
    named = {
        name for each in options for name in ([each.envvar] if isinstance(each.envvar, str) else each.envvar or ())
    }
    return own | named | OTHERS


def ours(names: Mapping[str, object] | Sequence[str]) -> set[str]:
    return {name for name in names if name.startswith("ASSIZE_")}


def test_every_stage_follows_from_one_that_is_there() -> None:
    for name, steps in STAGES.items():
        source = steps[0][1].partition(" AS ")[0]
        assert name == "" or source in STAGES or source == "${BASE}"
        for word, rest in steps:
            if word == "COPY":
                assert rest.split()[0].removeprefix("--from=") in STAGES


def test_images_install_extras_that_exist_and_nothing_unpinned() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in (name for name in STAGES if name.endswith("-packages")):
        (run,) = (rest for word, rest in STAGES[name] if word == "RUN")
        wanted = re.search(r"pip install 'assize\[([a-z,]+)\]'", run)
        assert wanted is not None
        assert set(wanted[1].split(",")) <= set(extras)
    assert "PIP_CONSTRAINT=/wheels/constraints.txt" in dict(STAGES["builder"])["ENV"]
    assert all("==" in each for each in extras["vllm"] if not each.startswith("assize["))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_a_command_that_exists_as_a_number_without_tools_that_build(target: str) -> None:
    steps = [*STAGES["role"], *STAGES[target]]
    last = dict(steps)
    assert last["USER"] == "10001:10001"
    if target != "demo":
        command(json.loads(last["CMD"]))
        command(json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[1:])
        assert not any(tool in rest for word, rest in STAGES[target] if word == "RUN" for tool in ("apt", "pip", "gcc"))
    variables = re.findall(r"(ASSIZE_[A-Z_]+)=", " ".join(rest for word, rest in steps if word == "ENV"))
    assert set(variables) <= known_variables()
    assert sum(word in ("RUN", "COPY", "ADD") for word, _ in steps) <= 3


def test_services_of_the_compose_file_run_commands_with_settings_that_exist() -> None:
    targets = {f"assize-{target}" for target in TARGETS}
    for name, service in COMPOSE["services"].items():
        image = service["image"]
        assert service["restart"] == ("on-failure" if name == "bucket" else "unless-stopped"), name
        assert service["read_only"], name
        assert service["deploy"]["resources"]["limits"]["memory"], name
        secret = [each for each in service.get("environment", {}) if re.search("PASSWORD|SECRET|KEY|TOKEN", each)]
        assert all(each.endswith("_FILE") for each in secret), name
        if image.startswith("assize-"):
            assert image in targets
            assert ours(service.get("environment", {})) <= known_variables()
            if "command" in service:
                command(service["command"])
        if (test := service.get("healthcheck", {}).get("test", ["", ""]))[1] == "assize":
            command(test[2:])


def test_a_service_of_the_compose_file_gets_only_secrets_that_are_files() -> None:
    assert all(set(each) == {"file"} for each in COMPOSE["secrets"].values())
    named = [one for service in COMPOSE["services"].values() for one in service.get("secrets", ())]
    assert {one if isinstance(one, str) else one["source"] for one in named} == set(COMPOSE["secrets"])


def test_the_page_makes_each_secret_and_name_that_a_coordinator_of_the_compose_file_needs() -> None:
    (block,) = (each for each in BLOCKS if "docker compose" in each and "--profile coordinator" in each)
    services = [each for each in COMPOSE["services"].values() if "coordinator" in each["profiles"]]
    named = {one if isinstance(one, str) else one["source"] for each in services for one in each.get("secrets", ())}
    files = {Path(COMPOSE["secrets"][name]["file"]).name for name in named}
    assert files <= set(re.findall(r"(?:> |export coordinator )(\S+)", block))
    asked = set(re.findall(r"\$\{(\w+)", yaml.safe_dump(services))) - {"S3_REGION"}
    assert asked == set(re.findall(r"^([A-Z0-9_]+)=", block, re.M))


def test_pods_run_commands_with_settings_and_are_asked_for_paths_that_exist(tmp_path: Path) -> None:
    weights = {route.path for route in create_app(VersionStore(tmp_path)).routes if isinstance(route, Route)}
    served: dict[str, set[str]] = {
        "assize-coordinator": {route.path for route in router.routes if isinstance(route, Route)},
        **dict.fromkeys(("assize-relay", "assize-trainer"), weights),
        "assize-ledger": set(UNTAGGED),
    }
    targets = {f"assize-{target}" for target in TARGETS}
    for each in containers():
        assert ours([one["name"] for one in each.get("env", ())]) <= known_variables()
        if not each.get("image", "assize-").startswith("assize-"):
            continue
        if "image" in each:
            assert each["image"] in targets
            command(each["args"])
        ports = {one["name"]: one["containerPort"] for one in each.get("ports", ())}
        for hook in (each[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in each):
            if "exec" in hook:
                command(hook["exec"]["command"][1:])
            elif "httpGet" in hook:
                assert hook["httpGet"]["path"] in served[each["image"]], each["image"]
            assert hook.get("httpGet", hook.get("tcpSocket", {})).get("port") in (None, *ports)


def test_prometheus_reaches_the_metrics_of_every_role_in_a_container() -> None:
    for target in set(TARGETS) - {"demo"}:
        set_ = dict(re.findall(r"(ASSIZE_\w+)=(\S+)", " ".join(rest for word, rest in STAGES[target] if word == "ENV")))
        role = target.partition("-")[0].upper()
        assert set_[f"ASSIZE_{role}_METRICS_HOST"] == "0.0.0.0", target
        assert {port for name, port in set_.items() if name.endswith("METRICS_PORT")} == {"9100"}, target
    for each in containers():
        if each.get("image", "").startswith("assize-"):
            assert {"name": "metrics", "containerPort": 9100} in each["ports"]
    (policy,) = (
        each for each in documents() if each["kind"] == "NetworkPolicy" and "metrics" in each["metadata"]["name"]
    )
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/part-of": "assize"}}
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": 9100, "protocol": "TCP"}]


def test_pods_get_no_variables_of_services_which_a_role_would_refuse_as_unknown_settings() -> None:
    restricted = yaml.safe_load((DEPLOY / "kubernetes" / "restricted" / "kustomization.yaml").read_text())
    (patch,) = (yaml.safe_load(each["patch"]) for each in restricted["patches"])
    assert patch["spec"]["template"]["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_with_settings_that_exist(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    (start,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    program, *words = shlex.split(start)
    assert program == "/opt/assize/bin/assize"
    command(words)
    set_ = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    assert ours([pair.partition("=")[0] for line in set_ for pair in shlex.split(line)]) <= known_variables()


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_every_role_reads_its_settings_from_the_example_profile(
    kind: type[NodeSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSIZE_PROFILE", str(DEPLOY / "assize.toml"))
    read = kind.read(state_dir=Path("state"))
    assert read.keystore == "/run/assize/key/keystore.json"
    assert read.addresses == DEPLOY / "addresses.json"
    assert Profile.current().table("relay")["upstream"] == "http://trainer:8710"


def graces(role: str) -> list[int]:
    """Seconds that a role has to end once it is told to: under Kubernetes, compose and systemd."""
    sets = (each for each in documents() if each["kind"] in ("Deployment", "StatefulSet"))
    named = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in sets if "replicas" in each["spec"]}
    units = (DEPLOY / "systemd" / f"assize-{role}{at}.service" for at in ("", "@"))
    stops = [re.search(r"TimeoutStopSec=(\d+)", unit.read_text()) for unit in units if unit.exists()]
    composed = COMPOSE["services"][role].get("stop_grace_period", "10s")
    return [
        named[role].get("terminationGracePeriodSeconds", 30),
        int(composed.removesuffix("s")),
        *(int(stop[1]) if stop else 90 for stop in stops),
    ]


@pytest.mark.parametrize("role", sorted(LONGEST_END))
def test_a_role_that_is_told_to_end_has_the_time_that_it_takes(role: str) -> None:
    told = graces(role)
    assert min(told) > LONGEST_END[role]
    assert told[0] == told[1]


def test_a_unit_tells_its_main_process_alone_to_end_as_a_second_signal_drops_jobs() -> None:
    hardening = DEPLOY / "systemd" / "assize-.service.d" / "10-hardening.conf"
    assert "KillMode=mixed" in hardening.read_text().splitlines()
    assert not any("KillMode" in unit.read_text() for unit in UNITS)


def test_a_service_that_keeps_sockets_in_tmp_may_write_there() -> None:
    assert all("/tmp" in COMPOSE["services"][name]["tmpfs"] for name in COMPOSE["services"] if name != "valkey")
