"""A chain of lines: what it records comes back, no change goes unseen, and a crash is told from damage."""

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.runs import chain, ledger
from pate_jax.system import storage


def written(folder, count):
    path = folder / "ledger.jsonl"
    with chain.Writer(path) as book:
        for number in range(count):
            book.append({"batch": number + 1, "votes": f"digest {number}", "answers": f"{number} -"})
    return path


def contents(path):
    return path.read_bytes(), chain.head_path(path).read_bytes()


def test_entries_come_back_in_order(tmp_path):
    entries = chain.read(written(tmp_path, 3))
    assert [entry["answers"] for entry in entries] == ["0 -", "1 -", "2 -"]
    assert [entry["sequence"] for entry in entries] == [0, 1, 2]
    assert entries[0]["previous"] == chain.GENESIS and entries[2]["previous"] == entries[1]["digest"]


def test_an_absent_ledger_is_empty(tmp_path):
    assert chain.read(tmp_path / "none.jsonl") == []
    assert chain.check(tmp_path / "none.jsonl").entries == 0


def test_entries_are_only_ever_added_at_the_end(tmp_path):
    path = written(tmp_path, 2)
    before, inode = path.read_bytes(), path.stat().st_ino
    chain.append(path, {"batch": 3})
    assert path.read_bytes().startswith(before) and path.stat().st_ino == inode


def test_anyone_can_check_a_line_with_sha256(tmp_path):
    for line in written(tmp_path, 2).read_bytes().splitlines():
        body, _, digest = line.rpartition(b', "digest": ')
        assert json.loads(line)["digest"] == hashlib.sha256(body).hexdigest()
        assert digest == f'"{hashlib.sha256(body).hexdigest()}"}}'.encode()


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_dropped_line_is_seen(tmp_path, line):
    path = written(tmp_path, 4)
    lines = path.read_text().splitlines()
    del lines[line]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(PateError, match="does not fit the chain"):
        chain.read(path)


@pytest.mark.parametrize(("left", "kept"), [(False, 0), (True, 0), (True, 1), (True, 2)])
def test_lines_missing_at_the_end_are_seen(tmp_path, left, kept):
    path = written(tmp_path, 3)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:kept])) if left else path.unlink()
    with pytest.raises(PateError, match=rf"has {kept} lines where .* counts 3: its end is missing"):
        chain.read(path)
    with pytest.raises(PateError, match="end is missing"):
        chain.append(path, {"batch": 9})


def test_a_lost_or_older_head_is_seen(tmp_path):
    path = written(tmp_path, 2)
    older = chain.head_path(path).read_bytes()
    for number in (3, 4):
        chain.append(path, {"batch": number})
    chain.head_path(path).write_bytes(older)
    with pytest.raises(PateError, match="older copy"):
        chain.read(path)
    chain.head_path(path).unlink()
    with pytest.raises(PateError, match="older copy"):
        chain.read(path)


def test_another_ledgers_head_is_seen(tmp_path):
    path, other = written(tmp_path / "a", 2), tmp_path / "b" / "ledger.jsonl"
    for number in (7, 8):
        chain.append(other, {"batch": number})
    chain.head_path(path).write_bytes(chain.head_path(other).read_bytes())
    with pytest.raises(PateError, match="is not the one that"):
        chain.read(path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_edited_entry_with_a_new_digest_is_seen(tmp_path, number):
    path = written(tmp_path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    entry = {**json.loads(lines[number]), "answers": "7"}
    del entry["digest"]
    lines[number] = chain.line(entry)
    path.write_bytes(b"".join(lines))
    with pytest.raises(PateError, match=f"line {min(number + 2, 3)}"):
        chain.read(path)


@given(data=st.data())
def test_any_flipped_byte_is_seen(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("ledger"), 2)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    with pytest.raises(PateError, match=r"ledger\.jsonl"):
        chain.read(path)


@given(content=st.binary(max_size=300))
def test_anything_at_all_in_the_files_is_one_sentence(tmp_path_factory, content):
    path = written(tmp_path_factory.mktemp("ledger"), 1)
    for file in (path, chain.head_path(path)):
        kept = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(PateError, match=r"ledger\."):
            chain.read(path)
        file.write_bytes(kept)


@pytest.mark.parametrize("schema", [4, 99])
def test_an_unknown_schema_is_refused_and_never_cut_off(tmp_path, schema):
    path = written(tmp_path, 1)
    path.write_text(path.read_text().replace(f'"schema": {chain.SCHEMA}', f'"schema": {schema}'))
    chain.head_path(path).unlink()
    with pytest.raises(PateError, match=f"schema version {schema}"):
        chain.append(path, {"batch": 2})


# What a crash leaves, and what follows from it.


def torn(path, entry, keep):
    """As if the process had died after `keep` bytes of this entry's line."""
    before = contents(path)
    chain.append(path, entry)
    size = len(before[0])
    path.write_bytes(path.read_bytes()[: size + keep])
    chain.head_path(path).write_bytes(before[1])


@pytest.mark.parametrize("keep", [1, 40, 300, -1])
def test_a_torn_line_is_told_and_recorded_anew(tmp_path, capsys, keep):
    path, entry = written(tmp_path, 2), {"batch": 3, "answers": "5 " * 200}
    whole = len(chain.line(entry)) + 200
    torn(path, entry, keep if keep > 0 else whole - 120)
    assert [one["batch"] for one in chain.entries(path)] == [1, 2]
    assert chain.check(path).torn is not None
    capsys.readouterr()
    again = chain.append(path, entry)
    assert "unfinished line" in capsys.readouterr().err
    assert again["torn"]["bytes"] > 0 and again["answers"] == entry["answers"]
    assert [one["batch"] for one in chain.read(path)] == [1, 2, 3]
    assert chain.check(path).torn is None


def test_a_missing_end_of_line_is_torn_too(tmp_path):
    path = written(tmp_path, 1)
    torn(path, {"batch": 2}, 10_000)
    path.write_bytes(path.read_bytes()[:-1])
    assert chain.check(path).torn is not None and len(chain.read(path)) == 1


def test_blocks_that_never_reached_the_disk_are_torn_too(tmp_path):
    path = written(tmp_path, 1)
    size = path.stat().st_size
    torn(path, {"batch": 2, "answers": "5 " * 100}, 10_000)
    content = bytearray(path.read_bytes())
    content[size + 20 : size + 60] = bytes(40)
    path.write_bytes(bytes(content))
    assert chain.check(path).torn is not None


def test_a_torn_line_that_the_head_counts_is_damage(tmp_path):
    path = written(tmp_path, 2)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(PateError, match="line 2"):
        chain.append(path, {"batch": 3})


def test_a_line_recorded_just_before_a_crash_stands(tmp_path):
    path = written(tmp_path, 2)
    head = chain.head_path(path).read_bytes()
    chain.append(path, {"batch": 3})
    chain.head_path(path).write_bytes(head)
    assert [one["batch"] for one in chain.entries(path)] == [1, 2, 3]
    assert chain.check(path).counted == 2
    chain.append(path, {"batch": 4})
    assert chain.check(path)[:1] == (4,) and chain.check(path).counted == 4


def test_the_first_line_may_be_torn(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"artefact": "led')
    assert chain.read(path) == []
    assert chain.append(path, {"batch": 1})["sequence"] == 0


# What the disk may refuse.


def refuse(monkeypatch, name, error, at=0):
    """Let the `at`-th call of one system call fail."""
    real, calls = getattr(os, name), iter(range(1000))

    def failing(*arguments):
        if next(calls) == at:
            raise OSError(error, os.strerror(error))
        return real(*arguments)

    monkeypatch.setattr(storage.os, name, failing)


@pytest.mark.parametrize(("name", "at"), [("write", 0), ("fsync", 0), ("write", 1), ("replace", 0)])
@pytest.mark.parametrize(("error", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EIO, "see to it")])
def test_a_disk_that_refuses_is_named_and_nothing_is_lost(tmp_path, monkeypatch, name, at, error, remedy):
    path = written(tmp_path, 2)
    with monkeypatch.context() as patch:
        refuse(patch, name, error, at)
        with pytest.raises(PateError, match=rf"ledger\S* could not be written .*{remedy}"):
            chain.append(path, {"batch": 3})
    assert len(chain.read(path)) in (2, 3) and chain.check(path).torn is None
    entries = len(chain.read(path))
    chain.append(path, {"batch": 4})
    assert chain.check(path).entries == chain.check(path).counted == entries + 1


def test_a_writer_goes_on_after_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    with chain.Writer(path) as book:
        book.append({"batch": 1})
        with monkeypatch.context() as patch:
            refuse(patch, "replace", errno.ENOSPC)
            with pytest.raises(PateError, match="free some space"):
                book.append({"batch": 2})
        book.append({"batch": 3})
    assert [entry["batch"] for entry in chain.read(path)] == [1, 2, 3]


IN_A_PROCESS_OF_ITS_OWN = """
import resource, signal, sys
from pathlib import Path
from pate_jax.runs import chain
from pate_jax.errors import PateError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    chain.append(path, {"batch": 2, "answers": "5 " * 400})
except PateError as error:
    print(error)
"""


def test_a_real_limit_leaves_the_ledger_whole(tmp_path):
    path = written(tmp_path, 1)
    before = contents(path)
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, str(path), str(len(before[0]) + 100)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{path} could not be written" in said and "limit on the size of files" in said
    assert contents(path) == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_second_writer_is_refused_with_the_holders_name(tmp_path):
    path = written(tmp_path, 1)
    with (
        chain.Writer(path),
        pytest.raises(PateError, match=rf"{path} is being written by process {os.getpid()} on "),
        chain.Writer(path),
    ):
        pass
    chain.append(path, {"batch": 2})


def test_what_another_process_added_is_never_cut_off(tmp_path):
    """As where somebody removed the lock of a process that still runs."""
    path = written(tmp_path, 1)
    with chain.Writer(path) as book:
        (tmp_path / ".ledger.jsonl.lock").unlink()
        chain.append(path, {"batch": 2})
        with pytest.raises(PateError, match=r"changed by another process .* nothing was recorded"):
            book.append({"batch": 3})
    assert [entry["batch"] for entry in chain.read(path)] == [1, 2]


def test_a_line_too_long_to_be_read_is_not_written(tmp_path, monkeypatch):
    path = written(tmp_path, 1)
    before = contents(path)
    monkeypatch.setattr(chain, "LONGEST", 2000)
    with pytest.raises(PateError, match="smaller batches"):
        chain.append(path, {"batch": 2, "answers": "5 " * 2000})
    assert contents(path) == before
    chain.append(path, {"batch": 2, "answers": "5 " * 20})
    assert chain.check(path).entries == 2


def test_a_reader_may_read_while_lines_are_added(tmp_path):
    path = written(tmp_path, 2)
    reader = chain.entries(path)
    found = [next(reader)]
    for batch in (3, 4, 5):
        chain.append(path, {"batch": batch})
    with open(path, "ab") as stream:
        stream.write(b'{"artefact": "led')
    assert [entry["batch"] for entry in (*found, *reader)] == [1, 2, 3, 4, 5]


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 64 KiB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    path, written_lines = small_disk / "ledger.jsonl", 0
    with pytest.raises(PateError, match="free some space there"):
        for batch in range(200):
            chain.append(path, {"batch": batch + 1, "answers": "5 " * 1000})
            written_lines += 1
    assert 10 < written_lines < 60
    assert chain.check(path).entries - written_lines in (0, 1) and chain.check(path).torn is None
    subprocess.run(["mount", "-o", "remount,size=128k", str(small_disk)], check=True)
    before = chain.check(path).entries
    chain.append(path, {"batch": 201})
    assert chain.check(path)[:1] == (before + 1,) and chain.check(path).counted == before + 1


def test_a_disk_that_is_really_read_only(small_disk):
    path = written(small_disk, 2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert len(chain.read(path)) == 2
    with pytest.raises(PateError, match=r"could not be written \(Read-only file system\): choose a folder"):
        chain.append(path, {"batch": 3})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    path = written(tmp_path, 1)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PateError, match="choose a folder that you may write to"):
            chain.append(path, {"batch": 2})
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_named(tmp_path, monkeypatch, error):
    path = written(tmp_path, 1)
    refuse(monkeypatch, "open", error)
    with pytest.raises(PateError, match=r"ledger\S* could not be written .*choose a folder that"):
        chain.append(path, {"batch": 2})


# Load.


def test_a_hundred_thousand_queries_in_flat_memory(tmp_path):
    path = tmp_path / "ledger.jsonl"
    random = np.random.default_rng(0)
    peaks = []
    with chain.Writer(path) as book:
        for number in range(100):
            labels = random.integers(0, 10, 1000)
            answers = ledger.pack(labels, random.random(1000) < 0.6)
            book.append({"batch": number + 1, "asked": 1000, "answers": answers})
    for until in (10, 100):
        tracemalloc.start()
        asked = sum(entry["asked"] for entry, _ in zip(chain.entries(path), range(until), strict=False))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert asked == 1000 * until
    assert chain.check(path).entries == 100
    assert path.stat().st_size < 2.5 * 100_000
    assert peaks[1] < 1.5 * peaks[0] + 100_000
