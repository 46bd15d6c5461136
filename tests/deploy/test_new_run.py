"""``assize run new``: a run file with terms that the contract takes, opened on a real chain; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.runs.choices import ProtocolBounds, broken_bounds, round_cost, usual_escrow
from deploy.runs.run_file import read_run_file
from deploy.runs.running import profile_of, roles_of
from protocol.chain.reading.client import Chain
from protocol.environments.environment import at_version
from protocol.environments.registry import environment
from protocol.environments.verifiers import sandbox
from protocol.node.commands.run_file import RunFileTerms
from protocol.node.profile import Profile
from protocol.node.wallet import Keystores
from protocol.tensor.directory import tokenizer_hash
from protocol.wire import manifest
from protocol.wire.rules import decode_rules
from protocol.wire.tasks import TaskHeader, TaskRow, TaskSource, encode_tasks, tasks_root
from tests.conftest import TERMS, TOKEN
from tests.node.conftest import Assize, assize
from tests.worker.conftest import small_model

__all__ = ["assize", "small_model"]

BOUNDS = ProtocolBounds(TERMS.market, TERMS.rounds, 8)
FINE = RunFileTerms(
    jobs_per_round=16,
    price_per_unit=TOKEN // 2_000_000,
    juror_fee=TOKEN,
    max_units=1_000_000,
    committee=3,
    appeal_seats=5,
    work_seconds=300,
    draw_seconds=60,
    commit_seconds=60,
    reveal_seconds=60,
    challenge_seconds=60,
)


def words_of(model: Path, folder: Path, *more: object) -> tuple[object, ...]:
    parties = ("--coordinator", "box", "--trainer", "alice")
    return ("run", "new", folder, "--model", model, *parties, "--yes", "--json", *more)


def test_a_new_run_is_written_opened_and_funded_with_nothing_but_a_model(
    assize: Assize, chain: Chain, small_model: Path, tmp_path: Path
) -> None:
    assert assize("wallet", "drip", 5000).code == 0
    folder = tmp_path / "my run"
    told = assize(*words_of(small_model, folder, "--open", "--escrow", "100")).json
    run = chain.latest().run(told["run"])
    assert run.escrow == 100 * TOKEN
    root = manifest.from_directory(small_model, 0).root
    assert chain.latest().manifest_root(told["run"], 0) == root
    assert told["model_root"] == "0x" + root.hex()
    assert decode_rules((folder / "rules.json").read_bytes(), run.terms.rules_hash).pins
    read = read_run_file(folder / "run.toml")
    assert read.terms.on_chain(run.terms.coordinator, run.terms.trainer, run.terms.rules_hash) == run.terms
    assert read.recipe.groups_per_step == 64
    profile = profile_of(folder)
    assert profile.table("trainer")["run"] == told["run"] == profile.table("coordinator")["run"]
    assert (profile.table("trainer")["keystore"], profile.table("coordinator")["keystore"]) == ("alice", "box")
    assert told["next"][0] == f"assize run up '{folder}'"
    terms = read.terms
    assert told["rounds_about"] == 1.5 * told["steps"]
    assert int(told["the_run_costs_about_wei"]) == told["rounds_about"] * int(told["a_round_costs_at_most_wei"]) > 0
    windows = (terms.work_seconds, terms.draw_seconds, terms.commit_seconds, terms.reveal_seconds)
    assert told["windows_last_about_seconds"] == told["rounds_about"] * (sum(windows) + terms.challenge_seconds)


def test_a_coordinator_with_its_key_elsewhere_has_no_part_of_the_folder_and_the_origin_is_reached_from_there(
    assize: Assize, chain: Chain, small_model: Path, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "my run", "0x00000000000000000000000000000000000A5512"
    urls = ("--uri", "http://far.example:8001", "--origin", "http://near.example:8711")
    words = ("--model", small_model, "--coordinator", elsewhere, "--trainer", "alice", *urls, "--open", "--yes")
    told = assize("run", "new", folder, *words, "--json").json
    assert chain.latest().run(told["run"]).terms.coordinator == elsewhere
    profile = profile_of(folder)
    assert (roles_of(profile), profile.table("coordinator")) == (("trainer",), {})
    trainer = profile.table("trainer")
    assert (trainer["origin_host"], trainer["origin_port"]) == ("0.0.0.0", 8711)
    assert trainer["coordinator_url"] == "http://far.example:8001"
    assert told["next"][0] == f"assize run up '{folder}'"


def test_a_requester_without_keys_or_tokens_is_given_both_on_a_local_chain(
    assize: Assize, chain: Chain, small_model: Path, tmp_path: Path
) -> None:
    own = ("--keystore", "rita", "--open", "--yes", "--json")
    told = assize("run", "new", tmp_path / "own", "--model", small_model, *own).json
    run = chain.latest().run(told["run"])
    parties = [
        Keystores(tmp_path / "keystores").address_of(name) for name in ("rita", "rita-coordinator", "rita-trainer")
    ]
    assert [run.requester, run.terms.coordinator, run.terms.trainer] == parties
    assert run.escrow == int(told["escrow_wei"])
    assert all(chain.latest().native_balance(address) > 0 for address in parties)
    again = assize("run", "new", tmp_path / "own", "--model", small_model, *own).json
    assert again["run"] == told["run"], "typed again it goes on, and opens no other"
    assert chain.latest().run(told["run"]).escrow == run.escrow
    other = assize("run", "new", tmp_path / "own", "--model", small_model, *own, "--jobs-per-round", 4)
    assert (other.code, chain.latest().run_count()) == (2, told["run"])


def test_keystores_that_are_files_are_found_from_the_run_s_folder(
    assize: Assize, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assize("wallet", "drip", 5000).code == 0
    monkeypatch.chdir(tmp_path)
    alice, box = (f"./keystores/{name}.json" for name in ("alice", "box"))
    words = ("--keystore", alice, "--coordinator", box, "--trainer", alice, "--open", "--yes", "--json")
    told = assize("run", "new", "filed", "--model", small_model, *words).json
    profile = Profile.read(tmp_path / "filed" / "assize.toml")
    assert told["run"] == profile.table("trainer")["run"]
    kept = [profile.keystore, *(profile.table(role)["keystore"] for role in ("coordinator", "trainer"))]
    assert kept == [str(tmp_path / "keystores" / f"{name}.json") for name in ("alice", "box", "alice")]


@pytest.mark.parametrize(
    "held", ["", "[coordinator]\nrun = 1\n", "[coordinator]\nrun = 1\nport = 1\nrules = 'r'\n[trainer]\nrun = 1\n"]
)
def test_a_folder_that_is_none_of_a_run_is_told_before_anything_starts(
    assize: Assize, tmp_path: Path, held: str
) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "assize.toml").write_text(held)
    done = assize("run", "up", tmp_path / "half")
    assert (done.code, done.err.count("expected the folder of a run whose coordinator")) == (2, 1)
    assert not (tmp_path / "half" / "state").exists()


def test_a_run_file_is_opened_later_and_options_override_it(
    assize: Assize, chain: Chain, small_model: Path, tmp_path: Path
) -> None:
    made = assize(*words_of(small_model, tmp_path / "later")).json
    opened = assize("run", "open", "--file", made["run_file"], "--work-seconds", 77, "--json").json
    terms = chain.latest().run(opened["run"]).terms
    assert (terms.work_seconds, terms.draw_seconds) == (77, 60)
    again = assize(*words_of(small_model, tmp_path / "later"))
    assert (again.code, again.err.count("exists: give another folder")) == (2, 1)


def test_wrong_answers_are_one_sentence_each(assize: Assize, small_model: Path, tmp_path: Path) -> None:
    for more, sentence in (
        (("--model", tmp_path / "none"), "expected a Hugging Face directory"),
        (("--committee", 2), "committee 2: expected an odd number from 1 to 15"),
        (("--price-per-unit", "1"), "a job would pay"),
        (("--params", '{"digits": 99}'), "invalid arithmetic 'digits' 99"),
        (("--params", "7"), "expected a JSON object"),
        (("--environment", "chess"), "unknown environment 'chess'"),
        (("--uri", "nowhere"), "invalid URL 'nowhere'"),
        (("--uri", "http://here:70000"), "invalid URL 'http://here:70000'"),
        (("--origin", "nowhere"), "invalid URL 'nowhere'"),
        (("--start",), "--json ends with its one line"),
        (("--open", "--keystore", "0x" + "11" * 20), "expected the name or file of a key"),
        (("--escrow", "0"), "it is 0, expected more"),
        (("--trainer", "nobody"), "nobody"),
    ):
        done = assize(*words_of(small_model, tmp_path / "wrong", *more))
        assert done.code == 2, (more, done.out, done.err)
        assert sentence in done.err
        assert "Traceback" not in done.err
    assert not (tmp_path / "wrong").exists()
    unasked = assize("run", "new", tmp_path / "wrong", "--model", small_model)
    assert "there is no terminal to ask at" in unasked.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"committee": 4}, "committee 4: expected an odd number"),
        ({"appeal_seats": 3}, "appeal seats 3: expected 0 for none, or odd and at least 5"),
        ({"challenge_seconds": 0}, "expected both or neither to be 0"),
        ({"price_per_unit": TOKEN}, "the highest price is 1000000000000wei"),
        ({"work_seconds": 100_000}, "a round with all redraws would last"),
    ],
)
def test_each_bound_of_the_contract_has_a_sentence(changes: dict[str, int], words: str) -> None:
    sentence, *_ = broken_bounds(FINE.model_copy(update=changes), BOUNDS)
    assert words in sentence


def test_the_minimums_of_the_deployment_are_kept() -> None:
    strict = replace(BOUNDS, market=replace(TERMS.market, min_commit_seconds=90, min_juror_fee=2 * TOKEN))
    assert broken_bounds(FINE, strict) == [
        "commit seconds 60: expected at least 90",
        "juror fee 1 ASZ: expected at least 2 ASZ",
    ]
    assert broken_bounds(FINE, BOUNDS) == []
    assert usual_escrow(FINE) >= 20 * round_cost(FINE)


def tasks_of(model: Path, path: Path, *rows: TaskRow) -> Path:
    """Writes a file of tasks in the tokens of ``model``."""
    path.write_bytes(encode_tasks(TaskHeader(tokenizer_hash(model), (TaskSource("own", 1),)), rows))
    return path


def test_a_run_on_a_file_of_tasks_has_their_root_in_its_rules_and_the_file_in_version_0(
    assize: Assize, chain: Chain, small_model: Path, tmp_path: Path
) -> None:
    assert assize("wallet", "drip", 5000).code == 0
    folder, rows = tmp_path / "run", [TaskRow((3, 4, 5), "7", "exact"), TaskRow((3, 4, 6, 7), "8", "math")]
    tasks = tasks_of(small_model, tmp_path / "tasks.parquet", *rows)
    words = words_of(small_model, folder, "--open", "--escrow", "100", "--tasks", tasks, "--once")
    told = assize(*words).json
    rules = decode_rules((folder / "rules.json").read_bytes(), chain.latest().run(told["run"]).terms.rules_hash)
    root = "0x" + tasks_root(tasks.read_bytes()).hex()
    assert rules.environment.name == "tasks"
    assert rules.environment.params == {"root": root, "longest_prompt": 4, "once": True}
    assert {file.name: "0x" + file.hash.hex() for file in rules.pins}["tasks.parquet"] == root
    assert told["model_root"] == "0x" + manifest.from_directory(folder / "model", 0).root.hex()
    assert chain.latest().manifest_root(told["run"], 0).hex() == told["model_root"][2:]
    opened = at_version(environment("tasks", rules.environment.params), folder / "model")
    assert opened.problem(bytes(32)).prompt in {row.prompt_tokens for row in rows}
    tasks_of(small_model, tasks, *rows, TaskRow((3,), "9", "exact"))
    refused = assize(*words)
    assert refused.code == 2
    assert "has other files than this run's model and tasks" in refused.err


def test_tasks_that_a_run_could_not_use_are_refused_before_anything_is_written(
    assize: Assize, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder, row = tmp_path / "tasks.parquet", tmp_path / "run", TaskRow((3,), "7", "exact")
    code = TaskRow((3,), "", "code", '{"calls":[{"call":"f()","result":"1"}]}')

    def refusal(*more: object) -> str:
        done = assize(*words_of(small_model, folder, "--tasks", file, *more))
        assert done.code == 2
        assert not folder.exists()
        return done.err

    assert "cannot read the tasks" in refusal()
    file.write_bytes(b"PAR1 and more")
    assert "expected a file of assize tasks build" in refusal()
    other = TaskHeader(bytes(32), (TaskSource("own", 1),))
    file.write_bytes(encode_tasks(other, [row]))
    assert "is of another tokenizer than" in refusal()
    tasks_of(small_model, file, TaskRow((10_000,), "7", "exact"))
    assert "has token 10000: the model" in refusal()
    tasks_of(small_model, file, TaskRow((3,), "7", "guess"))
    assert "unknown verifier 'guess': expected one of" in refusal()
    tasks_of(small_model, file, row, replace(code, info="{}"))
    assert "invalid task 1: invalid tests of a program" in refusal()
    assert "leave them out" in refusal("--chat")
    tasks_of(small_model, file, code)
    monkeypatch.setattr(sandbox, "_refusal", lambda: "no sandbox: install bubblewrap")
    assert "no sandbox: install bubblewrap" in refusal()
