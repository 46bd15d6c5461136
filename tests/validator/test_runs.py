"""A run is learnt once, and only under the very rules whose hash stands on chain."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from protocol.errors import Rejected
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.rules import encode_rules
from tests.dripping import drip_body, dripping
from tests.validator.scene import Cast, Scene
from validator.judging.runs import Runs


def runs_of(scene: Scene, directory: Path) -> Runs:
    deployment = scene.chain.deployment
    client = RunCoordinators([scene.url], scene.jurors[0].key, deployment.chain_id, deployment.rounds)
    return Runs(client, deployment, directory, (scene.origin_url,))


def test_rules_of_another_hash_than_the_chains_are_refused(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene(validators=1)
    terms = scene.chain.latest().run(scene.run).terms
    looser = scene.court.rules.thresholds.model_copy(update={"sampling_void": 9.0})
    other = encode_rules(scene.court.rules.model_copy(update={"thresholds": looser}))
    served = scene.files / "rules" / f"0x{terms.rules_hash.hex()}"
    right = served.read_bytes()
    served.write_bytes(other)
    with closing(runs_of(scene, tmp_path / "one")) as runs, pytest.raises(Rejected, match="hash"):
        runs.context(scene.run, terms)
    served.write_bytes(right)
    with closing(runs_of(scene, tmp_path / "two")) as runs:
        assert runs.context(scene.run, terms).rules == scene.court.rules


def test_a_coordinator_that_drips_holds_no_tick_of_a_validator(make_scene: Callable[..., Scene], cast: Cast) -> None:
    scene = make_scene()
    with dripping(drip_body) as url:
        juror = cast.juror("far", scene.origin_url, coordinator_urls=(url,))
        opened = scene.open()
        scene.submit(opened, scene.work(opened), {0, 1})
        started = time.monotonic()
        for _ in range(20):
            juror.validator.tick()
        assert time.monotonic() - started < 5
        juror.close()
