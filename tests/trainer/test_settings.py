"""What a trainer is told, and what it says of a recipe that will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Misconfigured
from trainer.config import Recipe
from trainer.settings import TrainerSettings, read_recipe

NEEDED = {
    "ASSIZE_TRAINER_ADDRESSES": "addresses.json",
    "ASSIZE_TRAINER_KEYSTORE": "trainer",
    "ASSIZE_TRAINER_STATE_DIR": "state",
    "ASSIZE_TRAINER_RUN": "1",
    "ASSIZE_TRAINER_MODEL": "model",
    "ASSIZE_TRAINER_RUN_FILE": "run.toml",
    "ASSIZE_TRAINER_COORDINATOR_URL": "http://127.0.0.1:1",
}


def settings_file(folder: Path, **changes: str) -> Path:
    path = folder / "trainer.env"
    values = NEEDED | {f"ASSIZE_TRAINER_{name.upper()}": value for name, value in changes.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def run_file(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_settings_come_from_a_file_with_sound_defaults(tmp_path: Path) -> None:
    settings = TrainerSettings.read(settings_file(tmp_path, threads="2"))
    assert (settings.run, settings.threads, settings.origin_host) == (1, 2, "127.0.0.1")
    assert settings.last_version is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": "0"}, "ASSIZE_TRAINER_THREADS"),
        ({"origin_port": "70000"}, "ASSIZE_TRAINER_ORIGIN_PORT"),
        ({"treads": "2"}, "(?i)treads"),
        ({"run": "first"}, "ASSIZE_TRAINER_RUN"),
    ],
)
def test_a_setting_that_will_not_do_is_named(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        TrainerSettings.read(settings_file(tmp_path, **changes))


def test_a_recipe_is_read_over_the_defaults(tmp_path: Path) -> None:
    recipe = read_recipe(run_file(tmp_path, "[recipe]\nsteps = 3\noptimizer_steps = 1\n"))
    assert (recipe.steps, recipe.optimizer_steps) == (3, 1)
    assert recipe.delta == Recipe().delta


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rules]\n", "no \\[recipe\\]"),
        ("[recipe\n", "cannot read the run file"),
        ("recipe = 3\n", "no \\[recipe\\]"),
        ("[recipe]\nsteps = 0\n", "recipe.steps"),
        ("[recipe]\nlerning_rate = 1e-3\n", "recipe.lerning_rate"),
        ("[recipe]\nloss = 'sideways'\n", "recipe.loss"),
    ],
)
def test_a_run_file_that_will_not_do_is_named_with_the_field(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as refused:
        read_recipe(run_file(tmp_path, text))
    assert "\n" not in str(refused.value)
    assert "run.toml" in str(refused.value)


@pytest.mark.parametrize("name", ["async_level", "temperature", "max_tokens", "samples_per_group"])
@pytest.mark.parametrize("preset", ["", "preset = 'builtin'\n"])
def test_a_recipe_that_sets_what_the_rules_set_is_refused(tmp_path: Path, name: str, preset: str) -> None:
    with pytest.raises(Misconfigured, match=f"recipe.{name}: set by the run's rules") as refused:
        read_recipe(run_file(tmp_path, f"[recipe]\n{preset}{name} = 1\n"))
    assert "\n" not in str(refused.value)


def test_a_run_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot read the run file"):
        read_recipe(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Misconfigured, match="cannot read the run file"):
        read_recipe(binary)
