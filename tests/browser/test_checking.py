"""The check's own arithmetic, in the browser, on the vectors that Python and Solidity share."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from eth_hash.auto import keccak
from playwright.sync_api import Browser, Page

from protocol.wire.rollout import Artifact, Rollout, encode
from tests.artifacts import blob_of
from tests.conftest import ROOT

SOURCES = ROOT / "ledger" / "explorer" / "browser" / "src" / "checking"
MODULES = ROOT / ".venv" / "explorer" / "node_modules"
VECTORS = {
    name: json.loads((ROOT / f"tests/vectors/{name}.json").read_text()) for name in ("artifact", "contracts", "request")
}


@pytest.fixture(scope="module")
def checking(browser: Browser) -> Iterator[Page]:
    """A page with every function of the check under the name ``checking``."""
    entry = "".join(f"export * from './{path.name}';" for path in sorted(SOURCES.glob("*.js")))
    command = (
        MODULES / ".bin" / "esbuild",
        "--bundle",
        "--format=iife",
        "--global-name=checking",
        "--log-level=warning",
    )
    bundled = subprocess.check_output(
        command, input=entry, text=True, cwd=SOURCES, env={"NODE_PATH": str(MODULES), "PATH": "/usr/bin:/bin"}
    )
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.add_script_tag(content=bundled)
        yield page


@pytest.mark.parametrize("vector", VECTORS["artifact"]["vectors"])
def test_artifacts_have_the_roots_of_the_vectors(checking: Page, vector: dict[str, Any]) -> None:
    rollouts = tuple(
        Rollout(
            each["prompt_tokens"],
            each["output_tokens"],
            np.array([int(bits, 16) for bits in each["logprob_bits"]], dtype=np.uint32).view(np.float32),
            tuple(bytes.fromhex(proof) for proof in each["proofs"]),
            each["finish_reason"],
        )
        for each in vector["rollouts"]
    )
    root, canary = bytes.fromhex(vector["manifest_root"]), bytes.fromhex(vector["canary"])
    file = encode(Artifact(int(vector["round"]), vector["job"], vector["node"], root, rollouts, canary))
    found = checking.evaluate(
        """([chain, rounds, blob]) => {
            const { file, root, size, fileHash } = checking.splitBlob(checking.bytes(blob));
            const artifact = checking.readArtifact(file);
            const lines = artifact.rollouts.map((each, index) => checking.hex(checking.canonicalRollout(index, each)));
            const found = checking.rolloutsRoot(chain, rounds, artifact);
            return { lines, root, size: Number(size), fileHash, found, round: artifact.round, job: artifact.job };
        }""",
        [vector["chain_id"], vector["rounds"], "0x" + blob_of(vector["chain_id"], vector["rounds"], file).hex()],
    )
    assert found["lines"] == ["0x" + line for line in vector["canonical"]]
    assert found["found"] == "0x" + vector["rollouts_root"]
    assert (found["size"], found["fileHash"]) == (len(file), "0x" + keccak(file).hex())
    assert (found["round"], found["job"]) == (vector["round"], str(vector["job"]))
    head = [vector["rollouts_root"], keccak(bytes.fromhex(vector["file"])).hex(), f"{len(vector['file']) // 2:016x}"]
    rooted = "head => checking.splitBlob(checking.bytes(head)).root"
    assert checking.evaluate(rooted, "0x" + "".join(head)) == "0x" + vector["artifact_root"]


def test_signatures_are_those_of_the_vectors(checking: Page) -> None:
    signed = """([name, chainId, contract, primary, values, fields, signature]) => {
        const hash = checking.digest({ name, chainId, contract }, primary, values, fields);
        return [checking.hex(hash), checking.signer(hash, signature)];
    }"""
    said, binding = VECTORS["contracts"]["submission"], VECTORS["contracts"]["node_binding"]
    values = [said[name] for name in ("round", "node", "beacon", "leaves", "uri")]
    asked = ["Assize Rounds", said["chainId"], said["rounds"], "Submission", values, None, said["signature"]]
    script = signed.replace("values, fields)", "values, fields ?? undefined)")
    assert checking.evaluate(script, asked) == [said["digest"], said["signer"].lower()]
    fields = "address owner,address key,uint8 role,uint32 capacity,uint256 deadline"
    values = [binding[name] for name in ("owner", "key", "role", "capacity", "deadline")]
    asked = [
        "Assize Registry",
        binding["chainId"],
        binding["registry"],
        "NodeBinding",
        values,
        fields,
        binding["signature"],
    ]
    assert checking.evaluate(script, asked) == [binding["digest"], binding["key"].lower()]
    request = VECTORS["request"]
    fields = "uint256 run,string method,string path,bytes32 body,uint256 nonce,uint256 deadline"
    values = [request["audience"]["run"], request["method"], request["path"], request["headers"]["Assize-Body"]]
    values += [request["nonce"], request["deadline"]]
    place = [request["audience"]["chain_id"], request["audience"]["rounds"]]
    asked = ["Assize Request", *place, "Request", values, fields, request["headers"]["Assize-Signature"]]
    assert checking.evaluate(script, asked) == [request["digest"], request["headers"]["Assize-Address"].lower()]


def test_a_second_signature_made_without_the_key_counts_for_nothing(checking: Page) -> None:
    said = VECTORS["contracts"]["submission"]
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    r, s, v = said["signature"][2:66], int(said["signature"][66:130], 16), int(said["signature"][130:], 16)
    mirrored = f"0x{r}{order - s:064x}{55 - v:02x}"
    found = checking.evaluate(
        "given => checking.signer(checking.bytes(given[0]), given[1])", [said["digest"], mirrored]
    )
    assert found.startswith("no key")


def test_commitments_and_draws_are_those_of_the_vectors(checking: Page) -> None:
    said = VECTORS["contracts"]["commitment"]
    vote = {**said, "evidence_root": said["evidenceRoot"]}
    script = "given => checking.commitment(given.chainId, given.rounds, given)"
    assert checking.evaluate(script, vote) == said["commitment"]
    drawn = "given => checking.draw(given.seed, given.attempt, given.slotCount, BigInt(given.eligible), given.seats)"
    for vector in VECTORS["contracts"]["draws"]:
        assert checking.evaluate(drawn, vector) == vector["slots"]


def test_every_event_of_the_contracts_is_known_by_its_topic(checking: Page) -> None:
    from protocol.chain.abi import CONTRACTS, artifact
    from protocol.chain.reading.decoding import topic_of

    known = checking.evaluate("checking.EVENTS.map(({ contract, name, topic }) => [contract, name, topic])")
    for contract in CONTRACTS:
        if contract in ("Rounds", "Registry", "Market", "Credits", "Traps"):
            events = [entry for entry in artifact(contract)["abi"] if entry["type"] == "event"]
            assert {(contract, entry["name"], topic_of(entry)) for entry in events} <= set(map(tuple, known))


def test_bytes_of_another_layout_are_refused_and_never_waited_for(checking: Page) -> None:
    made = Artifact(1, 0, 1, bytes(32), (Rollout([1], [2], np.zeros(1, np.float32), (), "stop"),))
    file = encode(made)
    reads = (
        "given => { try { return checking.readArtifact(checking.bytes(given)).rollouts.length } catch { return 'no' } }"
    )
    assert checking.evaluate(reads, "0x" + file.hex()) == 1
    for broken in (file[:40], file[:8] + b"\xff" * 20 + file[28:], b"\xff" * 200, file[4:]):
        assert checking.evaluate(reads, "0x" + broken.hex()) != 1


def test_text_that_is_none_keeps_its_bytes_for_its_signature(checking: Page) -> None:
    data = b"".join(number.to_bytes(32, "big") for number in (0, 7, 160, 192, 256)) + bytes(32)
    data += (2).to_bytes(32, "big") + b"a\xff".ljust(32, b"\0") + bytes(32)
    script = """data => {
        const event = checking.EVENTS.find((each) => each.name === 'Submitted');
        const payload = checking.decodePayload(event, [event.topic, checking.hex(checking.word(1)), '0x02'], data);
        return [payload.uri, payload.raw, Object.keys(payload)];
    }"""
    names = ["round", "node", "batch", "beacon", "leaves", "uri", "signature"]
    assert checking.evaluate(script, "0x" + data.hex()) == ["a\ufffd", "0x61ff", names]
