"""Which public inputs a batch of queries is taken from, and which were asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax import data
from pate_jax.data import duplicates, overlap, survey
from pate_jax.data.dataset import stored_as
from pate_jax.errors import PateError
from pate_jax.runs import answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.record import stage_of
from pate_jax.student.selection import Selection
from pate_jax.student.selection import select as select_rows
from pate_jax.system import progress
from pate_jax.voting import Votes


class Spacing(NamedTuple):
    """How far a query must be from all others."""

    ruler: overlap.Ruler
    distance: float  # in units of the typical one
    before: np.ndarray | None = None  # inputs that were asked about already


def spacing(inputs: Inputs, distance: float | None, batch: int = 1) -> Spacing | None:
    """The spacing of a batch, by public inputs alone; None where no distance was asked for."""
    if distance is None:
        return None
    ruler = ruler_of(inputs.dataset)
    if ruler.typical == 0:
        raise PateError(
            f"--min-distance {distance:g} has no unit: most public inputs of a sample are copies of another "
            "one, but for their place in the image: leave such copies out of the public part"
        )
    return Spacing(ruler, distance, asked_inputs(inputs).inputs if batch > 1 else None)


def ruler_of(dataset: data.Dataset) -> overlap.Ruler:
    """What distances between the inputs of a run are measured by."""
    return overlap.ruler(dataset.public.inputs, dataset.preprocessing)


def near(dataset: data.Dataset, asked: data.Part) -> int:
    """How many of the different inputs asked about are near-duplicates of an earlier one."""
    return ruler_of(dataset).near(asked.inputs[duplicates.unique_queries(asked.inputs).first_rows])


def tell_near(inputs: Inputs, asked: data.Part, batch: int = 1) -> None:
    """Say how many near-duplicates a batch has, of earlier batches too, before it is asked and charged."""
    before = asked_inputs(inputs).inputs if batch > 1 else None
    found = len(asked.ids) - len(ruler_of(inputs.dataset).apart(asked.inputs, overlap.NEAR, before))
    if found:
        progress.say(
            f"{found} of the {len(asked.ids)} queries are near-duplicates of an earlier one: an answer to "
            f"each is charged and teaches little; --min-distance {overlap.NEAR} leaves them out"
        )


def distance_of(run: RunDirectory, batch: int, given: float | None) -> float | None:
    """The least distance of a batch: that of the first one, where it has one, or as given."""
    settings = run.record.read()
    first = settings.vote(1).min_distance if batch > 1 and "vote" in settings else None
    if first is not None and given not in (None, first):
        raise PateError(
            f"--min-distance {given:g} is not the {first:g} with which {run.root} began: leave it out"
        )
    return given if first is None else first


def public_parts(inputs: Inputs) -> dict[str, data.Part]:
    """Every part that must not hold private inputs, further public ones among them."""
    settings = inputs.run.record.read()
    further = {
        f"further public part of batch {batch}": pool_of(inputs.dataset, settings.vote(batch).public)
        for batch in range(2, inputs.run.batches + 1)
        if stage_of("vote", batch) in settings and settings.vote(batch).public is not None
    }
    return {**overlap.parts(inputs.dataset), **further}


def pool_of(dataset: data.Dataset, public: Path | None) -> data.Part:
    """The public part of a run, or that of a file of further public inputs."""
    return dataset.public if public is None else further(dataset, public).public


def further(dataset: data.Dataset, public: Path) -> data.Dataset:
    """The data set of a file of further public inputs, in the type that the run stores."""
    found = data.pool(public, classes=dataset.classes)
    pool, stored = found.public, dataset.public.inputs
    if pool.inputs.shape[1:] != stored.shape[1:]:
        raise PateError(
            f"{public} has inputs of shape {pool.inputs.shape[1:]}, where the teachers of this run take "
            f"{stored.shape[1:]}: give inputs that were made like those of the run"
        )
    pool = pool._replace(inputs=stored_as(pool.inputs, stored.dtype, str(public)))
    beside = survey.beside(dataset, {str(public): pool})
    if dataset.equal_ids != "declared":
        overlap.refuse_people(beside, {str(public): pool})
    if dataset.equal_rows != "declared":
        overlap.refuse(beside, {str(public): pool})
    return replace(found, public=pool)


def different(pool: data.Part, wanted: int, known: list[str], spacing: Spacing | None = None) -> np.ndarray:
    """The rows that differ from each other and from the known; refused if there are fewer than wanted."""
    rows = duplicates.unique_queries(pool.inputs).first_rows
    rows = rows[~duplicates.repeats(pool.inputs[rows], known)] if known else rows
    if spacing is not None:
        rows = rows[spacing.ruler.apart(pool.inputs[rows], spacing.distance, spacing.before)]
    if len(rows) < wanted and spacing is not None:
        raise PateError(
            f"queries={wanted} is more than the {len(rows)} public inputs that are at least "
            f"{spacing.distance:g} typical distances from each other and from those asked about before: ask "
            "for fewer, or lower --min-distance"
        )
    if len(rows) < wanted:
        raise PateError(
            f"queries={wanted} is more than the {len(rows)} different public inputs"
            f"{' that were not asked about yet' if known else ''}; ask for fewer"
        )
    return rows


def select(
    pool: data.Part,
    preprocessing: data.Preprocessing,
    wanted: int,
    chosen_by: Selection = "first",
    key: bytes = b"",
    seen: np.ndarray | None = None,
) -> data.Part:
    """Inputs chosen from a pool of `different` ones; `seen` is how linear teachers see them."""
    if chosen_by == "space" and seen is not None:
        return pool.take(select_rows("kmeans", seen, wanted, key=key))
    return pool.take(select_rows(chosen_by, pool.inputs, wanted, key=key, preprocessing=preprocessing))


def unasked(public: data.Part, asked: data.Part) -> np.ndarray:
    """The inputs of the public part that were not asked about.

    Ids of further pools may be those of other inputs here, so an input is known by its id and its content.

    >>> public = data.Part(np.array([[1.0], [2.0]]), None, np.array(["row-0", "row-1"]))
    >>> further = data.Part(np.array([[2.0], [3.0]]), None, np.array(["row-1", "row-0"]))
    >>> unasked(public, further).tolist()
    [[1.0]]
    """
    asked_about = set(zip(asked.ids.tolist(), duplicates.digests(asked.inputs), strict=True))
    names = zip(public.ids.tolist(), duplicates.digests(public.inputs), strict=True)
    rest: np.ndarray = public.inputs[np.array([name not in asked_about for name in names], bool)]
    return rest


def asked_inputs(inputs: Inputs) -> data.Part:
    """The inputs that were asked about, batch after batch."""
    run, settings, parts = inputs.run, inputs.run.record.read(), []
    for line in answers.asked(run):
        public, votes = settings.vote(line.batch).public, answers.load_batch(run, line)
        pool = pool_of(inputs.dataset, public)
        part = pool.take(rows_of(pool.ids, votes.ids))
        if not inputs.tolerant and not _voted_on(part, votes):
            raise PateError(
                f"{public or 'the public part'} holds other inputs than those that batch {line.batch} of "
                f"{run.root} voted on: restore it"
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else _together(parts)


def _voted_on(part: data.Part, votes: Votes) -> bool:
    """Whether inputs are those that votes were cast on, as far as these say so."""
    return votes.digests is None or votes.digests.tolist() == duplicates.digests(part.inputs)


def rows_of(ids: np.ndarray, wanted: np.ndarray | None) -> np.ndarray:
    """The rows of a pool that votes were cast on, by their ids."""
    if wanted is None:
        raise PateError("the votes file names no inputs: run `pate vote` anew in another run directory")
    place = {name: row for row, name in enumerate(ids.tolist())}
    missing = [name for name in wanted.tolist() if name not in place]
    if missing:
        raise PateError(f"public input {missing[0]!r} was voted on but is not in the public part; restore it")
    return np.array([place[name] for name in wanted.tolist()])


def _together(parts: list[data.Part]) -> data.Part:
    labels = [part.labels for part in parts if part.labels is not None]
    all_labels = np.concatenate(labels) if len(labels) == len(parts) else None
    inputs, ids = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "ids"))
    features = [part.features for part in parts if part.features is not None]
    all_features = np.concatenate(features) if len(features) == len(parts) else None
    return data.Part(inputs, all_labels, ids, None, all_features)


def named(public: Path | None, distance: float | None = None) -> dict[str, str | float]:
    """A file of public inputs and a least distance as the settings record them.

    >>> named(None), named(None, 0.5)
    ({}, {'min_distance': 0.5})
    """
    found: dict[str, str | float] = {} if public is None else {"public": str(public.resolve())}
    return found if distance is None else found | {"min_distance": distance}
