"""Which public inputs the teachers are asked about; free of privacy cost, since it reads public data only.

Five ways to fix the list before the first answer: the `first` inputs, `random` ones, or one input for each of
as many clusters as there are questions, so that the list covers the pool: `kmeans` compares pixels or
columns, `learned` compares images in a space learned from the pool itself, and `space` compares what linear
teachers see. All accounting applies to such a
list. `ask_in_rounds` chooses the next inputs by what the student, trained on the answers so far, is least
sure of. That list depends on earlier answers, so no data-dependent figure of it is a guarantee: publish the
data-independent one over all inputs asked (`accounting.statement(..., adaptive=True)`) or a filter's budget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from pate_jax.aggregate import Answers
from pate_jax.data.dataset import AS_STORED, Preprocessing
from pate_jax.errors import PateError, one_of, within
from pate_jax.models.clusters import cover
from pate_jax.models.spaces.space import Space
from pate_jax.student import spaces
from pate_jax.student.lesson import PublicInputs
from pate_jax.student.serving import Student
from pate_jax.student.settings import Selection
from pate_jax.system import eigen

_DIRECTIONS = 32  # of the space that inputs are compared in
_CHOICE = 6  # the least sure inputs that a round chooses from, times those it asks


class Bought(NamedTuple):
    """What rounds of questions brought; the rows of every array belong together, in the order of asking."""

    rows: Int[np.ndarray, " asked"]  # of the public inputs
    answers: Answers  # of the teachers; a label without `answered` is the student's own, and free
    probabilities: Float[np.ndarray, "asked classes"]  # what the student said when the teachers were asked

    def for_student(self) -> Answers:
        """The answers to learn from: the teachers' labels and the student's own sure ones."""
        labels = jnp.asarray(self.answers.labels)
        return Answers(labels, labels >= 0)


def select(
    selection: Selection,
    inputs: np.ndarray,
    wanted: int,
    *,
    key: bytes,
    preprocessing: Preprocessing = AS_STORED,
    space: Space | None = None,
) -> Int[np.ndarray, " wanted"]:
    """Rows of the inputs to ask about, each once; the same for the same inputs and key.

    `inputs` are as stored, images with pixels from 0 to 255; `preprocessing` turns them into what the net
    sees. With a `space`, inputs are compared there. The key is no secret: whoever knows the rows learns
    nothing of private data.

    >>> two_heaps = np.array([[0.0, 0], [9, 9], [0, 0.1], [9, 9.1], [0.1, 0]])
    >>> sorted(row % 2 for row in select("kmeans", two_heaps, 2, key=b"demo").tolist())  # one of each heap
    [0, 1]
    """
    one_of(get_args(Selection), selection=selection)
    if selection == "space" and space is None:
        raise PateError(
            "selection='space' compares inputs in the space of linear teachers: have such (--net linear), or "
            "choose kmeans"
        )
    within(1, len(inputs), ", the number of different public inputs", queries=wanted)
    random = _random(key)
    if selection == "first":
        return np.arange(wanted)
    if selection == "random":
        return random.permutation(len(inputs))[:wanted]
    if selection == "learned" and space is None:
        seed = jax.random.key(int(random.integers(2**31)))
        space = spaces.contrast_space(inputs, preprocessing, key=seed)
    if space is not None:
        return cover(space.coordinates(inputs).astype(np.float32), wanted, random)
    return cover(_points(preprocessing.apply(inputs)), wanted, random)


def least_sure(
    probabilities: Float[np.ndarray, "pool classes"],
    inputs: Float[np.ndarray, "pool ..."],
    wanted: int,
    *,
    taken: Int[np.ndarray, " taken"],
    key: bytes,
) -> Int[np.ndarray, " wanted"]:
    """Rows whose two most probable classes are closest, spread over what they look like, none taken."""
    free = np.setdiff1d(np.arange(len(inputs)), taken)
    if len(free) < wanted:
        raise PateError(
            f"{wanted} more queries are wanted and {len(free)} public inputs are left: ask for fewer"
        )
    best = np.sort(probabilities[free], axis=1)
    unsure = free[np.argsort(best[:, -1] - best[:, -2], kind="stable")][: wanted * _CHOICE]
    return unsure[cover(_points(inputs[unsure]), wanted, _random(key))]


def ask_in_rounds(
    key: jax.Array,
    public: PublicInputs,
    sizes: list[int],
    *,
    ask: Callable[[np.ndarray, np.ndarray], Answers],
    learn: Callable[[jax.Array, PublicInputs, Answers], Student],
) -> Bought:
    """Ask about `sizes[0]` inputs that cover the pool, learn, ask where that student is least sure, again.

    `ask(rows, probabilities)` is the only way to the teachers: it must charge for each row before it answers,
    with noise of its own for every call. `probabilities` are what the student says, uniform before there is
    one, for `aggregate.interactive.answer`. `learn` trains a student on answers whose row i belongs to row i
    of the inputs it is given. `sizes` is fixed in advance, so the number of questions is public.
    """
    if not sizes or min(sizes) < 1 or sum(sizes) > len(public.inputs):
        raise PateError(f"sizes={sizes} must be above 0 and at most {len(public.inputs)} together")
    scaled = np.asarray(public.preprocessing.apply(public.inputs))
    held, words = _nothing(public.classes), np.asarray(jax.random.key_data(key)).tobytes()
    for turn, (size, now) in enumerate(zip(sizes, jax.random.split(key, len(sizes)), strict=True)):
        seed = words + turn.to_bytes(4, "little")
        if turn == 0:
            rows = select("kmeans", scaled, size, key=seed)
            told = np.full((size, public.classes), 1 / public.classes, np.float32)
        else:
            everywhere = learn(now, _reordered(public, held.rows), held.for_student())(public.inputs)
            rows = least_sure(everywhere, scaled, size, taken=held.rows, key=seed)
            told = everywhere[rows]
        held = _joined(held, Bought(rows, ask(rows, told), told))
    return held


def _nothing(classes: int) -> Bought:
    nobody = Answers(jnp.zeros(0, jnp.int32), jnp.zeros(0, bool))
    return Bought(np.zeros(0, np.int64), nobody, np.zeros((0, classes), np.float32))


def _joined(held: Bought, new: Bought) -> Bought:
    if new.answers.probabilities is not None:
        raise PateError(
            "rounds put labels together, and soft answers were given: ask all at once, or for labels"
        )
    return jax.tree.map(lambda old, more: np.concatenate([old, np.asarray(more)]), held, new)


def _reordered(public: PublicInputs, rows: np.ndarray) -> PublicInputs:
    """The inputs asked about first, all others behind them, for students that learn from those too."""
    rest = np.setdiff1d(np.arange(len(public.inputs)), rows)
    return public._replace(inputs=public.inputs[np.concatenate([rows, rest])])


def _random(key: bytes) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "little"))


def _points(inputs: np.ndarray) -> np.ndarray:
    """The inputs in the few directions along which they spread most (principal components, not scaled)."""
    flat = np.ascontiguousarray(inputs, np.float32).reshape(len(inputs), -1)
    flat = flat - flat.mean(0, dtype=np.float64).astype(np.float32)
    if flat.shape[1] <= _DIRECTIONS:
        return flat
    start = np.random.default_rng(0).standard_normal((flat.shape[1], _DIRECTIONS)).astype(np.float32)
    return flat @ eigen.leading(flat, start, 4)  # turns enough to order the directions that matter
