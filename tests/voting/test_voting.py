"""Histograms against NumPy, and the votes file: what it keeps, and each thing it refuses."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pate_jax import voting
from pate_jax.errors import PateError
from pate_jax.system import storage
from pate_jax.voting import Votes, counting

LABELS = np.random.default_rng(0).integers(0, 4, (37, 11)).astype(np.int16)
PUBLISHED = Path(__file__).parents[2] / "../shared/data/votes"


def counted(labels, classes):
    return np.stack([(labels == c).sum(0) for c in range(classes)], 1)


@pytest.mark.parametrize("chunk", [1, 5, 37, 50])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8])
def test_histograms_count(chunk, dtype):
    found = voting.histogram(LABELS.astype(dtype), 5, chunk=chunk)
    assert found.dtype == jnp.int32 and (found == counted(LABELS, 5)).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_many_classes_are_counted_alike_by_comparing_and_by_adding(dtype):
    """A CPU adds; other platforms compare. Labels outside the classes count for none in either."""
    labels = np.random.default_rng(1).integers(0, 120, (23, 9)).astype(dtype)
    labels[3] = -1 if dtype != np.uint8 else 255
    assert (counting.count(jnp.asarray(labels), 100) == counted(labels, 100)).all()
    assert (counting.compared(jnp.asarray(labels), 100, 10) == counted(labels, 100)).all()
    assert (counting.scattered(jnp.asarray(labels), 100) == counted(labels, 100)).all()


@pytest.mark.parametrize("classes", [5, 100])
def test_teachers_spread_over_devices_are_summed(classes):
    labels = np.random.default_rng(2).integers(0, classes, (16, 9)).astype(np.int16)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    count = lambda part: voting.histogram(part, classes, axis_name="d")  # noqa: E731
    spread = jax.jit(jax.shard_map(count, mesh=mesh, in_specs=P("d"), out_specs=P()))
    assert (spread(labels) == counted(labels, classes)).all()
    assert (jax.pmap(count, axis_name="d")(labels.reshape(8, 2, 9))[3] == counted(labels, classes)).all()


def test_narrow_labels_and_many_classes_do_not_wrap_around():
    labels = np.array([[127, 0], [100, 0]], np.int8)
    assert (voting.histogram(labels, 300) == counted(labels, 300)).all()


def test_counters_hold_more_teachers_than_16_bits_do():
    labels = np.zeros((40_000, 2), np.int8)
    assert voting.histogram(labels, 2)[:, 0].tolist() == [40_000, 40_000]


def test_a_padded_teacher_has_no_vote_under_tracing():
    padded = np.concatenate([LABELS, np.full((3, 11), -1, np.int16)])
    assert (jax.jit(lambda x: voting.histogram(x, 4))(padded) == counted(LABELS, 4)).all()
    with pytest.raises(PateError, match="holds -1"):
        voting.histogram(padded, 4)


def test_under_vmap():
    stack = np.stack([LABELS, LABELS[::-1], (LABELS + 1) % 4])
    found = jax.vmap(lambda x: voting.histogram(x, 4))(stack)
    assert all((one == counted(labels, 4)).all() for one, labels in zip(found, stack, strict=True))


@pytest.mark.parametrize(
    "labels, classes, message",
    [
        (LABELS, 3, "holds 3, out of range for 3"),
        (LABELS[:0], 4, "zero teachers"),
        (LABELS[0], 4, r"shape \(11,\)"),
        (LABELS + 0.5, 4, r"teacher_labels\[0, 0\]="),
        (LABELS, 1, "classes=1"),
        (LABELS, 2.0, "classes=2.0"),
        (np.array([[np.nan, 1.0]]), 4, "nan is not a whole number"),
    ],
)
def test_bad_labels_are_named(labels, classes, message):
    with pytest.raises(PateError, match=message):
        voting.histogram(labels, classes)


def example() -> Votes:
    ids = np.array([f"query-{i}" for i in range(11)])
    return Votes(counted(LABELS, 4), LABELS, ids, LABELS[0].astype(np.int64))


def agree(left: Votes, right: Votes) -> bool:
    pairs = zip(left, right, strict=True)
    return all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_file_gives_back_what_was_saved(tmp_path, kept):
    votes = Votes(*example()[: kept + 1])
    voting.save_votes(tmp_path / "votes.npz", votes)
    loaded = voting.load_votes(tmp_path / "votes.npz")
    assert agree(votes, loaded)
    assert loaded.votes.dtype == np.int32
    assert kept == 0 or loaded.teacher_labels.dtype == np.int16


def test_foreign_files_are_read(tmp_path):
    votes = counted(LABELS, 4)
    np.savez(tmp_path / "a.npz", votes=votes.astype(float), labels=LABELS[0])
    np.savez(tmp_path / "b.npz", teacher_labels=LABELS)
    np.savez(tmp_path / "c.npz", votes=LABELS)
    np.save(tmp_path / "d.npy", votes)
    np.save(tmp_path / "e.npy", LABELS)
    assert (voting.load_votes(tmp_path / "a.npz").votes == votes).all()
    assert (voting.load_votes(tmp_path / "b.npz").votes == votes).all()
    assert (voting.load_votes(tmp_path / "c.npz", labels_are_teacher_labels=True).votes == votes).all()
    assert (voting.load_votes(tmp_path / "d.npy").votes == votes).all()
    assert (voting.load_votes(tmp_path / "e.npy", labels_are_teacher_labels=True).votes == votes).all()
    wide = voting.load_votes(tmp_path / "b.npz", classes=6).votes
    assert wide.shape == (11, 6) and wide[:, 4:].sum() == 0


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"votes": counted(LABELS, 4).T}, "transpose it"),
        ({"votes": LABELS}, "labels_are_teacher_labels=True"),
        ({"votes": [[3, 1], [4, 0], [3, 2]]}, "5 in row 2, and mostly about 4"),
        ({"votes": np.full((3, 1), 2)}, "classes=1 must be"),
        ({"votes": np.full((3, 3), 2)}, "both plausible"),
        ({"teacher_labels": LABELS.T, "labels": LABELS[0]}, "transpose it"),
        ({"teacher_labels": LABELS, "ids": np.arange(5)}, "`ids` has 5 queries"),
        ({"counts": LABELS}, r"holds \['counts'\]"),
        ({"votes": counted(LABELS, 4), "labels": np.full(11, 4)}, "labels holds 4 to 4"),
        ({"votes": counted(LABELS, 4), "labels": np.zeros(10, int)}, r"\(10,\) where 11"),
        ({"votes": counted(LABELS, 4), "teacher_labels": LABELS[::-1] * 0}, "do not add up"),
        ({"votes": [[3, -1], [1, 1]]}, r"votes\[0, 1\]=-1"),
        ({"votes": [[3, 1.5], [2, 2.5]]}, r"votes\[0, 1\]=1.5"),
        ({"votes": [[3, np.nan], [2, 2]]}, "nan"),
        ({"votes": [[0, 0]]}, "zero teachers"),
        ({"votes": np.zeros((2, 2, 2))}, r"shape \(2, 2, 2\)"),
    ],
)
def test_foreign_files_that_cannot_be_votes_are_explained(tmp_path, arrays, message):
    np.savez(tmp_path / "votes.npz", **arrays)
    with pytest.raises(PateError, match=message):
        voting.load_votes(tmp_path / "votes.npz")


def test_broken_files_and_other_artefacts_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"nothing")
    (tmp_path / "b.npy").write_bytes(b"nothing")
    storage.write_arrays(tmp_path / "c.npz", "shards", {"votes": counted(LABELS, 4)})
    np.save(tmp_path / "d.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name, message in {
        "a.npz": "not a readable",
        "b.npy": "not a readable",
        "c.npz": "not a votes file",
    }.items():
        with pytest.raises(PateError, match=message):
            voting.load_votes(tmp_path / name)
    with pytest.raises(PateError, match="not a readable"):
        voting.load_votes(tmp_path / "d.npy")
    with pytest.raises(PateError, match="does not exist"):
        voting.load_votes(tmp_path / "e.npz")


def test_the_published_votes_are_read():
    if not PUBLISHED.exists():
        pytest.skip("the published votes are not on this disk")
    votes = voting.load_votes(PUBLISHED / "published_mnist_250.npz")
    assert votes.votes.shape == (9000, 10) and (votes.votes.argmax(1) == votes.labels).mean() > 0.94
    ours = voting.load_votes(PUBLISHED / "cnn_mnist_250.npz")
    assert ours.teacher_labels.shape == (250, 10_000) and (ours.votes.sum(1) == 250).all()
