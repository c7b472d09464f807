"""Input that no crowd can use is one clear sentence, and odd input is counted as it should be.

Each case goes through `pate run`, and through the library where that is called by itself.
"""

import math
from dataclasses import dataclass, replace

import commands
import numpy as np
import pytest

from pate_jax import crowd
from pate_jax.audit import verify
from pate_jax.crowd import neighbours
from pate_jax.crowd.plan import many_classes
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import spaces
from pate_jax.runs import ledger
from pate_jax.runs.crowds import answers, inputs, release
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

CENTRES = np.eye(3, 4) * 3
STUDENT = "--student.method supervised --student.net table --student.steps 8 --student.batch-size 8"
MOST = 10_000  # records of one user
pytestmark = pytest.mark.filterwarnings("ignore:no answer names class")


@dataclass(frozen=True)
class Table:
    """Inputs and labels of one part."""

    inputs: np.ndarray
    labels: np.ndarray
    users: np.ndarray | None = None

    def write(self, path):
        names = np.array(
            [f"{path.stem}-{row * 7 % (len(self.labels) * 7 + 1)}" for row in range(len(self.labels))]
        )
        users = {} if self.users is None else {"users": self.users}
        np.savez(path, inputs=self.inputs, labels=self.labels, ids=names, **users)
        return f"--{path.stem}={path}"


def drawn(count, seed, centres=CENTRES):
    random = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int32) % len(centres)
    inputs = centres[labels] + random.normal(size=(count, centres.shape[1]))
    return Table(inputs.astype(np.float32), labels)


def with_row(table, row, values):
    inputs = table.inputs.copy()
    inputs[row] = values
    return replace(table, inputs=inputs)


PRIVATE, PUBLIC = drawn(80, 1), drawn(30, 2)


def pate(folder, private, public, voters, *more):
    """`pate run` on these parts: its exit code, and the run."""
    files = [private.write(folder / "private.npz"), public.write(folder / "public.npz")]
    flags = [f"--voters={voters}", "--epsilon=4", "--seed=3", f"--out={folder / 'run'}", *STUDENT.split()]
    return commands.call("run", *files, *flags, *more), RunDirectory(folder / "run")


ROW = [4, np.nan, 0, 1]
REFUSED = {
    "fewer public inputs than queries": (
        *(PRIVATE, PUBLIC, ["neighbours", "--queries=31"]),
        "queries=31 must be at most the 30 public inputs: give more of these, or ask fewer",
    ),
    "a public pool of one place": (
        *(PRIVATE, with_row(PUBLIC, slice(None), 1), ["sums"]),
        "all public inputs are the same vector in this space: no direction tells them apart",
    ),
    "a record that is not a number": (
        *(with_row(PRIVATE, 7, ROW), PUBLIC, ["sums"]),
        "private inputs hold NaN or infinity in 1 records (first at row 7); fill or remove them",
    ),
    "an infinite record": (
        *(with_row(PRIVATE, 9, -np.inf), PUBLIC, ["neighbours"]),
        "private inputs hold NaN or infinity in 1 records (first at row 9); fill or remove them",
    ),
    "a public input that is not a number": (
        *(PRIVATE, with_row(PUBLIC, 3, ROW), ["sums"]),
        "public inputs hold NaN or infinity in 1 records (first at row 3); fill or remove them",
    ),
    "a private class that no public input has": (
        *(replace(PRIVATE, labels=PRIVATE.labels + (PRIVATE.labels == 2)), PUBLIC, ["sums"]),
        "private label 3 at row 2 is outside 0..2; number the classes from 0, or declare classes",
    ),
    "users without their names": (
        *(PRIVATE, PUBLIC, ["sums", "--by=user"]),
        "by='user' needs the user of every private record; give a users array or --user-column",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_crowd_can_use_is_one_sentence_and_leaves_no_trace(tmp_path, capsys, case):
    private, public, flags, sentence = REFUSED[case]
    code, run = pate(tmp_path, private, public, *flags)
    said = capsys.readouterr().err.strip().splitlines()
    assert (code, said[-1]) == (2, f"pate: {sentence}")
    assert not any(path.exists() for path in (run.settings, run.ledger, run.keys, run.release))


@pytest.mark.long
def test_classes_that_the_noise_cannot_carry_are_told(tmp_path, capsys):
    """Two records each of 40 classes: whatever is answered is noise, and the run says so."""
    centres = np.random.default_rng(4).normal(size=(40, 8)) * 4
    code, _ = pate(tmp_path, drawn(80, 1, centres), drawn(120, 2, centres), "sums")
    said = capsys.readouterr().err
    assert code == 0 and "warning: of what 80 voters can say, little is expected to stand out" in said


@pytest.mark.parametrize(
    ("made", "noise"),
    [
        (NeighbourCounts(queries=9, classes=40, votes=2, sigma=12.0), 12),
        (ClassSums(classes=40, directions=5, length=10, sigma=120.0), 12),
    ],
)
def test_a_class_needs_four_times_the_noise_in_voters(made, noise):
    told = many_classes(made, 40 * (4 * noise - 1))
    assert f"40 classes have about 47 voters each, and the noise is as large as {noise} of them" in told
    assert many_classes(made, 40 * 4 * noise) is None


def test_more_noise_than_tables_hold_is_refused():
    with pytest.raises(PateError, match="sigma=200000"):
        NeighbourCounts(queries=9, classes=40, votes=2, sigma=200_000.0)


SPACE = spaces.learn("identity", PUBLIC.inputs)
POOL = SPACE.coordinates(PUBLIC.inputs)
NEAR = neighbours.choose(crowd.scaling(SPACE, POOL, length=2000, power=0.3), POOL, 9)
SCALING = crowd.scaling(SPACE, POOL, length=90, power=0.5, constant=0.25)
COUNTS, SUMS = NeighbourCounts(9, 3, votes=2, sigma=5.0), ClassSums(3, 5, length=90, sigma=90.0)


def people(table):
    names = np.array([f"name {row}" for row in range(len(table.labels))])
    part = Part(table.inputs, table.labels, names, table.users)
    return crowd.voters(part, 3, by="record" if table.users is None else "user")


def both(table):
    """The exact counts and sums."""
    voters = people(table)
    return crowd.counts(SPACE, NEAR, voters, COUNTS), crowd.sums(SPACE, SCALING, voters, SUMS)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_the_library_refuses_vectors_that_are_not_finite_by_their_row(wrong):
    with pytest.raises(PateError, match=r"1 of the 80 records read together .* the first of them at row 5:"):
        crowd.counts(SPACE, NEAR, people(with_row(PRIVATE, 5, wrong)), COUNTS)
    with pytest.raises(PateError, match=r"1 of the 80 records read together .* the first of them at row 5:"):
        crowd.sums(SPACE, SCALING, people(with_row(PRIVATE, 5, wrong)), SUMS)


def test_the_library_asks_no_more_queries_than_there_are_public_inputs():
    with pytest.raises(PateError, match="queries=31 must be from 1 to the 30 public inputs"):
        neighbours.choose(NEAR.scaling, POOL, 31)


@pytest.mark.parametrize("place", [0.0, 1e30, "middle"])
def test_a_record_of_zeros_or_far_away_votes_like_any_other(place):
    """In the middle of the pool its vector is zero: it counts for its class's share, and for no direction."""
    values = PUBLIC.inputs.mean(0) if place == "middle" else place
    odd = with_row(PRIVATE, 0, values)
    alone = Table(odd.inputs[:1], odd.labels[:1])
    counts, sums = both(alone)
    assert counts.sum() == 2 and counts.max() == 1 and np.flatnonzero(counts.sum(0)).tolist() == [0]
    assert np.flatnonzero(sums.any(1)).tolist() == [0] and (sums**2).sum() <= 90**2
    if place == "middle":
        assert sums[0].tolist() == [0, 0, 0, 0, SCALING.constant]
    rest = both(Table(odd.inputs[1:], odd.labels[1:]))
    for whole, one, others in zip(both(odd), (counts, sums), rest, strict=True):
        np.testing.assert_array_equal(whole, one + others)


def one_user_of_many():
    """10,000 records of one user among 40 users of one each, in any order."""
    table = drawn(MOST + 40, 6)
    users = np.array([f"user {row % 40}" for row in range(MOST + 40)])
    order = np.random.default_rng(7).permutation(MOST + 40)
    users[order[40:]] = "the one"
    users[order[:40]] = [f"user {row}" for row in range(40)]
    return replace(table, users=users)


def test_a_user_of_ten_thousand_records_votes_once():
    table = one_user_of_many()
    mine = table.users == "the one"
    others = Table(table.inputs[~mine], table.labels[~mine], table.users[~mine])
    (counts, sums), (less, fewer) = both(table), both(others)
    vectors = crowd.vectors(NEAR.scaling, SPACE.coordinates(table.inputs[mine])).astype(np.int64)
    gaps = (vectors**2).sum(1)[:, None] + NEAR.offsets - 2 * vectors @ NEAR.vectors.astype(np.int64)
    nearest = [min(zip(gaps[:, query], table.labels[mine], strict=True)) for query in range(9)]
    own = np.zeros((9, 3), np.int64)
    for query in sorted(range(9), key=lambda query: (nearest[query][0], query))[:2]:
        own[query, nearest[query][1]] = 1
    np.testing.assert_array_equal(counts - less, own)
    every = crowd.vectors(SCALING, SPACE.coordinates(table.inputs[mine])).astype(np.int64)
    total = np.stack([every[table.labels[mine] == label].sum(0) for label in range(3)])
    size = math.isqrt(int((total**2).sum()) - 1) + 1
    np.testing.assert_array_equal(sums - fewer, np.sign(total) * (np.abs(total) * 90 // size))
    assert ((sums - fewer) ** 2).sum() <= 90**2


@pytest.mark.long
def test_a_run_in_which_one_user_has_ten_thousand_records(tmp_path):
    code, run = pate(tmp_path, one_user_of_many(), PUBLIC, "neighbours", "--by=user")
    number, table = ledger.releases(run.ledger)
    assert code == 0 and abs(ledger.unpack_table(number.values, (1, 1))[0, 0] - 41) < 15
    assert release.load_table(run).sum() == 41 * table.event.votes
    certificate = storage.read_json(run.certificate, "certificate")
    assert (certificate["users"], certificate["records"]) == (41, MOST + 40)
    assert verify.of_run(run).of("failed") == []


@pytest.mark.long
@pytest.mark.parametrize("voters", ["neighbours", "sums"])
def test_a_class_that_no_private_record_has_gets_no_votes(tmp_path, voters):
    """A third of the pool is of a class that nobody can vote for: the other two thirds are answered right."""
    many, queries = drawn(1200, 1), ["--queries=12"] if voters == "neighbours" else []
    private = Table(many.inputs[many.labels != 1], many.labels[many.labels != 1])
    code, run = pate(tmp_path, private, PUBLIC, voters, *queries)
    table = release.load_table(run)
    assert code == 0 and verify.of_run(run).of("failed") == []
    assert not (table[:, 1] if voters == "neighbours" else table[1]).any()
    found, rows = answers.shares(inputs.opened(run))
    labels = PUBLIC.labels[rows]
    right = found.probabilities.argmax(1) == labels
    assert right[labels != 1].mean() >= 0.8
