"""Folders of images: what is read, what follows from the public part, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from pate_jax import models
from pate_jax.data import folders, from_files, relation
from pate_jax.errors import PateError
from pate_jax.student import Student, serving

RANDOM = np.random.default_rng(0)


def save(path, *shape, mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.integers(0, 256, shape or (6, 5)).astype(np.uint8)
    Image.fromarray(pixels, mode if len(shape) < 3 else "RGB").save(path)
    return pixels


@pytest.fixture
def pets(tmp_path):
    """Three private images and four public ones, of cats and dogs, 6 pixels high and 5 wide."""
    return drawn(tmp_path)


def drawn(tmp_path):
    for name in ("train/cat/tom", "train/dog/rex", "train/cat/kit", "pool/cat/a", "pool/cat/b", "pool/dog/c"):
        save(tmp_path / f"{name}.png")
    save(tmp_path / "pool/dog/d.png")
    return tmp_path


def opened(folder, **more):
    return from_files(folder / "train", folder / "pool", **more)


def test_images_keep_their_pixels_labels_and_names(pets):
    pixels = save(pets / "train/dog/rex.png")
    (pets / "train" / ".DS_Store").write_text("of the system")
    data = opened(pets)
    assert (data.kind, data.input_shape, data.class_names) == ("image", (6, 5, 1), ("cat", "dog"))
    assert data.private.ids.tolist() == ["cat/kit.png", "cat/tom.png", "dog/rex.png"]
    assert data.private.labels.tolist() == [0, 0, 1]
    assert np.array_equal(data.private.inputs[2, ..., 0], pixels)
    assert data.preprocessing.scale == (255.0,)
    assert relation.of(data, "record") == "record"


def test_a_public_part_without_labels(pets):
    save(pets / "bare/x.png"), save(pets / "bare/y.png")
    with pytest.raises(PateError, match="classes is not given"):
        from_files(pets / "train", pets / "bare")
    data = from_files(pets / "train", pets / "bare", classes="cat,dog")
    assert data.public.labels is None and data.public.ids.tolist() == ["x.png", "y.png"]
    assert from_files(pets / "train", pets / "bare", pets / "pool").test.labels.tolist() == [0, 0, 1, 1]


def test_colours_follow_from_the_public_part(tmp_path):
    colours_follow_from_the_public_part(tmp_path)


def colours_follow_from_the_public_part(folder):
    pets = drawn(folder)
    save(pets / "train/cat/red.png", 6, 5, 3)
    grey = opened(pets)
    assert grey.input_shape == (6, 5, 1)
    save(pets / "pool/dog/scarlet.png", 6, 5, 3)
    colour = opened(pets)
    assert colour.input_shape == (6, 5, 3)
    assert np.array_equal(colour.private.inputs[0, ..., 1], grey.private.inputs[0, ..., 0])


def test_images_are_resized_only_on_demand_and_each_by_itself(pets, capsys):
    save(pets / "train/cat/wide.png", 6, 9)
    with pytest.raises(PateError, match=r"wide\.png has 9 x 6 pixels, .* has 5 x 6: .*--image-size"):
        opened(pets)
    before = opened(pets, image_size=4)
    assert "train: 4 of 4 images were resized to 4 x 4 pixels" in capsys.readouterr().err
    (pets / "train/cat/wide.png").unlink()
    after = opened(pets, image_size=4)
    assert np.array_equal(before.private.inputs[[0, 1, 3]], after.private.inputs)


def test_flat_images_become_flat_ones_of_any_size(tmp_path):
    for name in ("a/x/1", "b/x/2", "b/y/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (7, 9), (10, 20, int(name[-1]))).save(tmp_path / f"{name}.png")
    data = from_files(tmp_path / "a", tmp_path / "b", image_size=5)
    assert data.private.inputs.reshape(-1, 3).tolist() == [[10, 20, 1]] * 25


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["cat/0001.png", "cat/0002.png", "dog/0001.png", "dog/0002.png"], True),
        (["cat/1.png", "cat/3.png", "dog/2.png", "dog/4.png"], True),
        (["cat/1.png", "cat/2.png", "dog/rex.png", "dog/tom.png"], False),
        (["cat/17.png", "cat/34.png", "dog/8.png"], False),
    ],
)
def test_numbered_files_count_as_row_numbers_unless_declared_stable(tmp_path, names, numbers):
    save(tmp_path / "pool/cat/a.png"), save(tmp_path / "pool/dog/b.png")
    for name in names:
        save(tmp_path / "train" / name)
    assert folders.count_up(names) is numbers
    assert relation.of(opened(tmp_path), "record") == ("contents" if numbers else "record")
    assert relation.of(opened(tmp_path, ids_are_stable=True), "record") == "record"


def broken(folder):
    path = folder / "train/cat/torn.png"
    save(path, 6, 5)
    path.write_bytes(path.read_bytes()[:-40])


def deep(folder):
    Image.fromarray(np.zeros((6, 5), np.uint16)).save(folder / "train/cat/deep.png")


def copied(folder):
    (folder / "pool/cat/copy.png").write_bytes((folder / "train/cat/tom.png").read_bytes())


BAD = {
    "torn": (broken, "torn.png is not a readable image"),
    "no image": (
        lambda folder: (folder / "train/cat/text.png").write_text("hello"),
        "text.png is not a readable",
    ),
    "16 bits": (deep, "deep.png has pixels of 16 or 32 bits"),
    "another file": (
        lambda folder: (folder / "train/cat/notes.txt").write_text("x"),
        "notes.txt is no image: give",
    ),
    "a file beside classes": (
        lambda folder: save(folder / "train/loose.png"),
        "both folders and files (loose.png)",
    ),
    "a folder too deep": (
        lambda folder: save(folder / "train/cat/more/x.png"),
        "more is a folder inside the folder",
    ),
    "another class": (
        lambda folder: save(folder / "train/cow/x.png"),
        "private label 'cow' at row 2 is not one of",
    ),
    "another size": (lambda folder: save(folder / "pool/dog/z.png", 9, 5), "z.png has 5 x 9 pixels"),
    "no folder": (lambda folder: (folder / "pool").rename(folder / "gone"), "pool does not exist"),
    "a copy": (copied, "1 of 5 inputs are private ones too"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folders_are_one_sentence(pets, case):
    change, said = BAD[case]
    change(pets)
    with pytest.raises(PateError) as caught:
        opened(pets)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_empty_and_mixed_parts_are_refused(pets):
    (pets / "empty").mkdir()
    with pytest.raises(PateError, match="empty holds no images"):
        from_files(pets / "train", pets / "empty")
    (pets / "own.npz").write_bytes(b"")
    with pytest.raises(PateError, match="or all as folders of images"):
        from_files(pets / "train", pets / "own.npz")
    with pytest.raises(PateError, match="image_size=0 must be"):
        opened(pets, image_size=0)
    with pytest.raises(PateError, match="--image-size 28 is for folders"):
        from_files(pets / "own.npz", pets / "own.npz", image_size=28)


@pytest.mark.long
def test_a_student_of_images_is_asked_about_a_folder(pets, capsys):
    data = opened(pets)
    import jax

    model = models.build("mlp", input_shape=data.input_shape, classes=2)
    parameters = model.init(jax.random.key(1))
    student = Student(parameters, model.description, data.preprocessing, data.class_names, 1.0, "uint8")
    inputs, ids = serving.read_inputs(student, pets / "pool")
    assert np.array_equal(inputs, data.public.inputs) and ids.tolist() == data.public.ids.tolist()
    save(pets / "new/large.png", 12, 10)
    assert serving.read_inputs(student, pets / "new")[0].shape == (1, 6, 5, 1)
    assert "1 of 1 images were resized to 5 x 6 pixels" in capsys.readouterr().err
    with pytest.raises(PateError, match="was not trained on pixels"):
        serving.read_inputs(student._replace(dtype="float32"), pets / "new")


def test_an_animated_picture_is_refused_and_a_phone_s_photo_is_read(tmp_path):
    grey = [Image.new("L", (9, 8), value) for value in (0, 99)]
    grey[0].save(tmp_path / "moves.png", save_all=True, append_images=grey[1:])
    with pytest.raises(PateError, match=r"moves.png is animated \(2 pictures\)"):
        folders.read(tmp_path, (8, 9, 1))
    (tmp_path / "moves.png").unlink()
    colour = [Image.new("RGB", (9, 8), (value, 0, 0)) for value in (0, 99)]
    colour[0].save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=colour[1:])
    assert folders.read(tmp_path, (8, 9, 1)).inputs.shape == (1, 8, 9, 1)
