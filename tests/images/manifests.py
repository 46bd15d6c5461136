"""``make manifests``: compose file, Kubernetes manifests and systemd units, each by the tools of its own world.

Nothing is started: a table, then a line of JSON; exit 1 where something is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from protocol.node.console import show
from tests.conftest import ROOT

PROGRAMS = ROOT / ".venv" / "manifests" / "bin"
DEPLOY = ROOT / "deploy"
WORST_EXPOSURE = 3.5
"""Of systemd's scale from 0 to 10, on which a unit without any hardening has 9.6."""
ENGINES = ("docker", "podman")
PROGRAM = "/opt/assize/bin/assize"


@dataclass(frozen=True, slots=True)
class Examined:
    """One file or unit: what looked at it, what it found, and whether that is well."""

    name: str
    by: str
    found: str
    ok: bool


def main() -> int:
    """Looks at everything that can be looked at here."""
    if shutil.which("systemd-analyze") is None:
        print("assize: systemd-analyze not found: apt-get install systemd", file=sys.stderr)
        return 2
    found = [*overlays(), compose(), *units()]
    show([asdict(each) for each in found], False, "manifests, compose file and units")
    print(json.dumps({"examined": len(found), "refused": [each.name for each in found if not each.ok]}))
    return 0 if all(each.ok for each in found) else 1


def ran(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Returns what a program said; an error of it is told, not raised."""
    return subprocess.run(words, capture_output=True, text=True, env=os.environ | environment, cwd=DEPLOY)


def overlays() -> list[Examined]:
    """Returns each overlay rendered by Kustomize and held to the schemas of Kubernetes, and to the restricted rules."""
    found = []
    for folder in sorted((DEPLOY / "kubernetes" / "overlays").iterdir()):
        rendered = ran(PROGRAMS / "kubectl", "kustomize", folder)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(rendered.stdout)
            file.flush()
            valid = ran(PROGRAMS / "kubernetes-validate", "--strict", file.name)
        passed = valid.stdout.count(" passed ") + valid.stderr.count(" passed ")
        pods = [each for each in yaml.safe_load_all(rendered.stdout) if "template" in (each or {}).get("spec", {})]
        loose = [each["metadata"]["name"] for each in pods if not is_restricted(each["spec"]["template"]["spec"])]
        ok = rendered.returncode == valid.returncode == 0 and passed > 0 and not loose
        said = f"{passed} resources valid; not restricted: {', '.join(loose) or 'none'}"
        error = (rendered.stderr or valid.stderr + valid.stdout).strip().splitlines()
        by = "kubectl kustomize, kubernetes-validate --strict"
        found.append(Examined(f"kubernetes/overlays/{folder.name}", by, said if ok or not error else error[-1], ok))
    return found


def is_restricted(pod: dict[str, Any]) -> bool:
    """Returns whether a pod keeps to Kubernetes' restricted standard, and writes to its volumes alone."""
    whole: dict[str, object] = pod["securityContext"]
    containers: list[dict[str, Any]] = [*pod["containers"], *pod.get("initContainers", [])]
    each = [one["securityContext"] for one in containers]
    return (
        whole["runAsNonRoot"] is True
        and whole["seccompProfile"] == {"type": "RuntimeDefault"}
        and all(one["allowPrivilegeEscalation"] is False and one["readOnlyRootFilesystem"] is True for one in each)
        and all(one["capabilities"] == {"drop": ["ALL"]} for one in each)
        and pod["enableServiceLinks"] is pod["automountServiceAccountToken"] is False
    )


def compose() -> Examined:
    """Returns the compose file as podman-compose's parser reads it, all profiles at once."""
    written = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    profiles = sorted({name for each in written.values() for name in each["profiles"]})
    words = [word for name in profiles for word in ("--profile", name)]
    read = ran(PROGRAMS / "podman-compose", "--dry-run", "-f", "compose.yaml", *words, "config")
    shown = yaml.safe_load(read.stdout)["services"] if read.returncode == 0 else {}
    engine = next((name for name in ENGINES if shutil.which(name) and ran(name, "info").returncode == 0), None)
    why = f"bring it up: `{engine} compose up`" if engine else "not brought up: no container engine runs here"
    ok = shown.keys() == written.keys()
    error = read.stderr.strip().splitlines() or [f"read {', '.join(shown)}"]
    said = f"{len(shown)} services, profiles {', '.join(profiles)}; {why}" if ok else error[-1]
    return Examined("compose.yaml", "podman-compose's parser", said, ok)


def units() -> list[Examined]:
    """Returns each unit verified and scored by systemd, templates as an instance ``left``."""
    with tempfile.TemporaryDirectory(prefix="assize-units-") as name:
        folder = Path(name)
        shutil.copytree(DEPLOY / "systemd", folder, dirs_exist_ok=True)
        for unit in sorted(folder.glob("*.service")):  # a program that is here, so that all else is looked at
            unit.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
            if unit.stem.endswith("@"):
                shutil.copy(unit, folder / f"{unit.stem}left.service")
        return [verified(unit) for unit in sorted(folder.glob("*.service")) if not unit.stem.endswith("@")]


def verified(unit: Path) -> Examined:
    """Returns what systemd says of one unit and its drop-ins."""
    path = {"SYSTEMD_UNIT_PATH": f"{unit.parent}:"}
    checked = ran("systemd-analyze", "verify", unit, **path)
    scored = ran("systemd-analyze", "security", "--offline=yes", "--no-pager", unit, **path)
    score = re.search(r"exposure level for \S+: ([\d.]+)", scored.stdout)
    problems = checked.stderr.strip()
    ok = checked.returncode == 0 and not problems and score is not None and float(score[1]) <= WORST_EXPOSURE
    said = problems.splitlines()[-1] if problems else f"exposure {score[1] if score else 'unknown'}"
    return Examined(f"systemd/{unit.name}", "systemd-analyze verify, security", said, ok)


if __name__ == "__main__":
    sys.exit(main())
