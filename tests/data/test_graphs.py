import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tiny_graphs
import tiny_words

from pate_jax import Student
from pate_jax.cli import main
from pate_jax.data import encoders, from_files, texts
from pate_jax.errors import PateError
from pate_jax.runs import pipeline
from pate_jax.runs.settings import DataChoice, RunConfig

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def fresh():
    yield
    encoders.named.cache_clear()
    encoders._OPENED.clear()


@pytest.mark.parametrize("kind", ["mean", "cls", "max"])
def test_a_folder_of_a_hub_reads_texts_as_its_files_say(tmp_path, kind):
    folder, numbers = tiny_graphs.words_folder(tmp_path / "notes-mini", kind)
    read, some = encoders.named(str(folder)), tiny_words.texts(3, 30, words=30)
    found = read(some)
    places = {word: place for place, word in enumerate(["?", *tiny_words.VOCABULARY])}
    for text, vector in zip(some, found, strict=True):
        rows = numbers[[places[word] for word in text.split()[:16]]]  # as many tokens as its settings allow
        wanted = {"mean": rows.mean(0), "cls": rows[0], "max": rows.max(0)}[kind]
        assert np.allclose(vector, wanted, atol=1e-6)
    assert found.tobytes() == np.concatenate([read([text]) for text in some]).tobytes()
    assert found[::-1].tobytes() == read(some[::-1]).tobytes()
    assert not read(["", " \n"]).any() and np.isfinite(read(["\ud83d abc", "abc " * 100_000])).all()
    assert read.known.name == "texts:notes-mini" and str(tmp_path) not in repr(read.known)
    assert "first 16 tokens" in encoders.told(read.known)


def test_vectors_are_brought_to_length_one_where_the_folder_says_so(tmp_path):
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    plain = encoders.named(str(folder))
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    encoders.named.cache_clear()
    unit = encoders.named(str(folder))
    one, other = plain(["abc eda"])[0], unit(["abc eda"])[0]
    assert np.allclose(other, one / np.linalg.norm(one), atol=1e-6)
    assert plain.known.digest != unit.known.digest  # what is done after the graph has part in it


def test_photos_are_scaled_as_the_file_beside_says(tmp_path):
    numbers = tiny_graphs.photos_file(tmp_path / "colours.onnx")
    said = {"size": {"height": 24, "width": 24}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.25]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    read = encoders.photos(str(tmp_path / "colours.onnx"))
    some = np.random.default_rng(0).integers(0, 256, (9, 24, 24, 3)).astype(np.uint8)
    found = read(some)
    mean = some.astype(np.float64).mean((1, 2)) / 255
    assert np.allclose(found, (mean - [0.5, 0.4, 0.3]) / [0.5, 0.5, 0.25] @ numbers, atol=1e-4)
    assert found.tobytes() == np.concatenate([read(some[row : row + 1]) for row in range(9)]).tobytes()
    assert read.known.name == "photos:colours-24" and read.side == 24
    assert encoders.photos(str(tmp_path / "colours.onnx"), 32).side == 32
    with pytest.raises(PateError, match="reads folders of photos, and these are tables"):
        texts.known({"note": ["it hurts", "no pain"]}, "note", str(tmp_path / "colours.onnx"))


def test_bad_files_are_refused_in_one_sentence(tmp_path, monkeypatch):
    def refused(name, sentence, side=None):
        with pytest.raises(PateError, match=sentence):
            encoders.named(str(tmp_path / name), side)

    refused("none.onnx", "does not exist")
    (tmp_path / "empty").mkdir()
    refused("empty", "holds no ONNX file: make one by")
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    refused("broken.onnx", "is no ONNX file that can be read")
    tiny_graphs.photos_file(tmp_path / "fixed.onnx", 24)
    refused("fixed.onnx", r"of \[24\] pixels each way, and --image-size is 32", 32)
    tiny_graphs.photos_file(tmp_path / "any.onnx")
    refused("any.onnx", "of any number of pixels each way, and --image-size is None")
    tiny_graphs.photos_file(tmp_path / "random.onnx", random=True)
    refused("random.onnx", "answers the same record in two ways", 16)
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    refused("mini", "is for photos", 32)
    (folder / "tokenizer.json").write_text("{")
    refused("mini", "tokenizer.json of the encoder is damaged")
    (folder / "tokenizer.json").unlink()
    refused("mini", "put its tokenizer.json beside it")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    refused("any.onnx", r"the package onnxruntime is needed: `pip install onnxruntime`")


def test_weights_in_another_file_are_refused_since_no_digest_holds_them(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    tiny_graphs.photos_file(tmp_path / "whole.onnx", 24)
    whole = onnx.load(tmp_path / "whole.onnx")
    onnx.save_model(
        whole, tmp_path / "parted.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    monkeypatch.chdir(tmp_path)  # where the runtime would look for it
    with pytest.raises(PateError, match="save it whole"):
        encoders.named(str(tmp_path / "parted.onnx"))


def test_no_error_shows_a_text(tmp_path):
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    read = encoders.named(str(folder))

    class Broken:
        def get_inputs(self):
            return []

        def run(self, outputs, feed):
            raise ValueError(f"cannot read {feed}")

    read._session = Broken()
    with pytest.raises(PateError, match=r"fails on a record \(ValueError\)") as caught:
        read(["zebra-7741 abc"])
    assert caught.value.__cause__ is None and "zebra" not in str(caught.value)


def test_vectors_of_other_dimensions_are_refused(tmp_path):
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    read = encoders.named(str(folder))
    for made, told in ((np.ones(5), "[5] numbers"), (np.full(6, np.nan), "not finite")):
        read._vector = lambda record, made=made: made
        with pytest.raises(PateError, match=re.escape(told)):
            read(["abc eda"])


def test_a_student_wants_the_encoder_that_it_was_learned_with(tmp_path):
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    known = encoders.named(str(folder)).known
    assert encoders.same(known).known == known
    encoders.named.cache_clear()
    encoders._OPENED.clear()
    with pytest.raises(PateError, match="no release holds it: name its file or folder with --encoder"):
        encoders.same(known)
    other, _ = tiny_graphs.words_folder(tmp_path / "mini2", seed=1)
    with pytest.raises(PateError, match=rf"{known.digest[:16]}\.\.\. is needed"):
        encoders.same(known, str(other))
    assert encoders.same(known, str(folder)).known == encoders.same(known).known == known
    hostile = known._replace(name=str(other), recipe="")
    with pytest.raises(PateError, match="must be one of"):
        encoders.same(hostile)  # a release that names a place is not followed
    with pytest.raises(PateError, match="recipe of an encoder is damaged"):
        encoders.recipe(known._replace(recipe='{"reads": "texts"}'))


def table(folder, seed, count):
    notes = tiny_words.texts(seed, count)
    lines = [f'"{note}",{"yes" if note[0] in "ab" else "no"}' for note in notes]
    path = folder / f"part{seed}.csv"
    path.write_text("note,sick\n" + "\n".join(lines) + "\n")
    return path


def test_a_whole_run_and_its_release(tmp_path, capsys):
    folder, _ = tiny_graphs.words_folder(tmp_path / "mini")
    files = {part: table(tmp_path, *how) for part, how in PARTS.items()}
    choice = DataChoice(
        **files,
        label_column="sick",
        text_column="note",
        encoder=str(folder),
        equal_rows_are_coincidences=True,
    )
    run = tmp_path / "run"
    pipeline.run(RunConfig(data=choice, voters="sums", epsilon=20.0, out=run))
    card = (run / "release/student/MODEL_CARD.md").read_text()
    assert "texts:mini (6 numbers; digest" in card and "not covered by the guarantee" in card
    released = b"".join(path.read_bytes() for path in (run / "release").rglob("*") if path.is_file())
    assert os.fsencode(tmp_path) not in released
    asked = from_files(
        **files,
        label_column="sick",
        text_column="note",
        encoder=str(folder),
        equal_rows_are_coincidences=True,
    ).test
    wanted = Student.load(run)(asked.inputs)
    encoders.named.cache_clear()
    encoders._OPENED.clear()
    with pytest.raises(PateError, match="name its file or folder"):
        Student.load(run).predict_proba(files["test"])
    found = Student.load(run, encoder=folder).predict_proba(files["test"])
    assert found.tobytes() == wanted.tobytes()
    main(["predict", str(run), str(files["test"]), "--encoder", str(folder)])
    assert "p_no,p_yes" in capsys.readouterr().out
    without_pate_jax(run, files["test"], tmp_path, found, folder)


def without_pate_jax(run, asked, home, wanted, place=None):
    """predict.py of a release, in a Python that has none of pate_jax, says the same; and no wrong encoder."""
    script = (
        f"import runpy, sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program = run / "release/student/predict.py"
    command = [sys.executable, "-I", "-c", script, str(program), str(asked), "--out", str(home / "said.npz")]
    done = subprocess.run([*command, "--encoder", str(place)] if place else command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert np.abs(np.load(home / "said.npz")["probabilities"] - wanted).max() < 1e-5
    if place is None:
        return
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "name its file or folder with --encoder" in done.stderr
    other, _ = tiny_graphs.words_folder(home / "another", seed=1)
    done = subprocess.run([*command, "--encoder", str(other)], capture_output=True, text=True)
    assert done.returncode == 2 and "use the one that was learned with" in done.stderr


BLOCKED = ("jax", "jaxlib", "flax", "optax", "pate_jax", "scipy")
PARTS = {"private": (0, 300), "public": (1, 100), "test": (2, 40)}
