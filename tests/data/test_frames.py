"""Python values as own data: frames of any package, dictionaries and arrays are what a file of them is."""

import numpy as np
import pyarrow
import pytest
from PIL import Image

from pate_jax.data import frames
from pate_jax.errors import PateError

COLUMNS = {"age": [30, None], "sick": ["yes", "no"]}
TEXTS = {"age": ["30", ""], "sick": ["yes", "no"]}
NAMES = {"labels": "kind", "ids": "key", "users": None}


class Series:
    """A column that lists its values, as those of pandas and Polars do."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


class Frame:
    """What is used of a data frame: the names of its columns, and each by its name."""

    def __init__(self, columns, names="columns"):
        self.held = columns
        setattr(self, names, list(columns))

    def __getitem__(self, name):
        return Series(self.held[name])

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("a frame is no array")


@pytest.mark.parametrize(
    "values", [COLUMNS, Frame(COLUMNS), Frame(COLUMNS, "column_names"), pyarrow.table(COLUMNS)], ids=type
)
def test_every_frame_is_the_same_table(values):
    assert frames.read(values, "private", NAMES) == TEXTS


def test_pandas_frames_are_tables():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS | {"seen": pandas.to_datetime(["2024-03-25", None])})
    assert frames.read(frame, "private") == TEXTS | {"seen": ["2024-03-25T00:00:00", ""]}


def test_arrays_alone_and_in_pairs():
    inputs = np.arange(6.0).reshape(2, 3)
    assert frames.read(inputs, "public")["inputs"] is inputs
    pair = frames.read((inputs, ["cat", "dog"]), "private")
    assert pair["labels"].tolist() == ["cat", "dog"] and np.array_equal(pair["inputs"], inputs)
    objects = frames.read((inputs, np.array(["cat", "dog"], object)), "private")
    assert objects["labels"].dtype.kind == "U"


@pytest.mark.parametrize(
    "column",
    [
        np.arange(12, dtype=np.uint8).reshape(2, 3, 2),
        [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]],
        [Image.fromarray(np.arange(6, dtype=np.uint8).reshape(3, 2) + 6 * row) for row in range(2)],
    ],
    ids=["array", "lists", "images"],
)
def test_a_column_of_images_makes_arrays(column):
    values = {"image": column, "kind": ["cat", "dog"], "key": [7, 5]}
    found = frames.read(values, "private", NAMES)
    assert sorted(found) == ["ids", "inputs", "labels"]
    assert np.array_equal(found["inputs"], np.arange(12).reshape(2, 3, 2))
    assert found["ids"].tolist() == ["7", "5"]
    assert sorted(frames.read(values, "inputs")) == ["inputs"]


@pytest.mark.parametrize("odd", [None, "a", 2**63 + 5, float("nan")])
@pytest.mark.parametrize("role", ["ids", "users"])
def test_one_id_beside_images_does_not_change_how_the_others_read(role, odd):
    """NumPy would give all of them one type: 6053 would become 6053.0, and go to another teacher."""
    rows = np.arange(18, dtype=np.uint8).reshape(3, 3, 2)
    names = {"labels": "kind", role: "key"}
    read = lambda last: frames.read(  # noqa: E731
        {"image": rows, "kind": ["cat", "dog", "cat"], "key": [6053, 7, last]}, "private", names
    )
    assert read(odd)[role].tolist()[:2] == read(8)[role].tolist()[:2] == ["6053", "7"]


def test_equal_content_makes_equal_bytes():
    for values in (COLUMNS, (np.eye(3), [0, 1, 2])):
        suffix, content = frames.stored(frames.read(values, "private"))
        assert suffix == (".csv" if values is COLUMNS else ".npz")
        assert content == frames.stored(frames.read(values, "private"))[1]


class Twice:
    """A frame as pandas has it: a name that is there twice gives a frame, whose values are its names."""

    columns = ("age", "age", "sick")

    def __getitem__(self, name):
        return ["age", "age"] if name == "age" else [1, 2]


TWICE = Twice()
BAD = {
    "no frame": (3, "private is a int: give a data frame"),
    "a list": ([1, 2], "private is a list"),
    "a frame in a pair": ((Frame(COLUMNS), [0, 1]), "private is a tuple: give a data frame"),
    "images of two shapes": ({"image": [np.zeros(2), np.zeros(3)]}, "shapes (2,) and (3,) in 'image'"),
    "a column beside images": ({"image": np.zeros((2, 3)), "age": [1, 2]}, "and the column 'age' beside"),
    "mixed arrays": (np.array([["a", 1]], object), "has 'inputs' of mixed types"),
    "a name twice": (TWICE, "private names the column 'age' twice: give each column a name of its own"),
    "lengths": ({"a": [1], "b": [1, 2]}, "private has 1 values in the column 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_one_sentence(case):
    values, said = BAD[case]
    with pytest.raises(PateError) as caught:
        frames.read(values, "private", NAMES)
    assert said in str(caught.value) and "\n" not in str(caught.value)
