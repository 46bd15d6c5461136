"""Manifests: one form, one root, and nothing that reaches outside its directory."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Misconfigured, Rejected
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Manifest, ManifestFile

MARKET = "0x" + "11" * 20
CHUNK = 1024


@st.composite
def some_manifests(draw):
    names = draw(
        st.lists(
            st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True), min_size=1, max_size=5, unique=True
        )
    )
    files = []
    for name in sorted(names):
        size = draw(st.integers(0, 5 * CHUNK))
        count = -(-size // CHUNK)
        hashes = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=count, max_size=count))
        files.append(ManifestFile(name, size, tuple(hashes)))
    return Manifest(draw(st.integers(0, 2**32 - 1)), CHUNK, tuple(files))


def a_directory(tmp_path):
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    return tmp_path


@given(some_manifests())
@settings(deadline=None)
def test_what_is_written_is_parsed(manifest):
    assert manifests.parse(manifest.canonical) == manifest
    assert sum(chunk.size for chunk in manifest.chunks()) == manifest.size


@given(st.binary(max_size=200) | st.text(max_size=50).map(str.encode))
def test_any_bytes_are_refused(data):
    for parse in (manifests.parse, manifests.parse_signed):
        with pytest.raises(Rejected):
            parse(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
@settings(max_examples=50, deadline=None)
def test_any_json_is_refused(value):
    with pytest.raises(Rejected):
        manifests.parse(json.dumps(value).encode())


def test_deep_nesting_and_huge_numbers_are_refused():
    for data in (b"[" * 100_000, b'{"version":' + b"9" * 5000 + b"}"):
        with pytest.raises(Rejected):
            manifests.parse(data)


@pytest.mark.parametrize(
    "name",
    ["../config.json", "a/b", "/etc/passwd", "..", ".", ".hidden", "", "a" * 101, "a\\b", "a\x00", "ä", "a b", "a\n"],
)
def test_a_name_that_is_not_flat_is_refused(tmp_path, name):
    value = json.loads(manifests.from_directory(a_directory(tmp_path), 1, CHUNK).canonical)
    value["files"] = [value["files"][0] | {"name": name}]
    with pytest.raises(Rejected):
        manifests.parse(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value | {"extra": 1},
        lambda value: value | {"version": -1},
        lambda value: value | {"version": 2**32},
        lambda value: value | {"version": True},
        lambda value: value | {"version": 1.0},
        lambda value: value | {"chunk_bytes": 0},
        lambda value: value | {"chunk_bytes": 1 << 40},
        lambda value: value | {"format": "assize/manifest/2"},
        lambda value: value | {"files": []},
        lambda value: value | {"files": value["files"][::-1]},
        lambda value: value | {"files": value["files"] + value["files"][-1:]},
        lambda value: value | {"files": [value["files"][0] | {"bytes": 2**60}]},
        lambda value: value | {"files": [value["files"][0] | {"bytes": 0}]},
        lambda value: value | {"files": [value["files"][0] | {"chunks": ["AB" * 32]}]},
        lambda value: value | {"files": [value["files"][0] | {"chunks": [1]}]},
    ],
)
def test_a_manifest_outside_its_form_is_refused(tmp_path, change):
    value = json.loads(manifests.from_directory(a_directory(tmp_path), 1, CHUNK).canonical)
    with pytest.raises(Rejected):
        manifests.parse(json.dumps(change(value), sort_keys=True, separators=(",", ":")).encode())


def test_a_second_spelling_of_the_same_manifest_is_refused(tmp_path):
    data = manifests.from_directory(a_directory(tmp_path), 1, CHUNK).canonical
    for spelling in (data + b"\n", data.replace(b",", b", "), data.replace(b'"version":1', b'"version":1,"version":1')):
        with pytest.raises(Rejected):
            manifests.parse(spelling)


def test_the_root_changes_with_version_content_and_chunk_size(tmp_path):
    directory = a_directory(tmp_path)
    roots = {manifests.from_directory(directory, version, size).root for version in (1, 2) for size in (1024, 2048)}
    (directory / "config.json").write_bytes(b"[]")
    roots.add(manifests.from_directory(directory, 1, 1024).root)
    assert len(roots) == 5


def test_a_directory_is_described_without_its_hidden_files_and_folders(tmp_path):
    directory = a_directory(tmp_path)
    (directory / ".cache").mkdir()
    (directory / ".hidden").write_bytes(b"x")
    (directory / "original").mkdir()
    assert [file.name for file in manifests.from_directory(directory, 1).files] == ["config.json", "model.safetensors"]


def test_a_directory_that_cannot_travel_is_misconfigured(tmp_path):
    with pytest.raises(Misconfigured):
        manifests.from_directory(tmp_path / "nowhere", 1)
    with pytest.raises(Misconfigured):
        manifests.from_directory(tmp_path, 1)
    (tmp_path / "two words.bin").write_bytes(b"x")
    with pytest.raises(Misconfigured, match="two words"):
        manifests.from_directory(tmp_path, 1)


def test_a_signature_holds_for_its_run_version_chain_and_trainer_only(tmp_path, signer, other_signer):
    signed = manifests.sign(manifests.from_directory(a_directory(tmp_path), 1, CHUNK), 7, 31337, MARKET, signer)
    again = manifests.parse_signed(signed.canonical)
    assert again == signed
    again.verify(31337, MARKET, signer.address)
    again.verify(31337, MARKET, signer.address.lower())
    wrong = [
        (again, 1, MARKET, signer.address),
        (again, 31337, "0x" + "12" * 20, signer.address),
        (again, 31337, MARKET, other_signer.address),
        (replace(again, run=8), 31337, MARKET, signer.address),
        (replace(again, manifest=replace(again.manifest, version=2)), 31337, MARKET, signer.address),
        (replace(again, signature=bytes(65)), 31337, MARKET, signer.address),
    ]
    for manifest, chain_id, market, trainer in wrong:
        with pytest.raises(Rejected):
            manifest.verify(chain_id, market, trainer)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 5 * 1024 + 3), st.integers(1, 2048))
def test_hashes_of_a_file_by_several_threads_are_those_of_its_chunks(size: int, chunk_bytes: int) -> None:
    data = os.urandom(size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        expected = [manifests.hash_chunk(data[at : at + chunk_bytes]) for at in range(0, size, chunk_bytes)]
        ranges = [(at, min(chunk_bytes, size - at)) for at in range(0, size, chunk_bytes)]
        assert manifests.hash_ranges(path, ranges) == expected
