import csv
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import party_files
import pytest
import tiny_words
from commands import call

from pate_jax import Student
from pate_jax.audit import verify
from pate_jax.cli.inspect import run_line
from pate_jax.data import columns, encoders, from_files, inspection, public_parts, texts
from pate_jax.data.encoders import encoder, tokens
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.models import spaces
from pate_jax.runs import own_data, people, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import join, terms
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.runs.tune import candidates as tuning
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.student import Ridge

SECRET = "aaa eee zebra-7741 ccc"  # of one private record


@pytest.fixture(autouse=True)
def package(tmp_path_factory, monkeypatch):
    yield tiny_words.install(tmp_path_factory.mktemp("packages"), monkeypatch)
    encoders.named.cache_clear()


def table(seed, count, secret=False):
    """Notes whose first word tells the label, with a number, a code and a town; some notes are missing."""
    random = np.random.default_rng(seed)
    notes = tiny_words.texts(seed, count)
    sick = np.array([note[0] in "ab" for note in notes])
    notes = ["" if random.random() < 0.1 else note for note in notes]
    if secret:
        notes[3] = SECRET
    return {
        "age": [f"{number:.0f}" for number in random.normal(50, 9, count)],
        "note": notes,
        "town": random.choice(["Oslo", "Rome"], count).tolist(),
        "sick": np.where(sick, "yes", "no").tolist(),
    }


def written(path, content):
    with open(path, "w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(content)
        lines.writerows(zip(*content.values(), strict=True))
    return path


@pytest.fixture
def files(tmp_path):
    parts = {"private": table(0, 400, secret=True), "public": table(1, 120), "test": table(2, 60)}
    return {name: written(tmp_path / f"{name}.csv", part) for name, part in parts.items()}


def opened(files, **more):
    return from_files(
        **files, label_column="sick", **{"text_column": "note", "equal_rows_are_coincidences": True, **more}
    )


def exact(text):
    """The mean of a text's embeddings in fractions, rounded once."""
    from safetensors.numpy import load

    embeddings = load(encoder.files_of("words")[0])["embedding.weight"]
    ids = {word: place for place, word in enumerate(["?", *tiny_words.VOCABULARY])}
    rows = [ids.get(word, 0) for word in text.split()]
    sums = [sum(Fraction(float(embeddings[row, place])) for row in rows) for place in range(tiny_words.WIDTH)]
    return np.array([float(total / len(rows)) for total in sums], np.float32)


def test_a_text_has_one_vector_alone_in_any_batch_and_in_any_order():
    read, some = encoders.named("words"), tiny_words.texts(5, 40, words=200)
    found = read(some)
    assert found.dtype == np.float32 and (found == np.stack([exact(text) for text in some])).all()
    alone = np.concatenate([read([text]) for text in some])
    assert alone.tobytes() == found.tobytes() == read(some[::-1])[::-1].tobytes()
    assert found.tobytes() == texts.encode("note", some, read.known).tobytes()


def test_empty_enormous_and_broken_texts_are_read():
    read = encoders.named("words")
    assert not read([""]).any() and not read([" \n"]).any()
    long = "abc " * 100_000
    assert (read([long]) == read([long[: encoder.MOST]])).all() and (read([long]) == read(["abc"])).all()
    assert np.isfinite(read(["\ud83d abc", "\x00 abc"])).all()


def test_private_records_change_neither_encoder_nor_scale_nor_plan(files, tmp_path):
    mine = opened(files)
    other = written(tmp_path / "other.csv", {**table(7, 300), "note": ["ddd eee"] * 300})
    swapped = opened({**files, "private": other})
    assert swapped.preprocessing == mine.preprocessing and swapped.columns == mine.columns
    assert swapped.public.inputs.tobytes() == mine.public.inputs.tobytes()
    alone = public_parts(files["public"], files["test"], label_column="sick", text_column="note")
    assert alone.preprocessing == mine.preprocessing and alone.columns == mine.columns


def test_a_table_of_all_kinds_is_on_one_scale_of_public_inputs(files):
    found = opened(files)
    assert [column.name for column in found.columns] == ["age", "town", "note"]
    scaled = found.preprocessing.apply(found.public.inputs)
    vectors = scaled[:, -tiny_words.WIDTH :].astype(np.float64)
    assert found.preprocessing.encoded == tiny_words.WIDTH + 1  # with the mark of a missing text
    assert np.allclose(vectors.mean(0), 0, atol=1e-5) and np.isclose(vectors.var(0).sum(), 16, rtol=1e-4)
    assert len({*found.preprocessing.scale[-tiny_words.WIDTH :]}) == 1
    blank = np.array([not value for value in table(1, 120)["note"]])
    assert blank.any() and (found.public.inputs[:, 3] == blank).all()
    without = opened(files, text_column=None)  # the same columns, and the text left out
    assert (without.private.inputs == found.private.inputs[:, :3]).all()


def test_numbers_of_a_text_have_neither_ramps_nor_products(files):
    found = opened(files)
    own = found.public.inputs.shape[1] - found.preprocessing.encoded
    front = spaces.fronts.columns_of(found.public.inputs, found.preprocessing)
    pairs = np.concatenate([front.products.left, front.products.right])
    assert len(front.ramps.column) and front.ramps.column.max() < own and (pairs < own).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"text_column": "notes"},
            "--text-column notes is no column of the public part",
        ),
        ({"text_column": "note,note"}, "must name each column once"),
        ({"text_column": "age"}, "'age' holds ids or single words and no text"),
        ({"text_column": None, "encoder": "words"}, "--encoder words reads text: name its column"),
        ({"encoder": "wurds"}, "--encoder wurds must be one of words"),
        ({"categories": {"note": ["aaa"]}}, "which --text-column names too"),
    ],
)
def test_what_is_no_column_of_text_is_refused(files, change, sentence):
    with pytest.raises(PateError, match=sentence):
        opened(files, **change)


def test_ids_numbers_and_empty_columns_are_no_text():
    rows = [f"{row}" for row in range(50)]
    for name, values, why in (
        ("visit id", [f"number {row}" for row in rows], "ids or single words"),
        ("seen", ["5 May 2024", "6 May 2024"] * 25, "numbers or dates"),
        ("note", [""] * 50, "is empty in the public part"),
    ):
        with pytest.raises(PateError, match=why):
            texts.known({name: values}, name, "")


def test_arrays_and_data_sets_by_name_have_no_columns_of_text(tmp_path):
    np.savez(tmp_path / "own.npz", inputs=np.ones((4, 3)), labels=[0, 1, 0, 1])
    with pytest.raises(PateError, match="--text-column note is for tables"):
        from_files(tmp_path / "own.npz", tmp_path / "own.npz", text_column="note")
    with pytest.raises(PateError, match="--encoder words is for tables of your own"):
        pipeline.run(RunConfig(DataChoice(encoder="words"), out=tmp_path / "run"))


def test_an_encoder_that_is_missing_says_how_to_get_it_and_damaged_files_are_refused(package, monkeypatch):
    (package / "weights/l2_supercat_256.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(PateError, match="weights of the encoder are damaged"):
        tokens.words()
    tiny_words.gone(monkeypatch)
    with pytest.raises(PateError, match=r"'words' is not installed: `pip install wordllama`"):
        encoders.named("words")


def test_a_column_of_text_is_proposed_and_no_text_is_shown(tmp_path):
    content = table(3, 200, secret=True)
    seen = inspection.table_seen(Table(content), {"labels": "sick"})
    assert seen.texts == ("note",) and seen.lines["text"] == "note (a guess: name it with --text-column)"
    assert SECRET not in str(seen) and not seen.refused
    named = inspection.table_seen(Table(content), {"labels": "sick"}, {}, "town")
    assert named.texts == () and "single words" in named.refused[0]
    line = run_line({"private": tmp_path / "a.csv"}, {"labels": "sick"}, ["--text-column", "note"])
    assert "--text-column note" in line


def released(files, tmp_path):
    data = DataChoice(**files, label_column="sick", text_column="note", equal_rows_are_coincidences=True)
    out = tmp_path / "run"
    pipeline.run(
        RunConfig(data, PartitionChoice(seed=3), out=out, voters="sums", epsilon=4.0, register="none")
    )
    return out


@pytest.mark.filterwarnings("ignore:public labels")
def test_a_run_on_texts_is_verified_and_its_student_reads_texts(files, tmp_path, capsys, package):
    out = released(files, tmp_path)
    assert SECRET not in "".join(capsys.readouterr())
    found = verify.of_run(RunDirectory(out), deep=True)
    assert not found.of("failed")
    public = [path.read_bytes() for path in (out / "release").rglob("*") if path.is_file()]
    assert not any(b"zebra-7741" in content for content in public)
    known = encoders.named("words").known
    assert known.digest in str(RunDirectory(out).record.read().of("public")["encoders"])
    certified = RunDirectory(out).certificate
    (said,) = json.loads(certified.read_text())["encoders"]
    assert known.digest in said and encoders.NOT_COVERED in said and "mean of the tokens' embeddings" in said
    assert any("no encoder but the one it names" in one for one in verify.at(out / "release").of("passed"))
    whole = certified.read_text()
    certified.write_text(whole.replace(known.digest, "0" * 64))
    assert "encoders" in " | ".join(verify.of_run(RunDirectory(out)).of("failed"))
    certified.write_text(whole)
    card = (out / "release/student/MODEL_CARD.md").read_text()
    assert known.digest in card and encoders.NOT_COVERED in card and "mean of the tokens' embeddings" in card

    student, rows = Student.load(out), table(9, 30)
    by_frame = student.predict_proba({**rows, "more": ["x"] * 30})
    by_file = student.predict_proba(written(tmp_path / "new.csv", rows))
    assert (by_frame == by_file).all() and by_frame.std() > 0
    command = [sys.executable, str(out / "release/student/predict.py"), "new.csv", "--out", "new.npz"]
    environment = {"PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.abs(np.load(tmp_path / "new.npz")["probabilities"] - by_file).max() < 1e-5

    tiny_words.install(package.parent, pytest.MonkeyPatch(), seed=1)  # the package has other weights now
    with pytest.raises(PateError, match=rf"{known.digest[:16]}\.\.\. is needed"):
        student.predict_proba(rows)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and f"{known.digest[:16]}... is needed" in done.stderr
    with pytest.raises(PateError, match="'words' is another than the one that this run was begun with"):
        released(files, tmp_path)


def named_records(folder, name, seed, count):
    """Private records with ids of their own."""
    return written(
        folder / f"{name}.csv",
        {**table(seed, count), "id": [f"{name}{7 * row % count}x" for row in range(count)]},
    )


def test_a_register_knows_people_by_their_texts_whatever_reads_them(tmp_path, monkeypatch, package):
    """Nothing but a text tells these records apart: left out, or read by other weights, it is theirs."""
    few = {"room": ["a", "b"] * 60, "bed": [f"{row % 9}" for row in range(120)]}
    tiny = tiny_words.texts(3, 240, words=200)
    parts = {}
    for name, rows in (("private", slice(120)), ("other", slice(120, 240))):
        notes = [f"{text} {place}" for place, text in enumerate(tiny[rows])]
        parts[name] = written(tmp_path / f"{name}.csv", {**few, "note": notes, "sick": ["no", "yes"] * 60})
    pool = written(tmp_path / "pool.csv", {**few, "note": tiny_words.texts(4, 120, words=200)})

    def seen(name, **settings):
        settings |= {"classes": "no,yes", "equal_rows_are_coincidences": True}
        found = from_files(parts[name], pool, label_column="sick", **settings)
        assert not found.without_records.unread
        return people.of(found, bytes(range(32)))

    read = seen("private", text_column="note")
    tiny_words.install(package.parent, monkeypatch, seed=1)
    others = seen("private", text_column="note"), seen("private", leave_out="note"), seen("private")
    assert [people.same(read, one) for one in others] == [True] * 3
    for settings in ({"text_column": "note"}, {"leave_out": "note"}):
        assert not people.same(read, seen("other", **settings))


def test_parties_vote_on_texts(files, tmp_path, monkeypatch):
    def own(folder, name):
        parts = {**files, "private": folder / f"{name}.csv"}
        return DataChoice(
            **parts,
            label_column="sick",
            id_column="id",
            text_column="note",
            show_public=True,
            equal_rows_are_coincidences=True,
        )

    monkeypatch.setattr(party_files, "data_of", own)
    for place, name in enumerate(party_files.NAMES):
        named_records(tmp_path, name, 10 + place, 60)
        terms.make(tmp_path, name, "localhost", 7101 + place, 60)
    found = party_files.vote(tmp_path, party_files.agree(tmp_path, "sums"), seed=5)
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    run = RunDirectory(tmp_path / "run-west")
    with run.writing():
        join.teach(run, Ridge())
    assert np.ptp(Student.load(run.root).predict_proba(files["test"])) > 0.02
    assert (run.release / "student/encoder.py").is_file()


def test_settings_are_tuned_on_texts(files, tmp_path):
    parts = {**files, "private": named_records(tmp_path, "named", 0, 400)}
    data = DataChoice(
        **parts, label_column="sick", id_column="id", text_column="note", equal_rows_are_coincidences=True
    )
    listed, out = (Setting("sums"), Setting("sums", space="identity")), tmp_path / "choice"
    tuning.run(TuneConfig(data, listed, seed=3, epsilon=8.0, each_once=True, out=out, register="none"))
    assert np.ptp(Student.load(out).predict_proba(files["test"])) > 0.02
    assert not verify.of_run(RunDirectory(out)).of("failed")


def test_methods_are_planned_and_compared_on_texts(files, tmp_path, capsys):
    named = ("--label-column", "sick", "--text-column", "note", "--public", files["public"])
    assert not call("plan", *named, "--records", "400", "--epsilon", "4", "--public-labels")
    assert "--text-column note" in capsys.readouterr().out
    more = ("--private", files["private"], "--test", files["test"], "--judged-on", "synthetic")
    told = ("--methods", "sums", "--equal-rows-are-coincidences", "--out", tmp_path / "compared")
    assert not call("compare", *named, *more, *told)
    assert "sums" in capsys.readouterr().out


def test_columns_of_text_are_read_from_frames_and_lists_of_names_too(tmp_path):
    made = own_data._config({"text_column": ["note", "more"]}, "sums", 1.0, tmp_path)
    assert made.data.text_column == "note,more"
    column = columns.Column("note", indicator=True, encoder=encoders.named("words").known)
    assert columns.from_dict(column.to_dict()) == column and column.width == tiny_words.WIDTH + 1
    assert "encoder" not in column._replace(encoder=None).to_dict()
