"""The ledger: what it records comes back, and no change to it goes unseen."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate_jax import ledger
from pate_jax.errors import PateError


def written(folder, count):
    path = folder / "ledger.jsonl"
    for number in range(count):
        ledger.append(path, {"votes": f"digest {number}", "labels": [number, -1]})
    return path


def test_entries_come_back_in_order(tmp_path):
    entries = ledger.read(written(tmp_path, 3))
    assert [entry["labels"] for entry in entries] == [[0, -1], [1, -1], [2, -1]]
    assert [entry["sequence"] for entry in entries] == [0, 1, 2]
    assert entries[2]["previous"] == entries[1]["digest"]


def test_an_absent_ledger_is_empty(tmp_path):
    assert ledger.read(tmp_path / "none.jsonl") == []


def test_find_by_field(tmp_path):
    path = written(tmp_path, 3)
    assert ledger.find(path, votes="digest 1")["labels"] == [1, -1]
    assert ledger.find(path, votes="digest 9") is None


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_dropped_line_is_seen(tmp_path, line):
    path = written(tmp_path, 4)
    lines = path.read_text().splitlines()
    del lines[line]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(PateError, match="does not fit the chain"):
        ledger.read(path)


def test_an_edited_entry_is_seen(tmp_path):
    path = written(tmp_path, 3)
    path.write_text(path.read_text().replace('"labels": [1, -1]', '"labels": [1, 4]'))
    with pytest.raises(PateError, match="line 2"):
        ledger.read(path)


def test_an_edited_entry_with_a_new_digest_is_seen(tmp_path):
    path = written(tmp_path, 3)
    lines = path.read_text().splitlines()
    entry = json.loads(lines[1])
    entry["labels"] = [7]
    del entry["digest"]
    entry["digest"] = ledger._digest(entry)
    path.write_text("\n".join([lines[0], json.dumps(entry), lines[2]]) + "\n")
    with pytest.raises(PateError, match="line 3"):
        ledger.read(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_is_seen_or_changes_nothing(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("ledger"), 2)
    content = bytearray(path.read_bytes())
    before = ledger.read(path)
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 127))
    path.write_bytes(bytes(content))
    try:
        after = ledger.read(path)
    except PateError:
        return
    assert after == before


def test_an_unknown_schema_is_refused(tmp_path):
    path = written(tmp_path, 1)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(PateError, match="schema version 9"):
        ledger.read(path)
