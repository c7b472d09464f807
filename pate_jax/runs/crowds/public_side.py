"""The public side of a crowd's run as a file: space, weights, queries and release, without a private record.

It is made once from the public part and settings, kept, and read whenever the run goes on, so that a later
version that would make another one does not change what voters were compared in. Its digest names the noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pate_jax.crowd.neighbours import Queries
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.steps import Steps
from pate_jax.crowd.vectors import Scaling
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.mechanisms import crowds, to_dict
from pate_jax.models.spaces.space import arrays_of, space_of
from pate_jax.system import storage

_KIND = "public-side"
SPACE = "space/"  # before the names of the space's own arrays
STEPS = "steps/"  # before the names of what follows the first table


def arrays(plan: Plan, preprocessing: Preprocessing) -> dict[str, np.ndarray]:
    """All that a plan says, as arrays by their names; an encoder is known by its name alone."""
    scaling, queries = plan.scaling, plan.queries
    found = {
        "release": np.array(json.dumps(to_dict(plan.release), sort_keys=True)),
        "offset": np.array(preprocessing.offset),
        "scale": np.array(preprocessing.scale),
        "weights": scaling.weights,
        "bounds": np.array([scaling.length, scaling.constant]),
    }
    if queries is not None:
        found |= {"rows": queries.rows, "vectors": queries.vectors, "offsets": queries.offsets}
    found |= {f"{SPACE}{name}": array for name, array in arrays_of(plan.space).items()}
    if plan.weights is not None:
        found["slope"] = plan.weights
    return found | ({} if plan.steps is None else _of_steps(plan.steps))


def _of_steps(steps: Steps) -> dict[str, np.ndarray]:
    """What the steps behind the first table are; their space is that of the table, with other directions."""
    space = {f"{STEPS}{SPACE}{name}": array for name, array in arrays_of(steps.space).items()}
    return space | {
        f"{STEPS}number": np.array(steps.number),
        f"{STEPS}strength": np.array(steps.strength),
        f"{STEPS}rate": np.array(steps.rate),
        f"{STEPS}release": np.array(json.dumps(to_dict(steps.release), sort_keys=True)),
        f"{STEPS}weights": steps.scaling.weights,
        f"{STEPS}bounds": np.array([steps.scaling.length, steps.scaling.constant]),
    }


def steps_in(made: Mapping[str, np.ndarray]) -> int:
    """How many tables a run with this public side releases."""
    return int(made.get(f"{STEPS}number", 1))


def of_step(step: int, weights: np.ndarray, first: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The public side of a later step: its number, its weights, and a digest of what it shares with all."""
    return {"step": np.array(step), "slope": weights, "first": np.array(digest(first))}


def digest(made: Mapping[str, np.ndarray]) -> str:
    """A digest of names and arrays.

    >>> digest({"a": np.zeros(2)}) == digest({"b": np.zeros(2)})
    False
    """
    names = sorted(made)
    return storage.digest(np.array(names), *(made[name] for name in names))


def write(path: Path, made: Mapping[str, np.ndarray]) -> None:
    """Keep them in the run."""
    storage.write_arrays(path, _KIND, made, compressed=False)


def read(path: Path) -> dict[str, np.ndarray]:
    """What `write` has kept."""
    return storage.read_arrays(path, _KIND)


def packed(made: Mapping[str, np.ndarray]) -> bytes:
    """They as bytes, for another process."""
    return bytes(storage.pack_arrays(_KIND, made, compressed=False))


def unpacked(content: bytes) -> Plan:
    """The plan that another process has packed."""
    source = Path("what the first process sent")
    return plan_of(storage.parse_arrays(content, source, _KIND), source)


def plan_of(made: Mapping[str, np.ndarray], path: Path) -> Plan:
    """The plan that `arrays` described."""
    try:
        preprocessing = Preprocessing(tuple(made["offset"].tolist()), tuple(made["scale"].tolist()))
        own = {name.removeprefix(SPACE): made[name] for name in made if name.startswith(SPACE)}
        length, constant = made["bounds"].tolist()
        scaling = Scaling(made["weights"], length, constant)
        there = "rows" in made
        queries = Queries(made["rows"], made["vectors"], made["offsets"], scaling) if there else None
        release = crowds.from_dict(storage.parse_json(str(made["release"]), path))
        if not isinstance(release, crowds.ClassSums | crowds.NeighbourCounts):
            raise ValueError("the release is no table")
        steps = _steps_of(made, preprocessing, path) if f"{STEPS}number" in made else None
        return Plan(space_of(own, preprocessing), scaling, queries, release, steps, made.get("slope"))
    except (KeyError, TypeError, ValueError) as error:
        raise PateError(f"{path} holds no public side ({error}): restore it from a backup") from error


def _steps_of(made: Mapping[str, np.ndarray], preprocessing: Preprocessing, path: Path) -> Steps:
    front = f"{STEPS}{SPACE}"
    own = {name.removeprefix(front): made[name] for name in made if name.startswith(front)}
    if f"{STEPS}strength" not in made:
        raise PateError(
            f"{path} plans steps by the rule of an earlier version: begin a new run (another --out)"
        )
    length, constant = made[f"{STEPS}bounds"].tolist()
    release = crowds.from_dict(storage.parse_json(str(made[f"{STEPS}release"]), path))
    if not isinstance(release, crowds.ClassSums):
        raise ValueError("the release of its steps is no sum")
    scaling = Scaling(made[f"{STEPS}weights"], length, constant)
    number = int(made[f"{STEPS}number"])
    strength, rate = (float(made[f"{STEPS}{name}"]) for name in ("strength", "rate"))
    return Steps(number, strength, space_of(own, preprocessing), scaling, release, rate)
