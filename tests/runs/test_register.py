"""The register: all runs on the same people, added up, limited, and each answer noted before it leaves."""

import json
import multiprocessing
import os
import shutil
import signal
import threading
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import accounting, voting
from pate_jax.accounting.answers_statement import headline
from pate_jax.accounting.bounds.worst_case import index_curve
from pate_jax.accounting.costs import Tables
from pate_jax.audit import verify
from pate_jax.errors import PateError, PateWarning
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GNMax, to_dict
from pate_jax.mechanisms.events import Answers
from pate_jax.runs import anchors, batches, chain, ledger, people, pipeline, register, registration
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import NARROWEST_FIRST, Plan, sums, together

MECHANISM, TEACHERS, ROWS = DiscreteGaussianMax(60.0), 100, 30


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path):
    """A register that is shared."""
    return begun(tmp_path / "register.jsonl")


def begun(file):
    register.begin(file)
    return file


def votes(shift=0, rows=ROWS):
    ids = np.array([f"input {shift + row}" for row in range(rows)])
    return voting.Votes(np.full((rows, 2), TEACHERS // 2, np.int32), ids=ids)


def begin(folder, name, file, relation="record", mechanism=MECHANISM, epsilon=None, rows=ROWS, shift=0):
    """A run of votes made elsewhere, entered before it answers."""
    run = RunDirectory(folder / name)
    with run.writing():
        batches.adopt(run, votes(shift, rows), None, relation=relation)
        pipeline.before_answers(run, file, mechanism, epsilon, None)
        batches.answer(run, mechanism, epsilon)
    return run


def test_votes_of_which_some_have_more_teachers_begin_no_run(tmp_path, file):
    uneven = voting.Votes(np.array([[50, 50], [50, 49]], np.int32), ids=np.array(["a", "b"]))
    run = RunDirectory(tmp_path / "run")
    with run.writing(), pytest.raises(PateError, match="row 1 sums to 99, row 0 to 100: each teacher"):
        batches.adopt(run, uneven, None, relation="record")
    assert not run.votes.exists() and not run.ledger.exists()


def more(run, shift=ROWS, rows=ROWS):
    """A further batch under the budget of a run."""
    with run.writing():
        batches.adopt(run, votes(shift, rows), None, more=True)
        return batches.answer(run, MECHANISM)


def places(file):
    return [entry.place for entry in register.read(file).entries.values()]


def total(file, delta=1e-5):
    """The sums of the only group of runs, by relation."""
    (group,) = register.summary(file, delta)["groups"]
    return {one["relation"]: one["epsilon"] for one in group["sums"]}


def test_two_uses_cost_what_one_longer_list_costs(tmp_path, file):
    for name in "ab":
        begin(tmp_path, name, file)
    alone = [one["epsilon"] for one in register.summary(file, 1e-5)["runs"]]
    orders = accounting.default_orders()
    curve = 2 * ROWS * index_curve(MECHANISM, TEACHERS, 2, orders)
    by_hand = float(accounting.epsilon(orders, curve, 1e-5).epsilon)
    longer = headline(Answers(MECHANISM, TEACHERS, 2, 2 * ROWS), 1e-5).epsilon
    assert total(file)["record"] == longer and by_hand * 0.95 < longer < by_hand < sum(alone)
    assert oct(file.stat().st_mode & 0o777) == "0o600" and json.dumps(to_dict(MECHANISM)) in file.read_text()


def test_a_limit_refuses_what_would_exceed_it_before_anything_is_spent(tmp_path, file):
    begin(tmp_path, "alone", one := begun(tmp_path / "alone.jsonl"))
    alone = total(one)["record"]
    register.set_limit(file, 1.3 * alone, 1e-5)
    begin(tmp_path, "a", file)
    before = file.read_bytes()
    with pytest.raises(PateError, match=r"limit of epsilon .* would be exceeded: \d+.\d% of it is spent"):
        begin(tmp_path, "b", file)
    refused = RunDirectory(tmp_path / "b")
    assert file.read_bytes() == before and not refused.ledger.exists() and not refused.answers.exists()
    begin(tmp_path, "c", file, rows=10)
    assert places(file) == [str(tmp_path / "a"), str(tmp_path / "c")]
    assert total(file)["record"] <= 1.3 * alone
    with pytest.raises(PateError, match="is set once"):
        register.set_limit(file, 50.0, 1e-5)
    register.set_limit(file, 1.3 * alone, 1e-5)  # the same again is no other


def test_a_sum_leaves_no_run_out(tmp_path, capsys, file):
    """The sum by record left runs by party out."""
    begin(tmp_path, "a", file)
    alone = total(file)["record"]
    begin(tmp_path, "b", file, relation="party")
    twice = total(file)["record"]
    assert total(file) == {"record": twice, "party": None} and alone < twice < 2 * alone
    begin(tmp_path, "c", file, relation="contents")
    assert list(total(file)) == ["contents", "record", "party"]
    assert total(file)["contents"] > twice and total(file)["record"] is None
    assert call("budget", "--register", file) == 0
    said = capsys.readouterr().out
    assert "For one record: no sum, since 1 of these promise nothing for that." in said
    assert "For all that one party holds: no sum, since 2 of these" in said


@pytest.mark.parametrize("narrow", NARROWEST_FIRST)
@pytest.mark.parametrize("wide", NARROWEST_FIRST)
def test_every_two_relations_have_a_sum_of_both(narrow, wide):
    plans = [Plan((Tables(0.2, "sums"),), one) for one in (narrow, wide)]
    first, *rest = sums(plans, 1e-5)
    assert first.relation == min(narrow, wide, key=NARROWEST_FIRST.index) and first.silent == 0
    assert first.epsilon == together(plans, 1e-5)
    assert all(one.epsilon is None and one.silent == 1 for one in rest)


def test_the_same_run_counts_once_and_a_copy_of_it_answers_nothing_else(tmp_path, file):
    """Two copies answered different lists, at two places or on two hosts, and were counted once."""
    run = begin(tmp_path, "a", file, epsilon=1.0)
    begin(tmp_path, "a", file)
    assert len(places(file)) == 1
    copy = RunDirectory(shutil.copytree(run.root, tmp_path / "copy"))
    first = more(run)
    with pytest.raises(PateError, match="further answer, to another question, by a copy of this run"):
        more(copy, shift=3 * ROWS)
    assert not copy.answers_of(2).exists() and len(ledger.read(copy.ledger)) == 1
    same = RunDirectory(shutil.copytree(run.root, tmp_path / "same"))
    for path in (run.root, same.root):
        assert verify.of_run(RunDirectory(path)).of("failed") == []
    moved = RunDirectory(run.root.rename(tmp_path / "moved"))
    assert len(more(moved, shift=2 * ROWS).labels) > len(first.labels)  # it is the same run wherever it lies
    with pytest.raises(PateError, match="does not fit its register"):
        more(same, shift=4 * ROWS)


def test_a_copy_that_asks_the_same_gives_the_same_answers(tmp_path, file):
    run = begin(tmp_path, "a", file, epsilon=1.0)
    copy = RunDirectory(shutil.copytree(run.root, tmp_path / "copy"))
    one, two = more(run), more(copy)
    np.testing.assert_array_equal(one.labels, two.labels)
    assert len(next(iter(register.read(file).entries.values())).answers) == 2


def test_a_folder_restored_from_a_backup_does_not_fit(tmp_path, file):
    run = begin(tmp_path, "a", file, epsilon=1.0)
    shutil.copytree(run.root, tmp_path / "backup")
    more(run)
    shutil.rmtree(run.root)
    shutil.copytree(tmp_path / "backup", run.root)
    assert verify.of_run(run).of("failed") == []  # it may still give the answer that is noted
    with pytest.raises(PateError, match="before this folder was restored from a backup"):
        more(run, shift=5 * ROWS)


def test_a_ledger_that_was_rolled_back_with_its_answers_does_not_fit(tmp_path, file):
    run = begin(tmp_path, "a", file)
    for path in (run.ledger, chain.head_path(run.ledger), run.answers):
        path.unlink()
    with run.writing():
        batches.answer(run, MECHANISM)  # the same votes, noise and answers
        for path in (run.ledger, chain.head_path(run.ledger), run.answers):
            path.unlink()
        voting.save_votes(run.votes, votes(shift=9, rows=ROWS))
        with pytest.raises(PateError, match="does not fit its register"):
            batches.answer(run, MECHANISM)


def older(file):
    """A copy of a register and its head, to be put back."""
    kept = [(path, path.read_bytes()) for path in (file, chain.head_path(file))]
    return lambda: [path.write_bytes(content) for path, content in kept]


def test_a_register_restored_from_an_older_copy_admits_nobody(tmp_path, file):
    begin(tmp_path, "alone", one := begun(tmp_path / "alone.jsonl"))
    register.set_limit(file, 1.3 * total(one)["record"], 1e-5)
    restore = older(file)
    run = begin(tmp_path, "a", file)
    with pytest.raises(PateError, match="would be exceeded"):
        begin(tmp_path, "b", file)
    restore()
    with pytest.raises(PateError, match="is from an older copy: this machine has seen 4 lines"):
        begin(tmp_path, "b", file)
    assert any("older copy" in one for one in verify.of_run(run).of("failed"))
    shutil.rmtree(anchors.home())  # as on another machine, where the run itself does not fit
    with run.writing(), pytest.raises(PateError, match="does not show what"):
        run.ledger.unlink(), chain.head_path(run.ledger).unlink(), run.answers.unlink()
        batches.answer(run, MECHANISM)


def test_a_lost_register_does_not_begin_anew(tmp_path, capsys):
    begin(tmp_path, "a", None)
    assert call("budget", "--limit", 30) == 0
    file = anchors.default()
    for path in (file, chain.head_path(file)):
        path.unlink()
    with pytest.raises(PateError, match="is not here: this machine has seen one of 4 lines"):
        begin(tmp_path, "b", None)
    assert call("budget", "--register", file, "--begin") == 2
    assert "Mount or restore it" in " ".join(capsys.readouterr().err.split())
    assert not file.exists()


@pytest.mark.parametrize("where", ["mistyped.jsonl", "not-mounted/register.jsonl"])
def test_a_mistyped_or_unmounted_register_begins_no_empty_one(tmp_path, where, capsys):
    with pytest.raises(PateError, match="is it mounted, and spelled so"):
        begin(tmp_path, "a", tmp_path / where)
    assert not (tmp_path / where).exists() and not RunDirectory(tmp_path / "a").ledger.exists()
    assert call("budget", "--register", tmp_path / where, "--begin") == (2 if "/" in where else 0)


def test_another_register_at_the_same_place_is_refused(tmp_path, file):
    begin(tmp_path, "a", file)
    begin(tmp_path, "b", other := begun(tmp_path / "other.jsonl"))
    shutil.copy(other, file)
    shutil.copy(chain.head_path(other), chain.head_path(file))
    with pytest.raises(PateError, match="is another register than the one that was here"):
        begin(tmp_path, "c", file)


def test_a_run_that_has_answered_is_counted_beyond_the_limit_and_answers_nothing_more(tmp_path, file):
    run = begin(tmp_path, "a", registration.Path("none"), epsilon=1.0)
    register.set_limit(file, 0.5, 1e-5)
    with run.writing():
        pipeline.before_answers(run, file, MECHANISM, None, None)
    (entry,) = register.read(file).entries.values()
    assert len(entry.answers) == 1 and total(file)["record"] > 0.5
    with pytest.raises(PateError, match="would be exceeded"):
        more(run)
    with pytest.raises(PateError, match="would be exceeded"):
        begin(tmp_path, "b", file, rows=1)


def test_a_register_has_one_lock_and_one_head_by_whatever_path(tmp_path):
    files = [begun(tmp_path / f"people.{year}") for year in (2025, 2026)]
    assert len({chain.head_path(one) for one in files}) == 2
    link = tmp_path / "link.jsonl"
    link.symlink_to(files[0])
    begin(tmp_path, "a", link)
    begin(tmp_path, "b", files[0])
    begin(tmp_path, "c", link)
    assert len(places(files[0])) == 3 and len(places(files[1])) == 0
    with chain.Writer(link), pytest.raises(PateError, match="is being written"), chain.Writer(files[0]):
        pass


def test_threads_and_their_runs_are_all_counted(tmp_path, file):
    runs = [threading.Thread(target=begin, args=(tmp_path, f"run-{number}", file)) for number in range(4)]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    assert len(places(file)) == 4


def test_a_reader_is_not_disturbed_by_a_writer(tmp_path, file, monkeypatch):
    """What is remembered of a register may be newer than what was read of it just before."""
    real, once = chain.read, []

    def slow(path):
        lines = real(path)
        if path == file and not once:
            once.append(1)
            begin(tmp_path, "meanwhile", file)
        return lines

    monkeypatch.setattr(chain, "read", slow)
    assert places(file) == [] and places(file) == [str(tmp_path / "meanwhile")]


def test_a_budget_is_entered_whole(tmp_path, file):
    run = begin(tmp_path, "a", file, epsilon=1.0)
    asked = len(more(run, rows=2000).labels)
    (one,) = register.summary(file, 1e-5)["runs"]
    assert asked == one["plan"]["events"][0]["asked"] > ROWS and 0.9 < one["epsilon"] <= 1.0


def test_a_seeded_run_is_in_no_register_and_a_file_of_another_kind_is_refused(tmp_path, file):
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        batches.adopt(run, votes(), 3, relation="record")
        with pytest.raises(PateError, match="leave out --seed"):
            pipeline.before_answers(run, file, MECHANISM, None, None)
        pipeline.before_answers(run, None, MECHANISM, None, None)
    assert registration.shown(run) == {} and not places(file) and not anchors.default().exists()
    table = tmp_path / "table.csv"
    table.write_text("age")
    with pytest.raises(PateError, match="is no register"):
        begin(tmp_path, "b", table)
    assert table.read_text() == "age"
    other = begin(tmp_path, "c", file).ledger
    before = other.read_bytes()
    with pytest.raises(PateError, match="is the ledger of a run and no register"):
        begin(tmp_path, "d", other)
    assert other.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 1, 60, -1])
def test_a_torn_line_is_cut_off_and_entered_anew(tmp_path, keep, file):
    """A crash while the second run was being entered: it had spent nothing."""
    begin(tmp_path, "a", file)
    head, size = chain.head_path(file).read_bytes(), file.stat().st_size
    states = {path: path.read_bytes() for path in (anchors.home() / "registers").iterdir()}
    begin(tmp_path, "b", file)
    whole = file.read_bytes()
    line = whole[size : whole.index(b"\n", size)]
    file.write_bytes(whole[:size] + (line[:keep] if keep >= 0 else line))
    chain.head_path(file).write_bytes(head)
    for path, content in states.items():
        path.write_bytes(content)
    assert places(file) == [str(tmp_path / "a")]
    begin(tmp_path, "c", file)
    assert places(file) == [str(tmp_path / "a"), str(tmp_path / "c")]


def test_a_changed_line_is_refused(tmp_path, file):
    begin(tmp_path, "a", file)
    file.write_bytes(file.read_bytes().replace(b'"asked": 30', b'"asked": 3 '))
    with pytest.raises(PateError, match="does not fit the chain"):
        begin(tmp_path, "b", file)


def test_a_register_that_cannot_be_written_stops_the_answer(tmp_path, file, monkeypatch):
    run = begin(tmp_path, "a", file, epsilon=1.0)
    before = run.ledger.read_bytes()

    def full(*_, **__):
        raise PateError(f"{file} could not be written (no space left)")

    real = register.Writer.append
    monkeypatch.setattr(register.Writer, "append", full)
    with pytest.raises(PateError, match="no space left"):
        more(run)
    assert run.ledger.read_bytes() == before and not run.answers_of(2).exists()
    monkeypatch.setattr(register.Writer, "append", real)
    with run.writing():
        batches.answer(run, MECHANISM)
    assert run.answers_of(2).exists()


def test_that_somebody_else_counts_is_said(tmp_path):
    run = begin(tmp_path, "a", registration.Path("none"))
    assert "add them up where they are counted" in registration.shown(run)["register"]["text"]
    assert any("somebody else counts" in one for one in verify.of_run(run).of("passed"))
    assert not anchors.default().exists()
    assert "somebody else counts" in registration.published(run)


def test_another_run_warns_before_it_spends(tmp_path, file):
    begin(tmp_path, "a", file)
    with pytest.warns(PateWarning, match="this is run 2 on the same private records"):
        run = begin(tmp_path, "b", file)
    assert registration.standing(run).text().startswith("These records have been used by 2 runs in ")
    begin(tmp_path, "b", file)  # read again, it costs and says nothing
    first = begin(tmp_path, "c", None)  # which does not know of the other register's
    assert f"first run on these records in {anchors.default()}" in registration.standing(first).text()


def test_the_only_register_of_a_machine_speaks_of_the_machine(tmp_path):
    first = begin(tmp_path, "a", None)
    assert "this is the first run on these records on this machine" in registration.standing(first).text()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("home", ["of no use", "no home folder is known"])
def test_where_nothing_can_be_remembered_one_sentence_says_what_to_do(
    tmp_path, monkeypatch, named, home, file
):
    """A folder that cannot be written, and a user whom the system does not know."""
    (tmp_path / "full").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "full") if home == "of no use" else "relative")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(anchors.Path, "home", lambda: anchors.Path("~nobody at all").expanduser())
    with pytest.raises(PateError, match=f"{home}.*set XDG_STATE_HOME to .* declare by --register none that"):
        begin(tmp_path, "a", file if named else None)
    run = RunDirectory(tmp_path / "a")
    assert not run.ledger.exists() and len(chain.read(file)) == 1
    begin(tmp_path, "a", registration.Path("none"))


def test_a_run_from_another_machine_is_not_looked_for_in_the_register_of_this_one(tmp_path, monkeypatch):
    """Whoever checked it failed an honest run, only because they had runs of their own."""
    run = begin(tmp_path, "a", None)
    anchors.home().rename(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    for mine in (False, True):
        found = verify.of_run(run)
        assert not found.of("failed") and any(
            "nobody can see whether" in one for one in found.of("unchecked")
        )
        if not mine:
            begin(tmp_path, "b", None)


def test_runs_are_added_up_through_a_third_one_and_those_of_unknown_records_with_everybody():
    plan, key = Plan((Tables(0.2, "sums"),), "record"), bytes(32)
    ids = {"a": range(9), "b": range(20, 29), "c": range(8, 21), "d": range(50, 59)}
    samples = {
        one: people.made(
            np.full((len(of), 1), ord(one)), ids=np.array([f"id {each}" for each in of]), key=key
        )
        for one, of in ids.items()
    }
    entries = {one: register.Entry(one, one, "", (plan,), (one,)) for one in samples}
    entries["votes"] = register.Entry("votes", "votes", "", (plan,))
    book = register.Book(anchors.default(), "", key, entries, samples, None)
    names = [[entry.run for entry in group] for group in book.groups]
    assert names == [["a", "b", "c", "votes"], ["d", "votes"]]
    assert [entry.run for entry in book.around("a")] == names[0] == [e.run for e in book.around("votes")]


def _dies(folder, file, point):
    """Killed at one point of the writing of the first answer."""
    dead = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    real = chain.Writer.append

    def append(book, entry):
        before = {"noted": "answer" in entry, "charged": entry.get("kind") == "release"}
        if point == f"before {next((one for one in before if before[one]), '')}":
            dead()
        line = real(book, entry)
        if point == f"after {next((one for one in before if before[one]), '')}":
            dead()
        return line

    chain.Writer.append = append
    begin(folder, "a", file)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", [f"{when} {what}" for what in ("noted", "charged") for when in ("before", "after")]
)
def test_a_killed_run_goes_on_with_the_same_answer_and_with_no_other(tmp_path, point, file):
    process = multiprocessing.get_context("spawn").Process(target=_dies, args=(tmp_path, file, point))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (entry,) = register.read(file).entries.values()
    assert len(entry.answers) == (point != "before noted")
    run = RunDirectory(tmp_path / "a")
    assert not run.answers.exists()
    other = RunDirectory(shutil.copytree(run.root, tmp_path / "other"))
    if entry.answers and not ledger.read(run.ledger):
        voting.save_votes(other.votes, votes(shift=7))
        with other.writing(), pytest.raises(PateError, match="further answer, to another question"):
            batches.answer(other, MECHANISM)
    begin(tmp_path, "a", file)
    (after,) = register.read(file).entries.values()
    assert len(after.answers) == 1 and (not entry.answers or after.answers == entry.answers)
    assert verify.of_run(run).of("failed") == []


def test_a_whole_run_is_entered_before_it_trains(tmp_path, capsys):
    """By the command: the limit, what is refused by it, what fits, and what is spent then."""
    own = honest_runs.table()
    command = ["run", "--private", own.private, "--public", own.public, "--test", own.test, "--by", "user"]
    command += ["--teachers", 6, "--queries", 18, "--net", "table"]
    command += ["--out", tmp_path / "run", "--epochs", 1, "--min-steps", 3, "--batch-size", 8, "--devices", 1]
    command += ["--student.method", "supervised", "--student.net", "table", "--student.steps", 8]
    command += ["--student.batch-size", 8]  # the programs are those of `honest_runs.whole`
    noise = ["confident-discrete-gaussian", "--threshold", 3, "--sigma-threshold", 3, "--sigma", 1.5]
    assert call("budget", "--limit", 30, "--delta", 1e-5) == 0
    assert call(*command, *noise[:-1], 0.5) == 2
    assert (
        "would be exceeded" in capsys.readouterr().err
        and not RunDirectory(tmp_path / "run").teachers.exists()
    )
    assert call(*command, *noise) == 0
    said = capsys.readouterr().out.rstrip().splitlines()
    assert said[-1] == "Register: this is the first run on these records on this machine."
    assert call("budget", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (one,), (group,) = found["runs"], found["groups"]
    assert one["plan"]["relation"] == "user" and one["known"] and 0 < group["share"] < 1
    assert "budget: the register shows this run" in " ".join(
        verify.of_run(RunDirectory(tmp_path / "run")).of("passed")
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "does not exist, or has no first line"),
        (["{}", "--register", "{}/r"], "name one of the run directory"),
        (["{}", "--limit", 2], "are about the register"),
        (["--register", "{}/nowhere"], "begun by `pate budget --register"),
        (["--begin"], "the register of this user begins by itself"),
        (["--limit", -1], "must be a finite number above 0"),
    ],
)
def test_what_the_command_cannot_do_is_said_in_a_sentence(tmp_path, capsys, arguments, words):
    assert call("budget", *(str(one).format(tmp_path) for one in arguments)) == (2 if arguments else 0)
    shown = capsys.readouterr()
    assert words in " ".join(shown.err.split()) if arguments else "0 runs" in shown.out


@pytest.mark.parametrize("mechanism", [GNMax(60.0), ConfidentDiscreteGaussian(60.0, 60.0, 30.0)])
def test_a_limit_is_for_any_mechanism(tmp_path, mechanism, file):
    register.set_limit(file, 5.0, 1e-5)
    begin(tmp_path, "a", file, mechanism=mechanism)
    (group,) = register.summary(file, None)["groups"]
    assert 0 < group["share"] < 1 and group["sums"][0]["epsilon"] < 5


def test_of_a_run_that_stands_in_the_register_the_records_are_not_needed_again(tmp_path, file):
    run = begin(tmp_path, "a", file)
    (entry,) = register.read(file).entries.values()

    def gone():
        raise PateError("the private records are not here")

    registration.enter(run, entry.plans[0], gone)
    with pytest.raises(PateError, match="are not here"):
        registration.enter(run, Plan((replace(entry.plans[0].events[0], asked=ROWS + 1),), "record"), gone)
