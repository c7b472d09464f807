"""A crowd's run that is killed at any write: repeated, it ends as if nothing had been."""

import os
import signal

import honest_runs
import numpy as np
import pytest
from test_crash import Children, Crash, Mortal

from pate_jax.audit import verify
from pate_jax.cli import main
from pate_jax.runs import chain, ledger, register
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")
SEED = 5
KINDS = ("neighbours", "sums")
STUDENT = "--student.method supervised --student.net table --student.steps 8 --student.batch-size 8"
MOMENTS = 40  # of a run, at most: more than it writes files
REALLY = 6  # every so many moments a real process is killed, which takes longer


def command(out, voters, seed=SEED, register="none"):
    """`pate run` of the same small run as `honest_runs.crowd`."""
    table = honest_runs.table()
    files = [f"--{name}={getattr(table, name)}" for name in ("private", "public", "test")]
    more = [f"--{name}={value}" for name, value in honest_runs.NEAR[voters].items()]
    more += [f"--register={register}"] if seed is None else [f"--seed={seed}"]
    return ["run", *files, f"--voters={voters}", "--epsilon=4", f"--out={out}", *more, *STUDENT.split()]


def left(run):
    """What a run has released, byte for byte, and the lines that say so without the time of each."""
    parts = (run.answers, run.statement, run.public_statement, run.student / "parameters.npz")
    return [path.read_bytes() for path in parts], shown(run)


def shown(run):
    """What the ledger shows: the head of each line, and its numbers."""
    return [
        (line.batch, line.exact, line.public, line.noise, line.values) for line in ledger.releases(run.ledger)
    ]


def check_what_left(run):
    """No number can be read in the run that the ledger does not show."""
    lines = list(ledger.releases(run.ledger)) if run.ledger.exists() else []
    if run.answers.exists():
        values = storage.read_arrays(run.answers, "noisy-table")["values"]
        assert len(lines) == 2
        np.testing.assert_array_equal(values, ledger.unpack_table(lines[1].values, values.shape))


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The system calls that an unharmed run of each kind makes."""
    return {voters: traced(command(tmp_path_factory.mktemp(voters) / "run", voters)) for voters in KINDS}


def traced(words):
    """The system calls that a command makes."""
    mortal = Mortal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        main(words)
    return mortal.calls


@pytest.fixture(scope="module")
def children():
    made = Children(os.environ["JAX_COMPILATION_CACHE_DIR"])
    with made.parent:
        yield made
        made.parent.stdin.close()
    assert made.parent.returncode == 0


def killed(children, words, at, half):
    """A process of its own, really killed at a system call."""
    children.start([words], at, half)
    assert children.end() == -signal.SIGKILL


def died_here(_, words, at, half):
    """The same in this process, which has traced its programs: from that call on nothing is written."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(storage, "os", Mortal(at, half))
        main(words)


def killed_and_repeated(children, out, voters, at, half, seed=SEED, end=killed):
    """End a run at a system call, and repeat its command; the run, and what its ledger showed in between."""
    end(children, command(out, voters, seed), at, half)
    run = RunDirectory(out)
    check_what_left(run)
    before = shown(run) if run.ledger.exists() else []
    torn = run.ledger.exists() and chain.check(run.ledger).torn is not None
    main(command(out, voters, seed))
    check_what_left(run)
    assert shown(run)[: len(before)] == before, "nothing is drawn twice"
    assert [line.batch for line in ledger.releases(run.ledger)] == [1, 2], "nothing is charged twice"
    assert not list(run.root.rglob("*.tmp"))
    assert verify.of_run(run).of("failed") == []
    return run, before, torn


def lines_of_ledger(calls):
    """Where the lines of the ledger are written; nothing else is appended to."""
    return [at + 1 for at, name in enumerate(calls) if name == "ftruncate" and calls[at + 1] == "write"]


def test_killed_in_the_middle_of_the_tables_line_a_run_draws_the_same_noise(children, calls, tmp_path):
    places = lines_of_ledger(calls["neighbours"])
    assert len(places) == 2
    run, before, torn = killed_and_repeated(children, tmp_path / "run", "neighbours", places[1], half=True)
    assert len(before) == 1 and torn
    assert left(run) == left(honest_runs.crowd("neighbours", "record", SEED))


def test_killed_after_the_tables_line_a_private_run_releases_what_it_shows(children, tmp_path):
    """The noise of a run without a seed follows from its own entropy, which the killed process has kept."""
    after = lines_of_ledger(traced(command(tmp_path / "whole", "sums", None)))[1] + 2
    run, before, torn = killed_and_repeated(children, tmp_path / "run", "sums", after, half=False, seed=None)
    assert len(before) == 2 and not torn
    assert shown(run)[1][-1] != shown(honest_runs.crowd("sums", "record", SEED))[1][-1]


@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
def test_killed_at_every_line_of_its_register_and_its_ledger_a_run_is_counted_once(
    tmp_path, monkeypatch, half
):
    def words(name):
        """The command of a run in a register of its own."""
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))
        register.begin(tmp_path / f"{name}.jsonl")
        return command(tmp_path / f"run-{name}", "sums", None, tmp_path / f"{name}.jsonl")

    places = lines_of_ledger(traced(words("whole")))
    assert len(places) == 6  # whose records, the run, and twice an answer's digest and its line
    for at in places:
        mine = words(str(at))
        died_here(None, mine, at, half)
        kept = list(register.read(tmp_path / f"{at}.jsonl").entries.values())
        main(mine)
        (entry,) = register.read(tmp_path / f"{at}.jsonl").entries.values()
        before = kept[0].answers if kept else ()
        assert len(entry.answers) == 2 and entry.answers[: len(before)] == before
        assert verify.of_run(RunDirectory(tmp_path / f"run-{at}")).of("failed") == []


@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("voters", KINDS)
def test_killed_at_every_write_of_a_file_the_run_ends_the_same(children, calls, tmp_path, voters, half):
    expected = left(honest_runs.crowd(voters, "record", SEED))
    name = "write" if half else "replace"
    places = [at for at, called in enumerate(calls[voters]) if called == name]
    assert 10 < len(places) < MOMENTS
    torn = 0
    for number, at in enumerate(places):
        end = died_here if number % REALLY else killed
        run, _, was_torn = killed_and_repeated(children, tmp_path / f"run-{at}", voters, at, half, end=end)
        assert left(run) == expected, at
        torn += was_torn
    assert torn == (2 if half else 0)
