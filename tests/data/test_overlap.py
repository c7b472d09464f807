"""Private records among public inputs: refused on every way in, counted, and never dropped in silence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import call
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

import pate_jax
from pate_jax import data
from pate_jax.audit import secrets, shards
from pate_jax.audit.subject import Subject
from pate_jax.data import Part, Preprocessing, overlap, relation
from pate_jax.data.duplicates import digests
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError, SharedInputs
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, samples, stages
from pate_jax.runs import queries as pools
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice, PartitionChoice
from pate_jax.system import storage

SHARED = Path(__file__).parents[3] / "shared" / "data"


def part(count, seed, dtype=np.float32):
    inputs = np.random.default_rng(seed).integers(0, 256, (count, 6)).astype(dtype)
    return {"inputs": inputs, "labels": np.arange(count) % 2}


def files(folder, copied=(), into="public", dtype=np.float32):
    """Three .npz files; `copied` rows of the private one stand among those of another."""
    parts = {"private": part(20, 1), "public": part(9, 2, dtype), "test": part(8, 3, dtype)}
    parts["private"]["ids"] = np.array([f"person-{row:02d}" for row in range(20)])
    rows = parts["private"]["inputs"][list(copied)].astype(dtype)
    parts[into]["inputs"][1 : 1 + len(rows)] = rows
    for name, arrays in parts.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return {name: folder / f"{name}.npz" for name in parts}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("into", ["public", "test"])
def test_private_rows_are_refused_and_counted(tmp_path, into, dtype):
    paths = files(tmp_path, (3, 5, 8), into, dtype)
    said = rf"{into}\.npz: 3 of \d inputs are private ones too \(rows 1, 2, 3, counted from 0\).*by person"
    with pytest.raises(SharedInputs, match=said):
        data.from_files(**paths)
    found = data.from_files(**paths, equal_rows_are_coincidences=True)
    assert overlap.rows(found.private_digests, overlap.parts(found)[into].inputs).tolist() == [1, 2, 3]
    assert len(found.public.inputs) == 9  # nothing was dropped


def test_the_library_and_every_command_refuse(tmp_path, capsys):
    paths = files(tmp_path, (4,))
    flags = [word for name, path in paths.items() for word in (f"--{name}", path)]
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(SharedInputs):
        pate_jax.run(**paths, voters="teachers", teachers=2, out=run.root)
    for command in (
        ("run", *flags, "--teachers", 2, "--out", run.root),
        ("train", *flags, "--teachers", 2, "--out", run.root),
        ("sweep", *flags, "--teachers", 2, "--out", tmp_path / "sweep"),
    ):
        assert call(*command) == 2
        assert "public.npz: 1 of 9 inputs are private ones too" in capsys.readouterr().err
    assert not run.settings.exists()


def test_rows_of_a_table_are_compared_as_they_are_encoded(tmp_path):
    (tmp_path / "mine.csv").write_text("id,age,town,sick\na,30,Oslo,yes\nb,41,Rome,no\n")
    (tmp_path / "pool.csv").write_text("town,sick,age\nRome,yes,41.0\nOslo,no,29\n")
    names = {"label_column": "sick", "id_column": "id"}
    with pytest.raises(SharedInputs, match=r"pool\.csv: 1 of 2 inputs are private ones too \(rows 0,"):
        data.from_files(tmp_path / "mine.csv", tmp_path / "pool.csv", **names)


def test_declared_coincidences_are_recorded_and_left_open(tmp_path):
    paths, run = files(tmp_path, (3, 5)), RunDirectory(tmp_path / "run")
    choice = DataChoice(**paths, equal_rows_are_coincidences=True)
    teacher = TeacherConfig(net="linear", devices=1)
    with run.writing():
        inputs = stages.begin(run, choice, PartitionChoice(2), teacher)
        stages.train(inputs)
        stages.settle(inputs, DiscreteGaussianMax(3.0), 30.0, 1e-5)
        stages.vote(inputs, 4)
        batches.answer(run, DiscreteGaussianMax(3.0))
    assert run.record.stages()["data"]["equal_rows_are_coincidences"] is True
    found = [one for one in shards.queries(Subject(run)) if "private ones too" in one.text]
    assert [(one.outcome, one.text[:17]) for one in found] == [("unchecked", "2 of 9 inputs of ")]
    np.savez(tmp_path / "further.npz", inputs=part(20, 1)["inputs"][:2])
    with run.writing():  # declared for all parts of the run
        stages.vote(inputs, 1, more=True, public=tmp_path / "further.npz")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_further_pool_of_private_rows_is_refused(tmp_path, dtype):
    """For synthetic sets, archives and own files alike; in any type."""
    dataset = data.load("strokes", size=30, public_size=10, test_size=5)
    inputs = np.concatenate(
        [data.load("strokes", size=40, public_size=1, test_size=1).private.inputs[28:36], dataset.test.inputs]
    )
    np.savez(tmp_path / "further.npz", inputs=inputs.astype(dtype))
    with pytest.raises(SharedInputs, match=r"further\.npz: 2 of 13 inputs are private ones too \(rows 0, 1,"):
        pools.pool_of(dataset, tmp_path / "further.npz")
    np.savez(tmp_path / "further.npz", inputs=inputs[2:].astype(dtype))
    assert len(pools.pool_of(dataset, tmp_path / "further.npz").inputs) == 11


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data are not at hand")
def test_adult_is_published_with_its_coincidences(tmp_path):
    """A fifth of its public rows are like a private one; the owner's own test file must be declared."""
    found = data.load("adult", data_dir=tmp_path, manual_dir=SHARED / "adult")
    assert found.equal_rows == "published"
    shared = {
        name: len(overlap.rows(found.private_digests, one.inputs))
        for name, one in overlap.parts(found).items()
    }
    assert shared == {"public": 2331, "test": 783}
    (tmp_path / "own").mkdir()
    lines = (SHARED / "adult" / "adult.data").read_bytes().splitlines(keepends=True)
    (tmp_path / "own" / "adult.data").write_bytes(b"".join(lines[:300]))
    (tmp_path / "own" / "adult.test").write_bytes(b"".join(lines[250:500]))
    with pytest.raises(SharedInputs, match=r"public: \d+ of \d+ inputs are private ones too"):
        data.load("adult", data_dir=tmp_path, manual_dir=tmp_path / "own")


def test_rows_that_are_nearly_private_are_not_meant(tmp_path):
    private = part(20, 1)["inputs"]
    assert overlap.rows(digests(private), private + np.float32(0.5)).tolist() == []
    zeros = digests(np.zeros((1, 2), np.float32))
    assert overlap.rows(zeros, np.array([[0.0, -0.0]], np.float32)).tolist() == [0]


# ---- the same people, by their ids


NAMES = st.lists(st.integers(0, 10**6), min_size=3, max_size=12, unique=True).map(
    lambda numbers: [f"patient {number}" for number in numbers]
)


def people_files(folder, private, public, users=None, altered=0.03):
    """Files whose parts name these people; rows of the public one are like none of the private one."""
    for name, ids, shift in (("private", private, 0.0), ("public", public, altered)):
        inputs = np.arange(3 * len(ids)).reshape(-1, 3).astype(np.float32) + np.float32(shift)
        arrays = {"inputs": inputs, "labels": np.arange(len(ids)) % 2, "ids": np.array(ids)}
        if users is not None:
            arrays |= {"ids": np.array([f"{name} visit {one}" for one in ids]), "users": np.array(ids)}
        np.savez(folder / f"{name}.npz", **arrays)
    return {name: folder / f"{name}.npz" for name in ("private", "public")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(private=NAMES, public=NAMES, both=st.integers(0, 3), by=st.sampled_from(["ids", "users"]))
def test_people_in_both_parts_are_refused_whatever_their_rows_hold(tmp_path, private, public, both, by):
    shared = [*dict.fromkeys([*private[:both], *public])]
    assume(not relation.count_up(shared))
    paths = people_files(tmp_path, private, shared, users=by if by == "users" else None)
    expected = sorted(row for row, name in enumerate(shared) if name in {*private})
    if not expected:
        data.from_files(**paths)
        return
    said = rf"public\.npz: {len(expected)} of {len(shared)} records have the {by} of private records too"
    with pytest.raises(SharedInputs, match=said):
        data.from_files(**paths)
    with pytest.raises(SharedInputs, match=said):  # equal rows are another matter
        data.from_files(**paths, equal_rows_are_coincidences=True)
    found = data.from_files(**paths, equal_ids_are_coincidences=True)
    assert overlap.people(found, found.public)[by].tolist() == expected


def test_ids_that_are_only_row_numbers_are_nobodys(tmp_path):
    numbers = [str(row) for row in range(9)]
    data.from_files(**people_files(tmp_path, numbers, numbers[:5]))
    data.from_files(**people_files(tmp_path, ["4", "9", "2", "7", "1"], numbers[:5]))
    with pytest.raises(SharedInputs, match="5 of 5 records have the ids"):  # declared to be the records' own
        data.from_files(**people_files(tmp_path, numbers, numbers[:5]), ids_are_stable=True)
    with pytest.raises(SharedInputs, match="3 of 3 records have the ids"):  # a sample of the private table
        data.from_files(**people_files(tmp_path, numbers, ["7", "2", "5"]))
    with pytest.raises(SharedInputs, match="2 of 3 records have the ids"):  # however numbers are written
        data.from_files(**people_files(tmp_path, ["12", "7", "30"], ["0012", "7.0", "8"]))


def altered_pool(folder, ids=True):
    """A pool of 40 of 60 private people, each a little older than in truth."""
    random = np.random.default_rng(4)
    inputs = np.round(random.normal(50, 12, (60, 4)), 1).astype(np.float32)
    names = np.array([f"patient {7 * row % 61}" for row in range(60)])
    labels = (inputs[:, 1] > 50).astype(np.int32)
    pool = inputs[:40] + np.array([0.03, 0, 0, 0], np.float32)
    np.savez(folder / "private.npz", inputs=inputs, labels=labels, ids=names)
    np.savez(folder / "public.npz", inputs=pool, labels=labels[:40], **({"ids": names[:40]} if ids else {}))
    return {name: folder / f"{name}.npz" for name in ("private", "public")}


def test_altered_records_under_the_same_ids_are_refused_by_every_door(tmp_path, capsys):
    paths, out = altered_pool(tmp_path), tmp_path / "run"
    flags = [word for name, path in paths.items() for word in (f"--{name}", path)]
    assert call("run", *flags, "--out", out) == 2
    assert "public.npz: 40 of 40 records have the ids of private records too" in capsys.readouterr().err
    with pytest.raises(SharedInputs, match="leave these people out"):
        pate_jax.run(**paths, out=out)
    parts = {name: dict(np.load(path)) for name, path in paths.items()}
    with pytest.raises(SharedInputs, match="40 of 40 records have the ids"):
        pate_jax.run(parts["private"], parts["public"], out=out)
    assert not RunDirectory(out).settings.exists()


class Frame(dict):
    """Columns by name, with names of the rows, as pandas has them."""

    def __init__(self, inputs, index):
        super().__init__({f"x{column}": values for column, values in enumerate(inputs.T)})
        self.index = np.asarray(index)


def test_frames_of_an_estimator_that_name_the_same_people_are_refused(tmp_path):
    altered_pool(tmp_path)
    private, public = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("private", "public"))
    X, pool = (Frame(part["inputs"], part["ids"]) for part in (private, public))
    model = pate_jax.PateClassifier(classes=[0, 1])
    for names in (None, private["ids"]):
        with pytest.raises(PateError, match=r"X_public: 40 of 40 .* equal_ids_are_coincidences=True"):
            model.fit(X, private["labels"], pool, ids=names)
    assert samples.index(Frame(private["inputs"], range(60))) is None and samples.index([[1.0]]) is None


def test_what_is_declared_or_only_near_is_said_by_run_and_verify(tmp_path, capsys):
    choice = DataChoice(**altered_pool(tmp_path), equal_ids_are_coincidences=True)
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        stages.begin(run, choice, PartitionChoice(2), TeacherConfig(net="linear", devices=1))
    near = "40 of 40 inputs of the public part that were compared hardly differ from a private one"
    assert f"warning: {near}" in capsys.readouterr().err
    found = {one.text[:60]: one.outcome for one in shards.public_apart(Subject(run))}
    declared = "40 of 40 records of the public part have the ids of private records"
    assert found[declared[:60]] == found[near[:60]] == "unchecked"
    names = secrets.secrets(Subject(run)).names
    assert "patient 7" not in names  # of somebody else, as declared
    stages_of = run.record.stages()
    stages_of["data"]["equal_ids_are_coincidences"] = False
    storage.write_json(run.settings, "settings", stages_of)
    found = {one.text[:60]: one.outcome for one in shards.public_apart(Subject(run))}
    assert found[declared[:60]] == "failed"
    assert "patient 7" in secrets.secrets(Subject(run)).names


def test_near_copies_without_ids_are_warned_of_and_honest_pools_are_not(tmp_path):
    found = data.from_files(**altered_pool(tmp_path, ids=False))
    said = " ".join(overlap.near_copies(found, overlap.parts(found)))
    assert said.startswith("40 of 40 inputs of the public part") and "by person" in said
    for seed in range(5):
        random = np.random.default_rng(seed)
        inputs = random.normal(size=(900, 1 + seed)).astype(np.float32)
        inputs[:, 0] = np.round(inputs[:, 0], seed % 2)
        scaling = Preprocessing((0.0,), (1.0,))
        honest = replace(found, private=Part(inputs[:700], None, found.private.ids), preprocessing=scaling)
        assert overlap.near_copies(honest, {"public": Part(inputs[700:], None, found.public.ids)}) == []


@pytest.mark.parametrize("side", [12, 70])
def test_altered_pictures_are_near_copies(side):
    random = np.random.default_rng(0)
    coarse = random.integers(0, 200, (80, 6, 6, 1))
    private = coarse.repeat(-(-side // 6), 1).repeat(-(-side // 6), 2)[:, :side, :side].astype(np.uint8)
    scaling = Preprocessing((0.0,), (255.0,))
    assert overlap.copies(private[:60], private[60:], scaling) == (0, 20)
    assert overlap.copies(private[:60], private[40:60] + np.uint8(1), scaling) == (20, 20)


def pictures(folder, names):
    """A folder of different images under these names."""
    random = np.random.default_rng([len(names), sum(map(ord, folder.name))])
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (6, 6)).astype(np.uint8)).save(folder / name)
    return folder


def numbered(numbers, form="{}/{:03d}.png"):
    return [form.format(animal, number) for animal in ("cat", "dog") for number in numbers]


GAP = numbered([1, 2, 4, 5])
PICTURES = {  # private and public names, and which public ones are refused
    "both count in each class": (numbered(range(1, 5)), numbered(range(1, 4)), 0),
    "the public one counts in each class": (GAP, numbered(range(1, 4)), 0),
    "the public one counts": (GAP, ["1.png", "2.png", "3.png"], 0),
    "numbers of a camera": (
        numbered([1, 3, 4], "{}/IMG_{:04d}.png"),
        ["dog/IMG_0003.png", "cat/IMG_0009.png"],
        1,
    ),
    "names of people": (["cat/ann.png", "dog/bob.png"], ["cat/ann.png", "dog/eve.png"], 1),
    "without a label": (["cat/ann.png", "dog/bob.png"], ["Ann.png", "eve.png"], 1),
    "with another label and format": (["cat/ann.png", "dog/bob.png"], ["dog/ann.jpg", "dog/eve.png"], 1),
    "the same number in two classes": (GAP, ["dog/007.png", "cat/009.png"], 0),
}


@pytest.mark.parametrize("case", PICTURES)
def test_files_of_pictures_are_of_the_same_people_by_their_own_names(tmp_path, case):
    """Without folder and suffix; numbers that count up in each folder are nobody's."""
    private, public, shared = PICTURES[case]
    folders = pictures(tmp_path / "private", private), pictures(tmp_path / "public", public)
    if not shared:
        data.from_files(*folders, classes="cat,dog")
        return
    with pytest.raises(
        SharedInputs, match=rf"{shared} of 2 records have the ids .*, such as '.*(ann|Ann|IMG_0003)"
    ):
        data.from_files(*folders, classes="cat,dog")
    data.from_files(*folders, classes="cat,dog", equal_ids_are_coincidences=True)


@given(st.integers(0, 10**6), st.integers(0, 5), st.sampled_from(["{}", "P-{}", "ward {} b", "{}.0"]))
def test_an_id_is_the_same_however_its_number_is_written(number, zeros, form):
    ours, theirs = form.format(number), form.format("0" * zeros + str(number)).upper() + " "
    assert overlap.common([ours, "q"], ["other", theirs], stable=False).tolist() == [1]


def test_copies_in_a_further_pool_are_warned_of_and_left_open(tmp_path, capsys):
    paths = altered_pool(tmp_path, ids=False)
    with np.load(paths["public"]) as arrays:
        np.savez(tmp_path / "further.npz", inputs=arrays["inputs"])
    np.savez(paths["public"], **part(30, 5) | {"inputs": part(30, 5)["inputs"][:, :4]})
    run = RunDirectory(tmp_path / "run")
    near = "40 of 40 inputs of the further public part"
    with run.writing():
        net = TeacherConfig(net="linear", devices=1)
        inputs = stages.begin(run, DataChoice(**paths), PartitionChoice(2), net)
        stages.train(inputs)
        stages.vote(inputs, 3)
        batches.answer(run, DiscreteGaussianMax(8.0), 8.0, 1e-5)
        assert near not in capsys.readouterr().err
        stages.vote(inputs, 3, more=True, public=tmp_path / "further.npz")
    assert near in capsys.readouterr().err
    assert any(one.text.startswith(near) for one in shards.public_apart(Subject(run)))
