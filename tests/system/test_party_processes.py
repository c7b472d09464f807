"""Three parties as three processes over TLS: all voters, and a party that is killed or never comes."""

import json
import signal
import socket
import time

import forked
import numpy as np
import party_files as files
import pytest

from pate_jax.audit import verify
from pate_jax.runs import chain
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import ballot, ledger

pytestmark = [pytest.mark.long]
LIMIT = 150  # seconds that a process may take on a machine that is busy
KINDS = [
    ("neighbours", {}),
    ("sums", {}),
    ("teachers", {"opened": "answers", "threshold": 9.0}),
]


def free_ports():
    sockets = [socket.create_server(("localhost", 0)) for _ in files.NAMES]
    ports = tuple(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def agreed(folder, kind, seconds=60.0, **chosen):
    files.prepare(folder, free_ports(), voters=6 if kind == "teachers" else files.RECORDS)
    return files.agree(folder, kind, seconds=seconds, **chosen)


def started(folder, name):
    words = ["party", "join", "vote.toml", "--key", f"{name}.key.pem", "--out", f"run-{name}"]
    words += ["--private", f"{name}.npz", "--public", "pool.npz", "--test", "test.npz"]
    return forked.pate(words, folder=folder, log=folder / f"{name}.log")


def ended(folder, processes):
    """The exit codes, once all have ended, and what each said."""
    codes = dict(zip(processes, forked.ended([*processes.values()], LIMIT), strict=True))
    return codes, {name: (folder / f"{name}.log").read_text() for name in processes}


def voted(folder):
    return ended(folder, {name: started(folder, name) for name in files.NAMES})


def lines(folder, name):
    book = folder / f"run-{name}" / "private" / "ledger.jsonl"
    return [entry["kind"] for entry in chain.read(book)] if book.exists() else []


def wait_for(folder, name, count):
    end = time.monotonic() + LIMIT
    while len(lines(folder, name)) < count:
        assert time.monotonic() < end, (folder / f"{name}.log").read_text()
        time.sleep(0.02)


def is_sum_of_all(folder, file):
    total = 0
    for name in files.NAMES:
        party, _ = files.member(folder, name, file)
        votes = ballot.cast(party)
        total = total + votes + ballot.shares(party, votes).counts
    opened = [ledger.read(RunDirectory(folder / f"run-{name}").ledger).table for name in files.NAMES]
    return all(np.array_equal(total, one) for one in opened)


@pytest.mark.parametrize(("kind", "chosen"), KINDS)
def test_three_processes_vote(kind, chosen, tmp_path):
    file = agreed(tmp_path, kind, **chosen)
    codes, logs = voted(tmp_path)
    assert set(codes.values()) == {0}, logs
    transcripts = [(tmp_path / f"run-{name}" / "transcript.json").read_bytes() for name in files.NAMES]
    assert len({*transcripts}) == 1
    assert len(json.loads(transcripts[0])["signatures"]) == 3
    assert chosen or is_sum_of_all(tmp_path, file)
    assert not any(verify.verify(RunDirectory(tmp_path / "run-north")).values())
    assert "against one party" in logs["west"]


def test_a_party_killed_before_the_vote_is_charged_once(tmp_path):
    file = agreed(tmp_path, "neighbours")
    alone = started(tmp_path, "north")
    wait_for(tmp_path, "north", 1)
    alone.kill()
    assert forked.ended([alone], LIMIT) == [-signal.SIGKILL] and lines(tmp_path, "north") == ["charge"]
    codes, logs = voted(tmp_path)
    assert set(codes.values()) == {0}, logs
    assert lines(tmp_path, "north") == ["charge", "begun", "opened"] and is_sum_of_all(tmp_path, file)


def test_a_party_killed_during_the_vote_ends_it_for_all_and_all_can_repeat_it(tmp_path):
    file = agreed(tmp_path, "neighbours", seconds=20.0)
    processes = {name: started(tmp_path, name) for name in files.NAMES}
    wait_for(tmp_path, "north", 2)
    processes["north"].kill()
    codes, logs = ended(tmp_path, processes)
    if codes["north"] == 0:
        pytest.skip("the vote was over before the signal came")
    finished = [name for name, code in codes.items() if code == 0]
    assert all(lines(tmp_path, name)[:2] == ["charge", "begun"] for name in files.NAMES), logs
    if not finished:
        codes, logs = voted(tmp_path)
        assert set(codes.values()) == {0}, logs
        assert is_sum_of_all(tmp_path, file)
    assert all(lines(tmp_path, name).count("charge") == 1 for name in files.NAMES)


def test_a_party_that_never_comes_is_named(tmp_path):
    agreed(tmp_path, "neighbours", seconds=8.0)
    codes, logs = ended(tmp_path, {name: started(tmp_path, name) for name in ("east", "west")})
    assert set(codes.values()) == {2} and "north" in logs["east"].splitlines()[-1], logs
    assert lines(tmp_path, "east") == ["charge"]
