"""A crowd's run over several processes is that of one, bit for bit, and an error of one ends all alike."""

import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import forked
import honest_runs
import numpy as np
import process_threads
import pytest
import quick_compiler

from pate_jax.crowd.voters import each_block
from pate_jax.errors import PateError
from pate_jax.runs import ledger, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import PartitionChoice, RunConfig
from pate_jax.system import devices

KINDS = [("neighbours", "record"), ("neighbours", "user"), ("sums", "record"), ("sums", "user")]
SEED = 5
NOT_FINITE = 37  # the row of a record that one process reads


def first_column_but_one(inputs):
    """An encoder that fails at one private record: its features are no numbers."""
    features = np.array(inputs, np.float32)
    with np.load(honest_runs.table().private, allow_pickle=False) as file:
        features[(features == file["inputs"][NOT_FINITE]).all(-1)] = np.nan
    return features


def killing(inputs):
    """An encoder that kills the process which reads a certain private record, if told which."""
    features = np.array(inputs, np.float32)
    with np.load(honest_runs.table().private, allow_pickle=False) as file:
        last = file["inputs"][int(os.environ.get("PATE_KILL", 0))]
    if "PATE_KILL" in os.environ and (features == last).all(-1).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return features


def config(voters, by, out, **changes):
    common = {"epsilon": 4.0, "student": honest_runs.STUDENT, "out": out, "data": honest_runs.table()}
    common |= {"voters": voters, **honest_runs.NEAR[voters]}
    return RunConfig(partition=PartitionChoice(by=by, seed=SEED), **{**common, **changes})


def left(run):
    """All that a run has released or would ever release, and the exact table, byte for byte."""
    parts = (run.table, run.answers, run.statement, run.public_statement, run.student / "parameters.npz")
    lines = [(line.exact, line.public, line.noise, line.values) for line in ledger.releases(run.ledger)]
    return [path.read_bytes() for path in parts], lines


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_several_processes_release_what_one_does(tmp_path, monkeypatch, voters, by):
    group = process_threads.group(monkeypatch, 3)
    wanted = config(voters, by, tmp_path / "run")
    first, *others = group.ends(lambda _: pipeline.run(wanted))
    assert others == [{}, {}]
    expected = honest_runs.crowd(voters, by, SEED)
    assert left(RunDirectory(tmp_path / "run")) == left(expected)
    again = group.ends(lambda _: pipeline.run(wanted))
    assert again == [first, {}, {}] and left(RunDirectory(tmp_path / "run")) == left(expected)


def test_steps_of_two_processes_are_those_of_one(tmp_path, monkeypatch):
    group = process_threads.group(monkeypatch, 2)
    ends = group.ends(lambda _: pipeline.run(honest_runs.of_steps(tmp_path / "run", seed=SEED)))
    assert ends[1] == {} and len(list(ledger.releases(RunDirectory(tmp_path / "run").ledger))) == 4
    assert left(RunDirectory(tmp_path / "run")) == left(honest_runs.in_steps("record", SEED))


def test_several_processes_choose_the_voters_that_one_does(tmp_path, monkeypatch):
    wanted = replace(config("sums", "record", tmp_path / "alone"), voters="auto")
    pipeline.run(wanted)
    with monkeypatch.context() as patch:
        group = process_threads.group(patch, 3)
        ends = group.ends(lambda _: pipeline.run(replace(wanted, out=tmp_path / "run")))
    assert ends[1:] == [{}, {}]
    assert left(RunDirectory(tmp_path / "run")) == left(RunDirectory(tmp_path / "alone"))


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_every_record_is_read_by_one_process_alone(tmp_path, monkeypatch, voters, by):
    group, read = process_threads.group(monkeypatch, 3), [set() for _ in range(3)]

    def noted(space, inputs, rows, *rest, **more):
        read[devices.index()] |= set(map(int, rows))
        return each_block(space, inputs, rows, *rest, **more)

    monkeypatch.setattr(sys.modules[f"pate_jax.crowd.{voters}"], "each_block", noted)
    group.ends(lambda _: pipeline.run(config(voters, by, tmp_path / "run")))
    assert all(read) and sum(map(len, read)) == 80
    assert set.union(*read) == set(range(80))


def test_a_record_that_one_process_cannot_read_ends_all_alike_and_nothing_is_released(tmp_path, monkeypatch):
    group = process_threads.group(monkeypatch, 3)
    wanted = config(
        "sums",
        "record",
        tmp_path / "run",
        data=replace(honest_runs.table(), encoder=f"{__name__}:first_column_but_one"),
    )
    ends = group.ends(lambda _: pipeline.run(wanted))
    assert {type(end) for end in ends} == {PateError} and len({str(end) for end in ends}) == 1
    assert f"the first of them at row {NOT_FINITE}: correct or remove them" in str(ends[0])
    assert len(list(ledger.releases(RunDirectory(tmp_path / "run").ledger))) == 1  # of the table nothing


@pytest.mark.parametrize("voters", ["teachers", "sums"])
@pytest.mark.parametrize("index", [0, 2])
def test_bad_data_of_one_process_end_all_alike_before_anything_is_recorded(
    tmp_path, monkeypatch, index, voters
):
    group, table = process_threads.group(monkeypatch, 3), honest_runs.table()
    with np.load(table.private, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["inputs"][7, 1] = np.nan
    np.savez(tmp_path / "bad.npz", **arrays)

    def one(place):
        private = tmp_path / "bad.npz" if place == index else table.private
        data = honest_runs.DataChoice(private=private, public=table.public, test=table.test)
        of_teachers = {"epsilon": None, "queries": 9, "partition": PartitionChoice(teachers=6)}
        more = of_teachers if voters == "teachers" else {}
        return pipeline.run(
            replace(config("sums", "record", tmp_path / "run", data=data), voters=voters, **more)
        )

    ends = group.ends(one)
    assert [str(end) for end in ends] == [
        "private inputs hold NaN or infinity in 1 records (first at row 7); fill or remove them"
    ] * 3
    assert not (tmp_path / "run/private/settings.json").exists()


def test_processes_that_were_given_other_records_are_refused(tmp_path, monkeypatch):
    group, table = process_threads.group(monkeypatch, 2), honest_runs.table()
    with np.load(table.private, allow_pickle=False) as file:
        np.savez(tmp_path / "fewer.npz", **{name: file[name][:-1] for name in file.files})

    def one(place):
        private = tmp_path / "fewer.npz" if place else table.private
        data = honest_runs.DataChoice(private=private, public=table.public, test=table.test)
        return pipeline.run(config("sums", "record", tmp_path / "run", data=data))

    assert all("process 1 was given other records" in str(end) for end in group.ends(one))


def test_a_refusal_of_the_first_process_ends_all_alike(tmp_path, monkeypatch):
    group = process_threads.group(monkeypatch, 2)
    (tmp_path / "run").mkdir()
    with RunDirectory(tmp_path / "run").writing():
        ends = group.ends(lambda _: pipeline.run(config("sums", "record", tmp_path / "run")))
    assert str(ends[0]) == str(ends[1]) and "is being written by process" in str(ends[0])


def test_a_fault_of_the_program_ends_all_and_is_shown_where_it_happened(tmp_path, monkeypatch):
    group = process_threads.group(monkeypatch, 2)

    def broken(*_, **__):
        if devices.index() == 1:
            raise ZeroDivisionError
        return iter([])

    monkeypatch.setattr(sys.modules["pate_jax.crowd.sums"], "each_block", broken)
    first, second = group.ends(lambda _: pipeline.run(config("sums", "record", tmp_path / "run")))
    assert isinstance(second, ZeroDivisionError)
    assert isinstance(first, PateError) and "process 1 ended (ZeroDivisionError())" in str(first)


# Real processes.


def pate(out, *more, encoder=""):
    table = honest_runs.table()
    files = [f"--{name}={getattr(table, name)}" for name in ("private", "public", "test")]
    student = "--student.method supervised --student.net table --student.steps 8 --student.batch-size 8"
    common = ["--epsilon=4", f"--seed={SEED}", *student.split(), f"--encoder={encoder}", f"--out={out}"]
    return ["run", *files, *common, *more]


def ended(folder, commands, **more):
    """Exit codes of `pate` with each of these words, all at once, and what each said."""
    logs = [folder / f"said-{index}.log" for index in range(len(commands))]
    environment = {"XLA_FLAGS": quick_compiler.environment(devices=2)["XLA_FLAGS"], **more}
    for log in logs:
        log.unlink(missing_ok=True)
    running = [
        forked.pate(words, log=log, environment=environment)
        for words, log in zip(commands, logs, strict=True)
    ]
    return forked.ended(running), [log.read_text() for log in logs]


def free_address():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def both(count, out, *more, encoder="", **environment):
    together = ["--coordinator", free_address(), "--processes", str(count), "--process"]
    commands = [pate(out, *more, *together, str(index), encoder=encoder) for index in range(count)]
    return ended(out.parent, commands, **environment)


def one_of_two(address, index, seconds):
    """A process that has met another, and that says something to it late where it is the first."""
    devices.join(address, 2, index)
    time.sleep(seconds * devices.is_first())
    assert devices.from_first(b"late") == b"late"
    devices.leave()


@contextmanager
def late_first(seconds):
    """Two processes of which the second waits for the first, beside what the caller does meanwhile."""
    address = free_address()
    name = "test_crowd_processes:one_of_two"
    waiting = [forked.function(name, address, index, seconds) for index in range(2)]
    try:
        yield
    finally:
        codes = forked.ended(waiting)
    assert codes == [0, 0]


def check_processes(folder, count, voters):
    """Real processes release what one does, and it stands every check."""
    of = [f"--voters={voters}", *(["--queries=20"] if voters == "neighbours" else []), "--by=user"]
    codes, said = both(count, folder / "several", *of)
    assert codes == [0] * count, said
    codes, said = ended(folder, [pate(folder / "one", *of)])
    assert codes == [0], said
    assert left(RunDirectory(folder / "several")) == left(RunDirectory(folder / "one"))
    codes, said = ended(folder, [["verify", folder / "several", "--deep"]])
    assert codes == [0], said


@pytest.mark.long
def test_four_real_processes_release_what_one_does(tmp_path):
    check_processes(tmp_path, 4, "sums")


@pytest.mark.long
def test_two_real_processes_do_beside_two_that_wait_for_one_that_is_late(tmp_path):
    """Gloo gives up after 30 seconds, unless the processes have met before."""
    with late_first(seconds=35):
        check_processes(tmp_path, 2, "neighbours")


@pytest.mark.long
def test_real_processes_end_with_one_sentence_where_one_cannot_read_a_record(tmp_path):
    encoder = "test_crowd_processes:first_column_but_one"
    codes, said = both(2, tmp_path / "run", "--voters=sums", encoder=encoder)
    assert codes == [2, 2], said
    assert all(f"at row {NOT_FINITE}: correct or remove them" in text for text in said)


@pytest.mark.long
def test_a_first_process_that_is_killed_ends_all_and_repeated_they_release_once(tmp_path):
    """It dies while it counts: the number of voters was told, and the table was not."""
    out, of, encoder = tmp_path / "run", "--voters=sums", "test_crowd_processes:killing"
    codes, said = both(2, out, of, encoder=encoder, PATE_KILL="20")  # of 80 records the first 40 are its part
    assert codes[0] == -signal.SIGKILL and codes[1] not in (0, None), said
    before = list(ledger.releases(RunDirectory(out).ledger))
    assert len(before) == 1
    codes, said = both(2, out, of, encoder=encoder)
    assert codes == [0, 0], said
    after = list(ledger.releases(RunDirectory(out).ledger))
    assert after[:1] == before and len(after) == 2
    assert ended(tmp_path, [pate(tmp_path / "one", of, encoder=encoder)])[0] == [0]
    assert left(RunDirectory(out)) == left(RunDirectory(tmp_path / "one"))
