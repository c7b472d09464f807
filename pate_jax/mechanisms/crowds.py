"""Frozen descriptions of what a crowd of voters releases: a whole table of noisy numbers, once.

A voter is a record, or all records of one user. It adds a whole-number table of its own to the sum of all
voters. That table is bounded, whatever the voter's records are. Noise is added to every cell, and all cells
are released. The sampler and the accountant read the same description.

**How far one voter moves the sum**, in the Euclidean length of the table (its square is `squared_shift`):

- `NeighbourCounts`: a voter adds 1 to at most `votes` different cells, at most one for each query. A voter
  that is added or removed moves `votes` cells by 1: length `sqrt(votes)`. A voter that changes takes back at
  most `votes` of them and adds at most `votes` others: at most `2 votes` cells move by 1, length
  `sqrt(2 votes)`.
- `ClassSums`: a record adds its vector, no longer than `length`, to the row of its class. With two classes
  there is one row, and a record with label 0 adds the negative of its vector. A user adds the sum of its
  records' tables, shortened to `length` where it is longer. A voter that is added or removed moves the sum
  by at most `length`, and a voter that changes by at most twice that (by the triangle inequality; two
  records of one class with opposite vectors attain it). A step's sum of gradients is such a table too: what
  a record or user adds is no longer than `length`, whatever it is.
- `TeacherSums`: here teachers cast the vectors. A record, or a user, is with one teacher, which may say
  anything else without it: changed, added or removed, it moves the sum by at most twice the `length`.
- `TeacherVotes`: of each input a teacher names at most `most` of several labels, so one that names others
  changes at most `2 most` counts of an input by 1, and no more of them than there are labels.

The rounded Gaussian is the default noise: a Gaussian rounded to the nearest whole number. Because the sums
are whole numbers, `sum + round(noise) = round(sum + noise)` is a function of the sum with Gaussian noise. So
every guarantee of that one (exact Gaussian-DP, for any number of cells) holds here, and no continuous number
is released.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal, cast, get_args

from pate_jax.errors import PateError, at_least
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.codec import settle_numbers
from pate_jax.mechanisms.descriptions import ROUNDED_SCALES, Noise

Change = Literal["changed", "joined"]  # a voter's contents are replaced, or the voter is added or removed
Voting = Literal["neighbours", "sums"]  # how a crowd votes
WholeFamily = Literal["rounded_gaussian", "discrete_gaussian"]
LARGEST_SIGMA = ROUNDED_SCALES[1]  # the widest noise that a table of `laws` holds
MOST_STEPS = 20  # tables of sums that follow each other


class _Noisy:
    """Whatever has noise of one family and one scale."""

    sigma: float
    family: WholeFamily

    @property
    def noise(self) -> Noise:
        """The noise on each cell."""
        return Noise(self.family, self.sigma)


@dataclass(frozen=True)
class NeighbourCounts(_Noisy):
    """Noisy counts of votes, [queries, classes], where each voter votes for its label at a few queries.

    >>> release = NeighbourCounts(queries=80, classes=10, votes=2, sigma=40.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.noise.family
    (4, 2, 'rounded_gaussian')
    """

    name: ClassVar[Voting] = "neighbours"
    queries: int
    classes: int
    votes: int  # the most votes of one voter, each for another query
    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, self.classes)
        if not 1 <= self.votes <= self.queries:
            raise PateError(f"votes={self.votes} of a voter must be from 1 to the {self.queries} queries")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table that is released."""
        return self.queries, self.classes

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one voter moves the table."""
        return self.votes * _times(change, 2)


@dataclass(frozen=True)
class ClassSums(_Noisy):
    """Noisy sums of voters' vectors, [classes, directions]; for two classes, only their difference.

    >>> release = ClassSums(classes=3, directions=16, length=100, sigma=4000.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (40000, 10000, (3, 16))
    """

    name: ClassVar[Voting] = "sums"
    classes: int
    directions: int
    length: int  # the greatest length of a record's whole-number vector
    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, self.classes)
        if self.directions < 1 or self.length < 1:
            raise PateError(f"directions={self.directions} and length={self.length} must be at least 1")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table that is released."""
        return 1 if self.classes == 2 else self.classes, self.directions

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one voter moves the table."""
        return self.length**2 * _times(change, 4)


@dataclass(frozen=True)
class TeacherSums(_Noisy):
    """Noisy sums of one vector of each teacher, [1, directions]: what teachers say who predict a number.

    >>> release = TeacherSums(teachers=50, directions=16, length=100, sigma=4000.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (40000, 40000, (1, 16))
    """

    name: ClassVar[str] = "teacher-sums"
    teachers: int
    directions: int
    length: int  # the greatest length of a teacher's whole-number vector
    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, 2)
        at_least(1, teachers=self.teachers, directions=self.directions, length=self.length)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table that is released."""
        return 1, self.directions

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one record moves the table, in whatever way it changes."""
        return 4 * self.length**2 * _times(change, 1)


@dataclass(frozen=True)
class TeacherVotes(_Noisy):
    """How many teachers name each of several labels, with noise, [queries, labels].

    >>> release = TeacherVotes(teachers=50, queries=30, labels=7, most=2, sigma=40.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (120, 120, (30, 7))
    >>> TeacherVotes(teachers=50, queries=30, labels=7, most=7, sigma=40.0).squared_shift("changed")
    210
    """

    name: ClassVar[str] = "teacher-votes"
    teachers: int
    queries: int
    labels: int
    most: int  # labels that a teacher names of an input, at most
    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, 2)
        at_least(1, teachers=self.teachers, queries=self.queries, labels=self.labels, most=self.most)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table that is released."""
        return self.queries, self.labels

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one record moves the table, in whatever way it changes."""
        return self.queries * min(self.labels, 2 * self.most) * _times(change, 1)


@dataclass(frozen=True)
class _Number(_Noisy):
    """One number with noise."""

    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, 2)

    @property
    def shape(self) -> tuple[int, int]:
        """Of a table with one cell."""
        return 1, 1


@dataclass(frozen=True)
class HeadCount(_Number):
    """The noisy number of voters, which rules of a crowd's plan need.

    A voter whose contents change moves nothing. One that is added or removed moves it by 1, and moves a table
    of the two kinds above by less than a changed one does: that difference pays for it.

    >>> release = HeadCount(sigma=36.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (0, 1, (1, 1))
    """

    name: ClassVar[str] = "headcount"

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one voter moves the number."""
        return 1 - (_times(change, 2) - 1)


@dataclass(frozen=True)
class Score(_Number):
    """The noisy number of held-out voters who agree with a student: it gives the label that they have.

    A voter that is held out moves scores and no table, and every other voter moves tables and no score. A
    held-out voter agrees or does not, so whether it is changed, added or removed, a score moves by 1 at most.

    >>> release = Score(sigma=20.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (1, 1, (1, 1))
    """

    name: ClassVar[str] = "score"

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one voter moves the number."""
        return _times(change, 1)


@dataclass(frozen=True)
class Comparison(_Noisy):
    """How many held-out voters agree with each of several students, less the mean of all, with noise.

    To be whole numbers, the cells are `students` times that: a voter that agrees with `m` of `k` students
    adds `k - m` to each of these and takes `m` from each of the others. The square of that length is
    `k m (k - m)`, which is largest where m is half of k. So that is how far a voter moves the table that is
    added or removed. One whose contents change moves it by twice that length at most, which is reached where
    it agrees with the other students afterwards. What all students have in common is not in the table.

    >>> release = Comparison(students=3, sigma=20.0)
    >>> release.squared_shift("changed"), release.squared_shift("joined"), release.shape
    (24, 6, (1, 3))
    """

    name: ClassVar[str] = "comparison"
    students: int
    sigma: float
    family: WholeFamily = "rounded_gaussian"

    def __post_init__(self) -> None:
        _check(self, 2)
        at_least(2, " to be compared", students=self.students)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table that is released."""
        return 1, self.students

    @property
    def between_two(self) -> float:
        """The scale of the noise in the difference of two students, in voters.

        >>> round(Comparison(students=2, sigma=10.0).between_two, 2)
        7.07
        """
        return math.sqrt(2) * self.sigma / self.students

    def squared_shift(self, change: Change) -> int:
        """The square of the length by which one voter moves the table."""
        half = self.students // 2
        return self.students * half * (self.students - half) * _times(change, 4)


CrowdTable = NeighbourCounts | ClassSums
Judgement = Score | Comparison  # what voters say who vote in no table
OfTeachers = TeacherSums | TeacherVotes  # one record moves them alike, whether it is changed or removed
CrowdRelease = NeighbourCounts | ClassSums | OfTeachers | HeadCount | Score | Comparison
BY_NAME: dict[str, type[CrowdRelease]] = {kind.name: kind for kind in get_args(CrowdRelease)}


def from_dict(description: object) -> CrowdRelease:
    """The release that `to_dict` described.

    >>> release = NeighbourCounts(queries=80, classes=10, votes=2, sigma=40.0)
    >>> from_dict(codec.to_dict(release)) == release
    True
    """
    return cast(CrowdRelease, codec.from_dict(CrowdRelease, description, "release"))


def _check(release: CrowdTable | OfTeachers | Comparison | _Number, classes: int) -> None:
    """Refuse what makes no sense."""
    settle_numbers(release)
    for field in dataclasses.fields(release):
        value = getattr(release, field.name)
        if field.type == "int" and type(value) is not int:
            raise PateError(f"{field.name}={value!r} of a release must be a whole number")
    sigma, family = release.sigma, release.family
    at_least(2, classes=classes)
    if family not in get_args(WholeFamily):
        raise PateError(
            f"family={family!r} must be one of {', '.join(get_args(WholeFamily))}: whole-number noise has no "
            "low bits through which a sum of whole numbers could leak"
        )
    if not (isinstance(sigma, Real) and not isinstance(sigma, bool) and 1 <= sigma <= LARGEST_SIGMA):
        raise PateError(f"sigma={sigma!r} must be from 1, one whole vote, to {LARGEST_SIGMA:g}")


def _times(change: Change, changed: int) -> int:
    """`changed` if a voter's contents change, and 1 if a voter is added or removed."""
    if change not in get_args(Change):
        raise PateError(f"change={change!r} must be one of {', '.join(get_args(Change))}")
    return changed if change == "changed" else 1
