"""Artefacts: whole or not at all, stamped, and never unpickled."""

import hashlib
import io
import json
import os
import tracemalloc

import numpy as np
import pytest

from pate_jax.errors import PateError
from pate_jax.runs import chain, directory
from pate_jax.system import storage


def test_json_round_trip(tmp_path):
    storage.write_json(tmp_path / "deep" / "file.json", "note", {"value": [1, 2.5, None]})
    assert storage.read_json(tmp_path / "deep" / "file.json", "note") == {"value": [1, 2.5, None]}


def test_arrays_round_trip(tmp_path):
    arrays = {"votes": np.arange(6).reshape(2, 3), "layer/kernel": np.ones((2, 2), np.float32)}
    storage.write_arrays(tmp_path / "file.npz", "votes", arrays)
    back = storage.read_arrays(tmp_path / "file.npz", "votes")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_another_kind_is_refused(tmp_path):
    storage.write_json(tmp_path / "a.json", "note", {})
    storage.write_arrays(tmp_path / "a.npz", "note", {})
    with pytest.raises(PateError, match="not a statement file"):
        storage.read_json(tmp_path / "a.json", "statement")
    with pytest.raises(PateError, match="not a votes file"):
        storage.read_arrays(tmp_path / "a.npz", "votes")


def test_an_unknown_schema_is_refused(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"artefact": "note", "schema": 99}))
    with pytest.raises(PateError, match="schema version 99"):
        storage.read_json(tmp_path / "a.json", "note")
    stamp = np.array(json.dumps({"artefact": "votes", "schema": 99}))
    np.savez(tmp_path / "a.npz", artefact=stamp, votes=np.ones(2))
    with pytest.raises(PateError, match="schema version 99"):
        storage.read_arrays(tmp_path / "a.npz", "votes")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'"text"'])
def test_broken_json_is_one_sentence(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(PateError, match=r"a\.json"):
        storage.read_json(tmp_path / "a.json", "note")


def test_broken_archives_are_one_sentence(tmp_path):
    whole = io.BytesIO()
    np.savez(whole, votes=np.arange(1000))
    for cut in (0, 3, 10, 100, len(whole.getvalue()) - 5):
        (tmp_path / "a.npz").write_bytes(whole.getvalue()[:cut])
        with pytest.raises(PateError, match=r"a\.npz"):
            storage.read_arrays(tmp_path / "a.npz", "votes")


def test_pickled_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", votes=np.array([{"a": 1}], dtype=object))
    with pytest.raises(PateError, match="not a readable"):
        storage.read_foreign_arrays(tmp_path / "a.npz")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(PateError, match="does not exist"):
        storage.read_json(tmp_path / "none.json", "note")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    storage.write_json(path, "note", {"value": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(PateError, match=r"No space.*free some space there"):
        storage.write_json(path, "note", {"value": 2})
    assert storage.read_json(path, "note") == {"value": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


def test_a_cut_of_power_takes_away_no_new_folder_with_what_is_synced_in_it(tmp_path, monkeypatch):
    """A folder is there after a cut if the folder above it was synced since it was made."""
    synced = set()
    monkeypatch.setattr(storage.os, "fsync", lambda stream: synced.add(os.fstat(stream).st_ino))
    private = tmp_path / "runs" / "mine" / "private"
    with chain.Writer(private / "ledger.jsonl") as book:
        book.append({"batch": 1})
    storage.write_json(tmp_path / "other" / "release" / "statement.json", "note", {})
    directory.close(tmp_path / "third" / "private")
    files = (
        "runs",
        "runs/mine",
        "runs/mine/private",
        "runs/mine/private/ledger.jsonl",
        "other/release",
        "third",
    )
    for path in files:
        assert (tmp_path / path).exists() and (tmp_path / path).parent.stat().st_ino in synced, path
    assert (private / "ledger.jsonl").stat().st_ino in synced


def test_digests_tell_arrays_apart():
    zeros = np.zeros((2, 3), np.int32)
    others = [zeros + 1, zeros.reshape(3, 2), zeros.astype(np.int64), None]
    assert len({storage.digest(zeros), *(storage.digest(other) for other in others)}) == 5
    assert storage.digest(zeros[:, ::2]) == storage.digest(zeros[:, ::2].copy())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">f4").reshape(3, 4).T,
        np.array([["a", ""], ["long", "b"]]),
        np.zeros((0, 5), np.uint8),
        np.array(2.5),
        np.array(""),
        np.array([True, False]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_digest_is_that_of_kind_shape_and_bytes(array):
    laid = np.ascontiguousarray(array)
    said = f"{laid.dtype.str}{laid.shape};".encode() + laid.tobytes()
    assert storage.digest(array) == hashlib.sha256(said).hexdigest()


def test_a_digest_copies_no_records(tmp_path):
    """Of records in a mapped file, which may be larger than the memory."""
    mapped = np.lib.format.open_memmap(tmp_path / "records.npy", "w+", np.uint8, (1 << 20, 4))
    tracemalloc.start()
    storage.digest(mapped)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < mapped.nbytes / 16
