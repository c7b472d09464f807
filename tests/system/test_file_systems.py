"""File systems without working locks, fsync or rename: refused in a sentence, never written unlocked."""

import errno
import fcntl
import os

import pytest
import test_crash

from pate_jax.errors import PateError
from pate_jax.runs import chain, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import locks, storage

CODES = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO]


def failing(code):
    def fails(*_):
        raise OSError(code, os.strerror(code))

    return fails


@pytest.mark.parametrize("code", CODES)
def test_a_folder_that_cannot_be_locked_is_refused(code, tmp_path, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", failing(code))
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(PateError, match=r"run cannot be locked \(.*choose a folder on a local disk"):
        test_crash.ask(run)
    assert not run.ledger.exists() and not run.keys.exists()
    with pytest.raises(PateError, match=r"ledger.jsonl cannot be locked"):
        chain.append(tmp_path / "ledger.jsonl", {"batch": 1})
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_that_keeps_nobody_out_is_refused(shared, tmp_path, monkeypatch):
    """As where locks are kept on each host by itself, or nowhere: everybody is granted every lock."""
    monkeypatch.setattr(locks.fcntl, "flock", lambda *_: None)
    with (
        pytest.raises(PateError, match="lies where a lock keeps nobody out: two processes could write it"),
        locks.held(tmp_path / ".lock", tmp_path, shared=shared),
    ):
        pytest.fail("it was held")


def test_locks_that_work_are_held_alone_or_shared(tmp_path):
    path = tmp_path / ".lock"
    with (
        locks.held(path, tmp_path, shared=True),
        locks.held(path, tmp_path, shared=True),
        pytest.raises(PateError, match="is being written by process"),
        locks.held(path, tmp_path),
    ):
        pytest.fail("it was held twice")
    with locks.held(path, tmp_path), open(path) as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


class Unlike:
    """The system calls of `storage`, one of which is another file system's."""

    def __init__(self, name, call):
        self.name, self.call = name, call

    def __getattr__(self, name):
        return self.call if name == self.name else getattr(os, name)


def test_a_file_system_without_fsync_of_folders_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "os", Unlike("fsync", failing(errno.EINVAL)))
    with pytest.raises(PateError, match="choose a folder on a local disk"):
        storage.write_bytes(tmp_path / "file", b"content")


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """The answers of a run, and how often it renames."""
    run, names = RunDirectory(tmp_path_factory.mktemp("unharmed") / "run"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", Unlike("replace", lambda *two: names.append(1) or os.replace(*two)))
        test_crash.ask(run)
    return test_crash.answers(run), len(names)


@pytest.mark.parametrize("done", ["not at all", "half", "unsaid"])
def test_a_rename_that_is_not_atomic_never_draws_noise_anew(done, unharmed, tmp_path, monkeypatch):
    """`half`: the old file is gone, the new one not there; `unsaid`: done, and said to have failed."""
    expected, count = unharmed
    for at in range(count):
        calls, run = [], RunDirectory(tmp_path / f"run-{at}")

        def replace(old, new, calls=calls, at=at):
            calls.append(new)
            if len(calls) - 1 != at:
                return os.replace(old, new)
            if done == "half" and os.path.exists(new):
                os.unlink(new)
            if done == "unsaid":
                os.replace(old, new)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

        with monkeypatch.context() as patch:
            patch.setattr(storage, "os", Unlike("replace", replace))
            with pytest.raises(PateError, match="could not be written"):
                test_crash.ask(run)
        try:
            test_crash.ask(run)
        except PateError:
            assert done == "half"  # a file is lost: refused, and what had left is unchanged
        else:
            test_crash.check_what_left(run)
            assert [line.batch for line in ledger.lines(run.ledger)] == [1, 2]
        for batch, wanted in enumerate(expected, 1):
            if run.answers_of(batch).exists():
                assert run.answers_of(batch).read_bytes() == wanted, (done, at)
