"""The rehearsal of a plan on public inputs: it says what a crowd of such records really brings."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from commands import call
from PIL import Image

from pate_jax import crowd, data
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import seeded_key
from pate_jax.aggregate.noise import noisy_table
from pate_jax.crowd import rehearsal, shares, step_choice
from pate_jax.crowd.roles import assigned
from pate_jax.data import Part
from pate_jax.models import spaces
from pate_jax.models.spaces import Learned
from pate_jax.runs import teacher_rehearsal, voters_comparison
from pate_jax.runs.crowds import forecast

CLASSES, VOTERS = 3, 4000
RANDOM = np.random.default_rng(3)
CENTRES = RANDOM.normal(size=(CLASSES, 6)) * 2
TRUTH = {part: RANDOM.integers(0, CLASSES, size) for part, size in (("pool", 500), ("private", VOTERS))}
PLACES = {part: CENTRES[labels] + RANDOM.normal(size=(len(labels), 6)) for part, labels in TRUTH.items()}
SPACE = spaces.learn("identity", PLACES["pool"])
POOL = SPACE.coordinates(PLACES["pool"])


def planned(kind, epsilon):
    mu = counts.mu_for(epsilon, 1e-5)
    return crowd.plan(kind, SPACE, POOL, voters=VOTERS, classes=CLASSES, mu=mu)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.02, 0.5])
def test_sums_are_as_right_as_rehearsed_with_true_labels(epsilon):
    made = planned("sums", epsilon)
    expected = rehearsal.rehearse(made, POOL, [TRUTH["pool"]] * 4, VOTERS).accuracy
    ids = np.arange(VOTERS).astype(str)
    people = crowd.voters(Part(PLACES["private"], TRUTH["private"], ids), CLASSES)
    table = crowd.table(made, people)
    draws = (noisy_table(made.release, table, key=seeded_key(seed)).values for seed in range(4))
    found = [shares.of_sums(noisy, made, POOL, VOTERS).probabilities.argmax(1) for noisy in draws]
    real = float(np.mean([(each == TRUTH["pool"]).mean() for each in found]))
    assert abs(expected - real) < 0.06


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
def test_more_epsilon_is_expected_to_bring_more_and_none_little(kind):
    labels = rehearsal.labellings(SPACE, POOL, CLASSES)
    drowned, clear = (rehearsal.rehearse(planned(kind, each), POOL, labels, VOTERS) for each in (0.002, 2.0))
    assert clear.accuracy > drowned.accuracy + 0.1
    assert clear.low <= clear.accuracy <= clear.high <= 1
    assert drowned.accuracy < drowned.majority + 0.3


def test_a_rehearsal_is_a_function_of_public_inputs_alone():
    labels = rehearsal.labellings(SPACE, POOL, CLASSES)
    once, again = (rehearsal.rehearse(planned("sums", 0.5), POOL, labels, VOTERS) for _ in range(2))
    assert once == again
    assert [each.tolist() for each in labels] == [
        each.tolist() for each in rehearsal.labellings(SPACE, POOL, CLASSES)
    ]


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
def test_what_is_expected_is_the_mean_over_the_noise_which_widens_the_range(kind):
    """Of classes that overlap, and so little epsilon that one draw says next to nothing; 400 others tell."""
    labels = TRUTH["pool"]
    places = 0.35 * CENTRES[labels] + np.random.default_rng(5).normal(size=(len(labels), 6))
    space = spaces.learn("identity", places)
    pool, roles = space.coordinates(places), assigned(len(labels), VOTERS)

    def made(epsilon):
        mu = counts.mu_for(epsilon, 1e-5)
        return crowd.plan(kind, space, pool, voters=VOTERS, classes=CLASSES, mu=mu)

    found, clear = (rehearsal.rehearse(made(each), pool, [labels], VOTERS) for each in (0.03, 20.0))
    guess = rehearsal.guesser(made(0.03), pool, roles, roles.judged, np.random.default_rng(99))
    right = [(guess(labels).argmax(1) == labels[roles.judged]).mean() for _ in range(400)]
    spread = np.std(right)
    assert abs(found.accuracy - np.mean(right)) < 4 * spread / np.sqrt(found.draws)
    assert 0.3 * spread < found.noise < 1.9 * spread  # p < 0.001 on either side, were it normal
    assert found.low < np.quantile(right, 0.03) and np.quantile(right, 0.97) < found.high
    assert (found.draws, clear.draws) == (10, 3)  # where noise is next to nothing, few draws do
    assert clear.noise < found.noise / 9 and clear.high - clear.low < 0.6 * (found.high - found.low)


def test_labels_are_made_up_of_every_class_even_for_a_small_pool():
    few = POOL[:8]
    assert all(len(each) == 8 and each.max() < CLASSES for each in rehearsal.labellings(SPACE, few, CLASSES))


@pytest.mark.parametrize("by_labels", [False, True])
def test_a_plan_of_crowds_reads_public_inputs_alone(tmp_path, capsys, by_labels):
    path = tmp_path / "pool.npz"
    labels = {"labels": TRUTH["pool"]} if by_labels else {}
    np.savez(path, inputs=PLACES["pool"].astype(np.float32), **labels)
    wish = ("plan", "--records", VOTERS, "--classes", CLASSES, "--epsilon", 0.5, "--public", path)
    assert call(*wish, *["--public-labels"] * by_labels, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    wide = forecast.learned(data.public_parts(path, classes=CLASSES), step_choice.WIDEST)
    labels = [TRUTH["pool"]] if by_labels else rehearsal.labellings(*wide, CLASSES)
    plan = step_choice.stepped(*wide, voters=VOTERS, classes=CLASSES, mu=counts.mu_for(0.5, 1e-5))
    expected = rehearsal.rehearse(plan, wide.pool, labels, VOTERS)
    assert said["sums"]["accuracy"] == pytest.approx(expected.accuracy, abs=0.02)
    assert set(said) >= {"neighbours", "sums"}
    if by_labels:
        assert call(*wish) == 0
        assert said["command"] in capsys.readouterr().out


BAD = {
    "no labels": (["--public-labels"], "has no labels to judge by"),
    "no epsilon": (["--epsilon", 0], "epsilon=0"),
    "no delta": (["--delta", 2], "delta=2"),
}


@pytest.mark.parametrize(("more", "sentence"), BAD.values(), ids=BAD)
def test_a_plan_of_crowds_that_makes_no_sense_is_one_sentence(tmp_path, capsys, more, sentence):
    np.savez(tmp_path / "pool.npz", inputs=PLACES["pool"].astype(np.float32))
    wish = ["plan", "--records", VOTERS, "--classes", CLASSES, "--epsilon", 0.5]
    assert call(*wish, "--public", tmp_path / "pool.npz", *more) == 2
    assert sentence in capsys.readouterr().err


FLAT = {"a_": PLACES["pool"][:, 0], "b_": PLACES["pool"][:, 1], "c_": PLACES["pool"][:, 2]}


def table(path, labelled=True):
    names = np.array(["low", "middle", "high"])[TRUTH["pool"]]
    rows = [",".join([*FLAT, *["risk"] * labelled])]
    for row, name in zip(zip(*FLAT.values(), strict=True), names, strict=True):
        rows.append(",".join([*(f"{value:.3f}" for value in row), *[name] * labelled]))
    path.write_text("\n".join(rows))
    return path


def folder(path):
    for row in range(60):
        place = path / ("dark" if row % 2 else "bright")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(row).integers(0, 99, (8, 8)) + 150 * (row % 2 == 0)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"photo-{row}.png")
    return path


def parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    columns = {**FLAT, "risk": np.array(["low", "middle", "high"])[TRUTH["pool"]].tolist()}
    files.write_table(pyarrow.table(columns), path)
    return path


POOLS = {
    "a table": lambda at: (table(at / "pool.csv"), ["--label-column", "risk"]),
    "a table without labels": lambda at: (table(at / "pool.csv", False), ["--classes", "low,middle,high"]),
    "parquet": lambda at: (parquet(at / "pool.parquet"), ["--label-column", "risk"]),
    "images": lambda at: (folder(at / "pool"), []),
}


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(each, id=name, marks=[pytest.mark.long] * (name == "images"))
        for name, each in POOLS.items()
    ],
)
def test_any_public_inputs_of_a_run_can_be_planned_for(tmp_path, capsys, made):
    path, flags = made(tmp_path)
    assert call("plan", "--records", 500, "--epsilon", 2, "--public", path, *flags, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["sums"]["accuracy"] > said["sums"]["majority"]
    assert said["sums"]["labels"] == (5 if "--classes" in flags else 1)
    assert f"--public {path}" in said["command"] and " ".join(map(str, flags)) in said["command"]


def test_public_inputs_are_those_of_a_run_on_the_same_file(tmp_path):
    """The planner sees the bits that a run sees, whatever the private file holds."""
    path, private = table(tmp_path / "pool.csv"), tmp_path / "mine.csv"
    private.write_text("a_,b_,c_,risk,id\n900,1,2,low,p-x\n5,5,5,high,p-y\n")
    whole = data.from_files(private, path, label_column="risk", id_column="id")
    alone = data.public_parts(path, label_column="risk", id_column="id")
    assert np.array_equal(alone.public.inputs, whole.public.inputs)
    assert alone.public.labels.tolist() == whole.public.labels.tolist()
    assert (alone.class_names, alone.preprocessing, alone.columns) == (
        whole.class_names,
        whole.preprocessing,
        whole.columns,
    )
    assert len(alone.private.inputs) == 0


def test_nobody_who_is_judged_stands_for_a_voter():
    for pool in (2, 7, 500, 9000):
        roles = assigned(pool, 1234)
        assert roles.times.sum() == 1234 and not roles.times[roles.judged].any()


def test_a_folder_of_public_images_has_the_classes_of_its_folders(tmp_path):
    alone = data.public_parts(folder(tmp_path / "pool"))
    assert (alone.kind, alone.class_names, alone.public.inputs.shape) == (
        "image",
        ("bright", "dark"),
        (60, 8, 8, 1),
    )


def lifted(places):
    """The coordinates of a Gaussian kernel with 300 landmarks: what linear teachers of images learn from."""
    landmarks = places[:300]
    gaps = ((places[:, None, :] - landmarks) ** 2).sum(2)
    return np.c_[np.exp(-gaps / (0.3 * np.median(gaps))), np.full(len(places), 0.2)].astype(np.float32)


@pytest.mark.long
def test_linear_teachers_are_ahead_where_their_space_bends_what_no_line_of_sums_tells(monkeypatch):
    """Labels by the distance from the middle, in twelve directions alike: few are anybody's neighbours."""
    places = np.random.default_rng(0).normal(size=(1600, 12)).astype(np.float32)
    radius = (places**2).sum(1)
    labels = (radius > np.median(radius)).astype(int)
    ids = np.arange(len(places)).astype(str)
    dataset = SimpleNamespace(public=Part(places, labels, ids), classes=2, kind="table")
    monkeypatch.setattr(teacher_rehearsal, "seen", lambda *_: lifted(places))
    settings = {"records": 50_000, "epsilon": 2.0, "delta": 1e-5}
    found = teacher_rehearsal.rehearse(dataset, [labels], **settings)
    space = spaces.learn("identity", places)
    wide, mu = Learned(space, space.coordinates(places)), counts.mu_for(2.0, 1e-5)
    crowds = forecast.of_crowds(forecast.CROWDS, wide, [labels], voters=50_000, classes=2, mu=mu)
    both = voters_comparison.Rehearsed(crowds, found, None)
    assert both.best == voters_comparison.TEACHERS
    assert both.flags(2.0) == "--voters teachers --epsilon 2"
    assert voters_comparison.Rehearsed(crowds, None, "too few").best in ("sums", "neighbours")
