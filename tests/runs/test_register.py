"""A register: all runs on the same private records, added up, limited, and entered before they spend."""

import json
import multiprocessing
import os
import shutil
import signal

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import accounting, voting
from pate_jax.accounting.index_curve import index_curve
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GNMax, to_dict
from pate_jax.runs import batches, chain, register, registration
from pate_jax.runs.directory import RunDirectory

MECHANISM, TEACHERS, ROWS = DiscreteGaussianMax(60.0), 100, 30


def votes(shift=0, rows=ROWS):
    ids = np.array([f"input {shift + row}" for row in range(rows)])
    return voting.Votes(np.full((rows, 2), TEACHERS // 2, np.int32), ids=ids)


def begin(folder, name, file, relation="record", mechanism=MECHANISM, epsilon=None, rows=ROWS):
    """A run of votes made elsewhere, entered before it answers."""
    run = RunDirectory(folder / name)
    with run.writing():
        batches.adopt(run, votes(rows=rows), None, relation=relation)
        registration.before_answers(run, file, mechanism, epsilon, None)
        batches.answer(run, mechanism, epsilon)
    return run


def names(file):
    return [line["name"] for line in chain.read(file) if "plan" in line]


def test_two_uses_cost_what_one_longer_list_costs(tmp_path):
    file = tmp_path / "register.jsonl"
    for name in "ab":
        begin(tmp_path, name, file)
    found = register.summary(file, 1e-5)
    orders = accounting.default_orders()
    whole, _ = accounting.worst_case(MECHANISM, [TEACHERS] * 2 * ROWS, 1e-5, classes=2)
    curve = 2 * ROWS * index_curve(MECHANISM, TEACHERS, 2, orders)
    by_hand = float(accounting.epsilon(orders, curve, 1e-5).epsilon)
    assert found["epsilon"]["record"] == pytest.approx(by_hand, rel=1e-3)
    assert whole.epsilon <= found["epsilon"]["record"] < sum(one["epsilon"] for one in found["runs"])
    assert oct(file.stat().st_mode & 0o777) == oct(chain.head_path(file).stat().st_mode & 0o777) == "0o600"
    assert json.dumps(to_dict(MECHANISM)) in file.read_text() and "private" not in found


def test_a_limit_refuses_what_would_exceed_it_before_anything_is_spent(tmp_path):
    file, one = tmp_path / "register.jsonl", tmp_path / "alone.jsonl"
    begin(tmp_path, "alone", one)
    alone = register.summary(one, 1e-5)["runs"][0]["epsilon"]
    register.limit(file, 1.3 * alone, 1e-5)
    begin(tmp_path, "a", file)
    before = file.read_bytes()
    with pytest.raises(PateError, match=r"limit of epsilon .* would be exceeded: \d+.\d% of it is spent"):
        begin(tmp_path, "b", file)
    refused = RunDirectory(tmp_path / "b")
    assert file.read_bytes() == before and not refused.ledger.exists() and not refused.answers.exists()
    begin(tmp_path, "c", file, rows=10)
    assert names(file) == [str(tmp_path / "a"), str(tmp_path / "c")]
    assert register.summary(file, None)["epsilon"]["record"] <= 1.3 * alone
    with pytest.raises(PateError, match="is set once"):
        register.limit(file, 50.0, 1e-5)
    register.limit(file, 1.3 * alone, 1e-5)  # the same again is no other


def test_runs_by_user_spend_on_each_record_and_runs_by_record_not_on_users(tmp_path, capsys):
    file = tmp_path / "register.jsonl"
    begin(tmp_path, "a", file)
    alone = register.summary(file, None)["epsilon"]["record"]
    begin(tmp_path, "b", file, relation="user")
    found = register.summary(file, None)["epsilon"]
    assert found["user"] == alone and alone < found["record"] < 2 * alone
    begin(tmp_path, "both", twice := tmp_path / "twice.jsonl")
    begin(tmp_path, "again", twice)
    assert found["record"] == register.summary(twice, None)["epsilon"]["record"]
    begin(tmp_path, "other", twice, relation="contents")
    assert register.summary(twice, None)["epsilon"]["contents"] > found["record"]
    assert call("budget", "--register", file) == 0
    said = capsys.readouterr().out
    assert "one by user spends on each of the user's records" in said and str(tmp_path / "b") in said
    register.limit(file, 50.0, 1e-5)
    with pytest.raises(PateError, match=r"holds runs by user: one by record cannot be"):
        begin(tmp_path, "c", file)


def test_the_same_run_counts_once_and_a_copy_of_it_anew(tmp_path):
    file = tmp_path / "register.jsonl"
    run = begin(tmp_path, "a", file, epsilon=1.0)
    before = file.read_bytes()
    begin(tmp_path, "a", file)
    with run.writing():
        batches.adopt(run, votes(shift=ROWS), None, more=True)
        batches.answer(run, MECHANISM)
    assert file.read_bytes() == before
    copy = RunDirectory(shutil.copytree(run.root, tmp_path / "copy"))
    with pytest.raises(PateError, match="moved, copied or changed"), copy.writing():
        batches.adopt(copy, votes(shift=3 * ROWS), None, more=True)
        batches.answer(copy, MECHANISM)
    assert not verify.of_run(copy).of("failed")[1:]  # its last list waits for answers
    with copy.writing():
        registration.before_answers(copy, file, MECHANISM, None, None)
        batches.answer(copy, MECHANISM)
    assert names(file) == [str(run.root), str(copy.root)]


def test_a_budget_is_entered_whole(tmp_path):
    file = tmp_path / "register.jsonl"
    run = begin(tmp_path, "a", file, epsilon=1.0)
    with run.writing():
        batches.adopt(run, votes(shift=ROWS, rows=2000), None, more=True)
        asked = len(batches.answer(run, MECHANISM).labels)
    (one,) = register.summary(file, 1e-5)["runs"]
    assert asked == one["plan"]["queries"] > ROWS and one["epsilon"] == pytest.approx(1.0, abs=0.01)


def test_a_seeded_run_and_a_file_of_another_kind_are_refused(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        batches.adopt(run, votes(), 3, relation="record")
        with pytest.raises(PateError, match="leave out --seed"):
            registration.before_answers(run, tmp_path / "register.jsonl", MECHANISM, None, None)
    table = tmp_path / "table.csv"
    table.write_text("age")
    with pytest.raises(PateError, match="is no register"):
        begin(tmp_path, "b", table)
    assert table.read_text() == "age"
    other = begin(tmp_path, "c", tmp_path / "register.jsonl").ledger
    before = other.read_bytes()
    with pytest.raises(PateError, match="is the ledger of a run and no register"):
        begin(tmp_path, "d", other)
    assert other.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 1, 60, -1])
def test_a_torn_line_is_cut_off_and_entered_anew(tmp_path, keep):
    """A crash while the second run was being entered: it had spent nothing."""
    file = tmp_path / "register.jsonl"
    begin(tmp_path, "a", file)
    head, size = chain.head_path(file).read_bytes(), file.stat().st_size
    begin(tmp_path, "b", file)
    whole = file.read_bytes()
    file.write_bytes(whole[: size + keep] if keep >= 0 else whole[:-1])
    chain.head_path(file).write_bytes(head)
    assert names(file) == [str(tmp_path / "a")]
    begin(tmp_path, "c", file)
    assert names(file) == [str(tmp_path / "a"), str(tmp_path / "c")]


def test_a_changed_line_is_refused(tmp_path):
    file = tmp_path / "register.jsonl"
    begin(tmp_path, "a", file)
    file.write_bytes(file.read_bytes().replace(b'"queries": 30', b'"queries": 3 '))
    with pytest.raises(PateError, match="does not fit the chain"):
        begin(tmp_path, "b", file)
    file.unlink()
    with pytest.raises(PateError, match="end is missing"):
        begin(tmp_path, "c", file)


def _enters(folder, name, file, barrier):
    barrier.wait()
    try:
        begin(folder, name, file)
    except PateError as error:
        (folder / f"{name}.refused").write_text(str(error))


def _dies_when_entered(folder, file):
    """Killed as soon as its line is written: before the first answer."""
    batches.answer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    begin(folder, "a", file)


@pytest.fixture
def spawn():
    return multiprocessing.get_context("spawn")


@pytest.mark.long
def test_of_processes_at_the_same_moment_each_is_entered_or_told(tmp_path, spawn):
    file, barrier = tmp_path / "register.jsonl", spawn.Barrier(3)
    all_names = [f"run-{number}" for number in range(3)]
    running = [spawn.Process(target=_enters, args=(tmp_path, name, file, barrier)) for name in all_names]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    refused = {path.stem: path.read_text() for path in tmp_path.glob("*.refused")}
    assert {name.rpartition("/")[2] for name in names(file)} | set(refused) == set(all_names)
    assert all("is being written by" in text for text in refused.values())
    for name in refused:
        assert not RunDirectory(tmp_path / name).ledger.exists()
        begin(tmp_path, name, file)
    assert len(names(file)) == 3


@pytest.mark.long
def test_a_run_killed_between_entry_and_answer_counts_once_whatever_follows(tmp_path, spawn):
    file = tmp_path / "register.jsonl"
    process = spawn.Process(target=_dies_when_entered, args=(tmp_path, file))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert names(file) == [str(tmp_path / "a")] and not RunDirectory(tmp_path / "a").ledger.exists()
    begin(tmp_path, "a", file)
    assert names(file) == [str(tmp_path / "a")] and RunDirectory(tmp_path / "a").ledger.exists()


def test_a_whole_run_is_entered_before_it_trains(tmp_path, capsys):
    """By the command: the limit, what is refused by it, what fits, and what is spent then."""
    file, own = tmp_path / "register.jsonl", honest_runs.table()
    command = ["run", "--private", own.private, "--public", own.public, "--test", own.test, "--by", "user"]
    command += ["--teachers", 6, "--queries", 18, "--net", "table", "--register", file]
    command += ["--out", tmp_path / "run", "--epochs", 1, "--min-steps", 3, "--batch-size", 8, "--devices", 1]
    command += ["--student.method", "supervised", "--student.net", "table", "--student.steps", 8]
    command += ["--student.batch-size", 8]  # the programs are those of `honest_runs.whole`
    noise = ["confident-discrete-gaussian", "--threshold", 3, "--sigma-threshold", 3, "--sigma", 1.5]
    assert call("budget", "--register", file, "--limit-epsilon", 30, "--limit-delta", 1e-5) == 0
    assert call(*command, *noise[:-1], 0.5) == 2
    assert (
        "would be exceeded" in capsys.readouterr().err
        and not RunDirectory(tmp_path / "run").teachers.exists()
    )
    assert call(*command, *noise) == 0
    capsys.readouterr()
    assert call("budget", "--register", file, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["runs"]
    with np.load(own.private, allow_pickle=False) as saved:
        assert one["plan"]["records"] == register.digest_of(saved["ids"][::-1])
    assert one["plan"]["relation"] == "user" and found["limit"]["spent"] > 0
    assert "budget: the register shows this run" in " ".join(
        verify.of_run(RunDirectory(tmp_path / "run")).of("passed")
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name one of a run directory and --register FILE"),
        (["{}", "--register", "{}/r"], "name one of a run directory and --register FILE"),
        (["{}", "--limit-epsilon", 2], "belong to a register"),
        (["--register", "{}/nowhere"], "begins it"),
        (["--register", "{}/r", "--limit-epsilon", -1], "must be a finite number above 0"),
    ],
)
def test_what_the_command_cannot_do_is_said_in_a_sentence(tmp_path, capsys, arguments, words):
    assert call("budget", *(str(one).format(tmp_path) for one in arguments)) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("mechanism", [GNMax(60.0), ConfidentDiscreteGaussian(60.0, 60.0, 30.0)])
def test_a_limit_is_for_any_mechanism(tmp_path, mechanism):
    file = tmp_path / "register.jsonl"
    register.limit(file, 5.0, 1e-5)
    begin(tmp_path, "a", file, mechanism=mechanism)
    found = register.summary(file, None)
    assert 0 < found["limit"]["share"] < 1 and found["epsilon"]["record"] < 5
