"""A trial says that it is one: parts that `pate split` made carry a mark, which every output repeats."""

import contextlib
import functools
import html
import io
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from commands import call
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from test_release import first_line

from pate_jax import PateClassifier, voting
from pate_jax.audit import verify
from pate_jax.data import frames, from_files, inspection, raw, tables, trial, trial_mark
from pate_jax.errors import PateWarning
from pate_jax.runs import publication
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

ROWS = 160
OFFERS = re.compile(
    r"hand(ed)? (it )?over[^:]*release|publishable:|may be published|may leave|one to hand over", re.I
)
STUDENT = ("--student.method", "ridge")
NAMED = ("--label-column", "sick", "--id-column", "key")
KINDS = {
    "teachers": ("run", "--teachers", 5, "--net", "linear", "--queries", 6, *STUDENT, "gnmax", "--sigma", 3),
    "neighbours": ("run", "--voters", "neighbours", "--epsilon", 8, *STUDENT),
    "sums": ("run", "--voters", "sums", "--epsilon", 8),
    "dpsgd": ("baseline", "dpsgd", "--epsilon", 8, "--steps", 2, "--batch", 30),
}


def own(folder):
    random = np.random.default_rng(3)
    pulse = random.normal(70, 10, ROWS).round(3)
    table = {
        "key": [f"p{7 * row % ROWS}x" for row in range(ROWS)],
        "pulse": [str(value) for value in pulse],
        "mass": [str(value) for value in random.normal(70, 10, ROWS).round(3)],
        "sick": ["yes" if value > 70 else "no" for value in pulse],
    }
    (folder / "own.csv").write_bytes(tables.to_csv(table))
    return folder / "own.csv"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The parts of a trial in a folder that was renamed since."""
    folder = tmp_path_factory.mktemp("trial")
    trial.divide(own(folder), folder / "parts", {"labels": "sick", "ids": "key", "users": None})
    return (folder / "parts").rename(folder / "renamed")


def files(parts):
    return [word for part in trial.PARTS for word in (f"--{part}", parts / f"{part}.csv")]


def ran(*arguments):
    """What a command says, on both channels, and its last line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert call(*arguments) == 0
    return err.getvalue() + out.getvalue(), out.getvalue().rstrip().splitlines()[-1]


def plain(path):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", path.read_text())).split())


@pytest.fixture(scope="module")
def trial_of(parts, tmp_path_factory):
    """A run of each kind, and what its command said."""

    @functools.cache
    def made(kind):
        flags, mechanism = KINDS[kind], ()
        if "gnmax" in flags:
            flags, mechanism = flags[: flags.index("gnmax")], flags[flags.index("gnmax") :]
        run = RunDirectory(tmp_path_factory.mktemp("run") / kind)
        return run, *ran(*flags, *files(parts), *NAMED, "--out", run.root, *mechanism)

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_of_a_run_says_that_it_is_a_trial(kind, trial_of):
    run, said, last = trial_of(kind)
    assert last == trial_mark.SENTENCE and not OFFERS.search(said)
    body = run.public_statement.read_text()
    assert next(iter(storage.read_json(run.public_statement, "statement"))) == "trial"
    assert trial_mark.SENTENCE in body and trial_mark.SENTENCE in (run.student / "statement.json").read_text()
    assert first_line((run.student / "MODEL_CARD.md").read_text()) == f"**{trial_mark.SENTENCE}**"
    for page in (run.report, run.public_report):
        assert trial_mark.SENTENCE in plain(page) and not OFFERS.search(plain(page))
    for path in (run.root, run.release):
        found = verify.at(path).of("failed")
        assert [one.partition(": ")[2] for one in found] == [trial_mark.SENTENCE]


def test_a_choice_of_settings_on_a_trial_says_so(parts, tmp_path):
    (tmp_path / "list.toml").write_text(
        '[[candidate]]\nvoters = "sums"\n[[candidate]]\nvoters = "neighbours"\n'
    )
    run = RunDirectory(tmp_path / "tuned")
    flags = ("--settings", tmp_path / "list.toml", "--each-once", "--ids-are-stable", "--epsilon", 20)
    said, last = ran("tune", *files(parts), *NAMED, *flags, "--out", run.root)
    assert last == trial_mark.SENTENCE and not OFFERS.search(said)
    for path in (run.public_report, run.student / "MODEL_CARD.md", run.public_statement):
        assert trial_mark.SENTENCE in html.unescape(path.read_text()) and not OFFERS.search(plain(path))
    assert [one.partition(": ")[2] for one in verify.at(run.root).of("failed")] == [trial_mark.SENTENCE]


def test_a_release_that_conceals_its_trial_is_found_out(trial_of, tmp_path):
    run = RunDirectory(shutil.copytree(trial_of("sums")[0].root, tmp_path / "run"))
    for path in (run.public_statement, run.student / "statement.json"):
        body = storage.read_json(path, "statement")
        del body["trial"]
        storage.write_json(path, "statement", body)
    found = verify.at(run.root).of("failed")
    assert any("the published statement differs: trial" in one for one in found)
    assert any("disagree on whether the run is a trial" in one for one in verify.at(run.release).of("failed"))


def test_a_run_that_is_no_trial_says_nothing_of_it(tmp_path):
    path = own(tmp_path)
    table = tables.read(path)
    for part, rows in (("private", slice(0, 100)), ("public", slice(100, 140)), ("test", slice(140, None))):
        (tmp_path / f"{part}.csv").write_bytes(
            tables.to_csv({name: column[rows] for name, column in table.items()})
        )
    said, last = ran(*KINDS["sums"], *files(tmp_path), *NAMED, "--out", tmp_path / "run")
    assert trial_mark.SENTENCE not in said and "\nHand over" in said
    assert last.startswith("Register: this is the first run")
    assert "trial" not in (tmp_path / "run" / "release" / "report.html").read_text()


def test_votes_of_a_trial_carry_the_mark_to_whoever_answers_them(parts, tmp_path):
    run, other = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "other")
    ran("train", *files(parts), *NAMED, "--teachers", 4, "--net", "linear", "--out", run.root)
    ran("vote", run.root, "--queries", 5)
    whole = voting.load_votes(run.votes)
    assert whole.trial and voting.votes.save_votes(tmp_path / "again.npz", whole._replace(ids=None)) is None
    assert voting.load_votes(tmp_path / "again.npz").trial
    said, _ = ran("aggregate", run.votes, "--relation", "record", "--out", other.root, "gnmax", "--sigma", 3)
    assert trial_mark.SENTENCE in said and publication.trial(other)
    _, last = ran("account", other.root)
    assert last == trial_mark.SENTENCE
    assert "trial" in storage.read_json(other.public_statement, "statement")


def test_a_pool_that_is_part_of_a_trial_marks_answers_about_it(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", inputs=random.normal(size=(60, 3)), labels=np.arange(60) % 2)
    trial.divide(tmp_path / "own.npz", tmp_path / "parts", {})
    votes = voting.Votes(np.tile([[4, 1], [1, 4]], (6, 1)))
    voting.save_votes(tmp_path / "votes.npz", votes)
    run = RunDirectory(tmp_path / "run")
    ran("aggregate", tmp_path / "votes.npz", "--relation", "record", "--out", run.root, "gnmax", "--sigma", 2)
    ran("account", run.root)
    pool = tmp_path / "parts" / "public.npz"
    said, _ = ran("student", run.root, "--public", pool, "--method", "ridge", "--json")
    assert trial_mark.SENTENCE in said
    assert "trial" in storage.read_json(run.public_statement, "statement")


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(trial.PARTS), st.sampled_from(["csv", "parquet", "frame"]), st.integers(0, 3))
def test_a_part_is_recognised_wherever_its_rows_go(parts, part, door, dropped):
    """Renamed, moved alone, with fewer rows, in another format, or through a frame of pandas."""
    table = {name: column[dropped:] for name, column in tables.read(parts / f"{part}.csv").items()}
    frame = pyarrow.table(table)
    with tempfile.TemporaryDirectory() as folder:
        if door == "frame":
            suffix, content = frames.stored(frames.read(frame, part, {"labels": "sick"}))
            path = Path(folder) / f"moved{suffix}"
            path.write_bytes(content)
        else:
            path = Path(folder) / f"moved.{door}"
            path.write_bytes(tables.to_csv(table)) if door == "csv" else parquet.write_table(frame, path)
        found = raw.of_table(path, {"labels": "sick", "ids": "key", "users": None}, private=False)
        assert found.trial and trial_mark.NAME not in found.inputs


def test_arrays_carry_it_too_and_a_part_can_be_divided_again(tmp_path):
    np.savez(tmp_path / "own.npz", inputs=np.arange(120.0).reshape(40, 3), labels=np.arange(40) % 2)
    made = trial.divide(tmp_path / "own.npz", tmp_path / "a", {})
    again = trial.divide(made.files["private"], tmp_path / "b", {})
    for file in [*made.files.values(), *again.files.values()]:
        assert raw.of_arrays(file).trial
    data = from_files(again.files["private"], again.files["public"])
    assert data.trial and data.private.inputs.shape[1] == 3
    with np.load(made.files["public"]) as arrays:
        assert trial_mark.NAME in frames.read({**arrays}, "public", {})


def test_inspect_and_split_do_not_take_the_mark_for_a_column(parts, tmp_path):
    assert "3 columns" not in inspection.look(parts / "private.csv", {}).what
    assert trial_mark.NAME not in json.dumps(inspection.look(parts / "private.csv", {}).lines)
    made = trial.divide(parts / "private.csv", tmp_path / "again", {"labels": "sick"})
    assert list(tables.read(made.files["public"])).count(trial_mark.NAME) == 1


@pytest.mark.filterwarnings("always::pate_jax.errors.PateWarning")
def test_a_classifier_on_frames_of_a_trial_warns(parts, tmp_path):
    frame, public = tables.read(parts / "private.csv"), tables.read(parts / "public.csv")
    labels = frame.pop("sick")
    for table in (frame, public):
        del table["key"]
    del public["sick"]
    model = PateClassifier(4.0, classes=["no", "yes"], voters="sums", directory=tmp_path / "fit")
    with pytest.warns(PateWarning, match=trial_mark.SENTENCE):
        model.fit(frame, labels, public)
    assert "trial" in (tmp_path / "fit" / "release" / "statement.json").read_text()
    assert len(model.predict(frame)) == len(labels)


@pytest.mark.filterwarnings("always::pate_jax.errors.PateWarning")
def test_a_classifier_on_arrays_of_a_trial_warns(tmp_path):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(300, 3))
    np.savez(tmp_path / "own.npz", inputs=inputs, labels=(inputs[:, 0] > 0).astype(int))
    trial.divide(tmp_path / "own.npz", tmp_path / "parts", {})
    with np.load(tmp_path / "parts" / "private.npz") as own, np.load(tmp_path / "parts/public.npz") as pool:
        private, public = {**own}, {**pool}
    labels = private.pop("labels")
    del public["labels"]
    for number, (X, X_public) in enumerate([(private, public), (private["inputs"], public)]):
        folder = tmp_path / f"fit{number}"
        model = PateClassifier(4.0, classes=[0, 1], voters="sums", directory=folder)
        with pytest.warns(PateWarning, match=trial_mark.SENTENCE):
            model.fit(X, labels, X_public)
        assert "trial" in storage.read_json(folder / "release" / "statement.json", "statement")


class Unnamed:
    """A transformer that drops all columns but two, as an array or as a frame."""

    def __init__(self, as_frame):
        self.as_frame = as_frame

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[["a", "b"]] if self.as_frame else X[["a", "b"]].to_numpy()


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_transformer_does_not_take_the_mark_of_a_trial_away(as_frame, tmp_path):
    pandas = pytest.importorskip("pandas")
    values = np.random.default_rng(0).normal(size=(300, 2))
    frame = pandas.DataFrame(values, columns=["a", "b"]).assign(**{trial_mark.NAME: trial_mark.VALUE})
    model = PateClassifier(
        4.0, classes=[0, 1], voters="sums", directory=tmp_path / "fit", transformer=Unnamed(as_frame)
    )
    lacks = pytest.warns(PateWarning, match="does not hold the transformer")
    with lacks, pytest.warns(PateWarning, match=trial_mark.SENTENCE):
        model.fit(frame[:200], (values[:200, 0] > 0).astype(int), frame[200:])
    assert "trial" in storage.read_json(tmp_path / "fit" / "release" / "statement.json", "statement")


def test_a_further_pool_that_is_part_of_a_trial_marks_the_run_and_swapped_teaches_nobody(tmp_path, capsys):
    run, pool = asked_more(tmp_path), tmp_path / "further.npz"
    kept = pool.read_bytes()
    with np.load(pool) as arrays:
        held = {**arrays}
    np.savez(pool, **{**held, "inputs": held["inputs"] + 1})
    assert call("student", run.root, "--method", "ridge") == 2
    assert "further.npz holds other inputs than those that batch 2 of" in capsys.readouterr().err
    assert any("not those whose digests" in one for one in verify.at(run.root).of("failed"))
    pool.write_bytes(kept)
    ran("student", run.root, "--method", "ridge")
    assert "trial" in storage.read_json(run.public_statement, "statement")
    assert trial_mark.SENTENCE in (run.student / "MODEL_CARD.md").read_text()


def test_votes_of_a_trial_carry_the_mark_through_a_vote_with_local_noise(tmp_path):
    labels = (np.arange(6)[:, None] + np.arange(10)) % 2
    for name, marked in (("a", True), ("b", False)):
        made = voting.Votes(np.array([[3, 3]] * 10), labels, digests=np.arange(10).astype(str), trial=marked)
        voting.save_votes(tmp_path / f"{name}.npz", made)
    plan = tmp_path / "plan.json"
    ran("local", "plan", plan, "--classes", 2, "--questions", 10, "--voters", 12, "--budget", 4)
    for name in "ab":
        where = (
            "--party",
            name,
            "--ledger",
            tmp_path / f"own {name}",
            "--out",
            tmp_path / f"sent {name}.npz",
        )
        for _ in range(2):  # as it is drawn, and as it is given out again
            said, _last = ran("local", "vote", plan, tmp_path / f"{name}.npz", *where)
            assert (trial_mark.SENTENCE in said) == (name == "a")
    sent = [tmp_path / "sent a.npz", tmp_path / "sent b.npz"]
    for files, marked in ((sent, True), (sent[1:], False)):
        said, _last = ran("local", "count", plan, *files, "--out", tmp_path / "count.npz")
        assert (trial_mark.SENTENCE in said) == marked
        assert ("trial" in storage.read_arrays(tmp_path / "count.npz", "local-count")) == marked


def asked_more(folder):
    """A run of teachers that answered a further pool, which is part of a trial."""
    random = np.random.default_rng(0)
    for name, rows in (("private", 200), ("public", 40), ("further", 30)):
        inputs = random.normal(size=(rows, 3))
        held = {"inputs": inputs, "labels": (inputs[:, 0] > 0).astype(int)}
        held |= {"ids": np.array([f"{name} {7 * row % 211}" for row in range(rows)])}
        if name == "further":
            held = trial_mark.marked_arrays(held, rows)
        np.savez(folder / f"{name}.npz", **held)
    run = RunDirectory(folder / "run")
    parts = [word for part in ("private", "public") for word in (f"--{part}", folder / f"{part}.npz")]
    ran("train", *parts, "--classes", 2, "--teachers", 4, "--net", "linear", "--out", run.root)
    ran("vote", run.root, "--queries", 4)
    ran("aggregate", run.root, "--budget-epsilon", 8, "discrete-gaussian", "--sigma", 8)
    ran("vote", run.root, "--more", "--queries", 4, "--public", folder / "further.npz")
    ran("aggregate", run.root)
    ran("account", run.root)
    return run
