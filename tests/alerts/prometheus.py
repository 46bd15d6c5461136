"""A Prometheus of our own, which scrapes what a file of targets names every second."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.localnet.processes import free_port
from protocol.errors import Misconfigured, Unavailable

MISSING = "promtool and prometheus are not installed: run `apt-get install -y --no-install-recommends prometheus`"
STARTING_SECONDS = 30.0


def program(name: str) -> str:
    """Returns the path of a program of Prometheus; raises ``Misconfigured`` with the line that installs it."""
    found = shutil.which(name)
    if found is None:
        raise Misconfigured(MISSING)
    return found


class Prometheus:
    """One Prometheus, in ``folder``."""

    def __init__(self, folder: Path, rules: Mapping[str, Any]) -> None:
        folder.mkdir()
        self._targets = folder / "targets.json"
        self.scrape({})
        (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "assize", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=10)
        self._wait_until_ready()

    def scrape(self, targets: Mapping[str, tuple[str, int]]) -> None:
        """Scrapes these targets from now on: name to role and port."""
        found = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"role": role, "name": name}}
            for name, (role, port) in targets.items()
        ]
        part = self._targets.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(self._targets)

    def firing(self) -> dict[str, set[str]]:
        """Returns the alerts that fire, each with the names of the targets that it is about."""
        found: dict[str, set[str]] = {}
        for alert in self._http.get("/api/v1/alerts").json()["data"]["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], set()).add(alert["labels"].get("name", ""))
        return found

    def close(self) -> None:
        """Ends it."""
        self._http.close()
        self._process.terminate()
        self._process.wait(30)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self._http.get("/-/ready").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        self.close()
        raise Unavailable("prometheus did not start")
