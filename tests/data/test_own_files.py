"""The user's own files: what is read, what is never drawn from private rows, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from pate_jax.data import from_files
from pate_jax.errors import PateError
from pate_jax.models import spaces

RANDOM = np.random.default_rng(0)


def arrays(records: int, kind: str = "table", **more) -> dict:
    shape = {"table": (5,), "image": (6, 7, 3), "grey": (6, 7)}[kind]
    dtype = np.float32 if kind == "table" else np.uint8
    inputs = RANDOM.integers(0, 200, (records, *shape)).astype(dtype)
    return {"inputs": inputs, "labels": np.arange(records) % 3, **more}


def npz(folder: Path, name: str, content: dict) -> Path:
    path = folder / f"{name}.npz"
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return path


def csv(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.csv"
    path.write_text(text)
    return path


# Arrays


@pytest.mark.parametrize(("kind", "shape"), [("image", (6, 7, 3)), ("grey", (6, 7, 1))])
def test_images_keep_their_bytes(tmp_path, kind, shape):
    content = arrays(11, kind, ids=np.array([f"p{n}" for n in range(11)]))
    data = from_files(npz(tmp_path, "a", content), npz(tmp_path, "b", arrays(6, kind)))
    assert (data.kind, data.classes, data.input_shape) == ("image", 3, shape)
    assert data.private.inputs.dtype == np.uint8
    assert np.array_equal(data.private.inputs.reshape(11, -1), content["inputs"].reshape(11, -1))
    assert data.private.ids.tolist() == content["ids"].tolist()
    assert data.preprocessing.scale == (255.0,)
    assert data.test is None
    assert not data.synthetic


def test_tables_are_scaled_by_public_statistics(tmp_path):
    private, public = arrays(40), arrays(20)
    private["inputs"] += 1e6
    data = from_files(npz(tmp_path, "a", private), npz(tmp_path, "b", public), npz(tmp_path, "c", arrays(9)))
    assert data.kind == "table"
    assert np.allclose(data.preprocessing.offset, public["inputs"].mean(0))
    assert np.allclose(data.preprocessing.scale, public["inputs"].std(0))
    assert len(data.test.inputs) == 9


def test_ids_of_numbers_and_users(tmp_path):
    content = arrays(4, ids=np.array([7, 5, 3, 1]), users=np.array(["u", "v", "u", "v"]))
    part = from_files(npz(tmp_path, "a", content), npz(tmp_path, "b", arrays(4))).private
    assert part.ids.tolist() == ["7", "5", "3", "1"]
    assert part.users.tolist() == ["u", "v", "u", "v"]


@pytest.mark.parametrize("role", ["ids", "users"])
def test_one_odd_id_changes_no_other_one_or_is_refused(tmp_path, role):
    """000005 is 5 wherever a whole column became numbers, and a number that became a float is none."""
    public = npz(tmp_path, "b", arrays(9))
    read = lambda names: from_files(npz(tmp_path, "a", arrays(3, **{role: names})), public).private  # noqa: E731
    for names in (
        np.array([6053, 5, 8]),
        np.array(["6053", "000005", "A8"]),
        np.array([b"6053", b"+5", b"x"]),
    ):
        assert getattr(read(names), role).tolist()[:2] == ["6053", "5"]
    for names in (np.array([6053, 5, 8.5]), np.array([6053, 5, np.nan]), np.array([True, False, True])):
        with pytest.raises(PateError, match=rf"has .* in the column '{role}' .*: give ids and users as text"):
            read(names)
    with pytest.raises(PateError, match="that are no text in UTF-8"):
        read(np.array([b"a", b"b", b"\xff"]))


def test_one_private_image_of_another_type_does_not_change_how_all_are_scaled(tmp_path):
    public, private = npz(tmp_path, "b", arrays(9, "image")), arrays(4, "image")
    usual = from_files(npz(tmp_path, "a", private), public)
    as_floats = npz(tmp_path, "c", {**private, "inputs": private["inputs"].astype(np.float32)})
    again = from_files(as_floats, public)
    assert again.preprocessing == usual.preprocessing and again.private.inputs.dtype == np.uint8
    assert np.array_equal(again.private.inputs, usual.private.inputs)
    private["inputs"] = private["inputs"].astype(np.float32) + 0.5
    with pytest.raises(PateError, match="the private images are float32 and hold other numbers than whole"):
        from_files(npz(tmp_path, "d", private), public)


def test_a_quote_that_is_left_open_swallows_no_records(tmp_path):
    rows = [f"{row},no,ward" for row in range(20)]
    rows[5] = '5,no,"ward'
    for text in ("\n".join(rows), "\n".join([*rows[:9], '9,no,ward" two', *rows[10:]])):
        private = csv(tmp_path, "a", f"id,sick,place\n{text}\n")
        with pytest.raises(PateError, match="is not a CSV table in UTF-8"):
            from_files(private, csv(tmp_path, "b", "sick,place\nno,x\nyes,y\n"), label_column="sick")


def test_missing_ids_are_row_numbers_and_say_so(tmp_path):
    data = from_files(npz(tmp_path, "a", arrays(4)), npz(tmp_path, "b", arrays(5)))
    assert data.private.ids.tolist() == ["row-0", "row-1", "row-2", "row-3"]
    assert "WARNING" in data.description
    assert "renumbers" in data.description
    ids = np.array(list("wxyz"))
    assert "WARNING" not in from_files(npz(tmp_path, "c", arrays(4, ids=ids)), tmp_path / "b.npz").description


def test_public_labels_are_optional_when_classes_are_declared(tmp_path):
    public = npz(tmp_path, "b", arrays(5) | {"labels": None})
    data = from_files(npz(tmp_path, "a", arrays(4)), public, classes=4)
    assert data.public.labels is None
    assert data.classes == 4


def test_classes_come_from_public_or_test_labels_never_from_private_ones(tmp_path):
    private = npz(tmp_path, "a", arrays(9))
    public = npz(tmp_path, "b", arrays(5) | {"labels": np.array([0, 0, 1, 1, 0])})
    with pytest.raises(PateError, match=r"private label 2 at row 2 is outside 0\.\.1"):
        from_files(private, public)
    unlabelled = npz(tmp_path, "c", arrays(5) | {"labels": None})
    with pytest.raises(PateError, match="classes is not given"):
        from_files(private, unlabelled)
    assert from_files(private, unlabelled, npz(tmp_path, "d", arrays(6))).classes == 3


def test_labels_by_name(tmp_path):
    private = arrays(3) | {"labels": np.array(["dog", "cat", "dog"])}
    public = arrays(4) | {"labels": np.array(["cat", "dog", "cow", "cat"])}
    data = from_files(npz(tmp_path, "a", private), npz(tmp_path, "b", public))
    assert data.class_names == ("cat", "cow", "dog")
    assert data.private.labels.tolist() == [2, 0, 2]
    declared = from_files(tmp_path / "a.npz", tmp_path / "b.npz", classes=["dog", "cow", "cat"])
    assert declared.private.labels.tolist() == [0, 2, 0]


def test_whole_numbers_stored_as_floats_are_labels(tmp_path):
    private = arrays(3) | {"labels": np.array([0.0, 1.0, 2.0])}
    data = from_files(npz(tmp_path, "a", private), npz(tmp_path, "b", arrays(4)))
    assert data.private.labels.tolist() == [0, 1, 2]


def test_features_beside_images_are_what_the_space_encoder_sees(tmp_path):
    """They follow their records, and digests and duplicates keep to the inputs."""
    images = np.arange(14 * 25).reshape(14, 5, 5).astype(np.uint8)
    vectors = np.random.default_rng(0).normal(size=(14, 3)).astype(np.float16)
    files = [
        npz(
            tmp_path,
            name,
            {"inputs": images[rows], "labels": np.arange(14)[rows] % 3, "features": vectors[rows]},
        )
        for name, rows in (("a", slice(6)), ("b", slice(6, 14)))
    ]
    data = from_files(*files)
    seen = data.seen_in("encoder")
    assert seen.private.inputs.dtype == np.float32 and np.array_equal(seen.private.inputs, vectors[:6])
    assert np.array_equal(data.public.take([3, 1]).encoded().inputs, vectors[[9, 7]])
    assert data.seen_in("patches") is data and data.seen_in("encoder", "numpy:ravel") is data
    space = spaces.learn("encoder", seen.public.inputs)
    assert space.description()[:3] == ("encoder", 3, 3)
    assert np.array_equal(
        space.coordinates(seen.private.inputs), spaces.learn("identity", vectors[6:]).coordinates(vectors[:6])
    )
    bare = from_files(*(npz(tmp_path, f.stem + "-bare", {**np.load(f), "features": None}) for f in files))
    assert bare.private_digests == data.private_digests
    with pytest.raises(PateError, match="the records have no features"):
        bare.seen_in("encoder")


def test_vectors_alone_are_the_space_identity(tmp_path):
    content = [arrays(40), arrays(50)]
    data = from_files(*(npz(tmp_path, name, each) for name, each in zip("ab", content, strict=True)))
    space = spaces.learn("identity", data.public.inputs, data.preprocessing)
    assert space.description().features == 5
    alone = spaces.learn("identity", content[1]["inputs"].astype(np.float32))
    assert np.array_equal(space.coordinates(data.private.inputs), alone.coordinates(content[0]["inputs"]))


@pytest.mark.parametrize(
    ("private", "public", "said"),
    [
        (np.ones((12, 3)), np.ones((9, 4)), r"private \[3\], public \[4\]; give all parts the same number"),
        (np.ones((12, 3)), None, r"private \[3\], public none"),
        (None, np.ones((9, 4)), r"private none, public \[4\]"),
        (np.full((12, 2), np.nan), np.ones((9, 2)), r"private features hold NaN or infinity in 12 records"),
        (np.full((12, 2), 1e300), np.ones((9, 2)), r"private features hold NaN or infinity"),
        (np.ones((11, 2)), np.ones((9, 2)), "private has 11 features for 12 inputs"),
        (np.ones(12), np.ones((9, 2)), r"shape \(12,\); give numbers"),
        (np.full((12, 2), "a"), np.ones((9, 2)), "features of type <U1"),
    ],
)
def test_features_that_do_not_fit_are_one_sentence(tmp_path, private, public, said):
    files = npz(tmp_path, "a", arrays(12, features=private)), npz(tmp_path, "b", arrays(9, features=public))
    with pytest.raises(PateError, match=said):
        from_files(*files)


BAD_ARRAYS = {
    "missing inputs": ({"inputs": None}, "has no array 'inputs'; it holds labels"),
    "flat inputs": ({"inputs": np.zeros(12)}, "shape (12,)"),
    "NaN": ({"inputs": np.full((12, 5), np.nan)}, "NaN or infinity in 12 records (first at row 0)"),
    "infinity": (
        {"inputs": np.where(np.arange(60).reshape(12, 5) == 33, np.inf, 0)},
        "1 records (first at row 6)",
    ),
    "too large for float32": ({"inputs": np.full((12, 5), 1e300)}, "NaN or infinity"),
    "text inputs": ({"inputs": np.full((12, 5), "a")}, "inputs of type <U1; give numbers"),
    "complex inputs": ({"inputs": np.zeros((12, 5), complex)}, "give numbers"),
    "other shape than public": ({"inputs": np.zeros((12, 4))}, "private inputs have shape (4,)"),
    "no records": ({"inputs": np.zeros((0, 5)), "labels": np.zeros(0, int)}, "private holds no records"),
    "no features": ({"inputs": np.zeros((12, 0))}, "shape (12, 0)"),
    "missing labels": ({"labels": None}, "private has no labels"),
    "too few labels": ({"labels": np.arange(11) % 3}, "private has 11 labels for 12 inputs"),
    "label above": ({"labels": np.arange(12)}, "private label 3 at row 3 is outside 0..2"),
    "label below": ({"labels": np.arange(12) % 3 - 1}, "private label -1 at row 0"),
    "broken label": ({"labels": np.arange(12) / 2}, "private label 0.5 at row 1 is not a whole number"),
    "label NaN": ({"labels": np.full(12, np.nan)}, "not a whole number"),
    "labels as a column": ({"labels": np.zeros((12, 1), int)}, "labels of shape (12, 1)"),
    "text labels": ({"labels": np.full(12, "dog")}, "private labels are not numbers"),
    "duplicate ids": ({"ids": np.array([*"abcdefghijk", "c"])}, "private has the id 'c' 2 times"),
    "too few ids": ({"ids": np.array(list("abc"))}, "private has 3 ids for 12 inputs"),
    "too few users": ({"users": np.array(list("abc"))}, "private has 3 users for 12 inputs"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_one_sentence(tmp_path, case):
    change, said = BAD_ARRAYS[case]
    private = npz(tmp_path, "a", arrays(12) | change)
    with pytest.raises(PateError) as caught:
        from_files(private, npz(tmp_path, "b", arrays(9)))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_files_are_one_sentence(tmp_path):
    good, other = npz(tmp_path, "a", arrays(6)), npz(tmp_path, "b", arrays(7))
    with pytest.raises(PateError, match=r"nothing\.npz does not exist"):
        from_files(tmp_path / "nothing.npz", good)
    with pytest.raises(PateError, match=r"all parts as \.npz, all as tables"):
        from_files(good, csv(tmp_path, "b", "x\n1\n"))
    with pytest.raises(PateError, match=r"all parts as \.npz"):
        from_files(csv(tmp_path, "a", "").rename(tmp_path / "a.txt"), tmp_path / "b.csv")
    with pytest.raises(PateError, match="6 of 6 inputs are private ones too"):
        from_files(good, good)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(PateError, match=r"not a readable \.npz"):
        from_files(tmp_path / "text.npz", good)
    cut_short = tmp_path / "short.npz"
    cut_short.write_bytes(good.read_bytes()[:-40])
    with pytest.raises(PateError, match=r"not a readable \.npz"):
        from_files(cut_short, other)
    np.savez(tmp_path / "pickle.npz", inputs=np.array([{"a": 1}], dtype=object), labels=np.zeros(1, int))
    with pytest.raises(PateError, match="Object arrays"):
        from_files(tmp_path / "pickle.npz", good)
    with pytest.raises(PateError, match="names a class twice"):
        from_files(good, other, classes=["a", "a"])
    with pytest.raises(PateError, match=r"classes=1 must be at least 2: .* name all of them, such as"):
        from_files(good, other, classes=1)


# Tables

PRIVATE = """id,who,age,town,sick
r1,ann,30,Rome,yes
r2,bob,40,Oslo,no
r3,ann,50,Lima,yes
r4,cyd,60,Oslo,no
"""
PUBLIC = """age,town,sick
20,Oslo,no
40,Rome,yes
60,Oslo,no
"""
COLUMNS = {"label_column": "sick", "id_column": "id", "user_column": "who"}
COLUMNS |= {"equal_rows_are_coincidences": True}  # of 60 and from Oslo are r4 and the last of the public part


def test_a_table_is_encoded_by_the_public_part(tmp_path):
    data = from_files(csv(tmp_path, "a", PRIVATE), csv(tmp_path, "b", PUBLIC), **COLUMNS)
    assert data.class_names == ("no", "yes")
    assert data.private.labels.tolist() == [1, 0, 1, 0]
    assert data.private.ids.tolist() == ["r1", "r2", "r3", "r4"]
    assert data.private.users.tolist() == ["ann", "bob", "ann", "cyd"]
    # age, then the towns of the public part in order; Lima is none of them
    assert data.private.inputs.tolist() == [[30, 0, 1], [40, 1, 0], [50, 0, 0], [60, 1, 0]]
    assert data.preprocessing.offset == (40.0, 0.0, 0.0)
    assert np.allclose(data.preprocessing.scale, (np.std([20, 40, 60]), 1, 1))
    assert data.private_notes == {"unseen_categories": {"town": 1}}
    assert "Lima" not in data.description
    assert "1" not in data.description


def test_one_private_row_more_changes_no_other_row(tmp_path):
    public = csv(tmp_path, "b", PUBLIC)
    before = from_files(csv(tmp_path, "a", PRIVATE), public, **COLUMNS)
    after = from_files(csv(tmp_path, "c", PRIVATE + "r5,dan,999999,Tokyo,yes\n"), public, **COLUMNS)
    assert np.array_equal(after.private.inputs[:4], before.private.inputs)
    assert after.preprocessing == before.preprocessing
    assert (after.classes, after.class_names) == (before.classes, before.class_names)
    assert after.description.replace("c.csv", "a.csv") == before.description


@pytest.mark.parametrize("as_file", [False, True])
def test_declared_categories_and_scales(tmp_path, as_file):
    declared = {"categories": {"town": ["Lima", "Oslo", "Rome"]}, "scales": {"age": [0, 100]}}
    if as_file:
        for name, value in declared.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
        declared = {name: tmp_path / f"{name}.json" for name in declared}
    data = from_files(
        csv(tmp_path, "a", PRIVATE), csv(tmp_path, "b", PUBLIC), **COLUMNS, **declared, classes=["yes", "no"]
    )
    assert data.private.inputs.tolist() == [[30, 0, 0, 1], [40, 0, 1, 0], [50, 1, 0, 0], [60, 0, 1, 0]]
    assert data.preprocessing.offset == (0.0,) * 4
    assert data.preprocessing.scale == (100.0, 1.0, 1.0, 1.0)
    assert data.private.labels.tolist() == [0, 1, 0, 1]
    assert data.private_notes == {}


def test_a_number_can_be_a_category(tmp_path):
    data = from_files(
        csv(tmp_path, "a", PRIVATE), csv(tmp_path, "b", PUBLIC), **COLUMNS, categories={"age": [30, 60]}
    )
    assert data.private.inputs[:, :2].tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]


def test_column_order_blanks_byte_order_mark_and_quotes_do_not_matter(tmp_path):
    plain = from_files(csv(tmp_path, "a", PRIVATE), csv(tmp_path, "b", PUBLIC), **COLUMNS)
    public = '\ufeffsick , town, "age"\nno, "Oslo", 20\nyes,Rome ,40\n\nno,Oslo,60\n'
    other = from_files(tmp_path / "a.csv", csv(tmp_path, "c", public), **COLUMNS)
    assert other.preprocessing.offset[-1] == plain.preprocessing.offset[0]
    assert other.private.inputs[:, [2, 0, 1]].tolist() == plain.private.inputs.tolist()


def test_a_test_part_and_a_public_part_without_labels(tmp_path):
    public = "age,town\n20,Oslo\n40,Rome\n"
    data = from_files(
        csv(tmp_path, "a", PRIVATE), csv(tmp_path, "b", public), csv(tmp_path, "c", PUBLIC), **COLUMNS
    )
    assert data.public.labels is None
    assert data.test.labels.tolist() == [0, 1, 0]


BAD_TABLES = {
    "no label column": (PRIVATE, PUBLIC, {"label_column": None}, "--label-column"),
    "missing column": (
        PRIVATE,
        PUBLIC,
        {"label_column": "ill"},
        "has no column 'ill'; its columns are id, who",
    ),
    "missing id column": (PRIVATE, PUBLIC, {"id_column": "key"}, "has no column 'key'"),
    "one column for two": (PRIVATE, PUBLIC, {"id_column": "sick"}, "'sick' is named for labels and ids"),
    "missing user column": (PRIVATE, PUBLIC, {"user_column": "key"}, "has no column 'key'"),
    "duplicate ids": (PRIVATE + "r1,x,1,Rome,no\n", PUBLIC, {}, "private has the id 'r1' 2 times"),
    "ragged": (PRIVATE + "r5,x\n", PUBLIC, {}, "line 6 has 2 values for 5 columns"),
    "no number": (PRIVATE + "r5,x,old,Rome,no\n", PUBLIC, {}, "private has age='old' at row 4"),
    "signed NaN": (PRIVATE + "r5,x,-nan,Rome,no\n", PUBLIC, {}, "private has age='-nan' at row 4"),
    "infinity": (PRIVATE + "r5,x,1e99,Rome,no\n", PUBLIC, {}, "private has age='1e99' at row 4"),
    "unknown class": (
        PRIVATE + "r5,x,1,Rome,maybe\n",
        PUBLIC,
        {},
        "private label 'maybe' at row 4 is not one of",
    ),
    "public lacks a column": (
        PRIVATE,
        "age,sick\n1,yes\n2,no\n",
        {},
        "private has the column 'town', which the public part lacks",
    ),
    "public infinity": (PRIVATE, PUBLIC + "inf,Oslo,no\n", {}, "public has age='inf' at row 3"),
    "no number where a scale is declared": (
        PRIVATE,
        PUBLIC,
        {"scales": {"town": [0, 1]}},
        "has town='Rome' at row 0, which is not a finite number",
    ),
    "a column that the public part never fills": (
        PRIVATE,
        "age,town,sick\nNA,Oslo,yes\n,Rome,no\n",
        {},
        "the public part has no value in the column 'age'",
    ),
    "a scale without a number for missing ones": (
        PRIVATE,
        "age,town,sick\nNA,Oslo,yes\n,Rome,no\n",
        {"scales": {"age": [40, 15]}},
        "no value in the column 'age'",
    ),
    "a missing value that is no number": (
        PRIVATE,
        PUBLIC,
        {"scales": {"age": [40, 15, "median"]}},
        "scales of 'age' must be [offset, scale] or [offset, scale, value",
    ),
    "a missing public label": (PRIVATE, PUBLIC + "30,Oslo,NA\n", {}, "public or test labels are missing"),
    "a missing private label": (PRIVATE + "r5,x,3,Rome,\n", PUBLIC, {}, "private label '' at row 4"),
    "header only": ("id,who,age,town,sick\n", PUBLIC, {}, "holds no records"),
    "empty": ("", PUBLIC, {}, "must begin with a line that names each column once"),
    "column twice": ("id,who,age,age,sick\nr1,a,1,2,no\n", PUBLIC, {}, "names each column once"),
    "nothing to learn from": ("id,who,sick\nr1,a,no\n", PUBLIC, {}, "no columns to learn from"),
    "unknown categories": (
        PRIVATE,
        PUBLIC,
        {"categories": {"city": ["a"]}},
        "categories names the column 'city'",
    ),
    "empty categories": (PRIVATE, PUBLIC, {"categories": {"town": []}}, "categories of 'town' must name"),
    "category twice": (PRIVATE, PUBLIC, {"categories": {"town": ["a", "a"]}}, "none twice"),
    "broken scale": (PRIVATE, PUBLIC, {"scales": {"age": [1]}}, "scales of 'age' must be [offset, scale]"),
    "scale zero": (PRIVATE, PUBLIC, {"scales": {"age": [1, 0]}}, "scale must not be 0"),
    "not a mapping": (
        PRIVATE,
        PUBLIC,
        {"categories": {"town": "Oslo"}},
        "must map a column's name to a list",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_one_sentence(tmp_path, case):
    private, public, options, said = BAD_TABLES[case]
    with pytest.raises(PateError) as caught:
        from_files(csv(tmp_path, "a", private), csv(tmp_path, "b", public), **(COLUMNS | options))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_text_is_one_sentence(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(PateError, match="not a CSV table in UTF-8"):
        from_files(tmp_path / "a.csv", csv(tmp_path, "b", PUBLIC), **COLUMNS)
    (tmp_path / "categories.json").write_text("{")
    with pytest.raises(PateError, match="is not JSON"):
        from_files(
            csv(tmp_path, "a", PRIVATE),
            tmp_path / "b.csv",
            **COLUMNS,
            categories=tmp_path / "categories.json",
        )


def test_numbers_that_do_not_begin_at_0_are_named_or_counted_by_their_owner(tmp_path):
    """They had become classes that nobody has: 41 for the labels 7 and 40."""
    content = arrays(20)
    content["labels"] = np.where(content["labels"] == 1, 7, 40)
    private = npz(tmp_path, "a", content)
    public = npz(tmp_path, "b", {**content, "inputs": arrays(20)["inputs"]})
    with pytest.raises(
        PateError, match="from 7 to 40, and classes are numbered from 0: pass --classes 7,40 "
    ):
        from_files(private, public)
    named = from_files(private, public, classes="7,40")
    assert named.classes == 2 and np.array_equal(named.private.labels, content["labels"] == 40)
    assert from_files(private, public, classes=41).classes == 41


def test_true_and_false_are_names(tmp_path):
    content = arrays(20)
    content["labels"] = content["labels"] > 0
    public = {**content, "inputs": arrays(20)["inputs"]}
    data = from_files(npz(tmp_path, "a", content), npz(tmp_path, "b", public))
    assert data.class_names == ("False", "True") and np.array_equal(data.private.labels, content["labels"])


@pytest.mark.parametrize("role", ["ids", "users"])
def test_a_blank_is_nobodys_name(tmp_path, role):
    names = {"ids": np.array(["a", "b", "c"]), "users": np.array(["u", "u", "v"])}
    names[role][2] = ""
    with pytest.raises(PateError, match=rf"private has no {role[:-1]} in 1 records .first at row 2."):
        from_files(npz(tmp_path, "a", arrays(3, **names)), npz(tmp_path, "b", arrays(9)))


@pytest.mark.parametrize("absurd", [True, False])
def test_one_absurd_public_number_is_warned_of(tmp_path, capsys, absurd):
    """It makes the deviation by which all are scaled, so that the others look alike."""
    ages = [*map(str, range(20, 60)), "1e30" if absurd else "99"]
    rows = "\n".join(f"{age},{'yes' if row % 2 else 'no'}" for row, age in enumerate(ages))
    for name in ("pool", "mine"):
        (tmp_path / f"{name}.csv").write_text(
            "age,sick\n" + rows.replace("20,", "21.5,", int(name == "mine"))
        )
    from_files(
        tmp_path / "mine.csv", tmp_path / "pool.csv", label_column="sick", equal_rows_are_coincidences=True
    )
    said = "the public part has 1e+30 in the column 'age', beside which all other numbers there are alike"
    assert (said in capsys.readouterr().err) == absurd


def test_labels_of_a_private_test_part_name_no_class(tmp_path):
    """Names of classes are published, so one private row must not add any."""
    for name, label in (("mine", "yes"), ("pool", "yes"), ("test", "HIV")):
        (tmp_path / f"{name}.csv").write_text(f"age,sick\n{len(label)}1,no\n{len(name)}2,{label}\n")
    (tmp_path / "mine.csv").write_text("age,sick\n33,no\n55,yes\n")
    files = [tmp_path / f"{name}.csv" for name in ("mine", "pool", "test")]
    assert from_files(*files, label_column="sick").class_names == ("HIV", "no", "yes")
    with pytest.raises(PateError, match=r"HIV|class"):  # and its rows do not count as another class
        from_files(*files, label_column="sick", test_is_private=True)
    (tmp_path / "test.csv").write_text("age,sick\n44,no\n66,yes\n")
    found = from_files(*files, label_column="sick", test_is_private=True)
    assert found.class_names == ("no", "yes")
