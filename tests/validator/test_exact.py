"""Runs that compare bits: honest work of the class is accepted, and one token or hidden state of another is void."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured, Rejected
from protocol.tensor import measured_canary
from protocol.tensor.determinism import AnotherClass, ExactShape, class_in_words, made_by, with_canary
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout
from protocol.wire.rollout import decode as decode_artifact
from protocol.wire.rules import ExactRules, Rules, Thresholds, decode_rules, encode_rules, rules_hash, with_checkpoint
from tests.validator.conftest import BEACON, CHAIN_ID, MANIFEST_ROOT, MAX_UNITS, ROUNDS, RULES, Court, fetched, signed
from validator.commands import app
from validator.judging.claims import Claim
from validator.judging.judge import Judgement, examine, judge
from validator.judging.weights import load_policy
from validator.records.record import EvidenceState
from validator.review.inspection import Inspection
from validator.review.judgement_report import classes
from worker.engines.registry import make_engine
from worker.engines.transformers_engine import TransformersEngine
from worker.producer import Producer
from worker.prover import Deployed, Work

BOUNDS = Thresholds(
    sampling_void=20.0, sampling_fraud=40.0, logprob_median=0.1, logprob_tail=2.0, toploc=0.5, toploc_mean=0.4
)
PROOFS = ("both", "hash")


def exact_rules(directory: Path, proofs: str) -> Rules:
    """Rules in bfloat16 whose noise would let much pass, for the class of this machine."""
    named = ExactRules.model_validate({"window": 16, "proofs": proofs})
    model = RULES.model.model_copy(update={"dtype": "bfloat16", "head_dtype": "bfloat16", "exact": named})
    rules = RULES.model_copy(update={"model": model, "thresholds": BOUNDS})
    return with_canary(with_checkpoint(rules, directory), directory)


@pytest.fixture(scope="module", autouse=True)
def nothing_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of their own for the canaries of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSIZE_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", params=PROOFS)
def exact(request: pytest.FixtureRequest, model_directory: Path) -> Court:
    """A court of a run that compares bits."""
    rules = exact_rules(model_directory, request.param)
    return Court(load_policy(model_directory, rules), rules, Arithmetic(2))


@pytest.fixture(scope="module")
def job(exact: Court, model_directory: Path) -> tuple[Claim, bytes]:
    """An honest job, and its claim."""
    engine = make_engine("transformers", "bfloat16", exact=ExactShape.of(exact.rules))
    producer = Producer(engine, exact.rules, exact.environment, Deployed(CHAIN_ID, ROUNDS))
    producer.load(0, model_directory)
    work = Work(1, 7, (0, 1), BEACON, 0, MANIFEST_ROOT, MAX_UNITS)
    finished = producer.make(work)[1]
    claim = Claim(
        chain_id=CHAIN_ID,
        rounds=ROUNDS,
        round=1,
        job=1,
        node=7,
        beacon=BEACON,
        signed_beacon=BEACON,
        manifest_root=MANIFEST_ROOT,
        units=finished.units,
        max_units=MAX_UNITS,
        root=finished.root,
        uri="http://127.0.0.1:1/artifacts/",
        claimed_before=False,
    )
    return claim, finished.file


def tampered(exact: Court, job: tuple[Claim, bytes], change: Callable[[Rollout], Rollout]) -> Judgement:
    """The judgement of a job whose first rollout was changed."""
    claim, file = job
    artifact: Artifact = decode_artifact(file)
    first, *rest = artifact.rollouts
    claim, file = signed(claim, replace(artifact, rollouts=(change(first), *rest)))
    (judgement,) = judge(exact.policy, exact.rules, [fetched(claim, file)])
    return judgement


def test_honest_work_of_the_class_is_accepted_beside_other_jobs_and_alone(
    exact: Court, job: tuple[Claim, bytes]
) -> None:
    (alone,) = judge(exact.policy, exact.rules, [fetched(*job)])
    again, twice = judge(exact.policy, exact.rules, [fetched(*job)] * 2)
    assert [one.reason for one in (alone, again, twice)] == [Reason.ACCEPTED] * 3
    measured = alone.evidence.measurements
    assert measured is not None
    assert not measured.flips_N.any()


def test_one_bit_of_one_hash_makes_a_job_void(exact: Court, job: tuple[Claim, bytes]) -> None:
    def flip(rollout: Rollout) -> Rollout:
        last = rollout.proofs[-1]
        return replace(rollout, proofs=(*rollout.proofs[:-1], last[:-1] + bytes([last[-1] ^ 1])))

    judgement = tampered(exact, job, flip)
    assert judgement.reason is Reason.INEXACT
    assert [finding.detail for finding in judgement.evidence.findings] == ["a chunk has another hash"]
    assert not judgement.reason.fraud


def test_one_token_that_is_not_the_choice_makes_a_job_void(exact: Court, job: tuple[Claim, bytes]) -> None:
    """However little it is behind: the bound for engines that differ would let it pass."""

    def other(rollout: Rollout) -> Rollout:
        tokens = rollout.output_tokens.copy()
        tokens[-2] = (tokens[-2] + 1) % exact.policy.vocabulary
        return replace(rollout, output_tokens=tokens)

    assert tampered(exact, job, other).reason is Reason.INEXACT


@pytest.mark.parametrize("cut", [0, 1, 31])
def test_proofs_of_another_form_than_the_rules_ask_for_are_void(
    exact: Court, job: tuple[Claim, bytes], cut: int
) -> None:
    judgement = tampered(
        exact, job, lambda rollout: replace(rollout, proofs=tuple(proof[:cut] for proof in rollout.proofs))
    )
    assert judgement.reason is Reason.SHAPE


def test_a_machine_of_another_class_serves_neither_as_worker_nor_as_validator(model_directory: Path) -> None:
    rules = exact_rules(model_directory, "both")
    other = of_class(rules, b"\xab" * 32, "another machine")
    engine = TransformersEngine("bfloat16", exact=ExactShape.of(other))
    for load in (lambda: load_policy(model_directory, other), lambda: engine.load(model_directory)):
        with pytest.raises(AnotherClass) as refused:
            load()
        own = f"0x{rules.canary.hex()[:16]}… ({made_by('cpu')})"
        assert f"this machine is of the determinism class {own}, the run of 0x{'ab' * 8}… (another machine)" in str(
            refused.value
        )


def of_class(rules: Rules, canary: bytes, made_by: str) -> Rules:
    """The rules for machines of another class."""
    assert rules.model.exact is not None
    foreign = rules.model.exact.model_copy(update={"canary": f"0x{canary.hex()}", "made_by": made_by})
    return rules.model_copy(update={"model": rules.model.model_copy(update={"exact": foreign})})


@pytest.mark.parametrize("claimed", [bytes(32), b"\xcd" * 32])
def test_an_artifact_of_another_class_is_void_and_the_finding_names_both(
    exact: Court, job: tuple[Claim, bytes], claimed: bytes
) -> None:
    claim, file = job
    artifact = decode_artifact(file)
    assert artifact.canary == exact.rules.canary != bytes(32)
    (examined,) = examine(exact.policy, exact.rules, [fetched(*signed(claim, replace(artifact, canary=claimed)))])
    assert examined.judgement.reason is Reason.INEXACT
    (finding,) = examined.judgement.evidence.findings
    named = "the determinism class 0xcdcdcdcdcdcdcdcd…" if any(claimed) else "no determinism class"
    own = f"0x{exact.rules.canary.hex()[:16]}… ({made_by('cpu')})"
    assert finding.detail == f"the artifact claims {named}, the run is of {own}"
    shown = classes(Inspection(examined.judgement, exact.rules, exact.policy, examined, EvidenceState(), True))
    assert shown == {"class claimed": f"0x{claimed.hex()}", "class of the run": f"0x{exact.rules.canary.hex()}"}


def test_a_machine_that_measured_its_class_needs_no_model_to_say_so(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, fetched_into, threads = exact_rules(model_directory, "both"), list[Path](), torch.get_num_threads()
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path))

    def fetch(place: Path) -> None:
        fetched_into.append(place)
        shutil.copytree(model_directory, place, ignore=shutil.ignore_patterns("*.safetensors"))

    for _ in range(2):
        monkeypatch.setattr(measured_canary, "_known", {})
        assert f"class 0x{rules.canary.hex()[:16]}… ({made_by('cpu')})" in class_in_words(rules, fetch, "cpu", 1)
    assert len(fetched_into) == 1
    assert not fetched_into[0].exists()
    for _ in range(2):
        with pytest.raises(AnotherClass):
            class_in_words(of_class(rules, b"\xab" * 32, "another machine"), fetch, "cpu", 1)
    assert len(fetched_into) == 3
    assert torch.get_num_threads() == threads


def test_an_artifact_names_the_class_that_was_measured_whatever_its_rules_say(
    exact: Court, model_directory: Path
) -> None:
    engine = make_engine("transformers", "bfloat16", exact=ExactShape.of(exact.rules))
    elsewhere = of_class(exact.rules, b"\xab" * 32, "another machine")
    producer = Producer(engine, elsewhere, exact.environment, Deployed(CHAIN_ID, ROUNDS))
    producer.load(0, model_directory)
    (made,) = producer.make(Work(1, 7, (0,), BEACON, 0, MANIFEST_ROOT, MAX_UNITS))
    assert decode_artifact(made.file).canary == exact.rules.canary


def test_an_engine_that_cannot_decode_exactly_is_refused(model_directory: Path) -> None:
    shape = ExactShape.of(exact_rules(model_directory, "both"))
    with pytest.raises(Misconfigured, match=r"invalid engine 'vllm' .*: expected transformers"):
        make_engine("vllm", "bfloat16", exact=shape)


def test_rules_of_a_run_that_compares_bits_name_their_class(model_directory: Path) -> None:
    rules = exact_rules(model_directory, "hash")
    assert decode_rules(encode_rules(rules), rules_hash(encode_rules(rules))) == rules
    assert rules.model.exact is not None
    assert rules.model.exact.canary is not None
    unnamed = rules.model.exact.model_copy(update={"canary": None})
    encoded = encode_rules(rules.model_copy(update={"model": rules.model.model_copy(update={"exact": unnamed})}))
    assert decode_rules(encoded).model.exact == unnamed
    with pytest.raises(Rejected, match="name no canary"):
        decode_rules(encoded, rules_hash(encoded))


def test_the_class_changes_with_format_and_window_and_not_with_the_weights(
    model_directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    Court.make_model(other, 77)
    canaries = {
        (directory, dtype, window): with_canary(
            RULES.model_copy(
                update={
                    "model": RULES.model.model_copy(
                        update={"dtype": dtype, "head_dtype": dtype, "exact": ExactRules(window=window)}
                    )
                }
            ),
            directory,
        ).model.exact
        for directory in (model_directory, other)
        for dtype in ("float32", "bfloat16")
        for window in (16, 24)
    }
    assert len({(dtype, window, found.canary) for (_, dtype, window), found in canaries.items() if found}) == 4
    assert len({found.canary for found in canaries.values() if found}) == 4


def test_a_class_is_compared_with_itself_by_one_command(model_directory: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_bytes(encode_rules(exact_rules(model_directory, "hash")))
    words = [
        "compare-class",
        "--rules",
        str(rules),
        "--model",
        str(model_directory),
        "--tokens",
        "300",
        "--threads",
        "2",
    ]
    done = CliRunner().invoke(app, words)
    found = json.loads(done.output.splitlines()[-1])
    assert (done.exit_code, found["differing_tokens"], found["differing_chunks"]) == (0, 0, 0)
    assert found["tokens"] >= 9
    assert found["canaries"]["1"] == exact_rules(model_directory, "hash").canary.hex()
    rules.write_bytes(encode_rules(RULES))
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "expected those of a run that compares bits" in refused.output


def test_greedy_choices_are_no_ground_for_equal_bits(model_directory: Path) -> None:
    fields = exact_rules(model_directory, "hash").model_dump(mode="json") | {"temperature": 0.0}
    with pytest.raises(ValueError, match="ties would be free choices"):
        Rules.model_validate(fields)
