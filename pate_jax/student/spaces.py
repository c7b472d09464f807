"""Spaces that training makes, beside those of `models.spaces`: a net taught by contrast, or a student.

Both have seen public inputs and released answers only, so a space of them costs nothing more: voters of the
next round, the choice of queries and the next student may all use it.
"""

from __future__ import annotations

import json

import jax
import numpy as np
from jaxtyping import Int

from pate_jax.models.spaces.fronts import Front, Net
from pate_jax.models.spaces.space import Kind, Learned, Space, front_of, over, over_pool
from pate_jax.student import contrast
from pate_jax.student.lesson import PublicInputs
from pate_jax.student.serving import Student, check_inputs


def learn(
    kind: Kind, public: PublicInputs, *, key: jax.Array, directions: int = 400, encoder: str = ""
) -> Space:
    """The space of this kind that public inputs teach; `key` is read where a net has to be trained.

    >>> from pate_jax.data import Preprocessing
    >>> pool = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * [9, 1, 3]
    >>> public = PublicInputs(pool, Preprocessing((0.0,), (1.0,)), 2, ("no", "yes"))
    >>> learn("identity", public, key=jax.random.key(0)).description().directions
    3
    """
    return over(_front_of(kind, public, key, encoder), public.inputs, directions)


def learned(
    kind: Kind,
    public: PublicInputs,
    *,
    key: jax.Array,
    directions: int = 400,
    encoder: str = "",
    number: int | None = None,
) -> Learned:
    """The same space, and where all public inputs lie in it; so many records will be looked at (`effort`)."""
    return over_pool(_front_of(kind, public, key, encoder, number), public.inputs, directions)


def front(student: Student) -> Net:
    """What the last layer of a student reads, each input by itself."""
    return Net("student", json.dumps(student.description), student.parameters, student.preprocessing)


def space(student: Student, public: np.ndarray, *, directions: int = 400) -> Space:
    """The space of what a student's last layer reads: the next round's, once the student is public.

    `public` are the inputs that its middle and its directions are learned from.
    """
    return over(front(student), check_inputs(student, public), directions)


def labels(student: Student, inputs: np.ndarray) -> Int[np.ndarray, " record"]:
    """The label that a student gives each input, bit for bit a function of that input alone.

    `Student.__call__` is faster: it looks at many inputs in one product, where the last bit of one may
    depend on its place.
    """
    return front(student).labels(check_inputs(student, inputs))


def _front_of(
    kind: Kind, public: PublicInputs, key: jax.Array, encoder: str, number: int | None = None
) -> Front:
    if kind == "contrast":
        return contrast.learn(public.inputs, public.preprocessing, key=key)
    return front_of(kind, public.inputs, public.preprocessing, encoder=encoder, number=number)
