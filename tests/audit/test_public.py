"""The public part: no change of it goes on unseen, and what was learned from anything else is found."""

import shutil
from dataclasses import replace
from functools import partial

import honest_runs
import jax
import numpy as np
import pytest
import test_publication as kinds
from hypothesis import given, settings
from hypothesis import strategies as st

from pate_jax import data
from pate_jax.audit import crowds as audit
from pate_jax.audit import public, verify
from pate_jax.audit.subject import Subject
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.models import patches
from pate_jax.models.spaces.space import Learned
from pate_jax.runs import inputs as teachers
from pate_jax.runs import pipeline, public_part, queries
from pate_jax.runs.baselines import training
from pate_jax.runs.crowds import inputs as crowds
from pate_jax.runs.crowds import public_side
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.parties import ballot, join
from pate_jax.runs.settings import CrowdChoice, RunConfig
from pate_jax.runs.tune import candidates
from pate_jax.student import PublicInputs
from pate_jax.student import spaces as trained
from pate_jax.system import storage

CHANGED = "were changed since"
FIELDS = ("inputs", "labels", "ids", "users")


@st.composite
def changes(draw):
    """One value, label, id or user of one public record that is another afterwards."""
    return draw(st.sampled_from(FIELDS)), draw(st.integers(0, 10**6))


def changed(part, change):
    """The same arrays, by name, with one changed entry; users are added where there are none."""
    name, place = change
    arrays = {key: np.array(array) for key, array in part.items() if array is not None}
    records = len(arrays["inputs"])
    if name == "users" and "users" not in arrays:
        return arrays | {"users": np.array([f"user-{row}" for row in range(records)])}
    flat = arrays[name].reshape(-1).copy()
    if name == "inputs":
        flat[place % len(flat)] = np.nextafter(np.float32(flat[place % len(flat)]), np.float32(np.inf))
    elif name == "labels":
        flat[place % records] = (flat[place % records] + 1) % 2
    else:
        flat = flat.astype(object)
        flat[place % records] = "somebody else"
        flat = flat.astype(str)
    return arrays | {name: flat.reshape(arrays[name].shape)}


@settings(max_examples=40)
@given(changes())
def test_every_change_of_one_public_value_label_id_or_user_is_another_digest(change):
    random = np.random.default_rng(0)
    part = Part(
        random.normal(size=(9, 3)).astype(np.float32),
        np.arange(9) % 2,
        np.array([f"entry-{row}" for row in range(9)]),
        np.array([f"user-{row // 2}" for row in range(9)]),
    )
    dataset = replace(data.load("strokes", size=20, public_size=5, test_size=5), public=part)
    other = replace(dataset, public=Part(**changed(part._asdict(), change)))
    assert public_part.digest(dataset) != public_part.digest(other)


@pytest.mark.parametrize("declared", [{"categories": {"sex": ["f", "y"]}}, {"scales": {"age": [0, 9, 50]}}])
def test_the_digest_is_also_of_what_is_declared_of_columns(tmp_path, declared):
    """Also of what no public row shows: with it private records, or another party's, become other inputs."""
    path = tmp_path / "pool.csv"
    path.write_text("age,sex,sick\n30,f,no\n40,f,yes\n")
    usual = {"categories": {"sex": ["f", "x"]}, "scales": {"age": [0, 9, 40]}}
    one, other = (
        data.public_parts(path, label_column="sick", **more) for more in (usual, {**usual, **declared})
    )
    assert np.array_equal(one.public.inputs, other.public.inputs)
    assert public_part.digest(one) != public_part.digest(other)


def test_the_digest_is_that_of_the_records_and_not_of_their_file(tmp_path):
    (tmp_path / "mine.csv").write_text("key,age,town,sick\na,30,Oslo,yes\nb,41,Rome,no\n")
    pool = [("Rome", "no", "20", "p1"), ("Oslo", "yes", "29", "p22")]
    (tmp_path / "pool.csv").write_text("town,sick,age,key\n" + "".join(",".join(row) + "\n" for row in pool))
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    columns = dict(zip(("town", "sick", "age", "key"), zip(*pool, strict=True), strict=True))
    parquet.write_table(pyarrow.table({**columns, "age": [20, 29]}), tmp_path / "pool.parquet")
    found = [
        public_part.digest(
            data.from_files(tmp_path / "mine.csv", tmp_path / name, label_column="sick", id_column="key")
        )
        for name in ("pool.csv", "pool.parquet")
    ]
    assert found[0] == found[1]


# ---- every kind of run


def of_tune(run):
    candidates.begin(run, replace(honest_runs.choice(), out=run.root))


def of_dpsgd(run):
    settings = run.record.read().data
    training.begin(run, test_config(settings, run.root))


def test_config(settings, out):
    return kinds.test_baseline_runs.config(settings, out)


test_config.__test__ = False
OPENED = {
    "teachers": (honest_runs.whole, lambda run: teachers.open(run).dataset),
    "sums": (lambda: honest_runs.crowd("sums"), lambda run: crowds.opened(run).dataset),
    "neighbours by user": (
        lambda: honest_runs.crowd("neighbours", "user"),
        lambda run: crowds.opened(run).dataset,
    ),
    "a choice of settings": (kinds.choice, None),
    "dp-sgd": (kinds.dpsgd, of_dpsgd),
    "a party": (kinds.party, lambda run: ballot.open_dataset(join.opened(run))),
}


@pytest.mark.parametrize("kind", OPENED)
def test_a_changed_pool_is_refused_when_a_run_goes_on_and_found_by_verify(kind, tmp_path):
    honest, go_on = OPENED[kind]
    shutil.copytree(honest().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    stages = run.record.stages()
    kept, other = stages["data"]["public"], tmp_path / "pool.npz"
    assert [one.outcome for one in public.recorded(Subject(run))] == ["passed"]

    for place, name in enumerate(FIELDS):
        with np.load(kept) as arrays:
            np.savez(other, **changed(dict(arrays), (name, 7 + place)))
        told = {**stages, "data": {**stages["data"], "public": str(other)}}
        storage.write_json(run.settings, "settings", told)
        assert [one.outcome for one in public.recorded(Subject(run))] == ["failed"]
        with pytest.raises(PateError, match=rf"{CHANGED}|not that of the agreement"):
            if go_on is None:
                public_part.refuse_others(run, open_data(run.record.read().data))
            else:
                go_on(run)


def stopped(patch, place, name):
    def stop(*_, **__):
        raise KeyboardInterrupt

    patch.setattr(place, name, stop)


@pytest.mark.parametrize("voters", ["sums", "teachers"])
def test_a_pool_that_is_swapped_between_a_stop_and_the_repeated_command_is_refused(voters, tmp_path):
    """By private records: their space is what the rest of the run would have been of."""
    files = {}
    for name in ("private", "public"):
        files[name] = shutil.copy(getattr(honest_runs.table(), name), tmp_path / f"{name}.npz")
    choice = replace(honest_runs.table(), private=tmp_path / "private.npz", public=tmp_path / "public.npz")
    config = (
        RunConfig(choice, voters="sums", epsilon=4.0, student=honest_runs.STUDENT, out=tmp_path / "run")
        if voters == "sums"
        else honest_runs.by_teachers(tmp_path / "run", data=choice)
    )
    place = kinds.release if voters == "sums" else kinds.stages
    with pytest.MonkeyPatch.context() as patch:
        stopped(patch, place, "release" if voters == "sums" else "train")
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(config)
    with np.load(files["private"]) as arrays:
        np.savez(files["public"], inputs=arrays["inputs"][:30] + 1, labels=arrays["labels"][:30])
    with pytest.raises(PateError, match=CHANGED):
        pipeline.run(config)
    shutil.copy(honest_runs.table().public, files["public"])
    pipeline.run(config)
    assert verify.of_run(RunDirectory(config.directory)).of("failed") == []


# ---- what is learned from the public part


def taught_by_private(patch):
    """A crowd's space is learned from private inputs."""

    def taught(crowd):
        if "private" not in crowd.learned:
            seen = PublicInputs.of(replace(crowd.seen, public=crowd.seen.private))
            key, most = jax.random.key(crowds.KEY), len(crowd.seen.public.inputs)
            space = trained.learned(crowd.kind, seen, key=key, directions=most).space
            crowd.learned["private"] = Learned(space, space.coordinates(crowd.seen.public.inputs))
        return crowd.learned["private"]

    patch.setattr(crowds.Crowd, "wide", property(taught))


@pytest.fixture
def few_patches(monkeypatch):
    """Spaces of few typical patches, which are learned in a tenth of the time."""
    monkeypatch.setattr(patches, "learn", partial(patches.learn, kinds=12, cells=3))
    monkeypatch.setattr(patches, "_SAMPLE", 5000)


@pytest.mark.parametrize("images", [False, True])
def test_a_space_that_was_learned_from_private_records_is_found(images, tmp_path, few_patches):
    choice = honest_runs.images(tmp_path) if images else honest_runs.table()
    with pytest.MonkeyPatch.context() as patch:
        taught_by_private(patch)
        run = RunDirectory(tmp_path / "run")
        with run.writing():
            begun = crowd_stages.begin(run, choice, CrowdChoice("sums", epsilon=4.0), honest_runs.STUDENT)
            kinds.release.release(begun)
    (found,) = [one for one in audit.public(Subject(run)) if one.outcome == "failed"]
    assert "beyond rounding" in found.text or "give the release" in found.text


@pytest.mark.parametrize("voters", ["sums", "neighbours"])
@pytest.mark.parametrize("name", ["space/middle", "space/directions", "weights", "vectors", "rows"])
def test_what_a_run_keeps_of_its_public_side_fails_where_it_does_not_come_out_again(voters, name, tmp_path):
    shutil.copytree(honest_runs.crowd(voters).root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    kept = public_side.read(run.public_side)
    if name not in kept:
        pytest.skip("sums ask no queries")
    kept[name] = kept[name] + np.ones_like(kept[name]) * max(1, kept[name].max() // 10)
    public_side.write(run.public_side, kept)
    found = list(audit.public(Subject(run)))
    assert [one.outcome for one in found] == ["failed"]
    assert found[0].text.startswith(f"{name} of space, weights, queries and noise are not what public inputs")


def test_queries_that_were_chosen_by_private_records_are_found(tmp_path):
    select = queries.select

    def by_private(pool, *others):
        return select(pool.take(np.arange(len(pool.ids))[::-1]), *others)

    config = honest_runs.by_teachers(tmp_path / "run", selection="kmeans")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "select", by_private)
        pipeline.run(config)
    found = list(public.chosen(Subject(RunDirectory(tmp_path / "run"))))
    assert [one.outcome for one in found] == ["failed"] and "other inputs than its settings" in found[0].text
    found = list(public.chosen(Subject(honest_runs.whole())))
    assert [one.outcome for one in found] == ["passed"]


def test_rounding_turns_directions_of_image_features_and_of_nothing_else():
    random = np.random.default_rng(0)
    turn = np.linalg.qr(random.normal(size=(4, 4)))[0]
    pool = random.normal(size=(40, 4))

    def seen(kind, turned, by=1.0):
        directions = turn if turned else np.eye(4)
        arrays = {"directions": directions, "middle": np.ones(4) * by, "front/kind": np.array(kind)}
        return public.Seen(arrays, lambda inputs: by * inputs @ directions)

    def outcome(kind, by):
        found = public.learned(seen(kind, False), seen(kind, True, by), pool, "the space", "the pool")
        return [one.outcome for one in found]

    assert outcome("patches", 1 + 1e-5) == ["unchecked"]  # its middle has moved by rounding
    assert outcome("patches", 1.0) == ["failed"]  # its features are the same
    assert outcome("columns", 1 + 1e-5) == ["failed"]
    assert outcome("patches", 1.1) == ["failed"]
    same = seen("columns", False), seen("columns", False, 1 + 1e-6)
    (found,) = public.learned(*same, pool, "the space", "the pool")
    assert found.outcome == "unchecked" and "private" not in found.text
