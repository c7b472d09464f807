"""From cells to rows: all settings of a votes file answered in one program and accounted for in one call.

The answers of many settings of one votes file are one program, spread over the devices.
Each setting draws noise from a key of its own, which its digest and the seed decide: its answers do not
depend on which other settings it shares a program with. The keys are seeded, so none of these answers may
leave: they serve to judge settings.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import __version__, aggregate
from pate_jax.accounting.many import many
from pate_jax.aggregate import Answers, chacha, of_histograms
from pate_jax.aggregate.answers import Sampler
from pate_jax.mechanisms import Mechanism, to_dict
from pate_jax.student import StudentConfig
from pate_jax.sweep import students, vote_sources
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.results import Row
from pate_jax.sweep.vote_sources import Source, content_digest
from pate_jax.voting import Votes

_TOGETHER, _TABLES = 1000, 200  # settings in one program; fewer where each has a table of its noise
_OF_SETTING = ("exact", "exact_order")  # which lines add to the row of a setting later


def versions() -> dict[str, str]:
    """The versions that a row was made with.

    >>> sorted(versions())
    ['jax', 'numpy', 'pate_jax', 'python']
    """
    return {
        "pate_jax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


class Judged(NamedTuple):
    """Cells of one source that are judged together."""

    source: Source
    cells: Sequence[Cell]


class Taught(NamedTuple):
    """A cell whose student is to be trained; its setting was judged before, in this row."""

    source: Source
    cell: Cell
    row: Row
    config: StudentConfig
    positive: str | None


def judge(some: Sequence[Judged]) -> list[dict[str, Any]]:
    """The rows of these cells, whose teachers vote now if they have not yet."""
    rows = []
    for source, cells in some:
        votes, sizes = source.votes(), sorted({cell.queries for cell in cells})
        for alike in _together(list(dict.fromkeys(cell.mechanism for cell in cells))):
            these = [cell for cell in cells if cell.mechanism in alike]
            rows += _rows(source, these, alike, votes, sizes)
    return rows


def teach(one: Taught) -> dict[str, Any]:
    """The row of a cell with its student, which is trained."""
    told = {name: value for name, value in one.row.items() if name not in _OF_SETTING}
    cell, (votes, lesson) = one.cell, vote_sources.lesson(one.source)
    own = {"cell": cell.digest, "student": cell.student, "lesson": cell.lesson, "versions": versions()}
    return {**told, **own, **_taught(cell, votes, lesson, one.config, one.positive)}


def _together(mechanisms: Sequence[Mechanism]) -> Iterable[dict[Mechanism, int]]:
    """The mechanisms by kind, in parts that fit into one program, with the place of each."""
    kinds: dict[type, list[Mechanism]] = {}
    for mechanism in mechanisms:
        kinds.setdefault(type(mechanism), []).append(mechanism)
    for some in kinds.values():
        size = _TABLES if some[0].noise.is_discrete else _TOGETHER
        for start in range(0, len(some), size):
            yield {mechanism: place for place, mechanism in enumerate(some[start : start + size])}


def _rows(
    source: Source, cells: Sequence[Cell], some: dict[Mechanism, int], votes: Votes, sizes: list[int]
) -> list[dict[str, Any]]:
    first = {cell.mechanism: cell for cell in reversed(cells)}
    words = [first[mechanism].words("noise") for mechanism in some]
    counted = tallies(list(some), votes.votes, votes.labels, sizes, words)
    settings = list(dict.fromkeys((cell.mechanism, cell.queries) for cell in cells))
    costs = many(
        [mechanism for mechanism, _ in settings],
        votes.votes,
        cells[0].delta,
        queries=[queries for _, queries in settings],
    )
    place_of = {setting: place for place, setting in enumerate(settings)}
    made, content = versions(), content_digest(votes)
    rows = []
    for cell in cells:
        row, column = some[cell.mechanism], sizes.index(cell.queries)
        at = place_of[cell.mechanism, cell.queries]
        answered = int(counted.answered[row, column])
        right = None if votes.labels is None else int(counted.right[row, column])
        rows.append(
            {
                "cell": cell.digest,
                "name": source.name,
                "source": cell.source,
                "judged_on": source.judged_on,
                "teachers": cell.teachers,
                "classes": int(votes.votes.shape[1]),
                "mechanism": to_dict(cell.mechanism),
                "queries": cell.queries,
                "delta": cell.delta,
                "seed": cell.seed,
                "net": source.net,
                "selection": source.selection,
                "student": None,
                "answered": answered,
                "right": right,
                "label_accuracy": None if right is None or not answered else right / answered,
                "plurality_agreement": int(counted.same[row, column]) / answered if answered else None,
                "student_accuracy": None,
                "expected_answers": float(costs.answered[at]),
                "published": _finite(costs.published[at]),
                "published_order": float(costs.published_order[at]),
                "data_independent": _finite(costs.data_independent[at]),
                "basis": costs.basis[at],
                "votes": content,
                "versions": made,
            }
        )
    return rows


def _taught(
    cell: Cell, votes: Votes, lesson: students.Lesson, config: StudentConfig, positive: str | None
) -> dict[str, Any]:
    answers = answers_to(cell.mechanism, votes.votes, cell.words("noise"))
    asked = Answers(answers.labels[: cell.queries], answers.answered[: cell.queries])
    if answers.counts is not None:
        asked = of_histograms(answers.counts[: cell.queries], cell.mechanism, cell.teachers)
    key = jax.random.key(int.from_bytes(bytes.fromhex(cell.digest[:8]), "big"))
    return students.measures(key, lesson, asked, str(cell.student), config, positive)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# Noisy counts that a device holds at a time: what stays in a core's cache, or fills an accelerator (a guess).
_AT_ONCE = {"cpu": 1 << 17}
_AT_ONCE_ELSEWHERE = 1 << 25
REST = -1  # stands for a true label that is not known


class Tallies(NamedTuple):
    """What each setting [S] gives for the first queries, in K numbers of them."""

    answered: np.ndarray | jax.Array  # [S, K]
    right: np.ndarray | jax.Array  # [S, K]: answers that are the true label
    same: np.ndarray | jax.Array  # [S, K]: answers that are the teachers' own first class


def keys_of(words: Sequence[np.ndarray]) -> jax.Array:
    """Seeded keys from eight words each."""
    keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(np.stack(words)), impl=chacha.SEEDED)
    return keys


def tallies(
    mechanisms: Sequence[Mechanism],
    votes: np.ndarray,
    labels: np.ndarray | None,
    sizes: Sequence[int],
    words: Sequence[np.ndarray],
) -> Tallies:
    """Answer every query under every setting of one kind, and count.

    >>> from pate_jax.mechanisms import GNMax
    >>> settings, votes = [GNMax(1.0), GNMax(2.0)], np.array([[90, 10], [20, 80]])
    >>> words = np.arange(16, dtype=np.uint32).reshape(2, 8)
    >>> counted = tallies(settings, votes, np.array([0, 0]), [1, 2], words)
    >>> counted.answered.tolist(), counted.right.tolist()
    ([[1, 2], [1, 2]], [[1, 1], [1, 1]])
    """
    devices = min(len(jax.local_devices()), len(mechanisms))
    padding = -len(mechanisms) % devices
    stacked = aggregate.prepare([*mechanisms, *mechanisms[:padding]])
    keys = keys_of([*words, *words[:padding]])
    truth = np.full(len(votes), REST) if labels is None else labels
    at_once = _AT_ONCE.get(jax.default_backend(), _AT_ONCE_ELSEWHERE)
    counted = _program(devices, max(1, at_once // votes.size))(
        stacked,
        keys,
        jnp.asarray(votes, jnp.int32),
        jnp.asarray(truth, jnp.int32),
        jnp.asarray(sizes, jnp.int32),
    )
    return Tallies(*(np.asarray(part)[: len(mechanisms)] for part in counted))


def answers_to(mechanism: Mechanism, votes: np.ndarray, words: np.ndarray) -> aggregate.Answers:
    """The answers that `tallies` counted for one setting."""
    return aggregate.answer(mechanism, jnp.asarray(votes, jnp.int32), key=keys_of([words])[0])


@lru_cache(maxsize=8)
def _program(devices: int, at_once: int) -> Callable[..., Tallies]:
    """The compiled count for settings spread over this many devices."""

    def count(
        samplers: Sampler, keys: jax.Array, votes: jax.Array, truth: jax.Array, sizes: jax.Array
    ) -> Tallies:
        first = votes.argmax(1)
        within = jnp.arange(votes.shape[0]) < sizes[:, None]

        def one(pair: tuple[Sampler, jax.Array]) -> Tallies:
            sampler, key = pair
            answers = aggregate.answer(sampler, votes, key=key)
            parts = (answers.answered, answers.labels == truth, answers.labels == first)
            return Tallies(*((within & part & answers.answered).sum(1) for part in parts))

        batch = None if at_once == 1 else min(at_once, keys.shape[0])
        counted: Tallies = jax.lax.map(one, (samplers, keys), batch_size=batch)
        return counted

    if devices == 1:
        return jax.jit(count)
    mesh = jax.make_mesh(
        (devices,),
        ("settings",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.local_devices()[:devices],
    )
    split, whole = jax.sharding.PartitionSpec("settings"), jax.sharding.PartitionSpec()
    return jax.jit(
        jax.shard_map(
            count, mesh=mesh, in_specs=(split, split, whole, whole, whole), out_specs=split, check_vma=False
        )
    )
